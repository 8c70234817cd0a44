"""Nodes in time and the matrices that integrate over them, for models whose state solves a differential equation.

A function of time is known by its values at Gauss-Legendre nodes. What it gives after integration with the weight
e^{-decay (t - a)} is exact for the polynomial through these values, so that errors fall exponentially with the number
of nodes if the function is smooth.

The covariance of one sample at two times has a kink at equal times if the activation has one. It is smooth on either
side: `triangle_nodes` has nodes for times a ≥ b alone, with the same matrices for fields that are symmetric in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from notsodeep.validation import Array, frozen

# Nodes of a quadrature beyond those that polynomials need.
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
    points, weights = _unit_rule(count)
    fine, shares = _unit_rule(_fine(count, decay * duration))
    times, rows = duration * points, []
    for stop in (*times, duration):
        inner = stop * fine
        rows.append(stop * (shares * np.exp(-decay * (stop - inner))) @ _lagrange(times, inner))
    integral = np.array(rows)
    fade = np.exp(-decay * np.append(times, duration))
    parts = times, duration * weights, integral[:-1], integral[-1], fade
    return TimeNodes(*(frozen(part) for part in parts))


@dataclass(frozen=True)
class TriangleNodes:
    """Nodes (a_k, a_k v_l) of the triangle 0 ≤ b ≤ a ≤ T, and matrices for symmetric fields over two times.

    Attributes:
        late: a_k, (N,).
        early: a_k v_l, (N, N).
        integral: ∫₀ᵃ∫₀ᵇ e^{-decay (a - a' + b - b')} f(a', b') at all nodes, (N², N²).
        end: the same integral at a = b = T, (N²,).
        weights: ∫₀ᵀ∫₀ᵀ f, (N²,).
        reversal: from values at the nodes to values at (T - a_k v_l, T - a_k), (N², N²).
        equal: from values at the nodes of one a_k to that at b = a_k, (N,).
        earlier: from values at the a_k to values at `early`, (N², N).
    """

    late: Array
    early: Array
    integral: Array
    end: Array
    weights: Array
    reversal: Array
    equal: Array
    earlier: Array


@lru_cache(maxsize=16)
def triangle_nodes(count: int, duration: float, decay: float) -> TriangleNodes:
    """The nodes of the triangle of two times up to `duration`, and their matrices."""
    (v, w), (x, y) = (_unit_rule(number) for number in (count, _fine(count, decay * duration)))
    a = duration * v
    early, square, corner = np.outer(a, v), (count**2, count**2), np.outer(y, y)
    rows: dict[tuple[int, int], Array] = {}
    for place, ratio in enumerate((*v, 1.0)):
        # Earlier times below s = ratio · t, at later times s ratio^{-x} up to t.
        beyond = _lagrange(v, np.outer(ratio**x, x).ravel()).reshape(len(x), len(x), count)
        for number, t in enumerate(a if ratio < 1.0 else (duration,)):
            s = ratio * t
            # Both times are below s: the field is symmetric. Then only the earlier one.
            late, within = s * x, s * ratio**-x
            fade = np.exp(-decay * (t + s - np.outer(late, 1.0 + x)))
            inner = _lagrange(a, late).T @ (2.0 * s * corner * late[:, None] * fade) @ _lagrange(v, x)
            fade = np.exp(-decay * (t + s - within[:, None] - s * x))
            weight = corner * fade * within[:, None] * s * -np.log(ratio)
            rest = np.einsum("qn,qr,qrm->nm", _lagrange(a, within), weight, beyond)
            rows[number, place] = (inner + rest).ravel()
    end = rows.pop((0, count))
    integral = np.array([rows[k, place] for k in range(count) for place in range(count)])
    times = duration - early, np.broadcast_to(duration - a[:, None], early.shape)
    ratios = _lagrange(v, (times[1] / times[0]).ravel())
    reversal = (_lagrange(a, times[0].ravel())[:, :, None] * ratios[:, None]).reshape(square)
    weights = (2.0 * duration * np.outer(w * a, w)).ravel()
    equal, earlier = _lagrange(v, np.ones(1))[0], _lagrange(a, early.ravel())
    parts = a, early, integral, end, weights, reversal, equal, earlier
    return TriangleNodes(*(frozen(np.ascontiguousarray(part)) for part in parts))


def _fine(count: int, fading: float) -> int:
    """Nodes of the quadrature of a polynomial of this many nodes times e^{-fading x}."""
    return count + EXTRA + int(min(fading, 6.0 * np.sqrt(fading)))


def _unit_rule(count: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights of [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return 0.5 * (1.0 + points), 0.5 * weights


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


__all__ = ["TimeNodes", "TriangleNodes", "euler_nodes", "time_nodes", "triangle_nodes"]
