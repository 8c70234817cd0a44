"""F = E[φ(u)φ(v)] and F' = E[φ'(u)φ'(v)] for (u, v) ~ N(0, [[q1, c], [c, q2]]), for any correlation.

Single pairs (`dual`) by closed forms, Price's integral, or two-dimensional quadrature; grids of pairs (`dual_grid`)
with quadrature nodes that all of them share.  Whole kernel matrices are computed by `duals/`, which calls this module
for its tables and for pairs whose error its faster methods cannot bound.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.gaussian import quadrature
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative
from notsodeep.gaussian.shapes import TINY, Shape
from notsodeep.validation import Array

Pairs = tuple[Array, Array]

# Values of the integrand held at once.
CHUNK = 3_000_000
# Beyond nine standard deviations the weight is below 1e-18.
REACH = 9.0
# Panels of the Gaussian, as far as moments of one variable are computed: of relu(x - 2) at a small variance the rest is
# nearly all.
BELL = np.array([0.0, 1.0, 2.0, 3.5, 5.5, REACH, quadrature.REACH])
BELL = np.concatenate([-BELL[:0:-1], BELL])
# Angles of a grid are not smaller than this.
LEAST_ANGLE = 1e-15
# Gauss-Hermite nodes that resolve a function of length scale ℓ under a bell of width w, by the largest w/ℓ.
HERMITE_NODES = ((0.004, 6), (0.02, 8), (0.06, 12), (0.12, 18), (0.25, 28), (0.5, 48))


def dual(phi: Activation, q1: ArrayLike, q2: ArrayLike, c: ArrayLike) -> tuple[Any, Any]:
    """F(q1, q2, c) and ∂F/∂c, elementwise, (3.1) and (3.2).

    A covariance beyond ±√(q1 q2) is taken as that bound (rounding puts it there for parallel rows).
    """
    left, right, cross = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (q1, q2, c)))
    form = cross.shape
    flat = [np.maximum(phi.gain**2 * a.reshape(-1), TINY) for a in (left, right)]
    value, slope = shape_dual(phi.shape, flat[0], flat[1], phi.gain**2 * cross.reshape(-1))
    value = phi.amplitude**2 * value
    if phi.offset:
        means = phi.shape.mean_derivative(flat[0], 0) + phi.shape.mean_derivative(flat[1], 0)
        value = value + phi.amplitude * phi.offset * means + phi.offset**2
    still = ((left == 0.0) | (right == 0.0)).reshape(-1)
    if still.any():
        # A variable that is constantly zero is independent of the other: nothing of the floor may show.
        value[still] = np.prod(
            [mean_derivative(phi, side.reshape(-1)[still], 0) for side in (left, right)], axis=0
        )
    return value.reshape(form)[()], ((phi.amplitude * phi.gain) ** 2 * slope).reshape(form)[()]


def shape_dual(shape: Shape, q1: Array, q2: Array, c: Array) -> Pairs:
    """F and F' of a bare shape on flat arrays of positive variances."""
    bound = np.sqrt(q1) * np.sqrt(q2)
    clipped = np.clip(c, -bound, bound)
    closed = shape.pair_moments(q1, q2, clipped)
    return _general(shape, q1, q2, clipped) if closed is None else closed


# --- two-dimensional quadrature -----------------------------------------------------------------------------------


