"""Fields of activations made of straight pieces, such as hard tanh: a closed form, docs/theory.md (10.14) to (10.16).

F' is a sum over two kinks of probabilities that both variables are beyond their kink: of wedges under the bell, each of
which is two of Owen's functions T(h, a), one for each side.  With h, the kink over its own scale, known for a position,
T is a function of one number: an odd Chebyshev sum whose coefficients are computed once for a position.  No correlation
is special: there is neither a series that ends late nor a table with a cone.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.polynomial import Chebyshev, Polynomial
from scipy import special

from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import Pieces
from notsodeep.linalg.chebyshev import chebyshev_coefficients, chebyshev_nodes
from notsodeep.pairs.bent_fields import arccos_over_root
from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.pairs.compiled_strips import (
    INLINE,
    LANES,
    correlations,
    correlations_of_pairs,
    exponential,
    fill,
    logarithm,
    store,
    store_pairs,
)
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.log_table import BLOCK, LogTable, interpolated_block
from notsodeep.pairs.pair_fields import Mask, MaskedMethod, PairFields
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray

# Beyond so many standard deviations nothing is left: the weight is below 1e-17.
REACH = 8.4
# What T may leave out at each level of accuracy: the first is for the first Newton step.
LEVELS = (1e-8, 3e-10, 2e-15)
# Nodes from which the coefficients of T come, and the scale beyond which its coordinate is linear.
NODES, STRAIGHT = 256, 3.0
# Rows of a strip: the scale, M_0 and M_1; for each size of a kink h, Φ̄(h), its density, 1/c and 1/asinh(REACH/c).
COMMON, FOR_KINK = 3, 5
# Mills' ratio: (1 + x) R(x) is a polynomial in (x - MIDDLE)/(x + MIDDLE), right to 4e-15 up to FAR.
MIDDLE, FAR = 5.3, 40.0


def _mills_polynomial() -> tuple[float, ...]:
    end = (FAR - MIDDLE) / (FAR + MIDDLE)

    def scaled(y: Array) -> Array:
        x = MIDDLE * (1.0 + y) / (1.0 - y)
        return np.asarray((1.0 + x) * np.sqrt(0.5 * np.pi) * special.erfcx(x / np.sqrt(2.0)))

    fit = Chebyshev.interpolate(scaled, 20, domain=[-1.0, end])
    return tuple(float(c) for c in fit.convert(kind=Polynomial).coef)


MILLS = _mills_polynomial()


class WedgeFields(MaskedMethod):
    """F, F' and dF'/dρ of a piecewise-linear activation with kinks anywhere.

    Args:
        phi: the activation.
        pieces: its pieces.
        segments: where variances are.
        layout: the layout of fields.
    """

    name, error, carries = "closed form", 1e-13, True
    levels = LEVELS

    def __init__(self, phi: Activation, pieces: Pieces, segments: LogTable, layout: Layout) -> None:
        self.phi, self.segments, self.layout = phi, segments, layout
        knots, jumps = np.array(pieces.knots), np.asarray(pieces.weights)
        self.sizes = np.unique(np.abs(knots))
        # Kinks on the same side, and on opposite sides, which are the same with the sign of ρ exchanged.
        number = np.searchsorted(self.sizes, np.abs(knots))
        self.products = np.zeros((2, len(self.sizes), len(self.sizes)))
        for one, i, size in zip(jumps, number, knots, strict=True):
            for other, j, second in zip(jumps, number, knots, strict=True):
                self.products[int(size * second < 0.0), i, j] += one * other
        coefficients = segments.of(self._functions)
        tails = self._tails(coefficients)
        # How many terms of T a segment needs at each level.
        self.lengths = np.stack([np.maximum((tails > level).sum(axis=1), 1) for level in LEVELS], axis=1)
        # Two at a time.
        self.terms = int(self.lengths.max()) + int(self.lengths.max()) % 2
        kept = [np.arange(COMMON)]
        for i in range(len(self.sizes)):
            first = COMMON + i * (FOR_KINK + NODES // 2)
            kept.append(np.arange(first, first + FOR_KINK + self.terms))
        self.coefficients = np.ascontiguousarray(coefficients[:, :, np.concatenate(kept)])

    def _tails(self, coefficients: Array) -> Array:
        """What T leaves out after each term, at most in a segment and of any kink, (segments, terms)."""
        found = np.zeros((len(coefficients), NODES // 2))
        for i in range(len(self.sizes)):
            first = COMMON + i * (FOR_KINK + NODES // 2) + FOR_KINK
            sizes = np.abs(coefficients[:, :, first : first + NODES // 2]).sum(axis=1)
            found = np.maximum(found, np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1])
        return found

    def _functions(self, variances: Array) -> Array:
        """All rows at some variances of the shape, (variances, rows)."""
        shape, phi, scale = self.phi.shape, self.phi, np.sqrt(variances)
        rows = [
            phi.amplitude * scale,
            phi.amplitude * shape.mean_derivative(variances, 0),
            phi.amplitude * phi.gain * shape.mean_derivative(variances, 1),
        ]
        for size in self.sizes:
            # The sum of a kink at zero is not needed.
            h = size / scale if size else np.full_like(scale, REACH)
            coordinate = 1.0 / np.sqrt(1.0 / np.maximum(h, 1e-8) ** 2 + 1.0 / STRAIGHT**2)
            rows += [
                size / scale, special.ndtr(-size / scale), np.exp(-0.5 * (size / scale) ** 2) / np.sqrt(2.0 * np.pi),
                1.0 / coordinate,
                1.0 / np.arcsinh(REACH / coordinate), *_owen_series(h, coordinate).T,
            ]  # fmt: skip
        return np.stack(rows, axis=1)

    def side(self, positions: Positions, *, right: bool) -> tuple[Array, IntArray]:
        """The rows of all strips, (samples, strips, rows, positions), and how many terms each needs at each level."""
        width = 1 if self.layout.pairs and not right else LANES
        places = self.layout.strips(width)
        rows = self.coefficients.shape[2]
        found = np.empty((len(positions.inner), len(places) // width, rows, width))
        counts = np.zeros((len(positions.inner), len(places) // width, len(LEVELS)), dtype=np.intp)
        for i, one in enumerate(positions.inner):
            segment, place = self.segments.place(one)
            needed = np.where(places[:, None] >= 0, self.lengths[segment[places]], 0)
            counts[i] = needed.reshape(-1, width, len(LEVELS)).max(axis=1)
            _pack(self.coefficients, segment, place, places, found[i])
        return found, counts

    def sample_bytes(self) -> int:
        """All rows at all positions."""
        return 8 * int(self.coefficients.shape[2]) * self.layout.height * self.layout.wide

    def evaluate(
        self,
        fields: PairFields,
        systems: IntArray,
        covariance: Array,
        level: int,
        wanted: Mask | None = None,
    ) -> None:
        """F, F' and dF'/dρ of these systems."""
        whole = covariance, fields.over, fields.value, fields.slope, fields.bend
        (left, own), (right, other) = fields.left, fields.right
        left, own = left[fields.some], np.ascontiguousarray(own[fields.some, :, level])
        right, other = right[fields.others], np.ascontiguousarray(other[fields.others, :, level])
        products = (self.phi.gain * self.phi.amplitude) ** 2 * self.products
        # In the value the scale carries the amplitude, and the kinks are in units of the bare shape.
        ratio, zero = 1.0 / (self.phi.gain * self.phi.amplitude) ** 2, bool(self.sizes[0] == 0.0)
        if wanted is None:
            wanted = self.everywhere(fields, right.shape[1])
        if self.layout.pairs:
            places = self.layout.meeting_places(systems)
            _wedges_of_pairs(
                *whole, left[0, :, :, 0], own[0], right[0], other[0], products, ratio, zero, places,
                self.layout.geometry, wanted,
            )  # fmt: skip
        else:
            _wedges(*whole, left, own, right, other, products, ratio, zero, systems, fields.starts, wanted)


def _owen_series(h: Array, coordinate: Array) -> Array:
    """T(h, b/h) = Σ_j a_j T_{2j+1}(z) with b = c sinh(z asinh(REACH/c)), (10.16): the a_j, (h, NODES/2).

    From the derivative, (h/2π) exp(-(h² + b²)/2)/(h² + b²) db/dz, integrated term by term.
    """
    size = np.maximum(h, 1e-8)[:, None]
    scale, stretch = coordinate[:, None], np.arcsinh(REACH / coordinate)[:, None]
    angle = stretch * chebyshev_nodes(NODES)
    b = scale * np.sinh(angle)
    slope = size * np.exp(-0.5 * (size**2 + b**2)) / (size**2 + b**2) * scale * np.cosh(angle) * stretch
    series = chebyshev_coefficients(slope / (2.0 * np.pi), 1)
    even = np.pad(series[:, ::2], ((0, 0), (0, 1)))
    even[:, 0] *= 2.0
    return np.asarray((even[:, :-1] - even[:, 1:]) / (2.0 * (2.0 * np.arange(NODES // 2) + 1.0)))


@njit(**OPTIONS)
def _pack(coefficients, segment, place, places, packed):  # type: ignore[no-untyped-def]
    """The rows of a sample in strips, (strips, rows, width)."""
    strips, rows, width = packed.shape
    block, lengths = np.empty((min(width, BLOCK), rows)), np.full(len(coefficients), rows)
    for p in range(strips):
        for start in range(0, width, BLOCK):
            members = places[p * width + start : (p + 1) * width]
            count = interpolated_block(coefficients, lengths, segment, place, members, block)
            for k in range(rows):
                for s in range(count):
                    packed[p, k, start + s] = block[s, k]


@njit(**INLINE)
def _mills(x):  # type: ignore[no-untyped-def]
    """Mills' ratio Φ̄(x)/φ(x) for 0 ≤ x ≤ FAR."""
    y = (x - MIDDLE) / (x + MIDDLE)
    p = MILLS[20]
    p = p * y + MILLS[19]
    p = p * y + MILLS[18]
    p = p * y + MILLS[17]
    p = p * y + MILLS[16]
    p = p * y + MILLS[15]
    p = p * y + MILLS[14]
    p = p * y + MILLS[13]
    p = p * y + MILLS[12]
    p = p * y + MILLS[11]
    p = p * y + MILLS[10]
    p = p * y + MILLS[9]
    p = p * y + MILLS[8]
    p = p * y + MILLS[7]
    p = p * y + MILLS[6]
    p = p * y + MILLS[5]
    p = p * y + MILLS[4]
    p = p * y + MILLS[3]
    p = p * y + MILLS[2]
    p = p * y + MILLS[1]
    p = p * y + MILLS[0]
    return p / (1.0 + x)


