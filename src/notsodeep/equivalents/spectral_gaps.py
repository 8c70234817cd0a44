"""Where the limiting spectrum of the noise lies, and eigenvalues of the kernel outside of it.

Outside the support g is real, and each gap is one arc of the curve z(g); at its ends dz = 0 along the curve. An edge
is therefore a fold, the zero of a smooth function, found to rounding, and no density is compared with a threshold. Each
gap has its own number of eigenvalues above it (`Noise.above`), so two points with the same
number are in the same gap, two with different numbers are not: the difference is n times the mass between.

Eigenvalues outside the bulk, and how far their eigenvectors point to the classes, are docs/theory.md (6.5) to (6.8).
Everything is in units where τ0 = α₁ = 1. Let E(z) = Ω^{-1} + 𝓑(z), with

    Ω^{-1} = [[0, I, 0], [I, -𝓜ᵀ𝓜 - α₃T, -t], [0, -tᵀ, 1/α₂]],

which is singular where the determinant (6.8) is zero. Its first block is diag(n_a g_a/p); eliminating that
one, and scaling the last row and column by √α₂ (so that α₂ = 0 needs no case of its own), leaves a matrix of
size K+1:

    H(z) = [[-𝓜ᵀR𝓜 - α₃T - diag(p/(n_a g_a)), -√α₂ t], [-√α₂ tᵀ, 1 + α₂ Σ_a (2 n_a T_aa/p) g_a]].

The derivative of 𝓑, the limit of Uᵀ(WWᵀ - z)^{-2}U, is positive semi-definite, and so is that of H. The
sorted eigenvalues of H grow with z: each has at most one zero in a gap, and none can be missed or counted
twice. By the inertia of block matrices the kernel has as many eigenvalues below z as WWᵀ, plus the number
of positive ones among the g_a and the eigenvalues of H, minus K+1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from notsodeep.data import ClassStatistics
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.equivalents.resolvent import (
    Noise,
    equations,
    radius,
    slope,
    solve_line,
    solve_on_axis,
    solve_real,
)
from notsodeep.errors import ConvergenceError
from notsodeep.validation import Array

# The first look at the line: points equally spaced in √x, and some per decade of x for bulks far apart.
_EQUAL_POINTS = 49
_DECADES = np.concatenate([10.0 ** np.arange(-13.0, -4.0), 10.0 ** np.arange(-4.0, 0.0, 0.125)])
_SMALLEST_STEP = 1e-13
_BORDERED_STEPS = 30


@dataclass(frozen=True, eq=False)
class Point:
    """A real solution (z, g) outside the support, or at its edge."""

    z: float
    g: Array


@dataclass(frozen=True, eq=False)
class SpectralGap:
    """An interval without spectrum."""

    above: int  # the number of eigenvalues above it
    inside: Point  # a solution in it
    low: Point | None  # the lower edge, a fold; None for the gap that begins at 0
    high: Point | None  # the upper edge, a fold; None for the gap that has no end

    def at(self, noise: Noise, z: float) -> Array:
        """The solution at a z of the gap, followed from the known one."""
        for edge in (self.low, self.high):
            if edge is not None and edge.z == z:
                return edge.g
        return _follow(noise, self.inside, z, self.above)


def _follow(noise: Noise, start: Point, z: float, count: int) -> Array:
    """Continue from one point of a gap to another, with steps as long as they can be certified."""
    here, fraction = start, 1.0
    while here.z != z:
        target = here.z + fraction * (z - here.z) if fraction < 1.0 else z
        found = _certified(noise, target, here, count)
        if found is None:
            fraction *= 0.5
            if fraction < _SMALLEST_STEP:
                raise _lost(target)
        else:
            here, fraction = found, min(1.0, 2.0 * fraction)
    return here.g


def _certified(noise: Noise, z: float, near: Point, count: int) -> Point | None:
    # Far from the spectrum g is close to -1/z: the product z g changes little where g changes by orders.
    for guess in (near.g * near.z / z, near.g):
        g, stable = solve_real(noise, np.array([z]), guess[None])
        if stable[0] and noise.above(g[0]) == count:
            return Point(z, g[0])
    return None


def find_gaps(noise: Noise, rank: int) -> list[SpectralGap]:
    """All gaps from the lowest to the highest; the last one has no end."""
    z = 1.1 * noise.bound
    inside = Point(z, np.asarray(solve_on_axis(noise, np.array([z])).g.real[0]))
    top = SpectralGap(0, inside, _fold(noise, inside, -1.0, 0), None)
    found = {0: top}
    if rank:
        edge = top.low.z if top.low is not None else 0.0
        equal = (np.arange(1, _EQUAL_POINTS) / _EQUAL_POINTS) ** 2
        points = edge * np.union1d(equal, _DECADES)
        solution = solve_line(noise, points)
        for z, g in zip(points[solution.outside], solution.g.real[solution.outside], strict=True):
            _open(noise, Point(float(z), g), rank, found)
    return sorted(found.values(), key=lambda gap: gap.inside.z)


def with_gaps(noise: Noise, inside: list[Point], rank: int, gaps: list[SpectralGap]) -> list[SpectralGap]:
    """The gaps, with those added to which given points belong."""
    found = {gap.above: gap for gap in gaps}
    for point in inside:
        _open(noise, point, rank, found)
    if len(found) == len(gaps):
        raise _lost(inside[0].z)
    return sorted(found.values(), key=lambda gap: gap.inside.z)


def _open(noise: Noise, inside: Point, rank: int, found: dict[int, SpectralGap]) -> None:
    """Add the gap that a point lies in to those found so far, unless it is one of them."""
    count = noise.above(inside.g)
    if count in found:
        return
    low = None if count == rank else _fold(noise, inside, -1.0, count)
    found[count] = SpectralGap(count, inside, low, _fold(noise, inside, 1.0, count))


# --- edges -------------------------------------------------------------------------------------------
def _fold(noise: Noise, start: Point, direction: float, count: int) -> Point:
    """March along the curve towards smaller or larger z until dz changes sign, then find its zero.

    A weighted sum of the g_a parametrises the curve; unlike z it does not turn at the edge. All g_a grow with z
    inside a gap, so the direction in z is the direction in the sum. The weights follow the tangent, in the scale
    of -1/g_a, so that classes which hardly feel each other stay together.
    """
    here, stride = start, 0.02
    while stride > _SMALLEST_STEP:
        weights = slope(noise, here.z, here.g) / here.g**4
        target = float(weights @ here.g + direction * stride * (weights @ np.abs(here.g)))
        there = _bordered(noise, here, weights, target)
        if there is None or noise.above(there[0].g) != count:
            stride *= 0.5
        elif there[1] <= 0:
            return _zero_of_rate(noise, here, there[0], weights)
        elif radius(noise, there[0].g[None])[0] < 1.0:
            here, stride = there[0], min(1.5 * stride, 0.2)
        else:
            stride *= 0.5
    raise _lost(here.z)


def _bordered(noise: Noise, near: Point, weights: Array, target: float) -> tuple[Point, float] | None:
    """The point (z, g) of the curve with weights·g = target, and the rate of z in the target: Newton."""
    z, g = near.z, near.g
    size = len(g)
    matrix, right = np.zeros((size + 1, size + 1)), np.zeros((size + 1, 2))
    scale = float(np.abs(weights).max())
    matrix[size, :size], right[size, 1] = weights / scale, 1.0 / scale
    for _ in range(_BORDERED_STEPS):
        residual, jacobian = (part[0] for part in equations(noise, np.array([z]), g[None]))
        matrix[:size, :size], matrix[:size, size] = jacobian, g
        right[:size, 0], right[size, 0] = residual, (weights @ g - target) / scale
        try:
            step, rate = np.linalg.solve(matrix, right).T
        except np.linalg.LinAlgError:
            return None
        z, g = z - step[size], g - step[:size]
        moved = float(np.abs(step[:size]).max() / np.abs(g).max())
        if moved <= 1e-12 and float(np.abs(residual).max()) <= 1e-12:
            return Point(float(z), g), float(rate[size])
        if not np.isfinite(moved):
            return None
    return None


def _zero_of_rate(noise: Noise, here: Point, there: Point, weights: Array) -> Point:
    """The fold between two points of the curve, by Brent's method on the rate of z."""
    start, stop = float(weights @ here.g), float(weights @ there.g)

    def at(place: float) -> tuple[Point, float]:
        share = (place - start) / (stop - start)
        near = Point(here.z + share * (there.z - here.z), here.g + share * (there.g - here.g))
        found = _bordered(noise, near, weights, place)
        if found is None:
            raise _lost(near.z)
        return found

    rounding = 4 * np.finfo(float).eps
    return at(float(brentq(lambda place: at(place)[1], start, stop, xtol=1e-300, rtol=rounding)))[0]


