"""F = E[φ(u)φ(v)] and F' = E[φ'(u)φ'(v)] for (u, v) ~ N(0, [[q1, c], [c, q2]]), for any correlation.

The methods are closed forms, Price's integral, or two-dimensional quadrature.  Whole kernel matrices are computed by
`duals/`, which calls this module only for pairs whose error its faster methods cannot bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.gaussian import quadrature
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative
from notsodeep.gaussian.shapes import TINY, Shape
from notsodeep.validation import Array

Pairs = tuple[Array, Array]

# Values of the integrand held at once.
CHUNK = 3_000_000
# Panels of the Gaussian: beyond nine standard deviations the weight is below 1e-18.
BELL = np.array([0.0, 1.0, 2.0, 3.5, 5.5, 9.0])
BELL = np.concatenate([-BELL[:0:-1], BELL])


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
        for i in range(0, len(group), rows := _rows_at_once(shape, s1, s2, group)):
            part = group[i : i + rows]
            value[part], slope[part] = rule(shape, s1[part], s2[part], angle[part])
    return value, slope


def _rows_at_once(shape: Shape, s1: Array, s2: Array, group: NDArray[np.intp]) -> int:
    """How many pairs keep the integrand within CHUNK values."""
    breaks = len(shape.breakpoints(9.0 * float(max(s1[group].max(), s2[group].max()))))
    panels = len(BELL) + 2 * breaks + 62 * len(shape.kinks) * shape.features_anywhere
    return int(max(1, CHUNK // (quadrature.NODES * panels * quadrature.NODES * (len(BELL) + breaks))))


# Polar coordinates, for shapes whose kinks and features are at zero: u = s1 r sin a, v = s2 r sin(β - a) in each of
# the four sectors of constant signs.  Within a sector the integrand is smooth at every correlation.


def _sectors(shape: Shape, s1: Array, s2: Array, angle: Array) -> Pairs:
    """F = (1/2π) Σ over the signs of (u, v) of ∫ da ∫ r e^{-r²/2} dr φ(u) φ(v), (3.24)."""
    radius, radial = _radial_rule(shape, float(max(s1.max(), s2.max())))
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


def _radial_rule(shape: Shape, scale: float) -> tuple[Array, Array]:
    half = BELL[BELL >= 0.0]
    graded = quadrature.graded_edges(shape.feature / max(scale, 1e-9), np.inf, half[-1])
    edges = np.union1d(half, graded[(graded > 0.0) & (graded < 1.0)])
    points, weights = quadrature.panel_rule(edges)
    return points, weights * points * np.exp(-0.5 * points**2)


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
    points, weights = quadrature.panel_rule(_outer_edges(shape, s1, s2, angle))
    weights = weights * np.exp(-0.5 * points**2) / quadrature.SQRT_2PI
    u = s1[:, None] * points
    centre = (s2 * rho)[:, None] * points
    value = (weights * shape(u) * _conditional_mean(shape, centre, spread, 0)).sum(axis=1)
    slope = (weights * shape(u, 1) * _conditional_mean(shape, centre, spread, 1)).sum(axis=1)
    return value, slope


def _outer_edges(shape: Shape, s1: Array, s2: Array, angle: Array) -> Array:
    """Panels for ξ = u/s1: those of the Gaussian, the features of φ(u), and those of the smoothed φ at v = s2 ρ ξ."""
    breaks = shape.breakpoints(9.0 * float(max(s1.max(), s2.max())))
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
    breaks = shape.breakpoints(float(np.abs(centre).max() + 9.0 * spread.max()))
    with np.errstate(over="ignore"):
        inner = np.clip((breaks - centre[..., None]) / width, BELL[0], BELL[-1])
    bell = np.broadcast_to(BELL, (*centre.shape, len(BELL)))
    edges = np.sort(np.concatenate([bell, inner], axis=-1), axis=-1)
    points, weights = quadrature.panel_rule(edges)
    weights = weights * np.exp(-0.5 * points**2) / quadrature.SQRT_2PI
    return np.asarray(
        (weights * shape(centre[..., None] + spread[:, None, None] * points, order)).sum(axis=-1)
    )
