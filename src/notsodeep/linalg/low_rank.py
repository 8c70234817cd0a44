"""Matrices that are a diagonal plus few columns, and few columns that stand for a matrix.

Woodbury's identity in a form that never inverts the core S, which may be singular: for δ diagonal, F thin and
Γ = Fᵀ δ⁻¹ F,

    (δ + F S Fᵀ)⁻¹ = δ⁻¹ - δ⁻¹ F M Fᵀ δ⁻¹,      M = S (I + Γ S)⁻¹ .
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg

from notsodeep.validation import Array

# Columns beyond the wanted rank: what the theory of random range finders asks for.
_EXTRA = 10
# An eigenvalue of a positive semi-definite matrix below this fraction of the largest is rounding.
ROUNDING = 1e-12
# Directions of F below this fraction of the largest are left to the diagonal.
_NO_DIRECTION = 1e-10


def positive_woodbury_core(gram: Array, core: Array, least: float) -> Array:
    """M for a matrix whose eigenvalues, relative to those of δ, are raised to `least` where they are below."""
    squares, turn = linalg.eigh(gram, check_finite=False)
    kept = squares > _NO_DIRECTION * max(float(squares[-1]), 1e-300)
    roots = np.sqrt(squares[kept])
    small = (turn[:, kept].T @ core @ turn[:, kept]) * roots[:, None] * roots
    values, vectors = linalg.eigh((small + small.T) / 2.0, check_finite=False)
    back = (turn[:, kept] / roots) @ vectors
    return np.asarray((back * (1.0 - 1.0 / np.maximum(1.0 + values, least))) @ back.T)


def leading_part(
    multiply: Callable[[Array], Array], n: int, rank: int, *, seed: int, passes: int
) -> tuple[Array, Array]:
    """Eigenvalues of largest magnitude and eigenvectors of a symmetric n × n matrix, by a random range finder.

    Args:
        multiply: the product of the matrix with an (n, b) block; called passes + 1 times, with rank + 10 columns.
        n: the size of the matrix.
        rank: how many eigenvalues.
        seed: of the random start.
        passes: products before the one that measures; two serve a spectrum that falls slowly.

    Returns:
        The eigenvalues (rank,), and the eigenvectors in columns (n, rank).
    """
    image = np.random.default_rng(seed).standard_normal((n, min(rank + _EXTRA, n)))
    for _ in range(passes):
        image = linalg.qr(multiply(image), mode="economic", check_finite=False)[0]
    small = image.T @ multiply(image)
    values, vectors = linalg.eigh((small + small.T) / 2.0, check_finite=False)
    kept = np.argsort(-np.abs(values))[: min(rank, n)]
    return values[kept], np.asarray(image @ vectors[:, kept])


def inverse_root(matrix: Array) -> Array:
    """Columns W with W Wᵀ the (pseudo-)inverse of a positive semi-definite matrix, as Nyström's approximation needs."""
    values, vectors = linalg.eigh((matrix + matrix.T) / 2.0, check_finite=False)
    kept = values > ROUNDING * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
