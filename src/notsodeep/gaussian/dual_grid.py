"""F and F' on a grid: all pairs of a few variances at a few angles, with quadrature nodes that all of them share.

One pair by itself costs a two-dimensional quadrature, a millisecond.  On a grid the work separates.  With
u = s1 ξ and v = s2 (ξ cos α + η sin α),

    F = E_ξ[φ(s1 ξ) H(ξ)],     H(ξ) = E_η φ(s2 (ξ cos α + η sin α)),

H does not depend on s1, so that all s1 share it and F is one matrix product for each angle; and the Gaussian weights of
H depend on the angle alone, so that all s2 share them.  docs/theory.md (3.25) and (3.26).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from notsodeep.gaussian import quadrature
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array

# Beyond nine standard deviations the weight is below 1e-18.
REACH = 9.0
# Angles are not smaller than this.
LEAST_ANGLE = 1e-15
# Gauss-Legendre nodes of a panel.
NODES = 16
# Gauss-Hermite nodes that resolve a function of length scale ℓ under a bell of width w, by the largest w/ℓ.
HERMITE_NODES = ((0.004, 6), (0.02, 8), (0.06, 12), (0.12, 18), (0.25, 28), (0.5, 48))


def dual_grid(shape: Shape, rows: Array, columns: Array, angles: Array) -> tuple[Array, Array]:
    """F and F' of a shape at every angle α = arccos ρ, u with the variances `rows`, v with `columns`.

    Returns two arrays (angles, rows, columns).  The shape has no kinks but at zero.  The two variables play different
    parts, so that exchanging them measures the error.
    """
    first, second = np.sqrt(rows), np.sqrt(columns)
    # At angle zero v|u has no width to measure by; this one changes F' at a kink by no more than rounding does.
    angles = np.clip(angles, LEAST_ANGLE, np.pi - LEAST_ANGLE)
    sines = np.sin(angles)
    points, weights = _outer_rule(shape, np.concatenate([first, second]), float(sines.min()))
    weights = weights * np.exp(-0.5 * points**2) / quadrature.SQRT_2PI
    outer = [weights * shape(first[:, None] * points, order) for order in (0, 1)]
    if shape.parity:
        # Both halves of ξ contribute the same.
        half = points > 0.0
        points, outer = points[half], [2.0 * part[:, half] for part in outer]
    value = np.empty((len(angles), len(first), len(second)))
    slope = np.empty_like(value)
    for k, (angle, sine) in enumerate(zip(angles, sines, strict=True)):
        inner = _conditional_means(shape, second, points, float(np.cos(angle)), float(sine))
        value[k], slope[k] = outer[0] @ inner[0].T, outer[1] @ inner[1].T
    return value, slope


def _outer_rule(shape: Shape, roots: Array, sine: float) -> tuple[Array, Array]:
    """Nodes ξ that resolve φ(sξ) for every scale s, and the layer of width tan α that v|u makes of a kink."""
    first = shape.local_length(0.0) / float(roots.max())
    return quadrature.panel_rule(
        _edges(shape, roots, min(first, sine) if shape.kinks else first, REACH), NODES
    )


def _edges(shape: Shape, scales: Array, first: float, reach: float) -> Array:
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


def _conditional_means(
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
    edges = _edges(shape, widths, first, float(np.abs(centres).max()) + REACH)
    edges = edges[(edges >= centres.min() - 2.0 * REACH) & (edges <= centres.max() + 2.0 * REACH)]
    nodes, weights = quadrature.panel_rule(edges, NODES)
    bell = np.exp(-0.5 * (centres[:, None] - nodes) ** 2)
    bell *= weights / quadrature.SQRT_2PI
    places = widths[:, None] * nodes
    return np.asarray(shape(places) @ bell.T), np.asarray(shape(places, 1) @ bell.T)