@njit(**INLINE)
def _owen(b, rows, first, count, work, bits, z, twice, later, latest, found):  # type: ignore[no-untyped-def]
    """T(h, b/h) of a strip: `rows` from `first` on has h …, 1/c, 1/asinh(REACH/c) and the coefficients."""
    inverse, shrink = rows[first + 3], rows[first + 4]
    for s in range(LANES):
        x = min(abs(b[s]), REACH) * inverse[s]
        work[s] = x + np.sqrt(1.0 + x * x)
    logarithm(work, bits, z)
    for s in range(LANES):
        z[s] *= shrink[s]
    for s in range(LANES):
        twice[s] = 4.0 * z[s] * z[s] - 2.0
    fill(later, 0.0)
    fill(latest, 0.0)
    top = first + 4 + count + count % 2
    for k in range(top, first + 4, -2):
        one, two = rows[k], rows[k - 1]
        for s in range(LANES):
            latest[s] = one[s] + twice[s] * later[s] - latest[s]
        for s in range(LANES):
            later[s] = two[s] + twice[s] * latest[s] - later[s]
    for s in range(LANES):
        found[s] = np.copysign(1.0, b[s]) * z[s] * (later[s] - latest[s])


@njit(**INLINE)
def _at_zero(rho, sine, beyond, gain):  # type: ignore[no-untyped-def]
    """Both kinks at zero, (3.20): X = arcsin(ρ)/2π and Y, its integral."""
    for s in range(LANES):
        y = 1.0 - abs(rho[s])
        angle = np.copysign(0.5 * np.pi - np.sqrt(y) * arccos_over_root(y), rho[s])
        beyond[s] = angle * (0.5 / np.pi)
        gain[s] = (rho[s] * angle + sine[s] - 1.0) * (0.5 / np.pi)


