"""The share of samples whose largest score is that of their class, for Gaussian scores.

Two classes have a closed form. More are an integral over an orthant, by Genz's sequence of one-dimensional conditionals
on a fixed lattice: deterministic, smooth in the scores, and accurate to about 1e-4.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from notsodeep.validation import Array

# Points of the lattice (a prime), and how far arguments of the normal quantile stay from 0 and 1.
_POINTS, _FEW = 4093, 251
_EDGE = 1e-15
# Variances below this share of the largest are zero up to rounding: such a score does not vary.
_FLAT = 1e-14


def chance_of_largest(mean: Array, covariance: Array, which: int, *, fine: bool = True) -> float:
    """P(score of `which` is the largest) for scores N(mean, covariance); to about 1e-4, or 1e-3 if not `fine`."""
    others = [k for k in range(len(mean)) if k != which]
    contrast = np.zeros((len(others), len(mean)))
    contrast[np.arange(len(others)), others] = -1.0
    contrast[:, which] = 1.0
    return positive_orthant(contrast @ mean, contrast @ covariance @ contrast.T, _POINTS if fine else _FEW)


def positive_orthant(mean: Array, covariance: Array, number: int = 4093) -> float:
    """P(all components > 0) for a normal vector."""
    if len(mean) == 1:
        return float(_chance(mean[0], np.sqrt(max(covariance[0, 0], 0.0))))
    # The tightest constraints first: what follows then varies least over the lattice.
    scale = np.sqrt(np.maximum(covariance.diagonal(), _FLAT * max(covariance.diagonal().max(), 1e-300)))
    order = np.argsort(mean / scale)
    root = _cholesky(covariance[np.ix_(order, order)])
    limits = mean[order]
    points = _lattice(number, len(mean) - 1)
    drawn = np.zeros((len(points), len(mean)))
    chance = np.ones(len(points))
    for k in range(len(mean)):
        centre = limits[k] + drawn[:, :k] @ root[k, :k]
        share = _chance(centre, root[k, k])
        chance *= share
        if k < len(mean) - 1 and root[k, k] > 0.0:
            # A standard normal draw above -centre/root, by its quantile.
            level = 1.0 - share * (1.0 - points[:, k])
            drawn[:, k] = ndtri(np.clip(level, _EDGE, 1.0 - _EDGE))
    return float(chance.mean())


def _chance(centre: Array | float, spread: float) -> Array:
    """P(centre + spread ξ > 0); one half at the edge of a score that does not vary."""
    if spread > 0.0:
        return np.asarray(ndtr(np.asarray(centre) / spread))
    return np.asarray(np.heaviside(centre, 0.5))


def _cholesky(matrix: Array) -> Array:
    """A lower triangular root of a matrix that may be singular."""
    lower = np.asarray(np.linalg.qr(matrix_root(matrix).T, mode="r")).T
    lower = lower * np.where(lower.diagonal() < 0.0, -1.0, 1.0)
    small = np.abs(lower.diagonal()) <= np.sqrt(_FLAT) * np.abs(lower).max()
    lower[small, small] = 0.0
    return np.asarray(lower)


def normal_points(number: int, dimension: int) -> Array:
    """Fixed points in place of draws from N(0, I), shape (number, dimension): a lattice and its mirror image."""
    half = ndtri(np.clip(_lattice(number // 2, dimension), _EDGE, 1.0 - _EDGE))
    return np.vstack([half, -half])


def matrix_root(matrix: Array) -> Array:
    """R with R Rᵀ = matrix, for a positive semi-definite matrix; negative eigenvalues (rounding) are set to zero."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _lattice(number: int, dimension: int) -> Array:
    """Richtmyer's lattice: multiples of square roots of primes, folded so that the integrand becomes periodic."""
    primes = [n for n in range(2, 20 + 20 * dimension) if all(n % divisor for divisor in range(2, n))]
    steps = np.arange(1, number + 1)[:, None] * np.sqrt(np.array(primes[:dimension], dtype=np.float64))
    return np.asarray(np.abs(2.0 * (steps % 1.0) - 1.0))


__all__ = ["chance_of_largest", "matrix_root", "normal_points", "positive_orthant"]
