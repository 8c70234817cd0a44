"""Sums of Mehler series over strips of positions, docs/theory.md (3.13) to (3.15).

A strip takes as many terms as it needs: what the others would add is at most τ τ' |ρ|^k, where τ and τ' are the tails
of the two strips, (3.15), and |ρ| is the largest of the strip.  Of a smooth activation the series serves every
correlation.  Of another one it serves most, because few correlations of different samples are close to ±1, and is many
times faster there than the closed form or the table, to which the other strips are left.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.pairs.compiled_strips import (
    INLINE,
    LANES,
    correlations,
    correlations_of_pairs,
    fill,
    largest_square,
    store,
    store_pairs,
    store_scaled,
    store_scaled_pairs,
)
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_series import GROUP, TRUNCATION, FieldSeries, Strips
from notsodeep.pairs.pair_fields import FieldMethod, Mask, MaskedMethod, PairFields
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray

# What is left out of F' at each level of accuracy.
LEVELS = (3e-6, 3e-10, TRUNCATION)


@dataclass
class SeriesSide:
    """Samples in strips of the series, and, once they are needed, as the other method wants them.

    Attributes:
        strips: the coefficients.
        positions: the samples.
        right: they are those of the columns.
        other: what the other method made of them.
    """

    strips: Strips
    positions: Positions
    right: bool
    other: Any = None

    def for_method(self, method: FieldMethod) -> Any:
        """What the other method makes of the samples; made once."""
        if self.other is None:
            self.other = method.side(self.positions, right=self.right)
        return self.other


class SeriesFields(FieldMethod):
    """F, F' and dF'/dρ from the series.

    Residuals are about 1e-3 and 1e-8 before they are zero to rounding: the first step may leave out more.

    Args:
        phi: the activation.
        series: its series.
        layout: the layout of fields.
        terms: that a position needs on average.
        otherwise: what evaluates strips for which the series has too few terms; None if there are none.
    """

    carries = True

    def __init__(
        self,
        phi: Activation,
        series: FieldSeries,
        layout: Layout,
        terms: float,
        otherwise: MaskedMethod | None = None,
    ) -> None:
        self.phi, self.series, self.layout, self.terms, self.otherwise = phi, series, layout, terms, otherwise
        self.name, self.error, self.levels = "series", TRUNCATION, LEVELS
        if otherwise is not None:
            self.name, self.error = otherwise.name, max(TRUNCATION, otherwise.error)
            self.levels = tuple(map(max, LEVELS, otherwise.levels))  # as many as the other method has

    @property
    def ways(self) -> tuple[str, ...]:
        """The series, and the other way if there is one."""
        return tuple(sorted({"series", self.name}))

    def side(self, positions: Positions, *, right: bool) -> SeriesSide:
        """The coefficients of the samples, in strips of the layout."""
        width = 1 if self.layout.pairs and not right else LANES
        places = self.layout.strips(width)
        strips = self.series.in_strips(positions.inner, places, width, self.phi.amplitude)
        return SeriesSide(strips, positions, right)

    def sample_bytes(self) -> int:
        """The terms that a position needs on average, at all positions."""
        others = 0 if self.otherwise is None else self.otherwise.sample_bytes()
        return int(8 * self.terms * self.layout.height * self.layout.wide) + others

    def evaluate(self, fields: PairFields, systems: IntArray, covariance: Array, level: int) -> None:
        """F, F' and dF'/dρ of these systems."""
        short = self._sums(fields, systems, covariance, level)
        if self.otherwise is not None and short.any():
            others = copy(fields)
            others.left, others.right = (
                side.for_method(self.otherwise) for side in (fields.left, fields.right)
            )
            self.otherwise.evaluate(others, systems, covariance, level, short)

    def _sums(self, fields: PairFields, systems: IntArray, covariance: Array, level: int) -> Mask:
        """Add up the series; returns the strips for which it has too few terms."""
        left, right = fields.left.strips, fields.right.strips
        whole = covariance, fields.over, fields.value, fields.slope, fields.bend
        some, others = fields.some, fields.others
        powers, log_accuracy = self.series.powers, float(np.log2(LEVELS[level]))
        if self.layout.pairs:
            places = self.layout.meeting_places(systems)
            own = left.values, left.starts[some.start], left.tails[some.start]
            other = right.values, right.starts[others.start], right.tails[others.start]
            short = np.zeros((len(other[1]) - 1, len(own[1]) - 1), dtype=np.bool_)
            _sums_of_pairs(*whole, *own, *other, powers, log_accuracy, places, self.layout.geometry, short)
        else:
            own = left.values, left.starts[some], left.tails[some]
            other = right.values, right.starts[others], right.tails[others]
            short = np.zeros((own[1].shape[1] - 1, len(fields.starts) - 1), dtype=np.bool_)
            _sums(*whole, *own, *other, powers, log_accuracy, systems, fields.starts, short)
        return short


@njit(**INLINE)
def _left_out(tails, others, groups, log_top, powers):  # type: ignore[no-untyped-def]
    """log2 of what so many groups of terms leave out where log2 |ρ| is at most `log_top`."""
    # The first power that is left out; F' has one less.
    power = powers[0] + powers[1] * GROUP * groups - 1
    return tails[groups - 1] + others[groups - 1] + power * log_top


@njit(**INLINE)
def _group_count(tails, others, most, log_top, powers, log_accuracy):  # type: ignore[no-untyped-def]
    """How many groups of terms leave out less than is allowed where log2 |ρ| is at most `log_top`; by bisection."""
    low, high = 1, most
    while low < high:
        groups = (low + high) // 2
        if _left_out(tails, others, groups, log_top, powers) <= log_accuracy:
            high = groups
        else:
            low = groups + 1
    return low


@njit(**INLINE)
def _start(rho, powers, x, bits, most, most_bits, sums, rises, bends):  # type: ignore[no-untyped-def]
    """What powers are taken of, and empty sums; returns log2 of the largest |ρ|."""
    top = largest_square(rho, x, bits, most, most_bits)
    if powers[1] == 1:
        for s in range(len(x)):
            x[s] = rho[s]
    fill(sums, 0.0)
    fill(rises, 0.0)
    fill(bends, 0.0)
    return 0.5 * np.log2(max(top, 1e-60))


@njit(**INLINE)
def _finish(rho, x, powers, sums, rises, bends):  # type: ignore[no-untyped-def]
    """F and its derivatives in ρ from g, g' and g''/2, where F is g(ρ), ρ g(ρ²) if it is odd, g(ρ²) if it is even."""
    if powers[1] == 1:
        for s in range(len(x)):
            bends[s] = 2.0 * bends[s]
    elif powers[0] == 1:
        for s in range(len(x)):
            bends[s] = rho[s] * (6.0 * rises[s] + 8.0 * x[s] * bends[s])
        for s in range(len(x)):
            rises[s] = sums[s] + 2.0 * x[s] * rises[s]
        for s in range(len(x)):
            sums[s] = rho[s] * sums[s]
    else:
        for s in range(len(x)):
            bends[s] = 2.0 * rises[s] + 8.0 * x[s] * bends[s]
        for s in range(len(x)):
            rises[s] = 2.0 * rho[s] * rises[s]


