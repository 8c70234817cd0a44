"""What one tile of pairs needs of a solution table: its coefficients over the norms and the angles of the tile alone.

Samples come sorted by norm, so that the norms of a tile are close to each other; over such a short range few orders in
log q matter, and fewer still of the high orders in t.  A polynomial on an interval is a polynomial on each part of it,
so that nothing is approximated but by what is dropped, and that is bounded by the coefficients that are dropped:
docs/theory.md (3.30).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.linalg.chebyshev import chebyshev_basis
from notsodeep.pairs.compiled_series import WIDTH
from notsodeep.pairs.compiled_tables import (
    cut_series,
    packed,
    restriction,
    table_values,
)
from notsodeep.pairs.pair_problem import PairProblem, Where
from notsodeep.pairs.sample_moments import Side
from notsodeep.pairs.solution_table import STEEPEST_RISE, SolutionTable
from notsodeep.pairs.table_range import coordinate, slope_of_coordinate
from notsodeep.validation import Array, IntArray

# What may be dropped of F, relative to √(S_i S_j), and of F', relative to √(E1_i E1_j), before feedback amplifies it.
DROPPED, DROPPED_SLOPE = 5e-12, 3e-11
# Orders in log q are dropped from all tiles of a row or column of tiles if they are smaller than this.
NOTHING = 1e-16
# F' comes from the derivative of F's series if its error is not more than this; else from a series of its own.
SLOPE_ERROR = 2e-11


class TileSide:
    """The samples of one side of a tile: their norms on the short range that they have.

    Attributes:
        cut: (M, m) coefficients over the range of the table become those over this range.
        vectors: (samples, m) Chebyshev polynomials of that range at the samples.
        inverse: what c is multiplied with to become r, relative to its ends if these are plain.
        narrowest: what the distance of the ends of r is at least, the product of both sides and 2.
        energy, steep: √S and √E1 of the samples.
        rise: the largest √S/√(q E1), with r relative to its ends.
    """

    def __init__(self, table: SolutionTable, axis: int, side: Side, where: Where, logs: Array) -> None:
        low, high = float(logs.min()), float(logs.max())
        ends = table.extent.columns if axis else table.extent.rows
        length, count = ends[1] - ends[0], table.variances
        middle, half = 0.0, 0.0
        if length > 0.0 and count > 1:
            middle, half = (low + high - ends[0] - ends[1]) / length, (high - low) / length
        whole = restriction(count, middle, half)
        left_out = np.cumsum((table.order_sizes[axis] @ np.abs(whole))[::-1])[::-1]
        kept = max(1, int(np.sum(left_out > NOTHING)))
        self.cut = np.ascontiguousarray(whole[:, :kept])
        place = (2.0 * logs - low - high) / (high - low) if high > low else np.zeros_like(logs)
        self.vectors = chebyshev_basis(place, kept)
        self.inverse = 1.0 / side.root[where]
        self.energy, self.steep = np.sqrt(side.energy[where]), np.sqrt(side.slope_energy[where])
        own = np.sqrt(np.maximum(1.0 - table.feedback * side.energy[where] / side.inner[where], 1e-6))
        self.narrowest = 1.0 if table.plain_ends else float(own.min())
        if table.plain_ends:
            self.inverse /= own

        self.rise = float(np.max(self.energy * self.inverse / np.maximum(self.steep, 1e-150)))


class TileColumns(TileSide):
    """The samples of the columns of a tile, and the coefficients of a table over their norms."""

    def __init__(self, table: SolutionTable, side: Side, where: Where, logs: Array) -> None:
        super().__init__(table, 1, side, where, logs)
        self.table = table
        self.strips = in_strips(self.vectors[:, 1:])
        # An even number of orders.
        self.end_columns = np.empty((0, 0))
        if table.feedback > 0.0 and not table.plain_ends:
            self.end_columns = np.ascontiguousarray(
                np.pad(self.vectors.T, ((0, self.vectors.shape[1] % 2), (0, 0)))
            )
        self._folded: dict[int, Array] = {}

    def folded(self, part: int) -> Array:
        """(M, K, m) coefficients of F (part 0) or F' (part 1)."""
        if part not in self._folded:
            self._folded[part] = np.ascontiguousarray((self.table.series[part] @ self.cut).transpose(1, 0, 2))
        return self._folded[part]


