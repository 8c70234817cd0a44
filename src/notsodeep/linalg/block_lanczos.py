"""Eigenvalues and norms of symmetric operators from products alone: ARPACK, and a random range finder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from notsodeep.validation import Array

# Lanczos needs a start; a fixed one makes answers repeatable.
_START = 20240721
# Columns beyond the wanted rank of a random range finder.
_EXTRA_RANGE = 10
# Below this size an operator is made a matrix.
_SMALL = 20


def extreme_eigenvalues(operator: Any, k: int, which: str = "LM", tolerance: float = 0.0) -> Array:
    """k eigenvalues of a symmetric operator or matrix, as ARPACK names them.

    Args:
        operator: symmetric.
        k: number of eigenvalues, fewer than its size.
        which: "LM" for those of largest magnitude, "LA" for the largest.
        tolerance: relative accuracy; 0 is machine precision.
    """
    start = np.random.default_rng(_START).standard_normal(operator.shape[0])
    return np.asarray(eigsh(operator, k, which=which, v0=start, tol=tolerance, return_eigenvectors=False))


def operator_norm(operator: LinearOperator, tolerance: float = 1e-3) -> float:
    """The largest magnitude of an eigenvalue of a symmetric operator."""
    n = operator.shape[0]
    if n <= _SMALL:
        return float(np.abs(linalg.eigvalsh(operator @ np.eye(n))).max())
    if not (operator @ np.random.default_rng(_START).standard_normal(n)).any():
        return 0.0  # ARPACK refuses an operator that is zero
    return float(np.abs(extreme_eigenvalues(operator, 1, tolerance=tolerance)[0]))


def leading_part(
    multiply: Callable[[Array], Array], n: int, rank: int, *, seed: int, passes: int
) -> tuple[Array, Array]:
    """Eigenvalues of largest magnitude and eigenvectors of a symmetric n × n matrix, by a random range finder.

    Args:
        multiply: the product of the matrix with an (n, b) block; called passes + 1 times, with rank + 10 columns.
        n: the size of the matrix.
        rank: number of eigenvalues.
        seed: random seed of the start.
        passes: products before the one that measures; two serve a spectrum that falls slowly.

    Returns:
        The eigenvalues (rank,), and the eigenvectors in columns (n, rank).
    """
    image = np.random.default_rng(seed).standard_normal((n, min(rank + _EXTRA_RANGE, n)))
    for _ in range(passes):
        image = linalg.qr(multiply(image), mode="economic", check_finite=False)[0]
    small = image.T @ multiply(image)
    values, vectors = linalg.eigh((small + small.T) / 2.0, check_finite=False)
    kept = np.argsort(-np.abs(values))[: min(rank, n)]
    return values[kept], np.asarray(image @ vectors[:, kept])
