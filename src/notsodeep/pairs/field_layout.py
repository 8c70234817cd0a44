"""How covariances over positions are laid out in memory: flat arrays in which a shift of positions is a shift of index.

A field is cut into systems of equations that do not touch each other.  Over the diagonal s = s' (a readout with weights
for each position) each pair of samples is a system, with one line for each row of the image.  Over all pairs of
positions 𝒜 shifts both together, so that the distance y' - y of their rows stays what it is: each distance is a system,
and a line holds all x and x' of one y.  Behind each row stands room for the border, zero or the opposite side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.validation import Array, IntArray


@dataclass(frozen=True)
class Layout:
    """The layout of fields.

    Attributes:
        positions: number of positions along each axis of a sample: (length,) or (height, width).
        radius: taps of the filter on each side of its middle.
        circular: beyond the border stands the opposite side; zeros otherwise.
        pairs: fields are over all pairs of positions; over the diagonal otherwise.
    """

    positions: tuple[int, ...]
    radius: int
    circular: bool
    pairs: bool

    @property
    def height(self) -> int:
        """Number of rows; a sequence is one."""
        return self.positions[0] if len(self.positions) == 2 else 1

    @property
    def width(self) -> int:
        """Number of positions in a row."""
        return self.positions[-1]

    @property
    def wide(self) -> int:
        """Positions of a row with its border."""
        return self.width + self.radius * (2 if self.circular else 1)

    @property
    def line(self) -> int:
        """Entries of a line."""
        return self.wide**2 if self.pairs else self.wide

    @cached_property
    def geometry(self) -> tuple[int, int, int, int, int, int, bool, bool]:
        """What compiled loops need: width, with border, entries of a line, the shift along a row, taps, flags."""
        step = self.wide + 1 if self.pairs else 1
        vertical = self.radius if len(self.positions) == 2 else 0
        return self.width, self.wide, self.line, step, vertical, self.radius, self.circular, self.pairs

    @cached_property
    def lines(self) -> IntArray:
        """Which rows y and y' meet in each line of a field, (lines, 2), system after system."""
        rows = np.arange(self.height)
        if not self.pairs:
            return np.stack([rows, rows], axis=1)
        if self.circular:
            found = [np.stack([rows, (rows + d) % self.height], axis=1) for d in rows]
        else:
            distances = range(1 - self.height, self.height)
            found = [
                np.stack([rows, rows + d], axis=1)[max(0, -d) : self.height - max(0, d)] for d in distances
            ]
        return np.concatenate(found).astype(np.int64)

    def starts(self, count: int) -> IntArray:
        """Where each system begins, and the end, of the fields of so many pairs of samples."""
        if not self.pairs:
            counts = np.full(count, self.height)
        elif self.circular:
            counts = np.full(self.height, self.height)
        else:
            counts = self.height - np.abs(np.arange(1 - self.height, self.height))
        return np.concatenate([[0], np.cumsum(counts) * self.line]).astype(np.int64)

    def workspace(self, rows: int = 2, precision: type = np.float64) -> NDArray[Any]:
        """Room for compiled loops over the largest system, with that for its borders."""
        _, _, line, step, vertical, horizontal, _, _ = self.geometry
        return np.zeros((rows, self.height * line + 2 * (vertical * line + horizontal * step)), precision)

    def padded(self, values: Array) -> Array:
        """Numbers of positions (…, positions) as fields over the diagonal have them, zero at the border."""
        form = values.shape[:-1]
        found = np.zeros((*form, self.height, self.wide))
        found[..., : self.width] = values.reshape(*form, self.height, self.width)
        return found.reshape(*form, -1)

    def side(self, values: Array) -> Array:
        """Numbers of positions (…, positions), as `combine` wants them."""
        return np.ascontiguousarray(values) if self.pairs else self.padded(values)

    def strips(self, width: int) -> IntArray:
        """The positions in strips of a width, -1 for none: along a padded field, or all positions without borders."""
        numbers = np.arange(self.height * self.width).reshape(self.height, self.width)
        room = 0 if self.pairs else self.wide - self.width
        places = np.pad(numbers, ((0, 0), (0, room)), constant_values=-1).reshape(-1)
        return np.pad(places, (0, -len(places) % width), constant_values=-1)

    def meeting_places(self, systems: IntArray) -> IntArray:
        """Where in a field over pairs the rows y and y' meet, (height, height); -1 where not in these systems."""
        counts = np.diff(self.starts(1)) // self.line
        wanted = np.zeros(len(counts), dtype=bool)
        wanted[systems] = True
        found = np.empty((self.height, self.height), dtype=np.int64)
        numbers = np.arange(len(self.lines)) * self.line
        found[self.lines[:, 0], self.lines[:, 1]] = np.where(np.repeat(wanted, counts), numbers, -1)
        return found

    def combine(self, left: Array, right: Array, result: Array, *, add: bool = False) -> None:
        """Products (or sums) of a number of the positions of some samples with those of others, as flat fields.

        `left` and `right` (samples, positions) are as `side` gives them; all with the first of the others come first.
        """
        if self.pairs:
            _outer(left[0][None], right[0][None], self.lines, self.geometry, add, result)
        else:
            form = len(right), *left.shape
            (np.add if add else np.multiply)(left[None], right[:, None], out=result.reshape(form))

    def inner(self, left: Array, right: Array, result: Array) -> None:
        """x·x' of some samples (samples, channels, positions) with others, as flat fields."""
        if self.pairs:
            _outer(left[0], right[0], self.lines, self.geometry, False, result)
        else:
            np.einsum("ics,jcs->jis", left, right, out=result.reshape(len(right), len(left), -1))

    @cached_property
    def valid(self) -> Array:
        """One at the entries of the fields of two samples, zero at borders."""
        ones = self.side(np.ones(self.height * self.width))
        found = np.zeros(len(self.lines) * self.line)
        self.combine(ones[None], ones[None], found)
        return found

    @cached_property
    def meetings(self) -> tuple[IntArray, IntArray]:
        """Where in the field of a sample with itself a position meets itself, and which position (as in `side`)."""
        places = self.side(np.arange(1.0, 1.0 + self.height * self.width))
        if not self.pairs:
            own = np.flatnonzero(places)
            return own, own
        found = np.zeros(len(self.lines) * self.line)
        # Positions are numbered, and those that meet themselves have a difference of zero.
        self.combine(places[None], -places[None], found, add=True)
        own = np.flatnonzero((found == 0.0) & (self.valid > 0.0))
        left = np.zeros_like(found)
        self.combine(places[None], np.ones((1, len(places))), left)
        return own, (left[own] - 1.0).astype(np.int64)


@njit(**OPTIONS)
def _outer(left, right, lines, geometry, add, result):  # type: ignore[no-untyped-def]
    """Σ_c left[c, s] right[c, s'], or their sum, where all positions of the rows y meet those of y'; borders stay."""
    width, wide, line = geometry[0], geometry[1], geometry[2]
    for number in range(len(lines)):
        top, bottom = lines[number, 0] * width, lines[number, 1] * width
        for x in range(width):
            begin = number * line + x * wide
            found = result[begin : begin + width]
            for c in range(len(left)):
                own, others = left[c, top + x], right[c, bottom : bottom + width]
                if add:
                    for k in range(width):
                        found[k] = own + others[k]
                elif c == 0:
                    for k in range(width):
                        found[k] = own * others[k]
                else:
                    for k in range(width):
                        found[k] += own * others[k]


__all__ = ["Layout"]
