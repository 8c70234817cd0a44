"""Nodes in time and the matrices that integrate over them, for models whose state solves a differential equation.

A function of time is known by its values at Gauss-Legendre nodes. What it gives after integration with the weight
e^{-decay (t - a)} is exact for the polynomial through these values, so that errors fall exponentially with the number
of nodes if the function is smooth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from notsodeep.validation import Array, frozen

# Nodes of the quadrature of e^{-decay (t - a)} times a polynomial, beyond those that the polynomial needs.
EXTRA = 24


@dataclass(frozen=True)
class TimeNodes:
    """Gauss-Legendre nodes t_k of [0, T] and matrices over them.

    Attributes:
        times: t_k.
        weights: ∫₀ᵀ f(a) da = weights · f.
        integral: (integral f)_k = ∫₀^{t_k} e^{-decay (t_k - a)} f(a) da.
        end: ∫₀ᵀ e^{-decay (T - a)} f(a) da = end · f.
        fade: e^{-decay t_k}; its last entry is that of T.
    """

    times: Array
    weights: Array
    integral: Array
    end: Array
    fade: Array

    @property
    def backward(self) -> Array:
        """(backward f)_k = ∫_{t_k}^T e^{-decay (a - t_k)} f(a) da: the nodes are symmetric in time."""
        return np.ascontiguousarray(self.integral[::-1, ::-1])

    @property
    def start(self) -> Array:
        """∫₀ᵀ e^{-decay a} f(a) da = start · f."""
        return np.ascontiguousarray(self.end[::-1])

    def interpolation(self, times: Array) -> Array:
        """The matrix from values at the nodes to values at other times."""
        return _lagrange(self.times, times)


@lru_cache(maxsize=64)
def time_nodes(count: int, duration: float, decay: float) -> TimeNodes:
    """The nodes of [0, duration] and their matrices."""
    points, weights = np.polynomial.legendre.leggauss(count)
    times = 0.5 * duration * (1.0 + points)
    fine = np.polynomial.legendre.leggauss(count + EXTRA + int(decay * duration))
    rows = []
    for stop in (*times, duration):
        inner = 0.5 * stop * (1.0 + fine[0])
        rows.append(0.5 * stop * (fine[1] * np.exp(-decay * (stop - inner))) @ _lagrange(times, inner))
    integral = np.array(rows)
    fade = np.exp(-decay * np.append(times, duration))
    parts = times, 0.5 * duration * weights, integral[:-1], integral[-1], fade
    return TimeNodes(*(frozen(part) for part in parts))


@lru_cache(maxsize=64)
def euler_nodes(steps: int, duration: float, decay: float) -> TimeNodes:
    """The nodes of Euler's method with this many steps: sums over earlier steps in the place of integrals."""
    length = duration / steps
    powers = (1.0 - decay * length) ** np.arange(steps + 1)
    later = np.subtract.outer(np.arange(steps), np.arange(steps)) - 1
    integral = np.where(later >= 0, length * powers[np.maximum(later, 0)], 0.0)
    end = length * powers[:-1][::-1]
    parts = length * np.arange(steps), np.full(steps, length), integral, end, powers
    return TimeNodes(*(frozen(np.asarray(part, dtype=np.float64)) for part in parts))


def _lagrange(nodes: Array, points: Array) -> Array:
    """Values of the Lagrange polynomials of the nodes at other points, (points, nodes), by the barycentric formula."""
    span = 0.25 * (nodes[-1] - nodes[0]) if len(nodes) > 1 else 1.0
    gaps = (nodes[:, None] - nodes) / span + np.eye(len(nodes))
    weights = 1.0 / gaps.prod(axis=1)
    distance = points[:, None] - nodes
    rows, columns = np.nonzero(distance == 0.0)
    distance[rows] = 1.0
    terms = weights / distance
    values = terms / terms.sum(axis=1, keepdims=True)
    values[rows] = 0.0
    values[rows, columns] = 1.0
    return np.asarray(values)


__all__ = ["TimeNodes", "euler_nodes", "time_nodes"]
