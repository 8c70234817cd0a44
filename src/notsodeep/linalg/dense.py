"""Factorisations of dense symmetric matrices that refuse singular ones."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from notsodeep.errors import ConvergenceError
from notsodeep.validation import Array

# A factorisation with a smaller reciprocal condition number has no digits left to give.
SINGULAR = 1e-14


def solve_definite(matrix: Array, block: Array, *, overwrite: bool = False) -> tuple[Array | None, float]:
    """Solve with a positive definite matrix by Cholesky's factorisation.

    Args:
        matrix: symmetric.
        block: right sides, (n,) or (n, m).
        overwrite: whether the matrix, in C order, may be used as room for the factor.

    Returns:
        The solution, None if the matrix is not positive definite; and the reciprocal condition number.
    """
    # The transpose of a symmetric matrix in C order is itself in the order that LAPACK overwrites in place.
    columns = matrix.T
    size = lapack.dlange("1", columns)
    factor, failed = lapack.dpotrf(columns, lower=True, clean=False, overwrite_a=overwrite)
    if failed:
        return None, 0.0
    rcond = float(lapack.dpocon(factor, size, uplo="L")[0])
    return np.asarray(lapack.dpotrs(factor, block, lower=True)[0]).reshape(block.shape), rcond


def solve_symmetric(matrix: Array, block: Array) -> Array:
    """Cholesky's factorisation where the matrix is positive definite, Bunch and Kaufman's where it is not.

    Raises:
        ConvergenceError: if the matrix is singular to working precision.
    """
    if len(matrix) == 0:
        return block.copy()
    solution, rcond = solve_definite(matrix, block)
    if solution is None:
        size = lapack.dlange("1", matrix)
        # Not dsytrf and dsytrs: older versions of scipy have no dsytrs.
        factor, pivots, solution, _ = lapack.dsysv(matrix, block, lower=True)
        rcond, _ = lapack.dsycon(factor, pivots, size, lower=True)
    if not rcond > SINGULAR:
        raise ConvergenceError(
            f"The operator is singular to working precision (reciprocal condition number {rcond:.1e}).",
            "Give a ridge: solve(b, ridge=…), larger than 1e-12 times the largest eigenvalue.",
        )
    return np.asarray(solution)
