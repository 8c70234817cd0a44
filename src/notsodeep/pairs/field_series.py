"""Mehler coefficients at the positions of samples, in the order in which compiled loops read them.

F = Σ_k a_k(q) a_k(q') ρ^k, (3.13): at a pair of positions the coefficient of a power is a product of two numbers, and
F' comes from the same coefficients.  Where the series of a smooth activation ends at every correlation, nothing is
cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.pairs.log_table import BLOCK, LogTable, interpolated_block
from notsodeep.validation import Array, IntArray

# What is left out of F and F', relative to √(S S') and √(E1 E1').
TRUNCATION = 3e-14
# Terms are added up so many at a time.
GROUP = 4
# Numbers of orders that are tried.
ORDERS = (32, 64, 128, 256, 512, 1024)
# Terms of a series that ends too late to serve every correlation, but serves most.
SOME_TERMS = 80


class FieldSeries:
    """The Mehler series of a shape over the variances of a data set.

    Attributes:
        powers: the power of ρ of the first term and the step to the next: 2 for an even or odd function.
        terms: number of terms at the variances that need most, a multiple of GROUP.
        complete: less than TRUNCATION is left out at any two variances and any correlation.

    Args:
        shape: the activation before scaling.
        variances: of the shape, flat and positive.
        partial: take SOME_TERMS, complete or not.
    """

    def __init__(self, shape: Shape, variances: Array, *, partial: bool = False) -> None:
        self.shape = shape
        self.powers = (int(shape.parity == -1), 1 if shape.parity == 0 else 2)
        self.table = LogTable(variances)
        nodes = self.table.nodes
        self.complete, self.terms = False, 0
        for orders in (SOME_TERMS * self.powers[1] + self.powers[0],) if partial else ORDERS:
            coefficients = shape.mehler(nodes.reshape(-1), orders)
            left = self._left(nodes.reshape(-1), coefficients)
            self.complete = bool(left[:, -1].max() <= 0.5 * TRUNCATION)
            if self.complete:
                break
        if not (self.complete or partial):
            return
        tails = left.reshape(*nodes.shape, -1).max(axis=1)
        # Beside a partner that needs most: √(T T') is what the two leave out.
        enough = tails * tails.max(axis=0) <= TRUNCATION**2
        enough[:, -1] = True
        # By segment.
        self.lengths = (np.argmax(enough, axis=1) + 1) * GROUP
        self.terms = int(self.lengths.max())
        self.tails = 0.5 * np.log2(np.maximum(tails[:, : self.terms // GROUP], 1e-40))
        kept = self._kept(coefficients)[:, : self.terms]
        self.coefficients = self.table.coefficients(kept)

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

    def in_strips(self, variances: Array, places: IntArray, width: int, factor: float = 1.0) -> Strips:
        """The coefficients of samples, times a factor, in strips of `width` positions: those of `places`, -1 for none.

        `variances` has those of the shape at every position, (samples, positions).
        """
        samples, strips = len(variances), len(places) // width
        taken = np.zeros((samples, strips + 1), dtype=np.intp)
        tails = np.full((samples, strips, self.terms // GROUP), -200.0)
        found = [self.table.place(one) for one in variances]
        for i, (segment, _) in enumerate(found):
            needed = np.where(places >= 0, self.lengths[segment[places]], 0)
            taken[i, :-1] = needed.reshape(-1, width).max(axis=1)
        ends = np.cumsum(taken)
        starts = (ends - taken.reshape(-1)).reshape(samples, -1)
        values = np.empty(int(ends[-1]) * width)
        for i, (segment, place) in enumerate(found):
            _pack(
                self.coefficients, self.lengths, self.tails, segment, place, places, starts[i], factor, values,
                tails[i],
            )  # fmt: skip
        return Strips(values, starts, tails, self.powers)

    def sample_terms(self, variances: Array) -> float:
        """Mean number of terms of a position with these variances of the shape."""
        return float(self.lengths[self.table.place(variances)[0]].mean())


@dataclass(frozen=True)
class Strips:
    """The Mehler coefficients of samples in strips of positions, each strip with as many terms as it needs.

    Attributes:
        values: the terms of one strip after another, each term for all positions of the strip, sample after sample.
        starts: number of terms before each strip, and after the last, (samples, strips + 1).
        tails: log2 of what a strip leaves out after each group of terms, relative to √S or √(q E1), the larger of the
            two and the largest of its positions, (samples, strips, groups).
        powers: the power of ρ of the first term and the step to the next.
    """

    values: Array
    starts: IntArray
    tails: Array
    powers: tuple[int, int]


def field_series(shape: Shape, variances: Array) -> FieldSeries | None:
    """The series that serves every correlation at these variances of the shape; None if it does not end soon enough."""
    if shape.kinks or not len(variances):
        return None
    series = FieldSeries(shape, variances)
    return series if series.complete else None


@njit(**OPTIONS)
def _pack(coefficients, lengths, tails, segment, place, places, starts, factor, packed, largest):  # type: ignore[no-untyped-def]
    """The coefficients of a sample in strips, and the largest tails of each strip."""
    width = len(places) // (len(starts) - 1)
    block = np.empty((min(width, BLOCK), coefficients.shape[2]))
    for p in range(len(starts) - 1):
        begin = starts[p] * width
        for start in range(0, width, BLOCK):
            members = places[p * width + start : (p + 1) * width]
            count = interpolated_block(coefficients, lengths, segment, place, members, block)
            for k in range(starts[p + 1] - starts[p]):
                for s in range(count):
                    packed[begin + k * width + start + s] = factor * block[s, k]
        for s in range(width):
            position = places[p * width + s]
            if position >= 0:
                number = segment[position]
                for group in range(lengths[number] // GROUP):
                    largest[p, group] = max(largest[p, group], tails[number, group])


__all__ = ["GROUP", "TRUNCATION", "FieldSeries", "Strips", "field_series"]
