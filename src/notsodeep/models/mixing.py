"""How a layer mixes positions: the average over the taps of a filter.

The covariance of pre-activations of two samples is a field over pairs of positions, M(s, s').  A layer whose weights
are shared over positions maps it to another such field, docs/theory.md (10.1): a convolution to

    (𝒜M)(s, s') = (1/q) Σ_δ M(s + δ, s' + δ)     over the q taps of the filter.

It maps the diagonal s = s' into itself, so that a readout with weights of its own for each position needs the diagonal
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numba import njit

from notsodeep.validation import Array, IntArray

PADDINGS = ("zeros", "circular")
# Lengths of the axes a, i, b, j, c of `sum_shifts`.
Shape = tuple[int, int, int, int, int]
# Compiler options of all loops over fields.
OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "nnan", "ninf"},
}
# Entries of a system of equations that fit into a processor's cache with everything that solving it needs.
CACHED = 1 << 13


@njit(**OPTIONS)
def sum_shifts(field, shape, radius, circular, result):  # type: ignore[no-untyped-def]
    """result[a, i, b, j, c] = Σ_d field[a, i + d, b, j + d, c] over |d| ≤ radius, of flat arrays of this shape.

    An axis i or j of length 1 is not shifted.  Beyond the border stand zeros, or the opposite side if circular.
    """
    outer, first, between, second, inner = shape
    line, alone = second * inner, first == 1 and second == 1
    for place in range(outer * first * between):
        i = (place // between) % first
        into, own = result[place * line : (place + 1) * line], field[place * line : (place + 1) * line]
        for k in range(line):
            into[k] = own[k]
        for shift in range(-radius, 0 if alone else radius + 1):
            row = i + shift if first > 1 else i
            if circular:
                row %= first
            if alone or shift == 0 or row < 0 or row >= first:
                continue
            begin = (place + (row - i) * between) * line
            move = shift * inner if second > 1 else 0
            low, count = max(0, -move), line - abs(move)
            part, seen = into[low : low + count], field[begin + low + move : begin + low + move + count]
            for k in range(count):
                part[k] += seen[k]
            if circular and move != 0:
                rest, wrapped = (into[count:], begin) if move > 0 else (into[:-move], begin + count)
                seen = field[wrapped : wrapped + len(rest)]
                for k in range(len(rest)):
                    rest[k] += seen[k]


@njit(**OPTIONS)
def average(work, count, shapes, radius, circular):  # type: ignore[no-untyped-def]
    """𝒜 times the number of taps, of the field in work[0]; returns the row of `work` with the result."""
    for axis in range(len(shapes)):
        sum_shifts(work[axis % 2, :count], shapes[axis], radius, circular, work[1 - axis % 2, :count])
    return len(shapes) % 2


@dataclass(frozen=True)
class Systems:
    """A field cut into systems of equations that 𝒜 does not couple; each is gathered into a small array.

    Attributes:
        places: where each run of neighbouring entries begins in the flat field, system after system.
        begins: where the places of each system begin, and the end.
        runs: lengths of the runs of each system.
        shapes: the shapes of each system for `sum_shifts`, axis by axis, (systems, axes, 5).
        radius: taps of the filter on each side of its middle.
        taps: number of taps.
        circular: beyond the border stands the opposite side; zeros otherwise.
    """

    places: IntArray
    begins: IntArray
    runs: IntArray
    shapes: IntArray
    radius: int
    taps: int
    circular: bool

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What compiled loops are given."""
        return self.places, self.begins, self.runs, self.shapes, self.radius, self.taps, self.circular


@dataclass(frozen=True)
class Convolution:
    """The average over the taps of a filter with an odd number of taps along each axis.

    With such a filter 𝒜 is its own adjoint, for zero and for circular padding.

    Attributes:
        positions: number of positions along each axis of a sample: (length,) or (height, width).
        filter_size: number of taps along each axis.
        padding: what stands beyond the border: "zeros", or "circular" for the opposite side.
    """

    positions: tuple[int, ...]
    filter_size: int
    padding: str

    @property
    def taps(self) -> int:
        """Number of taps of the filter."""
        return int(self.filter_size ** len(self.positions))

    @property
    def count(self) -> int:
        """Number of positions."""
        return prod(self.positions)

    def diagonal(self, field: Array) -> Array:
        """𝒜 of fields over the diagonal s = s': (positions, others), others being left alone."""
        return self._mixed(field, self._diagonal_shapes(field.size // self.count))

    def pairs(self, field: Array) -> Array:
        """𝒜 of fields over all pairs of positions: (positions, positions, others), others being left alone."""
        others, width = field.size // self.count**2, self.positions[-1]
        height = self.count // width
        shapes = [(height, width, height, width, others), (1, height, width, height, width * others)]
        return self._mixed(field, shapes[: len(self.positions)])

    def _diagonal_shapes(self, others: int) -> list[Shape]:
        width = self.positions[-1]
        shapes = [
            (self.count // width, 1, 1, width, others),
            (1, self.count // width, 1, 1, width * others),
        ]
        return shapes[: len(self.positions)]

    def _mixed(self, field: Array, shapes: list[Shape]) -> Array:
        work = np.empty((2, field.size))
        work[0] = field.reshape(-1)
        radius, circular = self.filter_size // 2, self.padding == "circular"
        row = average(work, field.size, np.array(shapes), radius, circular)
        return np.asarray(work[row].reshape(field.shape) * (1.0 / self.taps))

    def diagonal_systems(self, others: int) -> Systems:
        """The systems of fields (positions, others): a few of the others each."""
        width = min(others, max(8, CACHED // self.count // 8 * 8))
        firsts = np.arange(0, others, width)
        runs = np.minimum(width, others - firsts)
        places = firsts[:, None] + others * np.arange(self.count)
        shapes = [self._diagonal_shapes(int(run)) for run in runs]
        return self._systems(list(places), list(runs), shapes)

    def pair_systems(self) -> Systems:
        """The systems of fields (positions, positions): one for each distance of two rows, which 𝒜 does not change."""
        if len(self.positions) == 1:
            length = self.count
            return self._systems([np.arange(1)], [length**2], [[(1, length, 1, length, 1)]])
        height, width = self.positions
        x, rows = np.arange(width), np.arange(height)
        places, shapes = [], []
        for distance in range(0 if self.padding == "circular" else 1 - height, height):
            others = rows + distance
            kept = (
                slice(None)
                if self.padding == "circular"
                else slice(max(0, -distance), height - max(0, distance))
            )
            top, bottom = rows[kept, None], (others % height)[kept, None]
            places.append((((top * width + x) * height + bottom) * width).reshape(-1))
            count = len(top)
            shapes.append([(count, width, 1, width, 1), (1, count, 1, 1, width**2)])
        return self._systems(places, [width] * len(places), shapes)

    def _systems(self, places: list[IntArray], runs: list[int], shapes: list[list[Shape]]) -> Systems:
        begins = np.cumsum([0, *map(len, places)])
        return Systems(
            np.concatenate(places), begins, np.array(runs), np.array(shapes), self.filter_size // 2, self.taps,
            self.padding == "circular",
        )  # fmt: skip


__all__ = ["OPTIONS", "PADDINGS", "Convolution", "Systems", "average"]
