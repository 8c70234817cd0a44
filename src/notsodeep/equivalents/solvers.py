"""Dense and iterative solvers behind the structured operators, with errors that name the remedy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from notsodeep.errors import ConvergenceError

Array = NDArray[np.float64]

# A factorisation with a smaller reciprocal condition number has no digits left to give.
SINGULAR = 1e-14
# Lanczos needs a start; a fixed one makes answers repeatable.
_START = 20240721


def lanczos(operator: LinearOperator, k: int, tolerance: float = 0.0) -> Array:
    """The k eigenvalues of largest magnitude of a symmetric operator; tolerance 0 is machine precision."""
    start = np.random.default_rng(_START).standard_normal(operator.shape[0])
    return np.asarray(eigsh(operator, k, which="LM", v0=start, tol=tolerance, return_eigenvectors=False))


def dense_solve(matrix: Array, block: Array) -> Array:
    """Cholesky's factorisation where the matrix is positive definite, Bunch and Kaufman's where it is not."""
    if len(matrix) == 0:
        return block.copy()
    size = float(np.abs(matrix).sum(axis=0).max())
    factor, info = linalg.lapack.dpotrf(matrix, lower=True, clean=False)
    if info == 0:
        rcond, _ = linalg.lapack.dpocon(factor, size, uplo="L")
        _refuse_singular(rcond)
        return np.asarray(linalg.lapack.dpotrs(factor, block, lower=True)[0])
    # Not dsytrf and dsytrs: older versions of scipy have no dsytrs.
    factor, pivots, solution, _ = linalg.lapack.dsysv(matrix, block, lower=True)
    rcond, _ = linalg.lapack.dsycon(factor, pivots, size, lower=True)
    _refuse_singular(rcond)
    return np.asarray(solution)


def _refuse_singular(rcond: float) -> None:
    if not rcond > SINGULAR:
        raise ConvergenceError(
            f"The operator is singular to working precision (reciprocal condition number {rcond:.1e}).",
            "Give a ridge: solve(b, ridge=…), larger than 1e-12 times the largest eigenvalue.",
        )


def conjugate_gradients(operator: LinearOperator, scale: Array, block: Array) -> Array:
    """Solve with a positive definite operator, preconditioned by its diagonal `scale`, column by column."""
    if np.any(scale <= 0.0):
        _refuse_indefinite(float(scale.min()), "diagonal entry")
    precondition = LinearOperator(operator.shape, matvec=lambda v: v.ravel() / scale, dtype=np.float64)
    answer = np.empty_like(block)
    for column in range(block.shape[1]):
        answer[:, column], failed = cg(
            operator, block[:, column], rtol=1e-12, atol=0.0, maxiter=2000, M=precondition
        )
        if failed:
            raise ConvergenceError(
                "Conjugate gradients did not reach a relative residual of 1e-12 in 2000 steps "
                f"(n = {len(block)}).",
                "Give a larger ridge: the matrix must be positive definite and not too ill-conditioned.",
            )
    return answer


def log_sum(values: Array) -> float:
    """The sum of the logarithms of eigenvalues, all of which must be positive."""
    least = float(values.min(initial=np.inf))
    if least <= 0.0:
        _refuse_indefinite(least, "eigenvalue")
    return float(np.log(values).sum())


def _refuse_indefinite(least: float, what: str) -> None:
    raise ConvergenceError(
        f"The matrix is not positive definite: it has the {what} {least:.3g}.",
        "Give a ridge larger than its size.",
    )