@njit(**OPTIONS)
def _strip(rho, left, own, right, other, products, ratio, zero, buffers, whole, slope, bend):  # type: ignore[no-untyped-def]
    """F, F' and dF'/dρ of a strip; `left` and `right` (rows, LANES), of which T needs `own` and `other` terms.

    `zero` says that the first of the kinks is at zero.
    """
    sine, over, a, b, height, beyond, tail, upper, lower, work, z, twice, later, latest, sums = (
        buffers[0], buffers[1], buffers[2], buffers[3], buffers[4], buffers[5], buffers[6], buffers[7], buffers[8],
        buffers[9], buffers[10], buffers[11], buffers[12], buffers[13], buffers[14],
    )  # fmt: skip
    bits, height_bits = work.view(np.int64), height.view(np.int64)
    block = (len(left) - COMMON) // products.shape[1]
    for s in range(LANES):
        y = 1.0 - abs(rho[s])
        sine[s] = np.sqrt(y * (2.0 - y))
        over[s] = 1.0 / max(sine[s], 1e-9)
    fill(slope, 0.0)
    fill(bend, 0.0)
    fill(sums, 0.0)
    for side in range(2):
        sign = 1.0 - 2.0 * side
        for i in range(products.shape[1]):
            for j in range(products.shape[2]):
                weight = products[side, i, j]
                if weight == 0.0:
                    continue
                one, two = COMMON + i * block, COMMON + j * block
                if zero and i == 0 and j == 0:
                    _at_zero(rho, sine, beyond, tail)
                    for s in range(LANES):
                        slope[s] += weight * beyond[s]
                        sums[s] += weight * tail[s]
                        bend[s] += weight * (0.5 / np.pi) * over[s]
                    continue
                h, k = left[one], right[two]
                # β - ρα and α - ρβ, with all digits where both kinks and both variables are nearly the same.
                for s in range(LANES):
                    b[s] = (k[s] - h[s] + h[s] * (1.0 - sign * rho[s])) * over[s]
                for s in range(LANES):
                    a[s] = (h[s] - k[s] + k[s] * (1.0 - sign * rho[s])) * over[s]
                for s in range(LANES):
                    work[s] = max(-0.5 * (h[s] * h[s] + b[s] * b[s]), -700.0)
                exponential(work, height, height_bits)
                for s in range(LANES):
                    height[s] = height[s] * (0.5 / np.pi) if max(h[s], k[s]) < REACH else 0.0
                # A kink at zero: T(0, ±∞) = ±1/4.
                if zero and i == 0:
                    fill(upper, 0.25)
                else:
                    _owen(b, left, one, own, work, bits, z, twice, later, latest, upper)
                if zero and j == 0:
                    fill(lower, 0.25)
                else:
                    _owen(a, right, two, other, work, bits, z, twice, later, latest, lower)
                chance, chances = left[one + 1], right[two + 1]
                for s in range(LANES):
                    beyond[s] = 0.5 * (chance[s] + chances[s]) - upper[s] - lower[s] - chance[s] * chances[s]
                for s in range(LANES):
                    beyond[s] = beyond[s] if max(h[s], k[s]) < REACH else 0.0
                for s in range(LANES):
                    slope[s] += sign * weight * beyond[s]
                for s in range(LANES):
                    bend[s] += weight * height[s] * over[s]
                # φ(α)(Φ̄(b) - Φ̄(β)) and the other way round.
                bell, bells = left[one + 2], right[two + 2]
                for s in range(LANES):
                    part = height[s] * _mills(min(abs(b[s]), FAR))
                    tail[s] = k[s] * ((part if b[s] >= 0.0 else bell[s] - part) - bell[s] * chances[s])
                for s in range(LANES):
                    part = height[s] * _mills(min(abs(a[s]), FAR))
                    tail[s] += h[s] * ((part if a[s] >= 0.0 else bells[s] - part) - bells[s] * chance[s])
                for s in range(LANES):
                    tail[s] = sine[s] * height[s] - bell[s] * bells[s] - tail[s]
                for s in range(LANES):
                    tail[s] += (sign * rho[s] + h[s] * k[s]) * beyond[s]
                for s in range(LANES):
                    sums[s] += weight * tail[s]
    scale, scales, rise, rises = left[0], right[0], left[2], right[2]
    for s in range(LANES):
        slope[s] += rise[s] * rises[s]
    for s in range(LANES):
        sums[s] += rho[s] * rise[s] * rises[s]
    for s in range(LANES):
        whole[s] = ratio * scale[s] * scales[s] * sums[s]
    mean, means = left[1], right[1]
    for s in range(LANES):
        whole[s] += mean[s] * means[s]


