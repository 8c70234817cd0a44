"""Fields of smooth activations: sums of Mehler series over strips of positions, docs/theory.md (3.13) to (3.15).

A strip takes as many terms as it needs: what the others would add is at most τ τ' |ρ|^k, where τ and τ' are the tails
of the two strips, (3.15), and |ρ| is the largest of the strip.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_series import GROUP, TRUNCATION, FieldSeries, Strips
from notsodeep.pairs.pair_fields import PairFields
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray

# Positions that are worked on at once: of the diagonal, and of pairs of positions.
LANES, FEW_LANES = 32, 16


class SeriesFields:
    """F, F' and F'' from the series.

    Residuals are about 1e-1, 1e-3 and 1e-8 before they are zero to rounding: the first steps may leave out more.
    """

    name, error, bends, one_by_one = "series", TRUNCATION, True, False
    accuracies = (1e-5, 1e-10, TRUNCATION)

    def __init__(self, phi: Activation, series: FieldSeries, layout: Layout, terms: float) -> None:
        self.phi, self.series, self.layout, self.terms = phi, series, layout, terms

    def side(self, positions: Positions, *, right: bool) -> Strips:
        """The coefficients of the samples, in strips of the layout."""
        width = LANES if not self.layout.pairs else FEW_LANES if right else 1
        return self.series.in_strips(positions.inner, self.layout.strips(width), width, self.phi.amplitude)

    def sample_bytes(self) -> int:
        """The terms that a position needs on average, at all positions."""
        return int(8 * self.terms * self.layout.height * self.layout.wide)

    def evaluate(self, fields: PairFields, systems: IntArray, covariance: Array, accuracy: float) -> None:
        """F, F' and F'' of these systems."""
        left, right = fields.left, fields.right
        whole = covariance, fields.over, fields.lift, fields.value, fields.slope, fields.bend
        sides = left.values, left.starts[fields.first], left.tails[fields.first], right.values
        first, powers, log_accuracy = fields.others.start, self.series.powers, float(np.log2(accuracy))
        if self.layout.pairs:
            lines = fields.starts // self.layout.line
            _sums_of_pairs(
                *whole, *sides, right.starts[first], right.tails[first], powers, log_accuracy, systems, lines,
                self.layout.lines, self.layout.geometry,
            )  # fmt: skip
        else:
            others = fields.others
            _sums(
                *whole, *sides, right.starts[others], right.tails[others], powers, log_accuracy, systems,
                fields.starts,
            )  # fmt: skip


@njit(**OPTIONS, inline="always")
def _group_count(tails, others, most, log_top, powers, log_accuracy):  # type: ignore[no-untyped-def]
    """How many groups of terms leave out less than is allowed where log2 |ρ| is at most `log_top`; by bisection."""
    low, high = 1, most
    while low < high:
        groups = (low + high) // 2
        # The first power that is left out; F' has one less.
        power = powers[0] + powers[1] * GROUP * groups - 1
        if tails[groups - 1] + others[groups - 1] + power * log_top <= log_accuracy:
            high = groups
        else:
            low = groups + 1
    return low


@njit(**OPTIONS, inline="always")
def _prepare(covariance, over, begin, count, powers, rho, x, bits, most, most_bits, sums, rises, bends):  # type: ignore[no-untyped-def]
    """ρ of a strip, what its powers are taken of, empty sums; returns log2 of the largest |ρ|.

    `bits` has the bits of x, which are in the order of the squares: a loop over whole numbers is vectorised.
    """
    for s in range(count):
        rho[s] = min(max(covariance[begin + s] * over[begin + s], -1.0), 1.0)
    for s in range(len(x)):
        x[s] = rho[s] * rho[s]
    largest = np.int64(0)
    for s in range(len(x)):
        largest = max(largest, bits[s])
    most_bits[0] = largest
    if powers[1] == 1:
        for s in range(len(x)):
            x[s] = rho[s]
    for s in range(len(x)):
        sums[s] = 0.0
        rises[s] = 0.0
        bends[s] = 0.0
    return 0.5 * np.log2(max(most[0], 1e-60))


