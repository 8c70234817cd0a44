"""Fields from a table of F and F', docs/theory.md (10.17): sums over orders and ranks, strip by strip."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs.bent_fields import arccos_over_root
from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.pairs.compiled_strips import (
    INLINE,
    LANES,
    correlations,
    correlations_of_pairs,
    fill,
    logarithm,
    store,
    store_pairs,
)
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_table import LEVELS, FieldTable
from notsodeep.pairs.log_table import BLOCK, LogTable, interpolated_block, shortened
from notsodeep.pairs.pair_fields import Mask, MaskedMethod, PairFields
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray

# What the interpolation in the variance may leave out, in parts of what the table itself does.
SHORTENED = 0.01


class TableFields(MaskedMethod):
    """F, F' and F'' from a table.

    Args:
        phi: the activation.
        table: the table of its shape.
        segments: where variances are.
        layout: the layout of fields.
        allowed: what F' may leave out at the last level of accuracy.
    """

    name, carries = "table", True

    def __init__(
        self, phi: Activation, table: FieldTable, segments: LogTable, layout: Layout, allowed: float = 0.0
    ) -> None:
        self.table, self.segments, self.layout, self.error = table, segments, layout, table.error
        self.levels = tuple(slopes for _, slopes in LEVELS)
        self.levels = self.levels[: self.level_for(allowed) + 1]
        kept, self.first = table.terms_for(len(self.levels) - 1)
        self.signs = table.signs[kept]
        scale = np.where(table.kinds == 0, phi.amplitude, phi.amplitude * phi.gain)[kept]
        coefficients = segments.of(lambda q: table.factors(q)[:, kept] * scale)
        self.coefficients = shortened(coefficients, SHORTENED * max(self.levels[-1], table.error))

    def side(self, positions: Positions, *, right: bool) -> Array:
        """The functions of the variances at all positions: (samples, strips, terms, positions of a strip)."""
        width = 1 if self.layout.pairs and not right else LANES
        places = self.layout.strips(width)
        variances = positions.inner
        found = np.empty((len(variances), len(places) // width, len(self.signs), width))
        signs = np.ones(len(self.signs)) if right else self.signs
        for i, one in enumerate(variances):
            _pack(self.coefficients, signs, *self.segments.place(one), places, found[i])
        return found

    def sample_bytes(self) -> int:
        """All terms at all positions."""
        return 8 * len(self.signs) * self.layout.height * self.layout.wide

    def evaluate(
        self,
        fields: PairFields,
        systems: IntArray,
        covariance: Array,
        level: int,
        wanted: Mask | None = None,
    ) -> None:
        """F, F' and F'' of these systems."""
        table = self.table
        whole = covariance, fields.over, fields.value, fields.slope, fields.bend
        shape = self.first, table.counts[level], table.lengths[level], level > 0
        angle = (table.angle.epsilon, *table.angle.ends, table.angle.odd)
        left, right = fields.left[fields.some], fields.right[fields.others]
        if wanted is None:
            wanted = self.everywhere(fields, right.shape[1])
        if self.layout.pairs:
            places = self.layout.meeting_places(systems)
            _look_up_pairs(
                *whole, left[0, :, :, 0], right[0], shape, angle, places, self.layout.geometry, wanted
            )
        else:
            _look_up(*whole, left, right, shape, angle, systems, fields.starts, wanted)


@njit(**OPTIONS)
def _pack(coefficients, signs, segment, place, places, packed):  # type: ignore[no-untyped-def]
    """The functions of a sample in strips (strips, terms, width)."""
    strips, terms, width = packed.shape
    block, lengths = np.empty((min(width, BLOCK), terms)), np.full(len(coefficients), terms)
    for p in range(strips):
        for start in range(0, width, BLOCK):
            count = interpolated_block(
                coefficients, lengths, segment, place, places[p * width + start : (p + 1) * width], block
            )
            for k in range(terms):
                for s in range(count):
                    packed[p, k, start + s] = signs[k] * block[s, k]


