"""F and F' over the positions of one sample with others: what every way of evaluating them has in common."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray


class FieldMethod(Protocol):
    """A way to evaluate F and F' of an activation over fields.

    Attributes:
        name: the way, as in `KernelInfo.ways`.
        error: error of F relative to √(S S').
        accuracies: what may be left out of F in the first, the second … Newton step; the last is for all later ones.
        bends: F'' is evaluated as well.
        one_by_one: every pair of positions is integrated by itself, which takes long.
    """

    name: str
    error: float
    accuracies: tuple[float, ...]
    bends: bool
    one_by_one: bool

    def side(self, positions: Positions, *, right: bool) -> Any:
        """What the positions of these samples contribute, on the left or on the right."""

    def sample_bytes(self) -> int:
        """Memory that `side` takes for one sample."""

    def evaluate(self, fields: PairFields, systems: IntArray, covariance: Array, accuracy: float) -> None:
        """Write F, F' and, if it bends, F'' of these systems into the fields; F' is zero at borders."""


class PairFields:
    """The fields of one sample with others, through one activation.

    Args:
        layout: the layout of fields.
        method: how F and F' are evaluated.
        samples: the most others at a time; one where fields are over pairs of positions.

    Attributes:
        starts: where each system begins, and the end.
        scale, over: √(q q') and one over it, zero at borders and where there is no signal.
        lift: what an offset adds to F.
        value, slope, bend: F, F' and F''.
        left, first, right, others: what the method made of the positions, and which samples are meant.
    """

    def __init__(self, layout: Layout, method: FieldMethod, samples: int) -> None:
        self.layout, self.method = layout, method
        self.places = layout.starts(samples)
        self.memory = np.zeros((6 if method.bends else 5, int(self.places[-1])))
        self.left: Any = None
        self.right: Any = None
        self.first, self.others = 0, slice(0, 0)

    def between(
        self,
        sides: tuple[Any, Any],
        positions: tuple[Positions, Positions],
        first: int,
        others: slice,
        same: IntArray,
    ) -> None:
        """Set up the fields of a sample with others, of which `same` (from 0 on) are the sample itself."""
        layout, (left, right) = self.layout, positions
        (self.left, self.right), self.first, self.others = sides, first, others
        count = others.stop - others.start
        self.starts = layout.starts(count)
        end = int(self.starts[-1])
        self.scale, self.over, self.lift, self.value, self.slope = (part[:end] for part in self.memory[:5])
        self.bend = self.memory[-1, :end]
        layout.combine(left.root[first], right.root[others], self.scale)
        layout.combine(left.inverse[first], right.inverse[others], self.over)
        layout.combine(left.lift[first], right.lift[others], self.lift, add=True)
        self.fixed: list[tuple[IntArray, Array, Array]] = []
        if left.still is not None or right.still is not None:
            # A position without signal is independent of every other.
            dead = np.flatnonzero((self.over == 0.0) & (np.resize(layout.valid, end) > 0.0))
            self._fix(dead, left.mean, left.rise, right.mean, right.rise)
        if len(same):
            # From a correlation of 1 to rounding, F' of a kinked activation would have half of the digits: a position
            # with itself takes the moments of one variable.
            places, numbers = layout.meetings
            width = 0 if layout.pairs else len(layout.valid)
            for j in same:
                mine = left.energy[first, numbers] * right.energy[others.start + j, numbers]
                steep = left.steep[first, numbers] * right.steep[others.start + j, numbers]
                self.fixed.append((places + j * width, mine + self.lift[places + j * width], steep))

    def _fix(self, places: IntArray, *moments: Array) -> None:
        """At these entries F and F' are products of moments of single positions."""
        mean, rise, means, rises = moments
        work = np.empty_like(self.over)
        found = []
        for one, other in ((mean, means), (rise, rises)):
            self.layout.combine(one[self.first], other[self.others], work)
            found.append(work[places])
        self.fixed.append((places, *found))

    def evaluate(self, systems: IntArray, covariance: Array, accuracy: float) -> None:
        """F and F' of these systems at these covariances."""
        self.method.evaluate(self, systems, covariance, accuracy)
        for places, value, slope in self.fixed:
            self.value[places] = value
            self.slope[places] = slope

    def totals(self, field: Array) -> Array:
        """The sum over positions, for each of the other samples."""
        samples = 1 if self.layout.pairs else self.others.stop - self.others.start
        return np.asarray(field.reshape(samples, -1).sum(axis=1))


__all__ = ["FieldMethod", "PairFields"]
