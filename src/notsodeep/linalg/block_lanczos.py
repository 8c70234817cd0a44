"""Eigenvalues and norms of symmetric operators from products alone.

A sweep over a kernel that is computed block by block costs the same for one column and for thirty; `block_lanczos`
therefore works on blocks of columns. `extreme_eigenvalues` is ARPACK's iteration, for operators whose single products
are cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError
from notsodeep.validation import Array

# Lanczos needs a start; a fixed one makes answers repeatable.
_START = 20240721
# Columns beyond the wanted ones: eigenvalues just below them then converge as well, and the wanted ones faster.
_EXTRA = 8
# Columns beyond the wanted rank of a random range finder.
_EXTRA_RANGE = 10
# Below this fraction of the largest a direction is rounding.
BREAKDOWN = 1e-13
# Below this size an operator is made a matrix.
_SMALL = 20


class SymmetricOperator(LinearOperator):
    """A symmetric n × n matrix; `_matmat` gives its product with an (n, m) block."""

    def __init__(self, n: int) -> None:
        super().__init__(np.float64, (n, n))

    @property
    def n(self) -> int:
        """The number of rows and columns."""
        return int(self.shape[0])

    def _matvec(self, vector: Array) -> Array:
        return np.asarray(self._matmat(np.reshape(vector, (-1, 1)))[:, 0])

    def _adjoint(self) -> Self:
        return self

    _transpose = _adjoint


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


@dataclass(frozen=True, eq=False, repr=False)
class Eigenpairs(Shown):
    """Leading eigenvalues, largest first.

    Attributes:
        values: shape (k,).
        vectors: in columns, shape (n, k).
        residuals: ||Kv - λv|| of each; a value is no further than this from an eigenvalue.
        sweeps: passes over the kernel.
    """

    values: Array
    vectors: Array
    residuals: Array
    sweeps: int


def leading_eigenpairs(
    operator: LinearOperator, k: int, *, tolerance: float, max_sweeps: int, seed: int
) -> Eigenpairs:
    """The k largest eigenvalues of a symmetric operator by a block Lanczos iteration with full reorthogonalisation.

    Raises:
        ConvergenceError: if a residual is above tolerance · λ_1 after the last sweep.
    """
    for sweeps, (basis, image) in enumerate(block_lanczos(operator, k + _EXTRA, seed), start=1):
        found = _ritz(basis, image, k, sweeps)
        if np.all(found.residuals <= tolerance * abs(found.values[0])):
            return found
        if sweeps == max_sweeps:
            break
    raise ConvergenceError(
        f"{k} eigenvalues did not converge in {found.sweeps} sweeps: the largest residual is "
        f"{found.residuals.max() / abs(found.values[0]):.1e} of the first eigenvalue, {tolerance:.1e} was asked for.",
        "Allow more (max_sweeps), ask for fewer eigenvalues, or loosen the tolerance.",
    )


def block_lanczos(operator: LinearOperator, width: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """An orthonormal basis of a Krylov space and its image, after one sweep, after two, and so on.

    Each sweep multiplies `width` columns and adds what is new in them; there is none left once the space is invariant.
    """
    n = operator.shape[0]
    width = min(width, n)
    start = np.random.default_rng(seed).standard_normal((n, width))
    fresh = linalg.qr(start, mode="economic", check_finite=False)[0]
    basis, image = np.zeros((n, 0)), np.zeros((n, 0))
    while fresh.shape[1]:
        basis, image = np.hstack([basis, fresh]), np.hstack([image, operator @ fresh])
        yield basis, image
        fresh = _new_directions(image[:, -width:], basis)


def _ritz(basis: Array, image: Array, k: int, sweeps: int) -> Eigenpairs:
    """Approximate eigenpairs from a basis and its image."""
    small = basis.T @ image
    values, vectors = linalg.eigh((small + small.T) / 2.0, check_finite=False)
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    approximate = basis @ vectors
    residuals = np.linalg.norm(image @ vectors - approximate * values, axis=0)
    return Eigenpairs(values, approximate, residuals, sweeps)


def _new_directions(block: Array, basis: Array) -> Array:
    """An orthonormal basis of what the block adds to the basis."""
    room, size = len(basis) - basis.shape[1], float(np.linalg.norm(block))
    for _ in range(2):
        block = block - basis @ (basis.T @ block)
    columns, triangle, _ = linalg.qr(block, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(triangle))
    kept = int(np.count_nonzero(sizes > BREAKDOWN * max(size, 1e-300)))
    columns = columns[:, : min(kept, room)]
    # What pivoting leaves of rounding may lean on the basis again.
    columns = columns - basis @ (basis.T @ columns)
    return np.asarray(linalg.qr(columns, mode="economic", check_finite=False)[0])


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
