"""All pairs of two sets of samples through one activation: F and F', with or without feedback.

A `PairSolver` is prepared once from the variances of the samples and then applied to tiles of the Gram matrix, from
any number of threads.  Four ways, from fast to careful: a fitted polynomial (activations with one kink at zero), the
Mehler series with as many terms as its error bound asks for, a table of the solution over the norms and angles that
the data have, and the evaluators of `gaussian.bivariate` for the rest.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs import compiled_series as compiled
from notsodeep.pairs import homogeneous
from notsodeep.pairs.compiled_tiles import mirror_lower
from notsodeep.pairs.compiled_waves import wave_tile
from notsodeep.pairs.mehler_table import LEVELS, TRUNCATION, MehlerTable, reach, terms_for
from notsodeep.pairs.near_parallel import NearPairs
from notsodeep.pairs.pair_problem import PairProblem, all_but
from notsodeep.pairs.sample_moments import Equation, Side
from notsodeep.pairs.single_pairs import SinglePairs, no_solution
from notsodeep.pairs.table_lookup import SHARE_INTEGRATED, TableLookup, has_table
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

# Beyond this many terms that do not vanish a table is cheaper than the series, where there is one.
SERIES_WORTH = 32
# The table of one norm, which unit rows have, is much shorter.
SERIES_WORTH_ONE_NORM = 14
# Kinks away from zero have larger tables.
SERIES_WORTH_KINKED = 64
# Fewer pairs than this are not worth a table.
TABLE_WORTH = 64
# A tile with more than this share of pairs beyond the series is left to the tables, and so are the next ones.
SHARE = 5e-4
# Rows and columns of the first tile that are looked at to see whether the series is worth trying.
LOOKED_AT = 64
# Series are long enough for this |ρ| in any case.
LEAST_LOOK = 0.2


class PairSolver:
    """F and F' for tiles of pairs; thread-safe."""

    def __init__(
        self, phi: Activation, left: Array, right: Array | None, equation: Equation, *, want_slope: bool
    ) -> None:
        """Prepare for samples with variances `left` (rows) and `right` (columns; None for the same samples)."""
        # A constant joins the forcing of the equation exactly; hard_sigmoid without it is odd.
        shape, level = phi.shape.without_level()
        if shape is not phi.shape:
            phi = replace(phi, shape=shape, offset=phi.offset + phi.amplitude * level)
        self.phi, self.equation = phi, equation
        self.left = Side(phi, left, equation)
        self.right = self.left if right is None else Side(phi, right, equation)
        feedback = phi.gain**2 * phi.amplitude**2 * equation.feedback
        self.problem = PairProblem(
            phi, self.left, self.right, feedback, phi.gain**2 * equation.gain, want_slope
        )
        self._single = SinglePairs(self.problem)
        self._lock = threading.Lock()
        self._table: MehlerTable | None = None
        self._fit = None
        self._lookup: TableLookup | None = None
        self._series_first = True
        self._most_terms = LEVELS[-1]
        # A |ρ| that nearly all pairs do not exceed, of those that were looked at.
        self._looked_at = LEAST_LOOK
        if shape.pieces is not None and shape.is_homogeneous:
            self._fit = homogeneous.fit(shape.pieces.slopes, feedback)
        elif len(self.left.root) * len(self.right.root) > TABLE_WORTH and has_table(shape):
            self._lookup = TableLookup(self.problem, self._single)
            worth = SERIES_WORTH if shape.kinked_pieces is None else SERIES_WORTH_KINKED
            inner = np.concatenate([self.left.inner, self.right.inner])
            if inner.max() <= (1.0 + 1e-9) * inner.min():
                worth = SERIES_WORTH_ONE_NORM
            self._most_terms = worth * (2 if shape.parity else 1)

    def tile(
        self, c: Array, rows: slice, columns: slice, *, diagonal: bool = False, near: NearPairs | None = None
    ) -> tuple[Array, Array | None, KernelInfo]:
        """Values F, slopes F' (if wanted) and the evidence, for the Gram entries c of these rows and columns.

        Args:
            c: entries of the Gram matrix (or of the kernel of the layer below).
            rows: which samples of the left side.
            columns: which samples of the right side.
            diagonal: the tile is on the diagonal of a symmetric matrix: its lower triangle is computed and mirrored,
                and its diagonal has closed moments.
            near: nearly parallel pairs, whose slope needs more digits than c has; their distances are moved on to
                the next layer.
        """
        # Of a tile on the diagonal only one half is filled.
        empty = np.zeros_like if diagonal else np.empty_like
        value = empty(c)
        slope = empty(c) if self.problem.want_slope else np.empty((0, 0))
        way = self._series if self._fit is None else self._fitted
        if self.phi.shape.quarter is not None:
            way = self._closed
        info = way(c, rows, columns, value, slope, lower=diagonal)
        phi = self.phi
        info = info.provided(phi.caveat, phi.shape.inaccuracy / self.problem.margin)
        if phi.amplitude != 1.0:
            value *= phi.amplitude**2
        if phi.offset:
            value += self.left.lift[rows, None]
            value += self.right.lift[columns]
        for silent, lines in ((self.left.silent[rows], value), (self.right.silent[columns], value.T)):
            if silent.any():
                lines[silent] = 0.0
        if diagonal:
            value = _mirrored(value, self.left.value(phi)[rows])
        if not self.problem.want_slope:
            return value, None, info
        if phi.amplitude * phi.gain != 1.0:
            slope *= (phi.amplitude * phi.gain) ** 2
        if near is not None:
            near.correct(phi, self.equation, (self.left, self.right), slope, rows, columns)
        if diagonal:
            slope = _mirrored(slope, self.left.slope(phi)[rows])
        return value, slope, info

    def _fitted(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo:
        fit, problem = self._fit, self.problem
        if fit is None:
            raise no_solution(c.size, np.inf)
        compiled.fit_tile(
            c, problem.kappa, *problem.sides(rows, columns), fit.highest, fit.middle, fit.lowest,
            fit.upper.value, fit.lower.value, fit.upper.slope, fit.lower.slope, problem.want_slope, lower, value, slope,
        )  # fmt: skip
        return KernelInfo(0, 0.0, fit.error, 0, ("fit",))

    def _series(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo:
        """The series for the pairs that it can bound, and for the others what is cheapest."""
        # Another thread may drop the lookup meanwhile.
        problem, shape, lookup = self.problem, self.phi.shape, self._lookup
        if not self._series_first and lookup is not None:
            looked_up = lookup.tile(c, rows, columns, value, slope, lower=lower)
            if looked_up is not None:
                return looked_up
            self._without_table()
            lookup = None
        if self._table is None and self._hopeless(c, rows, columns, lower=lower):
            self._series_first = False
            return self._series(c, rows, columns, value, slope, lower=lower)
        todo = np.zeros(c.shape, dtype=np.bool_)
        table = self._grown(self._looked_at)
        while True:
            steps, residual, highest, left_over = compiled.mehler_tile(
                c, problem.kappa, *problem.sides(rows, columns), table.left, table.right, rows.start, columns.start,
                problem.feedback, table.levels, table.limits, table.parity, problem.want_slope, lower, value, slope,
                todo,
            )  # fmt: skip
            if left_over == 0 or table.complete or table.terms >= self._most_terms:
                break
            larger = self._grown(highest)
            if larger is table:
                break
            table = larger
        info = KernelInfo(steps, residual, (TRUNCATION + residual) / problem.margin, 0, ("series",))
        if not left_over:
            return info
        pairs = c.size // 2 if lower else c.size
        integrated = shape.kinked_pieces is not None and left_over <= SHARE_INTEGRATED * pairs
        if lookup is not None and not integrated:
            if left_over > SHARE * pairs:
                self._series_first = False
                return self._series(c, rows, columns, value, slope, lower=lower)
            parts = np.zeros_like(value), np.zeros_like(slope)
            found = lookup.tile(c, rows, columns, *parts, lower=lower)
            if found is not None:
                for output, part in zip((value, slope), parts, strict=True):
                    if output.size:
                        np.copyto(output, part, where=todo)
                return info.merge(found)
            self._without_table()
            return self._series(c, rows, columns, value, slope, lower=lower)
        # The series left about F of these pairs where they stand.
        return info.merge(self._single.solve(c, rows, columns, value, slope, np.nonzero(todo), guessed=True))

    def _without_table(self) -> None:
        """No table can be resolved: the series takes as many terms as there may be."""
        self._lookup, self._most_terms, self._series_first = None, LEVELS[-1], True

    def _closed(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo:
        """The whole tile by the closed forms of sin and cos."""
        problem, sine = self.problem, self.phi.shape.quarter == 0
        steps, residual = wave_tile(
            c, problem.kappa, *problem.sides(rows, columns), problem.feedback, sine, problem.want_slope, lower,
            value, slope,
        )  # fmt: skip
        if residual > 1e-12:
            raise no_solution(1, residual)
        return KernelInfo(steps, residual, (TRUNCATION + residual) / problem.margin, 0, ("closed form",))

    def _hopeless(self, c: Array, rows: slice, columns: slice, *, lower: bool) -> bool:
        """Whether too many of some pairs of the first tile are beyond the longest series."""
        if self._lookup is None:
            return False
        step = slice(None, None, max(1, min(c.shape) // LOOKED_AT))
        some = [np.arange(part.start, part.stop)[step] for part in (rows, columns)]
        sizes = np.abs(self.problem.cosines(c[step, step], *some))
        if lower:
            np.fill_diagonal(sizes, 0.0)
        share = SHARE if self.phi.shape.kinked_pieces is None else SHARE_INTEGRATED
        logs = np.log(
            [
                min(side.inner.min() for side in (self.left, self.right)),
                max(side.inner.max() for side in (self.left, self.right)),
            ]
        )
        low, high = np.floor(4.0 * logs[0]) / 4.0, np.ceil(4.0 * logs[1]) / 4.0
        limit = reach(self.phi.shape, max(low, high - 20.0), high, self._most_terms, self.problem.want_slope)
        found = all_but(sizes, share)
        self._looked_at = max(self._looked_at, found)
        return found > limit

    def _grown(self, correlation: float) -> MehlerTable:
        """The table, with enough terms for |ρ| up to `correlation`, or as many as there may be."""
        with self._lock:
            table = self._table
            while table is None or not (
                table.complete or table.terms >= self._most_terms or table.limits[-1] >= correlation
            ):
                terms = terms_for(correlation) if table is None else 2 * table.terms
                terms = min(terms, self._most_terms)
                table = MehlerTable(self.phi.shape, self.left, self.right, terms, self.problem.want_slope)
            self._table = table
            return table


def _mirrored(lower: Array, diagonal: Array) -> Array:
    """The symmetric matrix with this lower triangle and this diagonal."""
    mirror_lower(lower)
    np.fill_diagonal(lower, diagonal)
    return lower