@njit(**OPTIONS)
def _wedges(  # type: ignore[no-untyped-def]
    covariance,
    over,
    value,
    slope,
    bend,
    left,
    own,
    right,
    other,
    products,
    ratio,
    zero,
    systems,
    places,
    wanted,
):
    """F, F' and dF'/dρ where positions of some samples meet the same positions of others."""
    rho, whole, rises, bends, buffers = (
        np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.ones((15, LANES)),
    )  # fmt: skip
    for p in range(left.shape[1]):
        for system in systems:
            if not wanted[p, system]:
                continue
            i, j = system % len(left), system // len(left)
            begin = places[system] + p * LANES
            count = min(LANES, places[system + 1] - begin)
            correlations(covariance, over, begin, count, rho)
            _strip(
                rho,
                left[i, p],
                own[i, p],
                right[j, p],
                other[j, p],
                products,
                ratio,
                zero,
                buffers,
                whole,
                rises,
                bends,
            )
            store(whole, begin, count, value)
            store(rises, begin, count, slope)
            store(bends, begin, count, bend)


@njit(**OPTIONS)
def _wedges_of_pairs(  # type: ignore[no-untyped-def]
    covariance,
    over,
    value,
    slope,
    bend,
    left,
    own,
    right,
    other,
    products,
    ratio,
    zero,
    places,
    geometry,
    wanted,
):
    """F, F' and dF'/dρ where positions of one sample meet all of another."""
    rho, whole, rises, bends, buffers = (
        np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.ones((15, LANES)),
    )  # fmt: skip
    strip = np.empty((left.shape[1], LANES))
    for position in range(len(left)):
        for k in range(left.shape[1]):
            fill(strip[k], left[position, k])
        for p in range(len(right)):
            if wanted[p, position] and correlations_of_pairs(
                covariance, over, places, position, p, geometry, rho
            ):
                _strip(
                    rho,
                    strip,
                    own[position],
                    right[p],
                    other[p],
                    products,
                    ratio,
                    zero,
                    buffers,
                    whole,
                    rises,
                    bends,
                )
                store_pairs(whole, places, position, p, geometry, value)
                store_pairs(rises, places, position, p, geometry, slope)
                store_pairs(bends, places, position, p, geometry, bend)


__all__ = ["WedgeFields"]
