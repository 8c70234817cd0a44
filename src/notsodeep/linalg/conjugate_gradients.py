"""Conjugate gradients for several right sides at once, with preconditioners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import linalg

from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.validation import Array

# An eigenvalue of a positive semi-definite matrix below this fraction of the largest is rounding.
_ROUNDING = 1e-12
# Directions of F below this fraction of the largest are left to the diagonal.
_NO_DIRECTION = 1e-10
# After the recursion says "converged" the true residual is computed; so many times the iteration may start again.
_RESTARTS = 3


class Preconditioner(Protocol):
    """A positive definite matrix that is easily inverted."""

    name: str

    def solve(self, block: Array) -> Array:
        """The inverse times an (n, m) block."""


@dataclass(frozen=True, eq=False, repr=False)
class LinearSolution(Shown):
    """The answer of an iteration, and how it was obtained.

    Attributes:
        x: the solution, of the shape of b.
        iterations: products with the kernel, all right sides together in each, the check of the residual apart.
        residual: ||b - (K + ridge) x||/||b|| of the worst right side, computed at the end from x itself.
        history: the worst relative residual after each iteration, as the recursion has it.
        preconditioner: the name of the one that was used.
    """

    x: Array
    iterations: int
    residual: float
    history: tuple[float, ...]
    preconditioner: str

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False and dtype is not None and np.dtype(dtype) != self.x.dtype:
            raise InputError(f"x is {self.x.dtype}: it cannot become {np.dtype(dtype)} without a copy.")
        return self.x.astype(self.x.dtype if dtype is None else dtype, copy=bool(copy))


class Unpreconditioned:
    """The identity in the place of a preconditioner."""

    name = "none"

    def solve(self, block: Array) -> Array:
        """The block itself."""
        return block


class DiagonalPreconditioner:
    """The diagonal of the matrix, which must be positive."""

    name = "diagonal"

    def __init__(self, diagonal: Array) -> None:
        if np.any(diagonal <= 0.0):
            raise ConvergenceError(
                f"The matrix is not positive definite: it has the diagonal entry {diagonal.min():.3g}.",
                "Give a ridge larger than its size.",
            )
        self._diagonal = diagonal[:, None]

    def solve(self, block: Array) -> Array:
        """The block, each row divided by its entry of the diagonal."""
        return block / self._diagonal


def conjugate_gradients(
    multiply: Callable[[Array], Array],
    block: Array,
    preconditioner: Preconditioner,
    *,
    tolerance: float,
    max_iterations: int,
    verified: bool = True,
) -> LinearSolution:
    """Solve A x = b for the columns of a block, each with its own coefficients, all in the same products.

    Args:
        multiply: the product of A, positive definite, with a block of columns.
        block: right sides in columns.
        preconditioner: a matrix close to A.
        tolerance: relative residual to reach, of every right side.
        max_iterations: products allowed.
        verified: compute the residual from x at the end and go on if it is not what the recursion says. A tolerance
            near rounding can only be reached by the recursion.

    Raises:
        ConvergenceError: if the relative residual does not come below the tolerance.
    """
    sizes = np.linalg.norm(block, axis=0)
    sizes[sizes == 0.0] = 1.0
    answer, history = np.zeros_like(block), list[float]()
    remainder, worst = block, float("inf")
    for _ in range(_RESTARTS + 1):
        answer += _run(multiply, remainder, sizes, preconditioner, tolerance, max_iterations, history)
        if verified:
            remainder = block - multiply(answer)
            worst = float((np.linalg.norm(remainder, axis=0) / sizes).max())
        else:
            worst = history[-1] if history else 0.0
        if worst <= tolerance:
            return LinearSolution(answer, len(history), worst, tuple(history), preconditioner.name)
        if len(history) >= max_iterations:
            break
    raise ConvergenceError(
        f"Conjugate gradients reached a relative residual of {worst:.1e} in {len(history)} iterations; "
        f"{tolerance:.1e} was asked for (preconditioner: {preconditioner.name}).",
        "Give a larger ridge, allow more iterations (max_iterations), or use a preconditioner; a kernel stored in "
        "float32 has no more than seven digits.",
    )


def _run(
    multiply: Callable[[Array], Array],
    block: Array,
    sizes: Array,
    preconditioner: Preconditioner,
    tolerance: float,
    max_iterations: int,
    history: list[float],
) -> Array:
    """One run of the recursion; the history grows."""
    answer, residual = np.zeros_like(block), block.copy()
    direction = preconditioner.solve(residual).copy()
    energy = np.einsum("ij,ij->j", residual, direction)
    aim = 0.9 * tolerance
    active = np.linalg.norm(residual, axis=0) > aim * sizes
    while active.any() and len(history) < max_iterations:
        image = multiply(direction[:, active])
        curvature = np.einsum("ij,ij->j", direction[:, active], image)
        _refuse_indefinite(curvature)
        step = energy[active] / curvature
        answer[:, active] += step * direction[:, active]
        residual[:, active] -= step * image
        relative = np.linalg.norm(residual, axis=0) / sizes
        history.append(float(relative.max()))
        active &= relative > aim
        if not active.any():
            break  # before a preconditioning that is not needed
        preconditioned = preconditioner.solve(residual[:, active])
        fresh = np.einsum("ij,ij->j", residual[:, active], preconditioned)
        direction[:, active] = preconditioned + fresh / energy[active] * direction[:, active]
        energy[active] = fresh
    return answer


def _refuse_indefinite(curvature: Array) -> None:
    if np.any(curvature <= 0.0) or not np.all(np.isfinite(curvature)):
        raise ConvergenceError(
            "The matrix (kernel plus ridge) is not positive definite to working precision.",
            "Give a larger ridge; a kernel stored in float32 wants one above 1e-6 of its largest eigenvalue.",
        )


class Nystrom:
    """K ≃ U diag(λ) Uᵀ from some of its columns: P = U diag(λ + ridge) Uᵀ + (λ_last + ridge)(I - U Uᵀ).

    Frangella, Tropp and Udell (2023) show that this choice on the complement serves conjugate gradients best.
    """

    name = "nystrom"

    def __init__(self, columns: Array, chosen: NDArray[np.intp], ridge: float) -> None:
        """Make it from K[:, chosen]."""
        factor = columns @ inverse_root(columns[chosen])
        # The singular values of the factor, by its small Gram matrix.
        squares, turn = linalg.eigh(factor.T @ factor, check_finite=False)
        kept = squares > _ROUNDING * squares[-1]
        self._values = squares[kept] + ridge
        self._basis = factor @ (turn[:, kept] / np.sqrt(squares[kept]))

    def solve(self, block: Array) -> Array:
        """The inverse times a block, up to the factor λ_last + ridge, which conjugate gradients do not feel."""
        inside = self._basis.T @ block
        scaled = (self._values[0] / self._values - 1.0)[:, None] * inside
        return np.asarray(block + self._basis @ scaled)


class LowRankInverse:
    """(diag(d) + F S Fᵀ + ridge·I)⁻¹ with no eigenvalue below the ridge: always positive definite.

    Args:
        diagonal: d, shape (n,).
        columns: F, shape (n, m).
        core: S, shape (m, m).
        ridge: a positive number.
    """

    name = "equivalent"

    def __init__(self, diagonal: Array, columns: Array, core: Array, ridge: float) -> None:
        self._diagonal, self._columns = np.maximum(diagonal + ridge, ridge)[:, None], columns
        gram = columns.T @ (columns / self._diagonal)
        self._middle = positive_woodbury_core(gram, core, least=ridge / float(self._diagonal.max()))

    def solve(self, block: Array) -> Array:
        """The inverse times a block."""
        first = block / self._diagonal
        inside = self._middle @ (self._columns.T @ first)
        return np.asarray(first - (self._columns @ inside) / self._diagonal)


def inverse_root(matrix: Array) -> Array:
    """Columns W with W Wᵀ the (pseudo-)inverse of a positive semi-definite matrix, as Nyström's approximation needs."""
    values, vectors = linalg.eigh((matrix + matrix.T) / 2.0, check_finite=False)
    kept = values > _ROUNDING * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def positive_woodbury_core(gram: Array, core: Array, least: float) -> Array:
    """M of Woodbury's identity for a matrix whose eigenvalues, relative to those of δ, are raised to at least `least`.

    For δ diagonal, F thin and Γ = Fᵀ δ⁻¹ F: (δ + F S Fᵀ)⁻¹ = δ⁻¹ - δ⁻¹ F M Fᵀ δ⁻¹ with M = S (I + Γ S)⁻¹, a form that
    never inverts the core S, which may be singular.
    """
    squares, turn = linalg.eigh(gram, check_finite=False)
    kept = squares > _NO_DIRECTION * max(float(squares[-1]), 1e-300)
    roots = np.sqrt(squares[kept])
    small = (turn[:, kept].T @ core @ turn[:, kept]) * roots[:, None] * roots
    values, vectors = linalg.eigh((small + small.T) / 2.0, check_finite=False)
    back = (turn[:, kept] / roots) @ vectors
    return np.asarray((back * (1.0 - 1.0 / np.maximum(1.0 + values, least))) @ back.T)
