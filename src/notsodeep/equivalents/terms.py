"""The parts of a structured operator: Gram terms Σ c_r D_r X Xᵀ D_r and low-rank terms U C Uᵀ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.errors import InputError
from notsodeep.validation import Array, squared_norms


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

    def times(self, number: float) -> GramTerm:
        """A multiple of the term."""
        return GramTerm(self.rows, self.weights, number * self.scales)


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

    def times(self, number: float) -> LowRankTerm:
        """A multiple of the term."""
        return LowRankTerm(self.basis, number * self.core)


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