def _lost(z: float) -> ConvergenceError:
    return ConvergenceError(
        f"The edge of the spectrum near z = {z:.6g} (in units of τ0²) could not be followed.",
        "Two bulks may be about to touch there: change n or a covariance slightly, and report the case.",
    )


# Roots closer than this, relative, are one root with several eigenvectors.
_SAME_ROOT = 1e-9
# A gap that begins at 0 is searched from this fraction of its length on: what is below belongs to the atom.
_FROM_ZERO = 1e-9


@dataclass(frozen=True, eq=False)
class Perturbation:
    """What a kernel has beyond its noise: means, t, T and ψ, docs/theory.md (6.5)."""

    noise: Noise  # the classes without their means
    trace_part: Array  # α₃T
    norm_part: Array  # √α₂ t
    norm_weights: Array  # α₂ · 2 n_a T_aa/p, the weights of ψ in each class

    @classmethod
    def of(cls, noise: Noise, stats: ClassStatistics, scalars: Coefficients) -> Perturbation:
        """From the scalars of a kernel and the statistics of the classes, in units where τ0 = α₁ = 1."""
        square = stats.tau0**2
        norm, trace = (value * square / scalars.linear for value in (scalars.norm, scalars.trace))
        T = stats.T / square**2
        weights = 2.0 * norm * noise.ratios * np.diag(T)
        return cls(noise, trace * T, np.sqrt(norm) * stats.t / square, np.asarray(weights))

    def matrix(self, g: Array) -> Array:
        """The matrix H of the module's docstring."""
        first = -self.noise.mean_form(g) - self.trace_part - np.diag(1.0 / (self.noise.ratios * g))
        side = -self.norm_part[:, None]
        return np.block([[first, side], [side.T, np.array([[1.0 + self.norm_weights @ g]])]])

    def matrix_slope(self, g: Array, rates: Array) -> Array:
        """The derivative of H in z, from the derivative `rates` of g."""
        first = self.noise.mean_form_slope(g, rates) + np.diag(rates / (self.noise.ratios * g**2))
        side = np.zeros((len(g), 1))
        return np.block([[first, side], [side.T, np.array([[self.norm_weights @ rates]])]])

    def scale(self, g: Array) -> Array:
        """Roots of the sizes of the terms on the diagonal of H, which near an atom differ by many orders."""
        terms = np.abs(np.diag(self.noise.mean_form(g))) + np.abs(np.diag(self.trace_part))
        terms = terms + np.abs(1.0 / (self.noise.ratios * g))
        return np.asarray(np.sqrt(np.append(terms, 1.0 + self.norm_weights @ np.abs(g))))

    def signs(self, g: Array) -> Array:
        """Numbers in ascending order with the signs of the eigenvalues of H, which is first scaled to order 1."""
        scale = self.scale(g)
        return np.asarray(np.linalg.eigvalsh(self.matrix(g) / scale / scale[:, None]))

    def shift(self, g: Array) -> int:
        """How many eigenvalues more than WWᵀ the kernel has below a point outside the support; 0 or fewer."""
        positive = np.count_nonzero(self.signs(g) > 0) + np.count_nonzero(g > 0)
        return int(positive) - len(g) - 1

    def roots(self, gap: SpectralGap) -> list[tuple[float, int]]:
        """Eigenvalues in a gap, in ascending order, and how often each occurs."""
        start, stop = self.ends(gap)
        low, high = self.signs(start.g), self.signs(stop.g)

        def branch(z: float, index: int) -> float:
            return float(self.signs(gap.at(self.noise, z))[index])

        crossing = np.flatnonzero((low <= 0) & (high > 0))
        found = [brentq(branch, start.z, stop.z, args=(k,), rtol=1e-13) for k in crossing]
        return _together(sorted(found))

    def ends(self, gap: SpectralGap) -> tuple[Point, Point]:
        """The first and the last point where a gap is searched: its edges, or near 0 and above all."""
        near_zero = _FROM_ZERO * (gap.high or gap.inside).z
        start = gap.low or Point(near_zero, gap.at(self.noise, near_zero))
        return start, gap.high or self._beyond(gap, start.z)

    def _beyond(self, gap: SpectralGap, z: float) -> Point:
        while True:
            z *= 2.0
            g = gap.at(self.noise, z)
            if self.shift(g) == 0:
                return Point(z, g)

    def aligned(self, gap: SpectralGap, z: float, times: int) -> list[Array]:
        """Squared projections of the eigenvectors at a root that is no edge on the indicators of the classes.

        For H y = 0 the residue of Uᵀ(kernel - z)^{-1}U has, in the columns J/√p of U, the entries
        y_a y_b/(yᵀH'y). Vectors of one root are first made orthogonal in H'.
        """
        g = gap.at(self.noise, z)
        scale = self.scale(g)
        values, vectors = np.linalg.eigh(self.matrix(g) / scale / scale[:, None])
        null = vectors[:, np.argsort(np.abs(values))[:times]] / scale[:, None]
        lengths, turn = np.linalg.eigh(null.T @ self.matrix_slope(g, slope(self.noise, z, g)) @ null)
        projections = (null @ turn / np.sqrt(lengths))[: len(g)]
        return [self._by_class(column) for column in projections.T]

    def _by_class(self, column: Array) -> Array:
        """Squared projections on the indicators of the classes from the components on those of the groups."""
        member = self.noise.member
        sums, ratios = np.bincount(member, column), np.bincount(member, self.noise.ratios)
        return np.asarray(sums**2 / ratios)


def _together(roots: list[float]) -> list[tuple[float, int]]:
    """Roots that agree up to rounding, with their number."""
    groups: list[tuple[float, int]] = []
    for root in roots:
        if groups and root - groups[-1][0] <= _SAME_ROOT * root:
            groups[-1] = (groups[-1][0], groups[-1][1] + 1)
        else:
            groups.append((root, 1))
    return groups
