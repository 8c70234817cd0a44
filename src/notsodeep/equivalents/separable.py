"""Symmetric functions of two samples' norms as short sums of products.

A function g(s_i, s_j) of two squared norms, as an n × n matrix, has a numerical rank of a handful: norms
concentrate, and g is analytic. It is interpolated at Chebyshev points of log s and compressed over samples,

    g(s_i, s_j) ≃ Σ_r scales_r weights_ir weights_jr,

with as many terms as a bound on the error of every entry asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from notsodeep.errors import ConvergenceError
from notsodeep.linalg.chebyshev import LogInterval, chebyshev_basis, chebyshev_coefficients
from notsodeep.validation import Array

# Chebyshev points tried, each set about half as fine as the next.
_POINTS = (4, 8, 14, 24, 40, 64, 96)
# Norms further below the largest are taken as if they were there: such a row is zero in all but name.
_SMALLEST = 1e-10
# What interpolation can reach at all.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Separable:
    """Σ_r scales_r weights_ir weights_jr."""

    weights: Array  # shape (n, R)
    scales: Array  # shape (R,)
    size: float  # the largest magnitude of the function
    error_bound: float  # bound on the error of any entry, by the terms left out and the interpolation

    @property
    def rank(self) -> int:
        """R, the number of terms."""
        return len(self.scales)

    def block(self, rows: slice) -> Array:
        """Rows of the n × n matrix."""
        return (self.weights[rows] * self.scales) @ self.weights.T


def floored(squares: Array) -> Array:
    """Squared norms, none below a tiny fraction of the largest, so that their logarithms exist."""
    return np.maximum(squares, max(_SMALLEST * float(squares.max()), np.finfo(np.float64).tiny))


def separable(
    functions: Callable[[Array], Array], squares: Array, tolerances: Sequence[float]
) -> tuple[Separable, ...]:
    """Separate several symmetric functions of two squared norms at once.

    Args:
        functions: gives, for N squared norms, the values on all pairs, shape (count, N, N).
        squares: the squared norms of the samples, shape (n,).
        tolerances: allowed error of any entry, for each function, relative to the largest magnitude of all.
    """
    axis = LogInterval.of(squares)
    allowed = np.maximum(tolerances, _ROUNDING)
    values, series = _resolved(axis, functions, allowed)
    basis = chebyshev_basis(axis.place(squares), series.shape[1])
    orthonormal, triangle = linalg.qr(basis, mode="economic", check_finite=False)
    cores = [triangle @ table @ triangle.T for table in series]
    sizes = [float(np.abs(table).max()) for table in values]
    return tuple(
        _compressed(orthonormal, core, size, error * max(sizes))
        for core, size, error in zip(cores, sizes, allowed, strict=True)
    )


def compressed(weights: Array, scales: Array, tolerance: float) -> Separable:
    """The same sum of products with as few terms as the tolerance, relative to its largest terms, allows."""
    orthonormal, triangle = linalg.qr(weights, mode="economic", check_finite=False)
    size = float((weights**2 @ np.abs(scales)).max())
    return _compressed(orthonormal, (triangle * scales) @ triangle.T, size, tolerance * size)


def _resolved(axis: LogInterval, functions: Callable[[Array], Array], allowed: Array) -> tuple[Array, Array]:
    """Values on the coarsest grid whose last Chebyshev coefficients are below the tolerance, and the coefficients."""
    for points in (1,) if axis.high == axis.low else _POINTS:
        values = functions(axis.nodes(points))
        series = chebyshev_coefficients(chebyshev_coefficients(values, 1), 2)
        tails = np.abs(series[:, -2:]).max(axis=(1, 2))
        if points == 1 or np.all(tails <= 0.1 * allowed * np.abs(values).max()):
            return values, series
    raise ConvergenceError(
        f"The norms of the samples span a factor of {np.exp((axis.high - axis.low) / 2.0):.3g}, over which "
        f"the kernel was not resolved to {allowed.min():.1g} by {_POINTS[-1]} points.",
        "Raise the tolerance, remove rows that are nearly zero, or scale the rows to similar norms.",
    )


def _compressed(orthonormal: Array, core: Array, size: float, allowed: float) -> Separable:
    values, vectors = linalg.eigh((core + core.T) / 2.0)
    weights = orthonormal @ vectors
    bounds = np.abs(values) * np.max(weights**2, axis=0)
    order = np.argsort(-bounds)
    # held_out[r] bounds every entry of what the terms from r on would have added.
    held_out = np.append(np.cumsum(bounds[order][::-1])[::-1], 0.0)
    rank = int(np.argmax(held_out <= allowed))
    kept = order[:rank]
    return Separable(weights[:, kept], values[kept], size, float(held_out[rank]) + 0.1 * allowed)