@njit(**OPTIONS)
def _sums(  # type: ignore[no-untyped-def]
    covariance, over, value, slope, bend, own, starts, tails, other, other_starts, other_tails, powers, log_accuracy,
    systems, places, short,
):  # fmt: skip
    """F and its derivatives where positions of some samples meet the same positions of others."""
    rho, x, bends, most = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(1)
    sums, rises, bits, most_bits = np.zeros(LANES), np.zeros(LANES), x.view(np.int64), most.view(np.int64)
    rows = len(starts)
    for p in range(starts.shape[1] - 1):
        for system in systems:
            i, j = system % rows, system // rows
            begin = places[system] + p * LANES
            count = min(LANES, places[system + 1] - begin)
            correlations(covariance, over, begin, count, rho)
            top = _start(rho, powers, x, bits, most, most_bits, sums, rises, bends)
            one, two = starts[i, p], other_starts[j, p]
            groups = min(starts[i, p + 1] - one, other_starts[j, p + 1] - two) // GROUP
            groups = _group_count(tails[i, p], other_tails[j, p], groups, top, powers, log_accuracy)
            if _left_out(tails[i, p], other_tails[j, p], groups, top, powers) > log_accuracy:
                short[p, system] = True
                continue
            for group in range(groups - 1, -1, -1):
                # One flat part of each sample and a fixed number of lanes: so the loop is vectorised.
                first, second = (one + GROUP * group) * LANES, (two + GROUP * group) * LANES
                a, b = own[first : first + GROUP * LANES], other[second : second + GROUP * LANES]
                for s in range(LANES):
                    y, f, d, e = x[s], sums[s], rises[s], bends[s]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a[s + 3 * LANES] * b[s + 3 * LANES]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a[s + 2 * LANES] * b[s + 2 * LANES]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a[s + LANES] * b[s + LANES]
                    e = e * y + d
                    d = d * y + f
                    sums[s] = f * y + a[s] * b[s]
                    rises[s] = d
                    bends[s] = e
            _finish(rho, x, powers, sums, rises, bends)
            store(sums, begin, count, value)
            store_scaled(rises, over, begin, count, slope)
            store_scaled(bends, over, begin, count, bend)


@njit(**OPTIONS)
def _sums_of_pairs(  # type: ignore[no-untyped-def]
    covariance, over, value, slope, bend, own, starts, tails, other, other_starts, other_tails, powers, log_accuracy,
    places, geometry, short,
):  # fmt: skip
    """F and its derivatives where positions of one sample meet all of another, which comes in strips."""
    rho, x, bends, most = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(1)
    sums, rises, bits, most_bits = np.zeros(LANES), np.zeros(LANES), x.view(np.int64), most.view(np.int64)
    for p in range(len(other_starts) - 1):
        for position in range(len(starts) - 1):
            if not correlations_of_pairs(covariance, over, places, position, p, geometry, rho):
                continue
            top = _start(rho, powers, x, bits, most, most_bits, sums, rises, bends)
            one, two = starts[position], other_starts[p]
            groups = min(starts[position + 1] - one, other_starts[p + 1] - two) // GROUP
            groups = _group_count(tails[position], other_tails[p], groups, top, powers, log_accuracy)
            if _left_out(tails[position], other_tails[p], groups, top, powers) > log_accuracy:
                short[p, position] = True
                continue
            for group in range(groups - 1, -1, -1):
                first, second = one + GROUP * group, (two + GROUP * group) * LANES
                a0, a1, a2, a3 = own[first], own[first + 1], own[first + 2], own[first + 3]
                b = other[second : second + GROUP * LANES]
                for s in range(LANES):
                    y, f, d, e = x[s], sums[s], rises[s], bends[s]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a3 * b[s + 3 * LANES]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a2 * b[s + 2 * LANES]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a1 * b[s + LANES]
                    e = e * y + d
                    d = d * y + f
                    sums[s] = f * y + a0 * b[s]
                    rises[s] = d
                    bends[s] = e
            _finish(rho, x, powers, sums, rises, bends)
            store_pairs(sums, places, position, p, geometry, value)
            store_scaled_pairs(rises, over, places, position, p, geometry, slope)
            store_scaled_pairs(bends, over, places, position, p, geometry, bend)


__all__ = ["SeriesFields"]