def _general(shape: Shape, q1: Array, q2: Array, c: Array) -> Pairs:
    """Two-dimensional quadrature, in groups of pairs of similar scale so that one set of panels fits them all."""
    s1, s2 = np.sqrt(q1), np.sqrt(q2)
    rho = np.clip(c / (s1 * s2), -1.0, 1.0)
    angle = np.arctan2(np.sqrt((1.0 - rho) * (1.0 + rho)), rho)
    value, slope = np.empty_like(c), np.empty_like(c)
    if not len(c):
        return value, slope
    scales = [np.ceil(np.log2(np.maximum(s, 1e-9))) for s in (s1, s2)]
    width = np.ceil(np.log2(np.maximum(np.minimum(angle, np.pi - angle), 1e-9)))
    keys = np.stack([*scales, width])
    order = np.lexsort(keys)
    group_edges = np.flatnonzero(np.any(np.diff(keys[:, order], axis=1) != 0, axis=0)) + 1
    rule = _conditional if shape.features_anywhere else _sectors
    for group in np.split(order, group_edges):
        # As many pairs at once as keep the integrand within CHUNK values.
        breaks = len(shape.breakpoints(BELL[-1] * float(max(s1[group].max(), s2[group].max()))))
        panels = len(BELL) + 2 * breaks + 62 * len(shape.kinks) * shape.features_anywhere
        rows = max(1, CHUNK // (quadrature.NODES * panels * quadrature.NODES * (len(BELL) + breaks)))
        for i in range(0, len(group), rows):
            part = group[i : i + rows]
            value[part], slope[part] = rule(shape, s1[part], s2[part], angle[part])
    return value, slope


# Polar coordinates, for shapes whose kinks and features are at zero: u = s1 r sin a, v = s2 r sin(β - a) in each of
# the four sectors of constant signs.  Within a sector the integrand is smooth at every correlation.


def _sectors(shape: Shape, s1: Array, s2: Array, angle: Array) -> Pairs:
    """F = (1/2π) Σ over the signs of (u, v) of ∫ da ∫ r e^{-r²/2} dr φ(u) φ(v), (3.24)."""
    half = BELL[BELL >= 0.0]
    graded = quadrature.graded_edges(shape.feature / max(s1.max(), s2.max(), 1e-9), np.inf, half[-1])
    edges = np.union1d(half, graded[(graded > 0.0) & (graded < 1.0)])
    radius, radial = quadrature.panel_rule(edges)
    radial = radial * radius * np.exp(-0.5 * radius**2)
    value, slope = np.zeros_like(s1), np.zeros_like(s1)
    copies = 1 if shape.parity else 2
    for opening, sign in ((np.pi - angle, 1.0), (angle, -1.0)):
        points, weights = quadrature.panel_rule(_sector_edges(shape, s1, s2, opening))
        u = (s1[:, None] * np.sin(points))[:, :, None] * radius
        v = (s2[:, None] * np.sin(opening[:, None] - points))[:, :, None] * radius
        for turn in (1.0, -1.0)[:copies]:
            for total, order in ((value, 0), (slope, 1)):
                product = shape(turn * u, order) * shape(turn * sign * v, order)
                total += ((product @ radial) * weights).sum(axis=1)
    return value * (2 / copies) / (2.0 * np.pi), slope * (2 / copies) / (2.0 * np.pi)


def _sector_edges(shape: Shape, s1: Array, s2: Array, opening: Array) -> Array:
    """Panels of the angle, graded towards both sides of the sector.

    Where u vanishes v may be close to zero as well (ρ near ±1), so that both sides need the finer of the two scales.
    """
    first = shape.feature / (3.0 * np.maximum(np.maximum(s1, s2), 1e-9))
    steps = max(1, int(np.ceil(np.log2(max(float((0.5 * opening / first).max()), 1.0)))) + 1)
    side = np.minimum(first[:, None] * 2.0 ** np.arange(steps), 0.5 * opening[:, None])
    zero = np.zeros((len(s1), 1))
    return np.concatenate([zero, side, (opening[:, None] - side[:, ::-1]), opening[:, None]], axis=1)


# Conditional coordinates, for callables with features anywhere: E over u of φ(u) E[φ(v) | u].


def _conditional(shape: Shape, s1: Array, s2: Array, angle: Array) -> Pairs:
    rho, spread = np.cos(angle), s2 * np.sin(angle)
    points, weights = quadrature.gaussian_rule(_outer_edges(shape, s1, s2, angle))
    u = s1[:, None] * points
    centre = (s2 * rho)[:, None] * points
    value = (weights * shape(u) * _conditional_mean(shape, centre, spread, 0)).sum(axis=1)
    slope = (weights * shape(u, 1) * _conditional_mean(shape, centre, spread, 1)).sum(axis=1)
    return value, slope


def _outer_edges(shape: Shape, s1: Array, s2: Array, angle: Array) -> Array:
    """Panels for ξ = u/s1: those of the Gaussian, the features of φ(u), and those of the smoothed φ at v = s2 ρ ξ."""
    breaks = shape.breakpoints(BELL[-1] * float(max(s1.max(), s2.max())))
    tilt = s2 * np.cos(angle)
    tilt = np.where(np.abs(tilt) < 1e-150, 1e-150, tilt)
    columns = [np.broadcast_to(BELL, (len(s1), len(BELL))), breaks / s1[:, None], breaks / tilt[:, None]]
    # A kink seen through v|u is a feature as wide as √(1-ρ²): grade towards it.
    width = np.maximum(np.sin(angle), 1e-9)
    ladder = width[:, None] * 2.0 ** np.arange(-1, int(np.ceil(np.log2(8.0 / width.min()))) + 1)
    for kink in shape.kinks:
        place = (kink / tilt)[:, None]
        columns += [place, place + ladder, place - ladder]
    edges = np.concatenate(columns, axis=1)
    return np.sort(np.clip(edges, BELL[0], BELL[-1]), axis=1)


def _conditional_mean(shape: Shape, centre: Array, spread: Array, order: int) -> Array:
    """E[φ^(order)(centre + spread η)], with η split where φ has its features."""
    width = np.maximum(spread, 1e-150)[:, None, None]
    breaks = shape.breakpoints(float(np.abs(centre).max() + BELL[-1] * spread.max()))
    with np.errstate(over="ignore"):
        inner = np.clip((breaks - centre[..., None]) / width, BELL[0], BELL[-1])
    bell = np.broadcast_to(BELL, (*centre.shape, len(BELL)))
    edges = np.sort(np.concatenate([bell, inner], axis=-1), axis=-1)
    points, weights = quadrature.gaussian_rule(edges)
    return np.asarray(
        (weights * shape(centre[..., None] + spread[:, None, None] * points, order)).sum(axis=-1)
    )


# --- grids of pairs -------------------------------------------------------------------------------------------------

# One pair by itself costs a two-dimensional quadrature, a millisecond.  On a grid the work separates.  With
# u = s1 ξ and v = s2 (ξ cos α + η sin α),
#
#     F = E_ξ[φ(s1 ξ) H(ξ)],     H(ξ) = E_η φ(s2 (ξ cos α + η sin α)),
#
# H does not depend on s1, so that all s1 share it and F is one matrix product for each angle; and the Gaussian weights
# of H depend on the angle alone, so that all s2 share them.  docs/theory.md (3.25) and (3.26).


def dual_grid(shape: Shape, rows: Array, columns: Array, angles: Array) -> tuple[Array, Array]:
    """F and F' of a shape at every angle α = arccos ρ, u with the variances `rows`, v with `columns`.

    Returns two arrays (angles, rows, columns).  The shape has no kinks but at zero.  The two variables play different
    parts, so that exchanging them measures the error.
    """
    first, second = np.sqrt(rows), np.sqrt(columns)
    # At angle zero v|u has no width to measure by; this one changes F' at a kink by no more than rounding does.
    angles = np.clip(angles, LEAST_ANGLE, np.pi - LEAST_ANGLE)
    sines = np.sin(angles)
    roots = np.concatenate([first, second])
    # Nodes ξ that resolve φ(sξ) for every scale s, and the layer of width tan α that v|u makes of a kink.
    finest = shape.local_length(0.0) / float(roots.max())
    finest = min(finest, float(sines.min())) if shape.kinks else finest
    points, weights = quadrature.gaussian_rule(_grid_edges(shape, roots, finest, REACH))
    outer = [weights * shape(first[:, None] * points, order) for order in (0, 1)]
    if shape.parity:
        # Both halves of ξ contribute the same.
        half = points > 0.0
        points, outer = points[half], [2.0 * part[:, half] for part in outer]
    value = np.empty((len(angles), len(first), len(second)))
    slope = np.empty_like(value)
    for k, (angle, sine) in enumerate(zip(angles, sines, strict=True)):
        inner = _means_on_grid(shape, second, points, float(np.cos(angle)), float(sine))
        value[k], slope[k] = outer[0] @ inner[0].T, outer[1] @ inner[1].T
    return value, slope


def _grid_edges(shape: Shape, scales: Array, first: float, reach: float) -> Array:
    """Panels over ±reach, no longer than `first` at zero, than φ(s·) is smooth at any scale s, or than 2."""
    some = np.unique(np.round(np.log2(scales) * 4.0)) / 4.0
    some = np.minimum(2.0**some, scales.max())
    panels = shape.breakpoints(reach * float(some.max()) + 1.0) if shape.features_anywhere else np.empty(0)
    sides = []
    for sign in (1.0, -1.0):
        edges = [0.0]
        while edges[-1] < reach:
            place = edges[-1]
            step = min(max(first, place), 2.0)
            if shape.features_anywhere:
                panel = np.searchsorted(panels, sign * place * some, side="right").clip(1, len(panels) - 1)
                step = min(step, float(((panels[panel] - panels[panel - 1]) / some).min()))
            edges.append(min(place + step, reach))
        sides.append(np.array(edges))
    return np.concatenate([-sides[1][:0:-1], sides[0]])


def _means_on_grid(
    shape: Shape, roots: Array, points: Array, cosine: float, sine: float
) -> tuple[Array, Array]:
    """E[φ(v) | ξ] and E[φ'(v) | ξ] for every scale of v (rows) and node ξ (columns)."""
    widths = roots * sine
    result = np.empty((2, len(roots), len(points)))
    # In units of the width of v|u the mean of v is at ξ cot α, the same for all scales.
    centres = points * (cosine / sine)
    lengths = np.full((len(roots), len(points)), shape.local_length(0.0) if not shape.kinks else 0.0)
    mean, beside = widths[:, None] * centres, np.abs(centres) > 10.0
    if shape.features_anywhere:
        window = 10.0 * widths[:, None]
        lengths = shape.shortest_panels(mean - window, mean + window)
        if shape.kinks:
            lengths = np.where(beside, lengths, 0.0)
    else:
        lengths = np.where(beside, np.maximum(lengths, np.abs(mean)), lengths)
    with np.errstate(divide="ignore"):
        ratio = widths[:, None] / lengths
    done = np.zeros(ratio.shape, dtype=bool)
    for limit, count in HERMITE_NODES:
        chosen = (ratio <= limit) & ~done
        if chosen.any():
            done |= chosen
            row, column = np.nonzero(chosen)
            nodes, weights = _hermite_rule(count)
            places = (roots[row] * cosine * points[column])[:, None] + widths[row, None] * nodes
            for order in (0, 1):
                result[order, row, column] = shape(places, order) @ weights
    wide = ~done.all(axis=1)
    if wide.any():
        close = ~done[wide].all(axis=0)
        means = _panel_means(shape, widths[wide], centres[close])
        rows = np.flatnonzero(wide)
        for order in (0, 1):
            block = result[order][np.ix_(rows, close)]
            result[order][np.ix_(rows, close)] = np.where(done[np.ix_(rows, close)], block, means[order])
    return result[0], result[1]


@lru_cache(maxsize=16)
def _hermite_rule(count: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / quadrature.SQRT_2PI


def _panel_means(shape: Shape, widths: Array, centres: Array) -> tuple[Array, Array]:
    """∫ φ(w η) g(η - centre) dη for all widths w: the weights are shared."""
    first = shape.local_length(0.0) / float(widths.max())
    edges = _grid_edges(shape, widths, first, float(np.abs(centres).max()) + REACH)
    edges = edges[(edges >= centres.min() - 2.0 * REACH) & (edges <= centres.max() + 2.0 * REACH)]
    nodes, weights = quadrature.panel_rule(edges)
    bell = np.exp(-0.5 * (centres[:, None] - nodes) ** 2)
    bell *= weights / quadrature.SQRT_2PI
    places = widths[:, None] * nodes
    return np.asarray(shape(places) @ bell.T), np.asarray(shape(places, 1) @ bell.T)