@njit(**OPTIONS, inline="always")
def _finish(rho, x, sums, rises, bends, over, lift, powers, begin, count, value, slope, bend):  # type: ignore[no-untyped-def]
    """F, F' and F'' from g, g' and g''/2, where F = g(ρ), or ρ g(ρ²) if it is odd, or g(ρ²) if it is even."""
    if powers[1] == 1:
        for s in range(len(x)):
            bends[s] = 2.0 * bends[s]
    elif powers[0] == 1:
        for s in range(len(x)):
            bends[s] = rho[s] * (6.0 * rises[s] + 8.0 * x[s] * bends[s])
        for s in range(len(x)):
            rises[s] = sums[s] + 2.0 * x[s] * rises[s]
            sums[s] = rho[s] * sums[s]
    else:
        for s in range(len(x)):
            bends[s] = 2.0 * rises[s] + 8.0 * x[s] * bends[s]
            rises[s] = 2.0 * rho[s] * rises[s]
    for s in range(count):
        value[begin + s] = sums[s] + lift[begin + s]
    for s in range(count):
        slope[begin + s] = rises[s] * over[begin + s]
    for s in range(count):
        bend[begin + s] = bends[s] * over[begin + s] * over[begin + s]


@njit(**OPTIONS)
def _sums(  # type: ignore[no-untyped-def]
    covariance, over, lift, value, slope, bend, own, starts, tails, other, other_starts, other_tails, powers,
    log_accuracy, systems, places,
):  # fmt: skip
    """F, F' and F'' where positions of a sample meet the same positions of others, in strips of LANES positions."""
    rho, x, bends, most = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(1)
    sums, rises, bits, most_bits = np.zeros(LANES), np.zeros(LANES), x.view(np.int64), most.view(np.int64)
    for system in systems:
        for p in range(len(starts) - 1):
            begin = places[system] + p * LANES
            count = min(LANES, places[system + 1] - begin)
            top = _prepare(covariance, over, begin, count, powers, rho, x, bits, most, most_bits, sums, rises, bends)
            one, two = starts[p], other_starts[system, p]
            groups = min(starts[p + 1] - one, other_starts[system, p + 1] - two) // GROUP
            groups = _group_count(tails[p], other_tails[system, p], groups, top, powers, log_accuracy)
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
            _finish(rho, x, sums, rises, bends, over, lift, powers, begin, count, value, slope, bend)


@njit(**OPTIONS)
def _sums_of_pairs(  # type: ignore[no-untyped-def]
    covariance, over, lift, value, slope, bend, own, starts, tails, other, other_starts, other_tails, powers,
    log_accuracy, systems, first_lines, lines, geometry,
):  # fmt: skip
    """F, F' and F'' where all positions of a row of one sample meet all of a row of another.

    The first sample comes position by position, the other in strips of FEW_LANES positions; `first_lines` has which
    lines belong to each system.
    """
    width, wide, line = geometry[0], geometry[1], geometry[2]
    parts = -(-width // FEW_LANES)
    rho, x, bends, most = np.zeros(FEW_LANES), np.zeros(FEW_LANES), np.zeros(FEW_LANES), np.zeros(1)
    sums, rises = np.zeros(FEW_LANES), np.zeros(FEW_LANES)
    bits, most_bits = x.view(np.int64), most.view(np.int64)
    for system in systems:
        for run in range(first_lines[system] * width * parts, first_lines[system + 1] * width * parts):
            part, column, row = run % parts, run // parts % width, run // (parts * width)
            position, strip = lines[row, 0] * width + column, lines[row, 1] * parts + part
            begin = row * line + column * wide + part * FEW_LANES
            count = min(FEW_LANES, width - part * FEW_LANES)
            top = _prepare(covariance, over, begin, count, powers, rho, x, bits, most, most_bits, sums, rises, bends)
            one, two = starts[position], other_starts[strip]
            groups = min(starts[position + 1] - one, other_starts[strip + 1] - two) // GROUP
            groups = _group_count(tails[position], other_tails[strip], groups, top, powers, log_accuracy)
            for group in range(groups - 1, -1, -1):
                first, second = one + GROUP * group, (two + GROUP * group) * FEW_LANES
                a0, a1, a2, a3 = own[first], own[first + 1], own[first + 2], own[first + 3]
                b = other[second : second + GROUP * FEW_LANES]
                for s in range(FEW_LANES):
                    y, f, d, e = x[s], sums[s], rises[s], bends[s]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a3 * b[s + 3 * FEW_LANES]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a2 * b[s + 2 * FEW_LANES]
                    e = e * y + d
                    d = d * y + f
                    f = f * y + a1 * b[s + FEW_LANES]
                    e = e * y + d
                    d = d * y + f
                    sums[s] = f * y + a0 * b[s]
                    rises[s] = d
                    bends[s] = e
            _finish(rho, x, sums, rises, bends, over, lift, powers, begin, count, value, slope, bend)


__all__ = ["LANES", "SeriesFields"]
