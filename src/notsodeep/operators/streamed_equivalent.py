"""The high-dimensional equivalent of a kernel whose samples do not fit into memory, and its inverse.

    K̄ = diag(d) + Σ_r c_r D_r X Xᵀ D_r + U C Uᵀ,      docs/theory.md (4.7) and (5.2),

needs of the samples their norms (one pass) and, in every product, X itself, which is read chunk by chunk. The inverse
of K̄ + ridge costs one more pass: with F = [D_r X, U], S the core and δ = d + ridge, the small matrix Fᵀ δ⁻¹ F is
summed over chunks, and Woodbury's identity (`linalg.low_rank`) does the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator

from notsodeep.data.statistics import MixtureStatistics
from notsodeep.equivalents.coefficients import coefficients
from notsodeep.equivalents.equivalent import equivalent, informative_term
from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.equivalents.terms import GramTerm, LowRankTerm
from notsodeep.errors import InputError
from notsodeep.linalg.low_rank import leading_part, positive_woodbury_core
from notsodeep.linalg.symmetric_operator import SymmetricOperator
from notsodeep.models.protocol import Model
from notsodeep.scale.sample_sources import ArrayRows, Rows, SurveyedRows, chunks, plain_rows, survey
from notsodeep.validation import Array, as_labels


class StreamedEquivalent(SymmetricOperator):
    """The equivalent of a kernel, its samples read chunk by chunk.

    Args:
        rows: X.
        diagonal: d, shape (n,).
        weights: the diagonals of the D_r in columns, shape (n, R).
        scales: c_r, shape (R,).
        basis: U, shape (n, m).
        core: C, shape (m, m).
    """

    def __init__(
        self, rows: Rows, diagonal: Array, weights: Array, scales: Array, basis: Array, core: Array
    ) -> None:
        self.rows, self.own_diagonal = rows, diagonal
        self.weights, self.scales = weights, scales
        self.basis, self.core = basis, core
        super().__init__(rows.shape[0])

    @classmethod
    def refined(
        cls, model: Model, X: Any, kernel: str = "ck", *, around: Any = 0.0, tolerance: float = 1e-6
    ) -> StreamedEquivalent:
        """The refined form to first order, (5.2), from one pass over the rows.

        Args:
            model: a DEQ or an Explicit network; neither centring nor labels are needed.
            X: samples in rows, in memory or not, or `SurveyedRows`, which need no further pass.
            kernel: as in `equivalents.equivalent`.
            around: correlation at which the kernel is expanded; "mean" is the mean correlation of two samples.
            tolerance: relative error allowed in separating the dependence on two samples' norms. Each further D_r
                adds p columns to the factor, and the inverse costs their third power.
        """
        seen = X if isinstance(X, SurveyedRows) else survey(plain_rows(X), model)
        # Of each sample the first order knows its norm alone; X enters as the Gram matrix, put in its place here.
        lengths = np.sqrt(seen.squares)[:, None]
        point = seen.mean_correlation if around == "mean" else around
        first = equivalent(
            model, lengths, kernel=kernel, form="refined", order=1, around=point, tolerance=tolerance
        )
        return cls.of(first, seen.rows)

    @classmethod
    def asymptotic(
        cls, model: Model, X: Any, stats: MixtureStatistics, kernel: str = "ck"
    ) -> StreamedEquivalent:
        """The asymptotic form (4.7) from the statistics of a mixture; see `mixture_statistics`."""
        rows = plain_rows(X)
        scalars = coefficients(model, stats.tau0, kernel)
        informative = informative_term(scalars, stats)
        n = rows.shape[0]
        return cls(
            rows,
            np.full(n, scalars.identity),
            np.ones((n, 1)),
            np.array([scalars.linear]),
            informative.basis,
            informative.core,
        )

    @classmethod
    def of(cls, operator: StructuredOperator, rows: Rows | None = None) -> StreamedEquivalent:
        """The same matrix as a structured operator; with `rows`, those in place of its own."""
        if operator.dense is not None:
            raise InputError(
                "An equivalent with exact entrywise powers is n × n: use square='mixture' or 'sketch'."
            )
        grams = [term for term in operator.terms if isinstance(term, GramTerm)]
        flat = [term for term in operator.terms if isinstance(term, LowRankTerm)]
        if len(grams) > 1:
            raise InputError("An equivalent of one set of samples has one Gram term.")
        n = operator.n
        basis = np.hstack([term.basis for term in flat]) if flat else np.zeros((n, 0))
        core = linalg.block_diag(*(term.core for term in flat)) if flat else np.zeros((0, 0))
        weights = grams[0].weights if grams else np.zeros((n, 0))
        scales = grams[0].scales if grams else np.zeros(0)
        source = rows if rows is not None else ArrayRows(grams[0].rows if grams else np.zeros((n, 1)))
        return cls(source, operator.own_diagonal, weights, scales, basis, core)

    def corrected(self, kernel: LinearOperator, rank: int, seed: int) -> StreamedEquivalent:
        """With the leading eigenvectors of what it misses of the kernel, found by two sweeps of rank + 10 columns.

        The diagonal stays what it was: what the new term puts on it is taken back.
        """
        values, basis = leading_part(
            lambda block: kernel @ block - self @ block, self.shape[0], rank, seed=seed, passes=1
        )
        return StreamedEquivalent(
            self.rows,
            self.own_diagonal - basis**2 @ values,
            self.weights,
            self.scales,
            np.hstack([self.basis, basis]),
            linalg.block_diag(self.core, np.diag(values)),
        )

    # --- products ---------------------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Columns of the factor F."""
        return int(self.rows.shape[1] * len(self.scales) + self.basis.shape[1])

    @property
    def _core(self) -> Array:
        return np.asarray(linalg.block_diag(np.diag(np.repeat(self.scales, self.rows.shape[1])), self.core))

    def _parts(self) -> Any:
        """The rows of F, chunk by chunk."""
        for part in chunks(*self.rows.shape):
            weighted = self.weights[part][:, :, None] * self.rows.read(part)[:, None, :]
            yield part, np.hstack([weighted.reshape(len(weighted), -1), self.basis[part]])

    def gathered(self, block: Array) -> Array:
        """The product Fᵀ b."""
        p, terms, width = self.rows.shape[1], len(self.scales), block.shape[1]
        total = np.zeros((p, terms * width))
        for part in chunks(*self.rows.shape):
            # The D_r go to the few columns of the block, not to all those of X.
            weighted = self.weights[part][:, :, None] * block[part][:, None, :]
            total += self.rows.read(part).T @ weighted.reshape(len(weighted), -1)
        by_term = total.reshape(p, terms, width).transpose(1, 0, 2).reshape(p * terms, width)
        return np.vstack([by_term, self.basis.T @ block])

    def spread(self, small: Array) -> Array:
        """The product F s."""
        p, terms, width = self.rows.shape[1], len(self.scales), small.shape[1]
        by_term = small[: p * terms].reshape(terms, p, width).transpose(1, 0, 2).reshape(p, -1)
        result = self.basis @ small[p * terms :]
        for part in chunks(*self.rows.shape):
            products = (self.rows.read(part) @ by_term).reshape(-1, terms, width)
            result[part] += (self.weights[part][:, :, None] * products).sum(axis=1)
        return np.asarray(result)

    def _matmat(self, block: Array) -> Array:
        return self.own_diagonal[:, None] * block + self.spread(self._core @ self.gathered(block))

    def inverse(self, ridge: float) -> EquivalentInverse:
        """The inverse of the operator plus ridge · I, ready to be applied many times."""
        return EquivalentInverse(self, ridge)


