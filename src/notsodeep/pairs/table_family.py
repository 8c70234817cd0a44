"""The solution tables that the pairs of two sets of samples need: one for every two groups of norms."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs.sample_moments import Side
from notsodeep.pairs.solution_table import SolutionTable, solution_table
from notsodeep.pairs.table_range import END, Range
from notsodeep.validation import Array

# A longer range of log q is cut into groups, with a table for every two of them.
LONGEST = 6.5
# Kinks away from zero need shorter ones: at equal norms and angle zero F' has the tip of a cone, and the layer around
# it is thinner the smaller norms are beside the kinks: at most the first, the second times √q/κ, at least the third.
LONGEST_KINKED, BESIDE_KINKS, SHORTEST_KINKED = 2.6, 7.4, 0.9
# log2 of the odds d/(1-d) from which on a table is not tried again without its nearest pairs.
LEAST_NEAR = -4


class NormGroups:
    """log q of one set of samples, and the group of each."""

    def __init__(
        self, variances: Array, still: NDArray[np.bool_], low: float, high: float, longest: float
    ) -> None:
        # Samples of variance zero are computed another way; here they only must not be in it.
        self.logs = np.clip(np.log(np.where(still, 1.0, variances)), low, high)
        self.logs[still] = low
        count = max(1, int(np.ceil((high - low) / longest - 1e-9)))
        width = (high - low) / count
        place = np.floor((self.logs - low) / width) if width > 0 else np.zeros_like(self.logs)
        self.groups = np.minimum(place, count - 1).astype(np.intp)
        self.sizes = np.bincount(self.groups, minlength=count)


class TableFamily:
    """The tables that the pairs of two sets of samples need; thread-safe.

    `left` and `right` have the variances (`inner`) of the samples and which of them vanish (`still`).
    """

    def __init__(self, shape: Shape, feedback: float, left: Side, right: Side) -> None:
        self.shape, self.feedback = shape, feedback
        moving = [side.inner[~side.still] for side in (left, right)]
        both = np.concatenate(moving)
        low, high = (float(np.log(part)) for part in ((both.min(), both.max()) if len(both) else (1.0, 1.0)))
        longest = LONGEST
        if shape.kinked_pieces is not None:
            beside = np.exp(0.5 * low) / max(abs(knot) for knot in shape.kinked_pieces.knots)
            longest = min(max(BESIDE_KINKS * beside, SHORTEST_KINKED), LONGEST_KINKED)
        self.left = NormGroups(left.inner, left.still, low, high, longest)
        self.right = self.left if right is left else NormGroups(right.inner, right.still, low, high, longest)
        self._tables: dict[tuple[int, int], SolutionTable] = {}
        self._floors: dict[tuple[int, int], int] = {}
        self._resolved = True
        self._lock = threading.Lock()

    def pairs(self, key: tuple[int, int]) -> float:
        """How many pairs of samples two groups have."""
        half = 0.5 if self.right is self.left and key[0] == key[1] else 1.0
        return half * float(self.left.sizes[key[0]] * self.right.sizes[key[1]])

    def pairs_in_small_groups(self, few: float) -> float:
        """How many pairs are of two groups that have fewer pairs than this."""
        counts = np.multiply.outer(self.left.sizes, self.right.sizes).astype(np.float64)
        if self.right is self.left:
            counts = np.tril(counts, -1) + 0.5 * np.diag(np.diag(counts))
        return float(counts[counts < few].sum())

    def known(self, key: tuple[int, int]) -> SolutionTable | None:
        """The table of two groups, if there is one already."""
        return self._tables.get(key)

    def covered(
        self, key: tuple[int, int], table: SolutionTable, seen: tuple[float, float, float], few: bool
    ) -> bool:
        """Whether the table has these distances, or all but the nearest: if these are few, or were given up."""
        extent = table.extent
        excused = few or self._floors.get(key, -END) > -END
        return extent.covers(*seen) or (excused and extent.covers(1.0, seen[1], seen[2]))

    def given_up(self, key: tuple[int, int]) -> bool:
        """Whether no table of these groups could be resolved."""
        return self._floors.get(key, -END) == END

    def extended(self, key: tuple[int, int], seen: tuple[float, float, float]) -> SolutionTable | None:
        """A table that covers these distances and what an earlier one covered; None if it cannot be resolved."""
        with self._lock:
            if not self._resolved or self.given_up(key):
                return None
            rows = self.left.logs[self.left.groups == key[0]]
            columns = self.right.logs[self.right.groups == key[1]]
            if key[0] == key[1]:
                rows = columns = np.concatenate([rows, columns])
            known = self._tables.get(key)
            extent = Range.of(rows, columns, seen, None if known is None else known.extent)
            while True:
                extent = replace(extent, near=max(extent.near, self._floors.get(key, -END)))
                try:
                    table = solution_table(self.shape, self.feedback, extent, self.pairs(key))
                except InputError:
                    # The rounded range reaches where a callable outgrows the bell.
                    self._resolved = False
                    return None
                if table.resolved:
                    self._tables[key] = table
                    return table
                # Kinks away from zero make a cone at equal norms and angle zero: the nearest pairs go another way.
                self._floors[key] = min(extent.near + 2, LEAST_NEAR)
                if extent.near >= min(LEAST_NEAR, extent.far - 3):
                    self._floors[key] = END
                    return None