class LocalTable:
    """A table for the pairs of one tile."""

    def __init__(self, problem: PairProblem, rows: TileSide, columns: TileColumns) -> None:
        self.problem, self.rows, self.columns, self.table = problem, rows, columns, columns.table

    @property
    def ends(self) -> tuple[Array, Array]:
        """What the ends of r are the product of; nothing if they are plain."""
        table, rows, columns = self.table, self.rows, self.columns
        if table.plain_ends or table.feedback == 0.0:
            return np.empty((len(rows.vectors), 2, 0)), columns.end_columns
        short = rows.vectors @ (rows.cut.T @ table.end_series @ columns.cut)
        padding = len(columns.end_columns) - short.shape[2]
        padded = np.pad(short.transpose(1, 0, 2), ((0, 0), (0, 0), (0, padding)))
        return np.ascontiguousarray(padded), columns.end_columns

    def evaluate(
        self, seen: tuple[float, float, float], lower: bool, delay: Array, value: Array, slope: Array
    ) -> float:
        """F and F' of the tile; returns the error of the table with what was dropped of it.

        Args:
            seen: the smallest and the largest d, and the smallest 1 - d.
            lower: only the pairs below the diagonal.
            delay: |dr/dt|, with the sign of r; may be `slope`.
            value: holds t and receives F.
            slope: receives F', if it is wanted.
        """
        problem, rows, columns = self.problem, self.rows, self.columns
        energy, steep = (rows.energy, columns.energy), (rows.steep, columns.steep)
        over = rows.energy * rows.inverse, columns.energy * columns.inverse
        span, slowest = self._span(seen)
        table, rise, error, limit = self.table, 0.0, self.table.error, DROPPED * problem.margin
        if problem.want_slope:
            rise = 2.0 * rows.rise * columns.rise / max(slowest * (span[1] - span[0]), 1e-300)
            error = table.slope_error(rise * (span[1] - span[0]) / (table.stop - table.start))
        apart = problem.want_slope and (rise > STEEPEST_RISE or error > SLOPE_ERROR * problem.margin)
        steeper = np.zeros_like(value) if apart else slope
        if apart:
            rise, error = 0.0, table.error
            second = self._series(1, span, 0.0, limit)
            table_values(
                *second.form, *steep, *over, 0.0, False, False, lower, value, delay, steeper, steeper
            )
        series = self._series(0, span, rise, limit)
        arguments = *energy, *over, problem.feedback, table.odd, rise > 0.0
        table_values(*series.form, *arguments, lower, value, delay, value, slope)
        if apart:
            slope[...] = steeper
        larger = DROPPED_SLOPE / DROPPED if rise > 0.0 else 1.0
        return max(table.error + series.dropped, error + larger * series.dropped)

    def _span(self, seen: tuple[float, float, float]) -> tuple[tuple[float, float], float]:
        """The range of t, and the smallest |dr/dt|, which is at one of its ends."""
        table = self.table
        near = np.array([max(seen[0], table.extent.floor), seen[1]])
        far = np.array([1.0 - near[0], seen[2]])
        low, high = coordinate(near, far, table.epsilon, both_ends=table.extent.both_ends)
        fast = slope_of_coordinate(np.maximum(near, 1e-30), table.epsilon, both_ends=table.extent.both_ends)
        width = 2.0 * self.rows.narrowest * self.columns.narrowest
        return (float(low), float(high)), width / float(fast.max())

    def _series(self, part: int, span: tuple[float, float], rise: float, limit: float) -> LocalSeries:
        whole = self.table.start, self.table.stop
        folded, strips = self.columns.folded(part), self.columns.strips
        return local_series(folded, self.rows, strips, span, whole, rise, limit)


@dataclass(frozen=True)
class LocalSeries:
    """The coefficients of one function for the pairs of a tile, in the form of `compiled_tables`.

    Attributes:
        table: (rows, size · (1 + 2 · pairs of orders)).
        size: orders in t, a multiple of ORDER_STEP.
        lengths: how many orders in t the pairs of orders of the columns have, multiples of ORDER_STEP.
        columns: (strips, orders · WIDTH) Chebyshev polynomials of the columns, from order 1 on.
        start, stop: the range of t.
        dropped: bound of what was dropped.
    """

    table: Array
    size: int
    lengths: IntArray
    columns: Array
    start: float
    stop: float
    dropped: float

    @property
    def form(self) -> tuple[Array, int, IntArray, Array, float, float]:
        """The first arguments of the compiled loops."""
        return self.table, self.size, self.lengths, self.columns, self.start, self.stop


def local_series(
    folded: Array,
    rows: TileSide,
    columns: Array,
    span: tuple[float, float],
    whole: tuple[float, float],
    rise: float,
    limit: float,
) -> LocalSeries:
    """The part of a series that a tile needs.

    Args:
        folded: (M, K, m) coefficients with the columns' norm on its short range.
        rows: the rows of the tile.
        columns: `in_strips` of the columns' vectors.
        span: range of t of the tile.
        whole: range of t of the table.
        rise: F' over the derivative of the series in its coordinate, relative to √(E1_i E1_j); 0 if it is not needed.
        limit: what may be dropped.
    """
    length = whole[1] - whole[0]
    start, stop = max(span[0], whole[0]) - 1e-9 * length, min(span[1], whole[1]) + 1e-9 * length
    middle, half = (start + stop - whole[0] - whole[1]) / length, (stop - start) / length
    short = (rows.cut.T @ folded.reshape(len(folded), -1)).reshape(-1, *folded.shape[1:])
    local = restriction(short.shape[1], middle, half).T @ short
    lengths, dropped = cut_series(local, DROPPED / DROPPED_SLOPE * rise, limit)
    flat, size, rounded = packed(local, lengths)
    return LocalSeries(rows.vectors @ flat, size, rounded, columns, start, stop, dropped)


def in_strips(vectors: Array) -> Array:
    """(samples, orders) in strips of WIDTH samples: (strips, orders · WIDTH).

    The last strip is filled up with a sample that exists, and the number of orders is made even.
    """
    missing, orders = -len(vectors) % WIDTH, vectors.shape[1]
    filled = np.concatenate([vectors, np.repeat(vectors[:1], missing, axis=0)])
    count = len(filled) // WIDTH
    strips = np.zeros((count, orders + orders % 2, WIDTH))
    strips[:, :orders] = filled.reshape(count, WIDTH, orders).transpose(0, 2, 1)
    return strips.reshape(count, strips.shape[1] * WIDTH)
