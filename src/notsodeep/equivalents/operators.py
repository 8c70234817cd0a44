"""Symmetric matrices that are a diagonal plus few columns: n × n in their answers, O(np) in their memory.

    A = diag(d) + Σ_r c_r D_r X Xᵀ D_r + U C Uᵀ

with D_r diagonal and U thin. Such an operator multiplies, solves, and has a trace.

Everything exact goes through one fact. Where the diagonal (with the ridge) is positive and all columns
together, F = [D_r X, U] with core S, are fewer than n, the thin factorisation d^{-1/2} F = Q R gives

    A = d^{1/2} (I + Q R S Rᵀ Qᵀ) d^{1/2},

so that the symmetric matrix R S Rᵀ, as small as the columns, holds the spectrum (for constant d), the inverse
and the determinant. Unlike the usual form of Woodbury's identity it never inverts S, which may be singular.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator

from notsodeep.errors import InputError
from notsodeep.linalg.dense import solve_symmetric
from notsodeep.validation import Array, as_number, as_real, as_right_sides, squared_norms

# Directions of F below this fraction of the largest are left to the diagonal.
_NO_DIRECTION = 1e-10


# --- parts: Gram terms Σ c_r D_r X Xᵀ D_r and low-rank terms U C Uᵀ --------------------------------------------------


@dataclass(frozen=True, eq=False)
class GramTerm:
    """Σ_r c_r D_r X Xᵀ D_r, that is the entrywise product of X Xᵀ and weights · diag(c) · weightsᵀ.

    Attributes:
        rows: X, shape (n, p).
        weights: the diagonals of the D_r in columns, shape (n, R).
        scales: c_r, shape (R,).
    """

    rows: Array
    weights: Array
    scales: Array

    @property
    def columns(self) -> int:
        """How many columns the term has as a factor."""
        return int(self.rows.shape[1] * len(self.scales))

    def product(self, block: Array) -> Array:
        """The term times an (n, b) block, as two matrix products for all D_r together."""
        n, width = block.shape
        spread = (self.weights[:, :, None] * block[:, None, :]).reshape(n, -1)
        gathered = self.rows @ (self.rows.T @ spread)
        weighted = gathered.reshape(n, -1, width) * (self.weights * self.scales)[:, :, None]
        return np.asarray(weighted.sum(axis=1))

    def to_dense(self) -> Array:
        """The term as an n × n array."""
        return (self.rows @ self.rows.T) * ((self.weights * self.scales) @ self.weights.T)

    def diagonal(self) -> Array:
        """The diagonal of the term."""
        return squared_norms(self.rows) * (self.weights**2 @ self.scales)

    def factor(self) -> tuple[Array, Array]:
        """The columns [D_1 X, D_2 X, …] and their core."""
        columns = (self.weights[:, :, None] * self.rows[:, None, :]).reshape(len(self.rows), -1)
        return columns, np.diag(np.repeat(self.scales, self.rows.shape[1]))


@dataclass(frozen=True, eq=False)
class LowRankTerm:
    """U C Uᵀ with U of shape (n, k) and C symmetric."""

    basis: Array
    core: Array

    @property
    def columns(self) -> int:
        """How many columns the term has as a factor."""
        return int(self.basis.shape[1])

    def product(self, block: Array) -> Array:
        """The term times an (n, b) block."""
        return self.basis @ (self.core @ (self.basis.T @ block))

    def to_dense(self) -> Array:
        """The term as an n × n array."""
        return (self.basis @ self.core) @ self.basis.T

    def diagonal(self) -> Array:
        """The diagonal of the term."""
        return np.asarray(np.einsum("ij,ij->i", self.basis @ self.core, self.basis))

    def factor(self) -> tuple[Array, Array]:
        """U and C."""
        return self.basis, self.core


Term = GramTerm | LowRankTerm


def gram(rows: Array, scale: float = 1.0) -> GramTerm:
    """The term scale · X Xᵀ."""
    return GramTerm(rows, np.ones((len(rows), 1)), np.array([float(scale)]))


def low_rank(basis: Array, core: Array) -> LowRankTerm:
    """The term U C Uᵀ; C is made symmetric to the last bit."""
    square = np.asarray(core, dtype=np.float64)
    return LowRankTerm(np.asarray(basis, dtype=np.float64), (square + square.T) / 2.0)


def merged(terms: tuple[Term, ...]) -> list[Term]:
    """Gram terms of the same X become one, so that a sum costs two matrix products and not four."""
    kept: list[Term] = []
    for term in terms:
        for place, old in enumerate(kept):
            if isinstance(old, GramTerm) and isinstance(term, GramTerm) and old.rows is term.rows:
                weights = np.hstack([old.weights, term.weights])
                kept[place] = GramTerm(old.rows, weights, np.concatenate([old.scales, term.scales]))
                break
        else:
            kept.append(term)
    return kept


def check_term(term: Term, n: int) -> None:
    """Refuse a term of another number of rows, or whose parts do not agree."""
    if isinstance(term, GramTerm):
        good = len(term.rows) == n and term.weights.shape == (n, len(term.scales))
    else:
        good = len(term.basis) == n and term.core.shape == (term.basis.shape[1],) * 2
    if not good:
        raise InputError(
            f"A {type(term).__name__} does not fit an operator of {n} rows, or its own parts do not agree."
        )


# --- the operator -----------------------------------------------------------------------------------------------------


class StructuredOperator(LinearOperator):
    """A symmetric n × n matrix diag(d) + Gram terms + low-rank terms.

    Args:
        diagonal: d, n numbers; with `size`, one number for all of them.
        terms: `GramTerm`s and `LowRankTerm`s of n rows each.
        size: n, where the diagonal is one number.
    """

    def __init__(self, diagonal: ArrayLike, terms: Iterable[Term] = (), *, size: int | None = None) -> None:
        self.terms = tuple(terms)
        self.own_diagonal = _as_diagonal(diagonal, size)
        n = len(self.own_diagonal)
        for term in self.terms:
            check_term(term, n)
        super().__init__(np.float64, (n, n))

    @property
    def n(self) -> int:
        """The number of rows and columns."""
        return int(self.shape[0])

    # --- multiplication -----------------------------------------------------------------------------------

    def _matmat(self, block: Array) -> Array:
        result = self.own_diagonal[:, None] * block
        for term in self.terms:
            result += term.product(block)
        return result

    def _matvec(self, vector: Array) -> Array:
        return np.asarray(self._matmat(np.reshape(vector, (-1, 1)))[:, 0])

    def _adjoint(self) -> Self:
        return self

    _transpose = _adjoint

    def plus_diagonal(self, values: ArrayLike) -> StructuredOperator:
        """The operator with one number, or n of them, added to its diagonal."""
        return StructuredOperator(self.own_diagonal + np.asarray(values), self.terms)

    # --- numbers ------------------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Columns of the factor F: below n, everything exact is as small as that."""
        return sum(term.columns for term in self.terms)

    @property
    def is_thin(self) -> bool:
        """Whether factorisations work on the columns instead of on n × n."""
        return self.columns < self.n

    def to_dense(self) -> Array:
        """The matrix itself, n × n."""
        matrix = np.diag(self.own_diagonal)
        for term in self.terms:
            matrix += term.to_dense()
        return matrix

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """What np.asarray makes of it: `to_dense`."""
        if copy is False:
            raise ValueError("The entries are computed: there is no array to share.")
        return np.asarray(self.to_dense(), dtype=dtype)

    def diagonal(self) -> Array:
        """The diagonal of the matrix, of all parts together."""
        total = self.own_diagonal.copy()
        for term in self.terms:
            total += term.diagonal()
        return total

    def trace(self) -> float:
        """The trace, O(np)."""
        return float(self.diagonal().sum())

    # --- spectrum -----------------------------------------------------------------------------------------

    def eigvalsh(self) -> Array:
        """All eigenvalues in ascending order.

        They come from a problem as small as the columns where the operator is thin and its diagonal constant (that
        constant then fills up the rest), from the dense matrix otherwise.
        """
        constant = self.own_diagonal[0]
        if not self.is_thin or np.any(self.own_diagonal != constant):
            return np.asarray(linalg.eigvalsh(self.to_dense(), overwrite_a=True, check_finite=False))
        columns, core = self.factor
        triangle = linalg.qr(columns, mode="r", check_finite=False)[0][: columns.shape[1]]
        small = linalg.eigvalsh(_congruence(triangle, core), check_finite=False)
        return np.sort(np.concatenate([constant + small, np.full(self.n - len(small), constant)]))

    @cached_property
    def factor(self) -> tuple[Array, Array]:
        """The columns F of all terms and their block-diagonal core S."""
        if not self.terms:
            return np.zeros((self.n, 0)), np.zeros((0, 0))
        columns, cores = zip(*(term.factor() for term in self.terms), strict=True)
        return np.hstack(columns), linalg.block_diag(*cores)

    # --- solving ------------------------------------------------------------------------------------------

    def solve(self, b: ArrayLike, ridge: float = 0.0) -> Array:
        """Give x with (A + ridge·I) x = b, for one right side (n,) or several (n, m).

        Through the columns where there are fewer than rows, otherwise by a factorisation of the dense matrix. Where
        that is too large, `scipy.sparse.linalg.cg` takes the operator.

        Raises:
            ConvergenceError: if the matrix is singular to working precision. A larger ridge repairs that.
        """
        right = as_right_sides(b, self.n)
        return self.plus_diagonal(ridge)._solved(right.reshape(self.n, -1)).reshape(right.shape)

    def _solved(self, block: Array) -> Array:
        if self.is_thin and bool(np.all(self.own_diagonal > 0.0)):
            return self._solved_through_columns(block)
        return solve_symmetric(self.to_dense(), block)

    def preconditioner(self, ridge: float) -> LinearOperator:
        """(A + ridge·I)⁻¹ with no eigenvalue above 1/ridge, which `scipy.sparse.linalg.cg` takes as `M` for a kernel.

        It is positive definite even where A + ridge·I is not.
        """
        ridge = as_number(ridge, "ridge", positive=True)
        diagonal = np.maximum(self.own_diagonal + ridge, ridge)[:, None]
        columns, core = self.factor
        middle = positive_woodbury_core(
            columns.T @ (columns / diagonal), core, least=ridge / float(diagonal.max())
        )

        def solve(block: Array) -> Array:
            first = block.reshape(self.n, -1) / diagonal
            return np.asarray(first - columns @ (middle @ (columns.T @ first)) / diagonal).reshape(
                block.shape
            )

        return LinearOperator(self.shape, matvec=solve, rmatvec=solve, matmat=solve, dtype=np.float64)

    def _solved_through_columns(self, block: Array) -> Array:
        """A⁻¹ b = d^{-1/2} (I - Q (I - (I + small)⁻¹) Qᵀ) d^{-1/2} b, see the top of the module."""
        root = np.sqrt(self.own_diagonal)
        columns, core = self.factor
        orthonormal, triangle = linalg.qr(columns / root[:, None], mode="economic", check_finite=False)
        small = _congruence(triangle, core)
        whitened = block / root[:, None]
        inside = orthonormal.T @ whitened
        correction = solve_symmetric(np.eye(len(small)) + small, inside) - inside
        return np.asarray((whitened + orthonormal @ correction) / root[:, None])


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


def _congruence(triangle: Array, core: Array) -> Array:
    """R S Rᵀ, symmetric to the last bit."""
    product = triangle @ core @ triangle.T
    return (product + product.T) / 2.0


def _as_diagonal(values: ArrayLike, size: int | None) -> Array:
    diagonal = np.array(as_real(values, "The diagonal"), dtype=np.float64)
    if diagonal.ndim == 0 and size is not None:
        diagonal = np.full(size, float(diagonal))
    if diagonal.ndim != 1 or (size is not None and len(diagonal) != size):
        raise InputError(
            f"The diagonal must be n numbers, or one number with size=n; its shape is {diagonal.shape}."
        )
    if not np.all(np.isfinite(diagonal)):
        raise InputError("The diagonal has NaN or infinite entries.")
    return diagonal
