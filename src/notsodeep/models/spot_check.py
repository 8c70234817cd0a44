"""A few pairs of every kernel recomputed by quadrature of its own, which shares nothing with `duals/`.

While tiles are computed, the pairs with the largest and the smallest correlation, the pairs with the largest and the
smallest variances, and a pair at random are noted, with their F and F'.  A few of them are then recomputed:
E[φ(u)φ(v)] and E[φ'(u)φ'(v)] are integrated by Gauss–Legendre rules on panels.  Every model computes its kernels from
F and F', so that every model is checked here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.sides import Side
from notsodeep.duals.strips import OPTIONS
from notsodeep.gaussian.activations import Activation
from notsodeep.validation import Array

# Gauss-Legendre nodes of a panel, and how many standard deviations the panels cover.
NODES, REACH = 16, 9.0
# The longest panel in units of the narrowest Gaussian factor, and the growth of panels away from the features of φ.
LONGEST, GROWTH = 4.0, 4.0
# Widths of v|u, in units of v, below which the inner integral follows the ridge, and below which it is a point.
RIDGE, POINT = 0.3, 1e-12
# Accuracy of this quadrature, relative to √(S S').
OWN = 4e-12
ROUNDING = 8 * 2.0**-52
# Probability of a normal variable beyond REACH.
BEYOND = 2e-19
# Panels of a line, at most: what oscillates faster is not recomputed.
MOST_PANELS = 150
# Variances below this are zero.
SMALLEST = 1e-200
# Pairs recomputed of a kernel of at most so many entries.
RECOMPUTED = ((100_000, 5), (5_000_000, 8), (np.inf, 16))
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(NODES)


def _panel_rule(edges: Array, halvings: int) -> tuple[Array, Array]:
    """Nodes and weights on the panels between sorted edges, each cut in two `halvings` times."""
    for _ in range(halvings):
        edges = np.sort(np.concatenate([edges, 0.5 * (edges[1:] + edges[:-1])]))
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    return (middle[:, None] + half[:, None] * POINTS).reshape(-1), (half[:, None] * WEIGHTS).reshape(-1)


def _steps(first: float, last: float) -> Array:
    """0, first, GROWTH first, … up to beyond `last`, with both signs."""
    count = max(1, int(np.ceil(np.log(max(last / first, 1.0)) / np.log(GROWTH))) + 1)
    steps = first * GROWTH ** np.arange(count)
    return np.concatenate([-steps[::-1], steps])


def _marks(phi: Activation, reach: float) -> Array:
    """Where panels of φ(x), |x| ≤ reach, end: kinks, and a grading away from the features of φ."""
    shape, gain = phi.shape, abs(phi.gain) or 1.0
    kinks = np.array(phi.kinks)
    if shape.pieces is not None:
        return kinks
    if shape.features_anywhere:
        return np.concatenate([kinks, shape.breakpoints(reach * gain) / gain])
    if shape.quarter is not None:
        # A wave goes on for ever.
        steps = min(int(reach * gain / LONGEST) + 1, MOST_PANELS)
        return np.asarray(LONGEST / gain * np.arange(-steps, steps + 1), dtype=np.float64)
    return np.concatenate([kinks, _steps(shape.feature / gain, reach)])


def _edges(places: list[Array], longest: float) -> Array:
    """Sorted edges of panels over ±REACH, none longer than `longest`."""
    even = np.linspace(-REACH, REACH, 1 + int(np.ceil(2.0 * REACH / longest)))
    edges = np.concatenate([even, *places])
    return np.unique(edges[np.abs(edges) <= REACH])


def moments(phi: Activation, variances: Array, halvings: int = 0) -> tuple[Array, Array]:
    """S = E[φ(u)²] and E1 = E[φ'(u)²] for each variance."""
    results = []
    for scale in np.sqrt(np.maximum(variances, 1e-300)).tolist():
        points, weights = _panel_rule(_edges([_marks(phi, REACH * scale) / scale], LONGEST), halvings)
        weights = weights * np.exp(-0.5 * points**2) / np.sqrt(2.0 * np.pi)
        results.append((weights @ phi(scale * points) ** 2, weights @ phi.derivative(scale * points) ** 2))
    second, steep = np.array(results).T
    return second, steep


def dual(
    phi: Activation, q1: float, q2: float, c: float, *, slope: bool, halvings: int = 0
) -> tuple[float, float]:
    """F = E[φ(u)φ(v)] and, with `slope`, F' = E[φ'(u)φ'(v)] for variances q1, q2 and the covariance c.

    NaN where φ has more features than panels are affordable.
    """
    s1, s2 = (float(np.sqrt(max(q, 1e-300))) for q in (q1, q2))
    if len(_marks(phi, REACH * max(s1, s2))) > MOST_PANELS:
        return np.nan, np.nan
    rho = min(max(c / (s1 * s2), -1.0), 1.0) if q1 > 0.0 and q2 > 0.0 else 0.0
    width = float(np.sqrt((1.0 - rho) * (1.0 + rho)))
    rule = _on_product if width >= RIDGE else _along_ridge
    return rule(phi, s1, s2, rho, width, slope, halvings)


def _on_product(
    phi: Activation, s1: float, s2: float, rho: float, width: float, slope: bool, halvings: int
) -> tuple[float, float]:
    """A product rule in u and v: φ is evaluated on lines, only the density on the plane."""
    rules = [_panel_rule(_edges([_marks(phi, REACH * s) / s], LONGEST * width), halvings) for s in (s1, s2)]
    (x, wx), (y, wy) = rules
    density = np.multiply.outer(x, y)
    density *= 2.0 * rho
    density -= (x * x)[:, None]
    density -= y * y
    density *= 0.5 / width**2
    np.exp(density, out=density)
    scale = 2.0 * np.pi * width
    value = float((wx * phi(s1 * x)) @ (density @ (wy * phi(s2 * y)))) / scale
    if not slope:
        return value, 0.0
    return value, float((wx * phi.derivative(s1 * x)) @ (density @ (wy * phi.derivative(s2 * y)))) / scale


def _along_ridge(
    phi: Activation, s1: float, s2: float, rho: float, width: float, slope: bool, halvings: int
) -> tuple[float, float]:
    """E over u of φ(u) E[φ(v) | u], for v|u much narrower than v."""
    places = [_marks(phi, REACH * s) / t for s, t in ((s1, s1), (s2, s2 * rho))]
    if phi.kinks and width > POINT:
        # A kink of φ(v) seen through v|u is a feature of that width.
        layer = _steps(width, REACH)
        places += [kink / (s2 * rho) + layer for kink in phi.kinks]
    x, weights = _panel_rule(_edges(places, LONGEST), halvings)
    weights = weights * np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    centre, spread, functions = s2 * rho * x, s2 * width, (phi, phi.derivative)[: 1 + slope]
    if width <= POINT:
        inner = [function(centre) for function in functions]
    else:
        bell = np.linspace(-REACH, REACH, 1 + int(2.0 * REACH / LONGEST) * 2**halvings)
        marks = np.unique(_marks(phi, 2.0 * REACH * s2))
        # Only marks within the reach of v|u of some node matter.
        near = np.abs(marks - centre[:, None]) < REACH * spread
        marks = marks[near.any(axis=0)]
        edges = np.clip((marks - centre[:, None]) / spread, -REACH, REACH)
        edges = np.concatenate([np.broadcast_to(bell, (len(x), len(bell))), edges], axis=1)
        edges.sort(axis=1)
        half = 0.5 * np.diff(edges, axis=1)
        row, column = np.nonzero(half > 0.0)
        half = half[row, column, None]
        y = edges[row, column, None] + half * (1.0 + POINTS)
        v = centre[row, None] + spread * y
        density = half * WEIGHTS * np.exp(-0.5 * y**2) / np.sqrt(2.0 * np.pi)
        inner = [
            np.asarray(
                np.bincount(row, np.einsum("ij,ij->i", density, function(v)), len(x)), dtype=np.float64
            )
            for function in functions
        ]
    results = [
        float(weights @ (function(s1 * x) * mean)) for function, mean in zip(functions, inner, strict=True)
    ]
    return results[0], results[1] if slope else 0.0


class SpotCheck:
    """The pairs of one activation that are noted while tiles are computed; `add` is called from several threads.

    Args:
        phi: the activation.
        tangent: F' is needed too.
        tolerance: accepted error of F and F' at the solution of an equation.
    """

    def __init__(self, phi: Activation, tangent: bool, tolerance: float = 0.0) -> None:
        self.phi, self.tangent, self.tolerance = phi, tangent, tolerance
        self.parts: list[Array] = []

    def add(
        self, left: Side, right: Side, covariance: Array, value: Array, slope: Array, number: int = 0
    ) -> Array:
        """Note the extreme pairs of a stack of tiles and one at random, and return them.

        Args:
            left: the rows.
            right: the columns.
            covariance: covariances (stack, n, m); zero for pairs that are not computed.
            value: F.
            slope: F'.
            number: of this tile among all: another pair in each, and the same one in every run.
        """
        if self.phi.amplitude == 0.0 or self.phi.gain == 0.0:
            return np.zeros((5, 1))
        chance = (12_345 + 7919 * number) % covariance.size
        noted = _noted(left.root, right.root, covariance, value, slope, chance)
        self.parts.append(noted)
        return np.asarray(noted)

    def differences(self, count: int, bound: float) -> tuple[Array, int]:
        """Differences of at most `count` pairs, the extreme ones of all tiles and some at random, from F and F'.

        They are relative to √(S S') and √(E1 E1'), and NaN where a pair could not be recomputed.  The number is
        that of pairs whose difference neither the stated bound nor rounding explains.
        """
        pairs = np.concatenate(self.parts, axis=1) if self.parts else np.empty((5, 0))
        # A pair that was not computed, or has no signal, has the covariance zero.
        pairs = pairs[:, pairs[2] != 0.0]
        if not pairs.shape[1]:
            return np.zeros(0), 0
        rho, size, ratio = (
            pairs[2] / np.sqrt(pairs[0]) / np.sqrt(pairs[1]),
            pairs[0] * pairs[1],
            pairs[0] / pairs[1],
        )
        extreme = [
            rho.argmax(), rho.argmin(), size.argmax(), ratio.argmax(), ratio.argmin(), size.argmin(),
        ]  # fmt: skip
        others = np.random.default_rng(pairs.shape[1]).permutation(pairs.shape[1])[:count]
        chosen = pairs[:, list(dict.fromkeys(int(one) for one in (*extreme, *others)))[:count]]
        compared, rounding = self._compare(chosen, 0)
        beyond = compared > bound + rounding
        if beyond.any():
            # Doubt the check first: with all its panels halved.
            compared, rounding = self._compare(chosen[:, beyond], 1)
            beyond = compared > bound + rounding
        return compared, int(beyond.sum())

    def _compare(self, pairs: Array, halvings: int) -> tuple[Array, Array]:
        """Differences of F and F' of pairs (variances, covariance, F, F'), and what rounding of Λ explains of them."""
        phi, variances, covariance = self.phi, pairs[:2], pairs[2]
        second, steep = (part.reshape(2, -1) for part in moments(phi, variances.reshape(-1), halvings))
        energy, speed = (np.maximum(np.sqrt(part[0] * part[1]), 1e-300) for part in (second, steep))
        results = np.array(
            [dual(phi, *one, slope=self.tangent, halvings=halvings) for one in pairs[:3].T.tolist()]
        )
        results[_is_beyond_reach(phi, variances, second, steep).any(axis=0)] = np.nan
        # Of a variable without variance nothing is integrated.
        size = np.where(energy > SMALLEST, energy, np.inf)
        differences = np.abs(results[:, 0] - pairs[3]) / size
        rounding = OWN + self.tolerance + ROUNDING * np.sqrt(variances[0] * variances[1]) * speed / size
        # An offset may be nearly all of F.
        rounding = rounding + ROUNDING * phi.offset**2 / size
        if self.tangent:
            differences = np.maximum(differences, np.abs(results[:, 1] - pairs[4]) / speed)
            rounding = rounding + _slope_rounding(phi, variances, covariance, speed)
        return differences, rounding


def _is_beyond_reach(phi: Activation, variances: Array, second: Array, steep: Array) -> Array:
    """Whether the panels leave out more of S or E1 than this quadrature may: of relu(x - 2) at a small variance."""
    ends = np.array([-REACH, REACH])[:, None, None] * np.sqrt(variances)
    with np.errstate(all="ignore"):
        parts = [(phi(ends) ** 2).sum(axis=0) / second, (phi.derivative(ends) ** 2).sum(axis=0) / steep]
    return np.asarray(np.maximum(*parts) * BEYOND > OWN)


@njit(**OPTIONS)
def _noted(left, right, covariance, value, slope, chance):  # type: ignore[no-untyped-def]
    """Variances, covariance, F and F' of seven pairs, (5, 7): extreme variances and correlations, and number `chance`.

    `left` and `right` have √q.
    """
    rows, columns = covariance.shape[1:]
    low, high, least, most = np.argmin(left[0]), np.argmax(left[0]), np.argmin(right[0]), np.argmax(right[0])
    top, bottom = _extremes(covariance, 1.0 / left, 1.0 / right)
    places = (
        low * columns + least, low * columns + most, high * columns + least, high * columns + most, top, bottom, chance,
    )  # fmt: skip
    numbers = np.empty((5, len(places)))
    for k in range(len(places)):
        t, rest = divmod(places[k], rows * columns)
        i, j = divmod(rest, columns)
        numbers[0, k], numbers[1, k] = left[t, i] ** 2, right[t, j] ** 2
        numbers[2, k], numbers[3, k], numbers[4, k] = covariance[t, i, j], value[t, i, j], slope[t, i, j]
    return numbers


@njit(**OPTIONS)
def _extremes(covariance, left, right):  # type: ignore[no-untyped-def]
    """Flat indices of the largest and of the smallest correlation; `left` and `right` have one over the scales."""
    stack, rows, columns = covariance.shape
    highest, lowest, top, bottom = -2.0, 2.0, 0, 0
    for t in range(stack):
        others = right[t]
        for i in range(rows):
            line, own, most, least = covariance[t, i], left[t, i], -2.0, 2.0
            for j in range(columns):
                rho = line[j] * own * others[j]
                most, least = max(most, rho), min(least, rho)
            begin = (t * rows + i) * columns
            if most > highest:
                highest = most
                top = begin + int(np.argmax(line * others))
            if least < lowest:
                lowest = least
                bottom = begin + int(np.argmin(line * others))
    return top, bottom


def _slope_rounding(phi: Activation, variances: Array, covariance: Array, speed: Array) -> Array:
    """How much rounding of a covariance may change F', relative to √(E1 E1')."""
    scale = np.maximum(np.sqrt(variances[0] * variances[1]), 1e-300)
    rho = np.clip(covariance / scale, -1.0, 1.0)
    width = np.sqrt((1.0 - rho) * (1.0 + rho))
    jumps = float(np.sum(np.abs(phi.amplitude * phi.gain * phi.shape.jumps(1)))) if phi.kinks else 0.0
    # At a kink F' moves with the angle; elsewhere no faster than a feature of φ is passed.
    angle = np.minimum(ROUNDING / np.maximum(width, 1e-300), np.sqrt(2.0 * ROUNDING))
    length = phi.shape.feature / max(abs(phi.gain), 1e-300)
    return np.asarray((jumps**2 * angle / speed) + ROUNDING * (1.0 + scale / length**2))


__all__ = ["SpotCheck", "dual", "moments"]
