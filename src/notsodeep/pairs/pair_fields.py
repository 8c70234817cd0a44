"""F and F' over the positions of one sample with others: what every way of evaluating them has in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.pairs.compiled_mixing import add, inner_products
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray

# Which strips are meant: (strips, systems), or (strips, positions of the other sample) over pairs of positions.
Mask = NDArray[np.bool_]


class FieldMethod:
    """A way to evaluate F and F' of an activation over fields.

    Attributes:
        name: the way that serves every correlation, as in `KernelInfo.ways`.
        error: error of F relative to √(S S').
        levels: what F' leaves out at each level of accuracy, relative to √(E1 E1'), the most accurate last.
        carries: dF'/dρ is evaluated as well, so that F and F' can be carried along a small step.
        one_by_one: every pair of positions is integrated by itself, which takes long.
    """

    name: str
    error: float
    levels: tuple[float, ...] = (0.0,)
    carries: bool = False
    one_by_one: bool = False

    @property
    def ways(self) -> tuple[str, ...]:
        """All ways that are taken."""
        return (self.name,)

    def side(self, positions: Positions, *, right: bool) -> Any:
        """What the positions of these samples contribute, on the left or on the right."""

    def sample_bytes(self) -> int:
        """Memory that `side` takes for one sample."""
        return 0

    def evaluate(self, fields: PairFields, systems: IntArray, covariance: Array, level: int) -> None:
        """Write F without what an offset adds, F' and, if it carries, dF'/dρ of these systems; zero at borders."""
        raise NotImplementedError

    def level_for(self, allowed: float) -> int:
        """The first level that leaves out no more than is allowed; the last if none does."""
        return next(
            (k for k, left_out in enumerate(self.levels) if left_out <= allowed), len(self.levels) - 1
        )


class MaskedMethod(FieldMethod):
    """A way to evaluate only some strips of fields."""

    def evaluate(
        self,
        fields: PairFields,
        systems: IntArray,
        covariance: Array,
        level: int,
        wanted: Mask | None = None,
    ) -> None:
        """Write F, F' and dF'/dρ of the wanted strips of these systems; of all if nothing is said."""
        raise NotImplementedError

    def everywhere(self, fields: PairFields, strips: int) -> Mask:
        """The mask of all strips."""
        count = fields.layout.height * fields.layout.width if fields.layout.pairs else len(fields.starts) - 1
        return np.ones((strips, count), dtype=np.bool_)


class PairFields:
    """The fields of some samples with others, through one activation; all with the first of the others come first.

    Args:
        layout: the layout of fields.
        method: how F and F' are evaluated.
        pairs: the most pairs of samples at a time; one where fields are over pairs of positions.
        memory: that of the fields of another layer, of which only the slopes are needed at the same time.

    Attributes:
        starts: where each system begins, and the end.
        scale, over: √(q q') and one over it, zero at borders and where there is no signal.
        lift: what an offset adds to F, if it is `lifted`.
        value, slope, bend: F, F' and dF'/dρ.
        fixed, own: places with the F and F' that they have at any covariance; those where a position meets itself.
        left, right: what the method made of the positions of both.
        some, others: which samples of them are meant.
    """

    def __init__(self, layout: Layout, method: FieldMethod, pairs: int, memory: Array | None = None) -> None:
        self.layout, self.method = layout, method
        size = int(layout.starts(pairs)[-1])
        self.memory = np.zeros((5, size)) if memory is None else memory
        self.slopes = np.zeros(size)
        self.left: Any = None
        self.right: Any = None

    def between(
        self,
        sides: tuple[Any, Any],
        positions: tuple[Positions, Positions],
        some: slice,
        others: slice,
        same: IntArray,
    ) -> None:
        """Set up the fields of some samples with others; `same` (count, 2) lists pairs of which both are one sample."""
        layout, (left, right) = self.layout, positions
        (self.left, self.right), self.some, self.others = sides, some, others
        self.starts = layout.starts(self.rows * self.columns)
        end = int(self.starts[-1])
        self.scale, self.over, self.lift, self.value, self.bend = (part[:end] for part in self.memory)
        self.slope = self.slopes[:end]
        layout.combine(left.root[some], right.root[others], self.scale)
        layout.combine(left.inverse[some], right.inverse[others], self.over)
        self.lifted = left.lifted
        if self.lifted:
            layout.combine(left.lift[some], right.lift[others], self.lift, add=True)
        self.fixed: list[tuple[IntArray, Array, Array]] = []
        if left.still or right.still:
            # A position without signal is independent of every other.
            dead = np.flatnonzero((self.over == 0.0) & (np.resize(layout.valid, end) > 0.0))
            self.fixed.append(
                (
                    dead,
                    self._products(dead, left.mean, right.mean),
                    self._products(dead, left.rise, right.rise),
                )
            )
        places, numbers = layout.meetings
        rest = len(self.fixed)
        for i, j in same:
            # From a correlation of 1 to rounding, F' of a kinked activation would have half of the digits: a position
            # with itself takes the moments of one variable.
            pair = some.start + i, others.start + j
            energy, steep = (
                one[pair[0], numbers] * other[pair[1], numbers]
                for one, other in ((left.energy, right.energy), (left.steep, right.steep))
            )
            here = places + (j * self.rows + i) * (0 if layout.pairs else len(layout.valid))
            self.fixed.append((here, energy + (self.lift[here] if self.lifted else 0.0), steep))
        self.own = self.fixed[rest:]

    @property
    def rows(self) -> int:
        """Number of samples."""
        return int(self.some.stop - self.some.start)

    @property
    def columns(self) -> int:
        """Number of others."""
        return int(self.others.stop - self.others.start)

    def _products(self, places: IntArray, left: Array, right: Array) -> Array:
        """Products of numbers of positions at some entries."""
        work = np.zeros_like(self.over)
        self.layout.combine(left[self.some], right[self.others], work)
        return np.asarray(work[places])

    def evaluate(self, systems: IntArray, covariance: Array, level: int = -1) -> None:
        """F and F' of these systems at these covariances, at the last level of accuracy if none is given."""
        self.method.evaluate(self, systems, covariance, level % len(self.method.levels))
        if self.lifted:
            add(self.lift, self.starts, systems, self.value)
        for places, value, slope in self.fixed:
            self.value[places] = value
            self.slope[places] = slope

    def totals(self, field: Array) -> Array:
        """The sum over positions of every pair, (samples, others)."""
        return np.asarray(field.reshape(self.columns, self.rows, -1).sum(axis=2).T)

    def inner_products(self, left: Array, right: Array) -> Array:
        """The sum over positions of the product of two fields, of every pair."""
        found = inner_products(left, right, self.rows * self.columns)
        return np.asarray(found.reshape(self.columns, self.rows).T)


__all__ = ["FieldMethod", "Mask", "MaskedMethod", "PairFields"]