@njit(**INLINE)
def _coordinates(rho, angle, z, rate, ratio, bits):  # type: ignore[no-untyped-def]
    """The place z of correlations, and dz/dρ."""
    epsilon, start, stop, odd = angle
    width, square, quarter = 2.0 / (start - stop), epsilon * epsilon, 0.5 * np.pi
    if epsilon == 0.0:
        for s in range(len(z)):
            y = 1.0 - abs(rho[s])
            root = np.sqrt(y)
            # The angle from the nearer end.
            theta = root * arccos_over_root(y)
            theta = theta if odd else quarter - np.copysign(quarter - theta, rho[s])
            z[s] = 1.0 + width * theta
            rate[s] = -width / max(root * np.sqrt(2.0 - y), 1e-8)
        return
    for s in range(len(z)):
        size = abs(rho[s]) if odd else rho[s]
        near, far = 0.5 * (1.0 - size), 0.5 * (1.0 + size)
        one, two = np.sqrt(near), np.sqrt(far)
        three, four = np.sqrt(near + square), np.sqrt(far + square)
        ratio[s] = (one + three) / (two + four)
        rate[s] = -0.25 * width * (1.0 / max(one * three, 1e-8) + 1.0 / max(two * four, 1e-8))
    logarithm(ratio, bits, z)
    for s in range(len(z)):
        z[s] = 1.0 + width * (z[s] - start)


@njit(**INLINE)
def _recursion(twice, now, before):  # type: ignore[no-untyped-def]
    """Clenshaw's: `before` becomes 2z · now - before."""
    for s in range(len(twice)):
        before[s] = twice[s] * now[s] - before[s]


@njit(**INLINE)
def _derived(twice, now, before, value):  # type: ignore[no-untyped-def]
    """The same for the derivative in z of a sum."""
    for s in range(len(twice)):
        before[s] = twice[s] * now[s] - before[s] + 2.0 * value[s]


@njit(**INLINE)
def _products(left, right, first, last, total):  # type: ignore[no-untyped-def]
    """Add products of two strips, (terms · LANES) each."""
    for r in range(first, last, 2):
        a, b = left[r * LANES : (r + 2) * LANES], right[r * LANES : (r + 2) * LANES]
        for s in range(LANES):
            total[s] += a[s] * b[s] + a[s + LANES] * b[s + LANES]


@njit(**INLINE)
def _multiples(left, right, first, last, total):  # type: ignore[no-untyped-def]
    """Add multiples of the terms of a strip."""
    for r in range(first, last, 2):
        a0, a1, b = left[r], left[r + 1], right[r * LANES : (r + 2) * LANES]
        for s in range(LANES):
            total[s] += a0 * b[s] + a1 * b[s + LANES]


@njit(**INLINE)
def _start(rho, angle, z, twice, rate, ratio, bits, v1, v2, d1, d2, e1, e2):  # type: ignore[no-untyped-def]
    _coordinates(rho, angle, z, rate, ratio, bits)
    for s in range(len(z)):
        twice[s] = 2.0 * z[s]
    fill(v1, 0.0)
    fill(v2, 0.0)
    fill(d1, 0.0)
    fill(d2, 0.0)
    fill(e1, 0.0)
    fill(e2, 0.0)


@njit(**INLINE)
def _finish(rho, odd, z, rate, v1, v2, d1, d2, e1, e2):  # type: ignore[no-untyped-def]
    """F, F' and dF'/dρ in place of v1, d1 and e1; T_0 was counted with 2z like the others."""
    for s in range(len(z)):
        e1[s] = (e1[s] - z[s] * e2[s] - d2[s]) * rate[s]
    for s in range(len(z)):
        v1[s] -= z[s] * v2[s]
        d1[s] -= z[s] * d2[s]
    if odd:
        for s in range(len(z)):
            v1[s] = np.copysign(1.0, rho[s]) * v1[s]
            e1[s] = np.copysign(1.0, rho[s]) * e1[s]


