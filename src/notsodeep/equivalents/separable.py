"""Functions of two samples' norms as short sums of products, and entrywise powers of a Gram matrix beside them.

A function g(s_i, s_j) of two squared norms, as an n × n matrix, has a numerical rank of a handful: norms
concentrate, and g is analytic. It is interpolated at Chebyshev points of log s and compressed over samples,

    g(s_i, s_j) ≃ Σ_r scales_r weights_ir weights_jr,

with as many terms as a bound on the error of every entry asks for.

A term g_k(s_i, s_j) c_ij^k with k ≥ 2 is not a product of thin matrices. Two ways to replace it:

- `mixture_terms`: c_ij concentrates on its class mean u_ab with variance v_ab = T_ab/p. Writing c = u + e and
  keeping of each power of e its mean and its projection on e (e² → v, e³ → 3 v e),

      c² → u² + v + 2u (c - u),       c³ → 3 (u² + v) c - 2 u³.

  The constants of the first are docs/theory.md (5.6). What stands beside them is of order 1/p on a mixture,
  and yet most of the error where class means are large.
- `sketched_terms`: the leading eigenvectors of the power itself, from a random start and passes over blocks
  of rows. Random polynomial features would need more of them than samples: where p ~ n the entrywise square
  is nearly the identity plus a few directions, and s features put a noise of norm √(n/s) on top of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from notsodeep.data.statistics import MixtureStatistics
from notsodeep.equivalents.operators import GramTerm, Term, low_rank
from notsodeep.errors import ConvergenceError
from notsodeep.linalg.block_lanczos import leading_part
from notsodeep.linalg.chebyshev import LogInterval, chebyshev_basis, chebyshev_coefficients
from notsodeep.validation import Array, squared_norms

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


# --- entrywise powers of the Gram matrix ------------------------------------------------------------------

Powers = Mapping[int, Separable]

# Rows of the Gram matrix held at once.
BLOCK = 512
# An inner product below this fraction of a squared norm changes nothing next to it.
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True, eq=False)
class ClassValues:
    """Where the inner products of two classes concentrate."""

    labels: NDArray[np.intp]  # the class of each sample, shape (n,)
    mean: Array  # u_ab, the mean of c_ij, shape (K, K)
    variance: Array  # v_ab, its variance, shape (K, K)

    @classmethod
    def of(cls, X: Array, stats: MixtureStatistics | None) -> ClassValues:
        """From the statistics of a mixture; without them, from all samples as one class."""
        if stats is None:
            labels = np.zeros(len(X), dtype=np.intp)
            centre, square = _pair_means(X)
            return cls(labels, np.array([[centre]]), np.array([[max(square - centre**2, 0.0)]]))
        mean: Array = stats.means @ stats.means.T
        if not stats.exact:
            # The squared norm of an estimated mean is too large by the variance of the estimate.
            mean = mean - np.diag(stats.traces / stats.sizes)
        return cls(np.asarray(stats.labels), mean, stats.T / stats.p)

    @property
    def one_hot(self) -> Array:
        """The indicators J of the classes, 0 or 1, shape (n, K)."""
        return np.asarray(np.eye(len(self.mean))[self.labels])


def _pair_means(X: Array) -> tuple[float, float]:
    """Means of c_ij and c_ij² over pairs of different samples, O(np min(n, p))."""
    n = len(X)
    squares = squared_norms(X)
    total = X.sum(axis=0)
    smaller = X.T @ X if X.shape[1] <= n else X @ X.T
    pairs = max(n * (n - 1), 1)
    return (
        float(total @ total - squares.sum()) / pairs,
        float(np.sum(smaller**2) - np.sum(squares**2)) / pairs,
    )


def mixture_terms(X: Array, powers: Powers, values: ClassValues) -> list[Term]:
    """Terms for g_2 c² and g_3 c³ with the powers replaced by their mixture values."""
    u, v = values.mean, values.variance
    terms: list[Term] = []
    if 2 in powers:
        terms.append(_class_constants(powers[2], values, v - u**2))
        terms += _class_gram(X, powers[2], values, 2.0 * u)
    if 3 in powers:
        terms.append(_class_constants(powers[3], values, -2.0 * u**3))
        terms += _class_gram(X, powers[3], values, 3.0 * (u**2 + v))
    return terms


def _class_constants(function: Separable, values: ClassValues, table: Array) -> Term:
    """The matrix g(s_i, s_j) · table_ab as U C Uᵀ, a column of U for each term of g and each class."""
    columns = function.weights[:, :, None] * values.one_hot[:, None, :]
    core = np.asarray(np.kron(np.diag(function.scales), table), dtype=np.float64)
    return low_rank(columns.reshape(len(columns), -1), core)


def _class_gram(X: Array, function: Separable, values: ClassValues, table: Array) -> list[Term]:
    """The matrix g(s_i, s_j) · table_ab · c_ij, a D for each term of g and each eigenvector of the table."""
    eigenvalues, vectors = linalg.eigh(table)
    kept = np.abs(eigenvalues) > _NEGLIGIBLE * float(squared_norms(X).max())
    if not kept.any():
        return []
    patterns = vectors[values.labels][:, kept]
    weights = (function.weights[:, :, None] * patterns[:, None, :]).reshape(len(X), -1)
    return [GramTerm(X, weights, np.outer(function.scales, eigenvalues[kept]).ravel())]


def sketched_terms(X: Array, powers: Powers, rank: int, seed: int) -> list[Term]:
    """The leading eigenpairs of Σ_k g_k c^k off its diagonal, by a random range finder with two passes.

    The passes form blocks of rows one after the other: O(n² (p + rank)) operations, O(n (p + rank)) memory.
    """
    values, vectors = leading_part(partial(_times, X, powers), len(X), rank, seed=seed, passes=2)
    return [low_rank(vectors, np.diag(values))]


def _times(X: Array, powers: Powers, right: Array) -> Array:
    """Σ_k g_k c^k with a zero diagonal times a block of columns, a block of rows at a time."""
    result = np.empty((len(X), right.shape[1]))
    for start in range(0, len(X), BLOCK):
        rows = slice(start, min(start + BLOCK, len(X)))
        products = X[rows] @ X.T
        block = np.zeros_like(products)
        for k, function in powers.items():
            block += function.block(rows) * products**k
        block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = 0.0
        result[rows] = block @ right
    return result
