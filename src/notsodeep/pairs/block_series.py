"""The Mehler series for a block of any samples, with as many terms as nearly all of its pairs need."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from notsodeep.pairs import compiled_series as compiled
from notsodeep.pairs.mehler_table import TRUNCATION, MehlerTable, terms_for
from notsodeep.pairs.pair_problem import PairProblem, Where, all_but
from notsodeep.pairs.single_pairs import SinglePairs
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

# Share of the pairs of a block that may be left to single pairs, which cost about thirty times as much.
LEFT = 0.02
# Longer series than this are not worth their coefficients: what they would add is integrated.
MOST_TERMS = 128
# Fewer pairs than this in all blocks are integrated in the time that the coefficients of all samples take.
WORTH = 3000


class BlockSeries:
    """Blocks of pairs that have no table: the series where its bound (3.15) holds, single pairs for the rest."""

    def __init__(self, problem: PairProblem, single: SinglePairs, pairs: Callable[[], float]) -> None:
        """Prepare; `pairs` counts the pairs of all blocks."""
        self.problem, self.single, self._pairs = problem, single, pairs
        self._table: MehlerTable | None = None
        self._lock = threading.Lock()

    def solve(
        self, c: Array, rows: Where, columns: Where, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo:
        """F and F' of the pairs of some rows and columns; only those below the diagonal with `lower`."""
        if self._pairs() < WORTH:
            wanted = np.ones(c.shape, dtype=np.bool_)
            listed = np.nonzero(np.tril(wanted, -1) if lower else wanted)
            return self.single.solve(c, rows, columns, value, slope, listed)
        problem, table = self.problem, self._with_terms(c, rows, columns, lower)
        todo = np.zeros(c.shape, dtype=np.bool_)
        own = np.ascontiguousarray(table.left[:, rows]), np.ascontiguousarray(table.right[:, columns])
        steps, residual, _, left_over = compiled.mehler_tile(
            c, problem.kappa, *problem.sides(rows, columns), *own, 0, 0, problem.feedback, table.levels, table.limits,
            table.parity, problem.want_slope, lower, value, slope, todo,
        )  # fmt: skip
        info = KernelInfo(steps, residual, (TRUNCATION + residual) / problem.margin, 0, ("series",))
        if not left_over:
            return info
        where = np.nonzero(todo)
        return info.merge(self.single.solve(c, rows, columns, value, slope, where, guessed=True))

    def _with_terms(self, c: Array, rows: Where, columns: Where, lower: bool) -> MehlerTable:
        """The coefficients of all samples, with enough terms for nearly all pairs of this block."""
        problem = self.problem
        sizes = np.abs(problem.cosines(c, rows, columns))
        if lower:
            np.fill_diagonal(sizes, 0.0)
        terms = min(terms_for(all_but(sizes, LEFT)), MOST_TERMS)
        with self._lock:
            if self._table is None or (self._table.terms < terms and not self._table.complete):
                self._table = MehlerTable(
                    problem.phi.shape, problem.left, problem.right, terms, problem.want_slope
                )
            return self._table