@njit(**OPTIONS)
def _look_up(  # type: ignore[no-untyped-def]
    covariance, over, value, slope, bend, left, right, shape, angle, systems, places, wanted
):
    """F, F' and F'' where positions of some samples meet the same positions of others."""
    first, counts, orders, bends = shape
    rho, z, twice, rate, ratio = (
        np.zeros(LANES),
        np.zeros(LANES),
        np.zeros(LANES),
        np.zeros(LANES),
        np.ones(LANES),
    )
    v1, v2, d1, d2, e1, e2 = (
        np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES),
    )  # fmt: skip
    bits = ratio.view(np.int64)
    for p in range(left.shape[1]):
        for system in systems:
            if not wanted[p, system]:
                continue
            begin = places[system] + p * LANES
            count = min(LANES, places[system + 1] - begin)
            own, other = left[system % len(left), p].reshape(-1), right[system // len(left), p].reshape(-1)
            correlations(covariance, over, begin, count, rho)
            _start(rho, angle, z, twice, rate, ratio, bits, v1, v2, d1, d2, e1, e2)
            for k in range(orders - 1, -1, -2):
                _recursion(twice, v1, v2)
                _products(own, other, first[k, 0], first[k, 0] + counts[k, 0], v2)
                if bends:
                    _derived(twice, e1, e2, d1)
                _recursion(twice, d1, d2)
                _products(own, other, first[k, 1], first[k, 1] + counts[k, 1], d2)
                _recursion(twice, v2, v1)
                _products(own, other, first[k - 1, 0], first[k - 1, 0] + counts[k - 1, 0], v1)
                if bends:
                    _derived(twice, e2, e1, d2)
                _recursion(twice, d2, d1)
                _products(own, other, first[k - 1, 1], first[k - 1, 1] + counts[k - 1, 1], d1)
            _finish(rho, angle[3], z, rate, v1, v2, d1, d2, e1, e2)
            store(v1, begin, count, value)
            store(d1, begin, count, slope)
            store(e1, begin, count, bend)


@njit(**OPTIONS)
def _look_up_pairs(  # type: ignore[no-untyped-def]
    covariance, over, value, slope, bend, left, right, shape, angle, places, geometry, wanted
):
    """F, F' and F'' where positions of one sample meet all of another."""
    first, counts, orders, bends = shape
    rho, z, twice, rate, ratio = (
        np.zeros(LANES),
        np.zeros(LANES),
        np.zeros(LANES),
        np.zeros(LANES),
        np.ones(LANES),
    )
    v1, v2, d1, d2, e1, e2 = (
        np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES),
    )  # fmt: skip
    bits = ratio.view(np.int64)
    for p in range(len(right)):
        other = right[p].reshape(-1)
        for position in range(len(left)):
            own = left[position]
            if not wanted[p, position]:
                continue
            if not correlations_of_pairs(covariance, over, places, position, p, geometry, rho):
                continue
            _start(rho, angle, z, twice, rate, ratio, bits, v1, v2, d1, d2, e1, e2)
            for k in range(orders - 1, -1, -2):
                _recursion(twice, v1, v2)
                _multiples(own, other, first[k, 0], first[k, 0] + counts[k, 0], v2)
                if bends:
                    _derived(twice, e1, e2, d1)
                _recursion(twice, d1, d2)
                _multiples(own, other, first[k, 1], first[k, 1] + counts[k, 1], d2)
                _recursion(twice, v2, v1)
                _multiples(own, other, first[k - 1, 0], first[k - 1, 0] + counts[k - 1, 0], v1)
                if bends:
                    _derived(twice, e2, e1, d2)
                _recursion(twice, d2, d1)
                _multiples(own, other, first[k - 1, 1], first[k - 1, 1] + counts[k - 1, 1], d1)
            _finish(rho, angle[3], z, rate, v1, v2, d1, d2, e1, e2)
            store_pairs(v1, places, position, p, geometry, value)
            store_pairs(d1, places, position, p, geometry, slope)
            store_pairs(e1, places, position, p, geometry, bend)


__all__ = ["TableFields"]
