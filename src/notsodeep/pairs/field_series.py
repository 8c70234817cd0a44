"""Mehler coefficients at the positions of samples, in the order in which compiled loops read them.

F = Σ_k a_k(q) a_k(q') ρ^k, (3.13): at a pair of positions the coefficient of a power is a product of two numbers, and
F' comes from the same coefficients.  Where the series of a smooth activation ends at every correlation, nothing is
cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from notsodeep.gaussian.shapes import Shape
from notsodeep.linalg.chebyshev import chebyshev_basis, chebyshev_coefficients, chebyshev_nodes
from notsodeep.validation import Array, IntArray

# What is left out of F and F', relative to √(S S') and √(E1 E1').
TRUNCATION = 3e-14
# Terms are added up so many at a time.
GROUP = 4
# Numbers of orders that are tried.
ORDERS = (32, 64, 128, 256, 512, 1024)
# Coefficients are interpolated in log q over segments of this length.  They are analytic in a strip of half-width π/2
# around it whatever the activation, so that so many nodes leave about 4.3^-24 = 6e-16.
SEGMENT, NODES = float(np.log(4.0)), 24
# Variances are floored here.
SMALLEST = 1e-200


class FieldSeries:
    """The Mehler series of a shape over the variances of a data set.

    Attributes:
        powers: the power of ρ of the first term and the step to the next: 2 for an even or odd function.
        terms: number of terms at the variances that need most, a multiple of GROUP.
        complete: less than TRUNCATION is left out at any two variances and any correlation.
    """

    def __init__(self, shape: Shape, variances: Array) -> None:
        self.shape = shape
        self.powers = (int(shape.parity == -1), 1 if shape.parity == 0 else 2)
        self.smallest = max(float(variances.min()), SMALLEST)
        self.top = float(np.log(max(float(variances.max()), SMALLEST)))
        # From the largest variance downwards, so that no node is larger than what occurs.
        numbers = np.unique(self._segment(variances)[0])
        nodes = np.exp(self.top - SEGMENT * (numbers[:, None] + 0.5 * (1.0 + chebyshev_nodes(NODES))))
        self.complete, self.terms = False, 0
        for orders in ORDERS:
            coefficients = shape.mehler(nodes.reshape(-1), orders)
            left = self._left(nodes.reshape(-1), coefficients)
            self.complete = bool(left[:, -1].max() <= 0.5 * TRUNCATION)
            if self.complete:
                break
        if not self.complete:
            return
        tails = left.reshape(*nodes.shape, -1).max(axis=1)
        # Beside a partner that needs most: √(T T') is what the two leave out.
        enough = tails * tails.max(axis=0) <= TRUNCATION**2
        enough[:, -1] = True
        needed = (np.argmax(enough, axis=1) + 1) * GROUP
        self.terms = int(needed.max())
        # By segment.
        self.lengths = np.zeros(int(numbers[-1]) + 1, dtype=np.intp)
        self.lengths[numbers] = needed
        table = chebyshev_coefficients(self._kept(coefficients).reshape(*nodes.shape, -1), 1)
        self.tables = {
            int(g): np.ascontiguousarray(part[:, :count])
            for g, part, count in zip(numbers, table, needed, strict=True)
        }

    def _kept(self, coefficients: Array) -> Array:
        """The orders that are not zero by symmetry, filled up with zeros to a multiple of GROUP."""
        first, stride = self.powers
        kept = coefficients[:, first::stride]
        return np.pad(kept, ((0, 0), (0, -kept.shape[1] % GROUP)))

    def _left(self, variances: Array, coefficients: Array) -> Array:
        """Energy of F, or of F', that is left after each group of terms, relative to all of it; the larger of both."""
        first, stride = self.powers
        squares = self._kept(coefficients) ** 2
        sizes = (
            self.shape.second_moment(variances),
            variances * self.shape.derivative_second_moment(variances),
        )
        orders = first + stride * np.arange(squares.shape[1])
        found = []
        for weighted, whole in zip((squares, squares * orders), sizes, strict=True):
            size = np.maximum(whole, 1e-300)[:, None]
            # Summed from the end, small parts keep their digits; beyond the end is what is missing of the whole.
            behind = np.cumsum(weighted[:, ::-1], axis=1)[:, ::-1] / size
            missing = np.maximum(1.0 - behind[:, :1] - 2e-16 * np.sqrt(squares.shape[1]), 0.0)
            after = np.pad(behind, ((0, 0), (0, 1)))[:, GROUP::GROUP]
            found.append(after + missing)
        return np.asarray(np.maximum(*found))

    def _segment(self, variances: Array) -> tuple[Array, Array]:
        """The segment of each variance, and its place from -1 to 1 there, from the top downwards.

        Variances below the smallest are those of positions without signal, of which nothing is needed.
        """
        down = (self.top - np.log(np.maximum(variances, self.smallest))) / SEGMENT
        number = np.maximum(np.floor(down), 0.0)
        return number.astype(np.intp), 2.0 * (down - number) - 1.0

    def coefficients(self, variances: Array) -> Array:
        """a_k at these variances of the shape, (variances, terms)."""
        values = np.zeros((len(variances), self.terms))
        self._evaluate(variances, values)
        return values

    def _evaluate(self, variances: Array, values: Array) -> None:
        """Writes coefficients; those that a variance does not need stay as they were."""
        number, place = self._segment(variances)
        basis = chebyshev_basis(place, NODES)
        for g, table in self.tables.items():
            members = np.flatnonzero(number == g)
            if len(members):
                values[members, : table.shape[1]] = basis[members] @ table

    def in_strips(self, moments: Array, width: int, row: int | None = None) -> Strips:
        """The coefficients of samples in strips of `width` positions, which do not go beyond the end of a row.

        `moments` has q, √S and √E1 of the shape at every position, (3, samples, positions).
        """
        variances, energy, steep = moments
        samples, positions = variances.shape
        scales = np.stack([energy, steep * np.sqrt(np.maximum(variances, SMALLEST))], axis=-1)
        places = strip_places(positions, width, row or positions)
        counts = self.lengths[self._segment(variances)[0]]
        most = counts[:, places].reshape(samples, -1, width).max(axis=2)
        starts = np.pad(np.cumsum(most, axis=1), ((0, 0), (1, 0)))
        packed = np.empty((samples, int(starts.max()) * width))
        tails = np.zeros((samples, most.shape[1], self.terms // GROUP))
        # One sample after the other, in the same memory.
        values = np.zeros((positions, self.terms))
        for i in range(samples):
            self._evaluate(variances[i], values)
            _pack(values, places, counts[i], scales[i], starts[i], *self.powers, packed[i], tails[i])
        return Strips(packed, starts, tails, self.powers)


@dataclass(frozen=True)
class Strips:
    """The Mehler coefficients of samples in strips of positions, each strip with as many terms as it needs.

    Attributes:
        values: (samples, …); in it the terms of one strip after another, each term for all positions of the strip.
        starts: number of terms before each strip, (samples, strips + 1).
        tails: what a strip leaves out after each group of terms, relative to √S or √(q E1), the larger of the two and
            the largest of its positions, (samples, strips, groups).
        powers: the power of ρ of the first term and the step to the next.
    """

    values: Array
    starts: IntArray
    tails: Array
    powers: tuple[int, int]

    def scaled(self, factor: float) -> Strips:
        """All coefficients times a number."""
        return self if factor == 1.0 else replace(self, values=factor * self.values)

    def of(self, samples: int | slice) -> tuple[Array, IntArray, Array]:
        """Values, starts and tails of some samples."""
        return self.values[samples], self.starts[samples], self.tails[samples]


def strip_places(positions: int, width: int, row: int) -> IntArray:
    """The positions of strips one after another; where a row ends the strip is filled up with its last position."""
    lanes = np.minimum(np.arange(-(-row // width) * width), row - 1)
    return np.asarray((np.arange(0, positions, row)[:, None] + lanes).reshape(-1))


def field_series(shape: Shape, variances: Array) -> FieldSeries | None:
    """The series that serves every correlation at these variances of the shape; None if it does not end soon enough."""
    if shape.kinks:
        return None
    series = FieldSeries(shape, variances)
    return series if series.complete else None


@njit(cache=True, nogil=True, error_model="numpy")
def _pack(table, places, counts, scales, starts, first, stride, packed, tails):  # type: ignore[no-untyped-def]
    """The table (positions, terms) of a sample in strips, and the tails of each strip."""
    width = len(places) // (len(starts) - 1)
    for p in range(len(starts) - 1):
        members = places[p * width : (p + 1) * width]
        for place in members:
            value, slope = scales[place]
            over, under = 1.0 / max(value * value, 1e-300), 1.0 / max(slope * slope, 1e-300)
            behind, rising = 0.0, 0.0
            for group in range(counts[place] // GROUP - 1, -1, -1):
                tails[p, group] = max(tails[p, group], behind * over, rising * under)
                for k in range(GROUP * group, GROUP * (group + 1)):
                    square = table[place, k] * table[place, k]
                    behind += square
                    rising += (first + k * stride) * square
        for group in range(tails.shape[1]):
            tails[p, group] = np.sqrt(tails[p, group])
        for k in range(starts[p + 1] - starts[p]):
            line = packed[(starts[p] + k) * width : (starts[p] + k + 1) * width]
            for s in range(width):
                line[s] = table[members[s], k] if k < counts[members[s]] else 0.0


__all__ = ["GROUP", "FieldSeries", "Strips", "field_series", "strip_places"]
