"""Tiles of pairs from solution tables, which are extended until they cover the tile (docs/theory.md, section 3)."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np

from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs import compiled_tables as compiled
from notsodeep.pairs.block_series import BlockSeries
from notsodeep.pairs.local_table import LocalTable, TileColumns, TileSide
from notsodeep.pairs.pair_problem import PairProblem, Where, all_but
from notsodeep.pairs.single_pairs import SinglePairs
from notsodeep.pairs.solution_table import SolutionTable
from notsodeep.pairs.table_family import TableFamily
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, IntArray

# Price's integral costs about thirty times as much as a table: up to this share it takes what others leave.
SHARE_INTEGRATED = 0.003
# Share of the nearest pairs that a table for kinks away from zero leaves out from the start.
SHARE_NEAREST = 1e-4
# Fewer pairs than this are integrated in the time that a table for kinks away from zero takes; with several groups of
# norms, which are wide apart and have larger tables, fewer pairs of two groups than the second.
INTEGRATED, INTEGRATED_GROUPS = 15_000, 40_000


def has_table(shape: Shape) -> bool:
    """Whether the solution may be tabulated: closed forms that oscillate and kinks of callables are left out."""
    if shape.pieces is not None:
        return shape.kinked_pieces is not None
    return shape.quarter is None and shape.series_terms is None and all(kink == 0.0 for kink in shape.kinks)


class TableLookup:
    """F and F' of tiles from solution tables; thread-safe."""

    def __init__(self, problem: PairProblem, single: SinglePairs) -> None:
        self.problem, self.single = problem, single
        self.tables = TableFamily(problem.phi.shape, problem.feedback, problem.left, problem.right)
        self._kinked = problem.phi.shape.kinked_pieces is not None
        self._few = INTEGRATED if len(self.tables.left.sizes) == 1 else INTEGRATED_GROUPS
        self._series = BlockSeries(problem, single, partial(self.tables.pairs_in_small_groups, self._few))
        self._rows: dict[tuple[int, int, int], TileSide] = {}
        self._columns: dict[tuple[int, int, int], TileColumns] = {}
        self._lock = threading.Lock()

    def tile(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo | None:
        """A tile into `value` and `slope`; None if no table can be resolved.

        Args:
            c: Gram entries.
            rows: which samples of the left side.
            columns: which samples of the right side.
            value: F.
            slope: F'.
            lower: only the pairs below the diagonal.
        """
        tables, symmetric = self.tables, self.problem.right is self.problem.left
        groups = tables.left.groups[rows], tables.right.groups[columns]
        kinds = [np.unique(part) if part.min() < part.max() else part[:1] for part in groups]
        info = KernelInfo(0, 0.0, 0.0, 0)
        for first in kinds[0]:
            for second in kinds[1]:
                if lower and first < second:
                    # Of a tile on the diagonal this block is the other one, turned.
                    continue
                key, start = (int(first), int(second)), (rows.start, columns.start)
                if len(kinds[0]) == len(kinds[1]) == 1:
                    part = self._block(key, start, c, rows, columns, value, slope, lower)
                    if part is None:
                        return None
                    info = info.merge(part)
                    continue
                i, j = _members(groups[0], first), _members(groups[1], second)
                block, turned_block = _block_of(i, j), _block_of(j, i)
                where, cross = (_moved(i, rows.start), _moved(j, columns.start)), c[block]
                # Of one set of samples the table of two groups serves both ways.
                turned = first < second and symmetric
                if turned:
                    key, where, start, cross = key[::-1], where[::-1], start[::-1], cross.T
                cross = np.ascontiguousarray(cross)
                found = np.zeros_like(cross), np.zeros_like(cross) if self.problem.want_slope else slope
                same = lower and first == second
                part = self._block(key, start, cross, *where, found[0], found[1], same)
                if part is None:
                    return None
                for output, result in zip((value, slope), found, strict=True):
                    if output.size:
                        output[block] = result.T if turned else result
                        if lower and not same:
                            output[turned_block] = result.T
                info = info.merge(part)
        self._set_still(rows, columns, value, slope)
        return info

    def _block(
        self,
        key: tuple[int, int],
        start: tuple[int, int],
        c: Array,
        rows: Where,
        columns: Where,
        value: Array,
        slope: Array,
        lower: bool,
    ) -> KernelInfo | None:
        """Pairs of two groups of norms from the table of these groups."""
        problem, tables = self.problem, self.tables
        kinked, table = self._kinked, tables.known(key)
        todo = np.zeros(c.shape, dtype=np.bool_)
        # Coordinates stand where values and slopes will be.
        delay = slope if problem.want_slope else np.empty_like(c)
        rare = kinked and tables.pairs(key) < self._few
        if table is None and not rare:
            table = tables.extended(key, self._first_look(c, rows, columns, lower))
        while table is not None:
            local = self._local(table, key, start, rows, columns)
            shifts, inverse = problem.sides(rows, columns)[:2], (local.rows.inverse, local.columns.inverse)
            low, high, opposite, left_over = compiled.table_coordinates(
                c, problem.kappa, *shifts, *inverse, *local.ends, -1.0 if np.isinf(table.epsilon) else table.epsilon,
                table.extent.floor, table.odd, table.extent.both_ends, lower, value, delay, todo,
            )  # fmt: skip
            distances = low, high, opposite
            if tables.covered(key, table, distances, kinked and left_over <= SHARE_INTEGRATED * c.size):
                error = local.evaluate(distances, lower, delay, value, slope)
                info = KernelInfo(0, 0.0, error / problem.margin, 0, ("table",))
                if left_over:
                    # The table has the nearest that it knows of these pairs.
                    beyond = np.unravel_index(np.flatnonzero(todo), todo.shape)
                    info = info.merge(self.single.solve(c, rows, columns, value, slope, beyond, guessed=True))
                return info
            table = tables.extended(key, distances)
        if not kinked:
            return None
        # One sample of a group has no pair with itself.
        if lower and len(c) == 1:
            return KernelInfo(0, 0.0, 0.0, 0)
        return self._series.solve(c, rows, columns, value, slope, lower=lower)

    def _local(
        self, table: SolutionTable, key: tuple[int, int], start: tuple[int, int], rows: Where, columns: Where
    ) -> LocalTable:
        """The table for a tile; what a row or a column of tiles contributes to it is kept for the next tiles."""
        names = [(id(table), group, first) for group, first in zip(key, start, strict=True)]
        with self._lock:
            left, right = self._rows.get(names[0]), self._columns.get(names[1])
        if left is None:
            left = TileSide(table, 0, self.problem.left, rows, self.tables.left.logs[rows])
        if right is None:
            right = TileColumns(table, self.problem.right, columns, self.tables.right.logs[columns])
        with self._lock:
            self._rows[names[0]], self._columns[names[1]] = left, right
        return LocalTable(self.problem, left, right)

    def _set_still(self, rows: slice, columns: slice, value: Array, slope: Array) -> None:
        """A sample of variance zero is independent of all others: F = M_0 M_0 and F' = M_1 M_1."""
        left, right, shape = self.problem.left, self.problem.right, self.problem.phi.shape
        still = left.still[rows], right.still[columns]
        if not (still[0].any() or still[1].any()):
            return
        chosen = still[0][:, None] | still[1]
        means = left.means(shape), right.means(shape)
        for output, one, other in zip((value, slope), *means, strict=True):
            if output.size:
                output[chosen] = np.multiply.outer(one[rows], other[columns])[chosen]

    def _first_look(self, c: Array, rows: Where, columns: Where, lower: bool) -> tuple[float, float, float]:
        """About the smallest and the largest d of a tile, and the smallest 1 - d: from the angles of what enters."""
        shape = self.problem.phi.shape
        cosines = self.problem.cosines(c, rows, columns)
        if lower and len(cosines) == 1:
            return 0.5, 0.5, 0.5
        if lower:
            # Both halves are there, and a pair of a sample with itself is none.
            np.fill_diagonal(cosines, cosines[1, 0])
        if shape.parity == -1:
            cosines = np.abs(cosines)
        low, high = float(cosines.min()), float(cosines.max())
        if shape.kinked_pieces is not None:
            # The cone at angle zero is dear in a table and rare in data.
            high = all_but(cosines, SHARE_NEAREST)
        return 0.5 * (1.0 - high), 0.5 * (1.0 - low), 0.5 * (1.0 + low)


def _members(groups: IntArray, group: int) -> Where:
    """Which samples are of a group: a slice where they are neighbours, which is what sorted samples are."""
    found = np.flatnonzero(groups == group)
    first, last = int(found[0]), int(found[-1]) + 1
    return slice(first, last) if last - first == len(found) else found


def _moved(where: Where, start: int) -> Where:
    return slice(where.start + start, where.stop + start) if isinstance(where, slice) else where + start


def _block_of(rows: Where, columns: Where) -> Any:
    """The index of a block of a tile."""
    if isinstance(rows, slice) and isinstance(columns, slice):
        return rows, columns
    places = [
        np.arange(part.start, part.stop) if isinstance(part, slice) else part for part in (rows, columns)
    ]
    return np.ix_(*places)