class EquivalentInverse:
    """(K̄ + ridge)⁻¹, positive definite even where the equivalent is not: no eigenvalue is below that of the ridge."""

    name = "equivalent"

    def __init__(self, operator: StreamedEquivalent, ridge: float) -> None:
        self.operator = operator
        diagonal = np.maximum(operator.own_diagonal + ridge, ridge)
        self._diagonal = diagonal[:, None]
        gram = np.zeros((operator.columns, operator.columns))
        for part, columns in operator._parts():
            scaled = columns / np.sqrt(self._diagonal[part])
            gram += scaled.T @ scaled
        self._middle = positive_woodbury_core(gram, operator._core, least=ridge / float(diagonal.max()))

    def solve(self, block: Array) -> Array:
        """The inverse times an (n, m) block: two passes over the samples."""
        first = block / self._diagonal
        inside = self._middle @ self.operator.gathered(first)
        return np.asarray(first - self.operator.spread(inside) / self._diagonal)


def mixture_statistics(X: Any, y: Any) -> MixtureStatistics:
    """`MixtureStatistics` of labelled rows that are read chunk by chunk: one pass for the classes, one for ψ."""
    rows = plain_rows(X)
    labels = as_labels(y, rows.shape[0])
    return MixtureStatistics.of_chunks(
        lambda: ((rows.read(part), labels[part]) for part in chunks(*rows.shape)),
        rows.shape[1],
        np.unique(labels),
    )
