"""Gauss–Legendre rules on graded panels, for expectations E[g(sξ)] with ξ ~ N(0, 1).

An activation has a scale of its own (the distance ℓ to its nearest complex singularity, or to the edge of what it
does), the Gaussian has the scale s.  When s ≫ ℓ the integrand is a sharp feature inside a wide bell, and any rule
with one scale loses its digits.  Panels that double in length away from zero see both: on a panel [a, 2a] every
singularity is at least a panel length away, so 16 nodes leave an error below 1e-16 whatever s is.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from notsodeep.validation import Array

NODES = 16
# Beyond this many standard deviations the weight is below 1e-34; Hermite functions of any degree are below 1e-17.
REACH = 12.5
SQRT_2PI = float(np.sqrt(2.0 * np.pi))


@lru_cache(maxsize=8)
def legendre(count: int = NODES) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1.0) / 2.0, weights / 2.0


def panel_rule(edges: Array, count: int = NODES) -> tuple[Array, Array]:
    """Composite rule on the panels between sorted `edges` (last axis); panels of length zero cost but do not count."""
    nodes, weights = legendre(count)
    length = np.diff(edges, axis=-1)[..., None]
    points = edges[..., :-1, None] + length * nodes
    flat = (*points.shape[:-2], -1)
    return points.reshape(flat), (length * weights).reshape(flat)


def gaussian_rule(edges: Array) -> tuple[Array, Array]:
    """Composite rule on the panels between sorted `edges`, its weights those of a standard normal variable."""
    points, weights = panel_rule(edges)
    return points, weights * np.exp(-0.5 * points**2) / SQRT_2PI


@lru_cache(maxsize=256)
def graded_edges(first: float, longest: float, reach: float) -> Array:
    """Edges 0, first, 2·first, … doubling until panels are `longest`, then even steps up to `reach`; both signs."""
    edges = [0.0]
    step = min(first, longest)
    while edges[-1] < reach:
        edges.append(min(edges[-1] + step, reach))
        step = min(max(step, edges[-1]), longest)
    positive = np.array(edges)
    return np.concatenate([-positive[:0:-1], positive])


def longest_panel(degree: int) -> float:
    """Panel length that resolves Hermite functions up to `degree`: their wavelength is 2π/√degree."""
    return min(1.0, 8.0 / float(np.sqrt(max(degree, 1))))


@lru_cache(maxsize=64)
def _shared_rule(octave: int, feature: float, longest: float) -> tuple[Array, Array]:
    points, weights = gaussian_rule(graded_edges(feature * 2.0**-octave, longest, REACH))
    points.flags.writeable = weights.flags.writeable = False
    return points[None], weights[None]


def shared_rule(scale: float, feature: float, degree: int = 0) -> tuple[Array, Array]:
    """Nodes ξ and weights (1 × N) of the standard Gaussian, fine enough at zero for every scale up to `scale`."""
    octave = max(0, int(np.ceil(np.log2(max(scale, 1e-300)))))
    return _shared_rule(octave, feature, longest_panel(degree))


def split_rule(scales: Array, breakpoints: Array, degree: int = 0) -> tuple[Array, Array]:
    """Nodes and weights (n × N), one row for each scale s, split where sξ meets one of the `breakpoints`."""
    bell = graded_edges(1.0, longest_panel(degree), REACH)
    with np.errstate(over="ignore"):
        inner = np.clip(breakpoints[None, :] / scales[:, None], -REACH, REACH)
    edges = np.sort(np.concatenate([np.broadcast_to(bell, (len(scales), len(bell))), inner], axis=1), axis=1)
    return gaussian_rule(edges)


def hermite_functions(points: Array, terms: int) -> Array:
    """He_k(ξ)/√k! for k < terms, stacked along a new first axis (three-term recurrence)."""
    table = np.empty((terms, *points.shape))
    table[0] = 1.0
    if terms > 1:
        table[1] = points
    for k in range(1, terms - 1):
        table[k + 1] = (points * table[k] - np.sqrt(k) * table[k - 1]) / np.sqrt(k + 1.0)
    return table


@lru_cache(maxsize=16)
def weighted_hermite(octave: int, feature: float, terms: int) -> tuple[Array, Array]:
    """Nodes (N) and the matrix w_i He_k(ξ_i)/√k! (N × terms) of the shared rule at scale 2^octave."""
    points, weights = shared_rule(2.0**octave, feature, terms)
    table = hermite_functions(points[0], terms) * weights[0]
    matrix = np.ascontiguousarray(table.T)
    matrix.flags.writeable = False
    return points[0], matrix
