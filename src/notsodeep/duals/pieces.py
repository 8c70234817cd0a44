"""Activations made of straight pieces, such as hard tanh: a closed form, docs/theory.md (10.14) to (10.16).

F' is a sum over two kinks of probabilities that both variables are beyond their kink: of wedges under the Gaussian,
each the sum of two of Owen's functions T(h, a), one for each side.  With h, the kink over its own scale, known for a
row or column, T is a function of one number: an odd Chebyshev sum whose coefficients are computed once.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit
from numpy.polynomial import Chebyshev, Polynomial
from scipy import special

from notsodeep.duals.strips import (
    INLINE,
    OPTIONS,
    WIDTH,
    arccos_over_root,
    correlations,
    exponential,
    fill,
    logarithm,
    packed,
    put_strip,
)
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.piecewise import PiecewiseLinear
from notsodeep.linalg.chebyshev import chebyshev_coefficients, chebyshev_nodes
from notsodeep.validation import Array, IntArray

# Beyond so many standard deviations nothing is left: the weight is below 1e-17.
REACH = 8.4
# What T may leave out.
ALLOWED = 2e-15
# Nodes from which the coefficients of T come, and the scale beyond which its coordinate is linear.
NODES, STRAIGHT = 256, 3.0
# Features: the scale, M_0 and M_1; for each size of a kink h, Φ̄(h), its density, 1/c and 1/asinh(REACH/c), then T.
COMMON = 3
# Buffers of a strip that the sum over kinks reads.
BEYOND, TAIL, HEIGHT = 2, 3, 4
# Mills' ratio: (1 + x) R(x) is a polynomial in (x - MIDDLE)/(x + MIDDLE), right to 4e-15 up to FAR.
MIDDLE, FAR = 5.3, 40.0
ERROR = 1e-13
# Largest 1/√(1-ρ²) in dF'/dρ, which is infinite at ρ = 1.
STEEPEST = 1e9
# Largest √(q q'/(S S')): beyond it terms of the size of √(q q') would cancel down to F.
WIDE = 400.0


def _mills_polynomial() -> tuple[float, ...]:
    """The coefficients, highest power first."""
    end = (FAR - MIDDLE) / (FAR + MIDDLE)

    def scaled(y: Array) -> Array:
        x = MIDDLE * (1.0 + y) / (1.0 - y)
        return np.asarray((1.0 + x) * np.sqrt(0.5 * np.pi) * special.erfcx(x / np.sqrt(2.0)))

    fit = Chebyshev.interpolate(scaled, 20, domain=[-1.0, end])
    return tuple(float(c) for c in fit.convert(kind=Polynomial).coef[::-1])


MILLS = _mills_polynomial()


class StraightPieces:
    """F, F' and dF'/dc of a piecewise-linear activation with kinks anywhere.

    Args:
        phi: the activation; its offset is left to the caller.
        pieces: its pieces.
        inner: some variances of the shape, which span those that will occur.
    """

    def __init__(self, phi: Activation, pieces: PiecewiseLinear, inner: Array) -> None:
        self.phi = phi
        knots, jumps = np.array(pieces.knots), np.asarray(pieces.weights)
        self.sizes = np.unique(np.abs(knots))
        # Kinks on the same side, and on opposite sides, which are the same with the sign of ρ exchanged.
        number = np.searchsorted(self.sizes, np.abs(knots))
        self.products = np.zeros((2, len(self.sizes), len(self.sizes)))
        for one, i, size in zip(jumps, number, knots, strict=True):
            for other, j, second in zip(jumps, number, knots, strict=True):
                self.products[int(size * second < 0.0), i, j] += one * other
        # Four terms at a time.
        needed = max(int(_counts(_owen_series(self._positions(size, inner))).max()) for size in self.sizes)
        self.terms = min(4 * -(-(needed + 4) // 4), NODES // 2)

    def _positions(self, size: float, variances: Array) -> Array:
        """A kink over the scale; the sum of a kink at zero is not needed."""
        scale = np.sqrt(variances)
        return np.asarray(size / scale) if size else np.full_like(scale, REACH)

    def _series(self, size: float, variances: Array) -> Array:
        """The coefficients of T of one kink, (n, terms)."""
        return _owen_series(self._positions(size, variances))[:, : self.terms]

    def _features(self, variances: Array) -> tuple[Array, IntArray]:
        """All features at flat variances of the shape, (n, features), and how many terms of T each needs."""
        shape, phi, scale = self.phi.shape, self.phi, np.sqrt(variances)
        columns = [
            phi.amplitude * scale,
            phi.amplitude * shape.mean_derivative(variances, 0),
            phi.amplitude * phi.gain * shape.mean_derivative(variances, 1),
        ]
        counts = np.ones(len(variances), dtype=np.intp)
        for size in self.sizes:
            h = self._positions(size, variances)
            coordinate = _coordinate(h)
            series = at_many(partial(self._series, size), variances, ("Owen", float(size), self.terms))
            columns += [
                size / scale, special.ndtr(-size / scale), np.exp(-0.5 * (size / scale) ** 2) / np.sqrt(2.0 * np.pi),
                1.0 / coordinate, 1.0 / np.arcsinh(REACH / coordinate), *series.T,
            ]  # fmt: skip
            counts = np.maximum(counts, _counts(series))
        return np.stack(columns, axis=1), counts

    def side(self, inner: Array) -> tuple[Array, IntArray]:
        """Features of rows (stack, n, features), and how many terms of T each needs."""
        flat, counts = self._features(inner.reshape(-1))
        return np.ascontiguousarray(flat.reshape(*inner.shape, -1)), counts.reshape(inner.shape)

    def tiles(  # type: ignore[no-untyped-def]
        self,
        covariance,
        inverse,
        left,
        reach,
        inverse_right,
        right,
        reach_right,
        todo,
        rough,
        value,
        slope,
        bend,
    ) -> None:
        """Write the pairs that `todo` (stack, rows, strips) names: ALL of a strip, or those beyond reach · reach'."""
        products = (self.phi.gain * self.phi.amplitude) ** 2 * self.products
        # In the value the scale carries the amplitude, and the kinks are in units of the bare shape.
        ratio, zero = 1.0 / (self.phi.gain * self.phi.amplitude) ** 2, bool(self.sizes[0] == 0.0)
        if rough:
            # The coefficients of T fall like a geometric series: half of the terms leave the root of the error.
            left, right = ((features, (counts + 1) // 2) for features, counts in (left, right))
        _tiles(
            covariance, inverse, *left, reach, inverse_right, *right, reach_right, products, ratio, zero, todo,
            bend.size > 0, value, slope, bend,
        )  # fmt: skip


def in_strips(features: Array, counts: IntArray) -> tuple[Array, IntArray]:
    """Columns from rows: strips of features, and the most terms that a column of a strip needs."""
    return packed(features), packed(counts[..., None].astype(np.float64)).max(axis=(2, 3)).astype(np.intp)


def _counts(series: Array) -> IntArray:
    """How many terms of T are needed, (n,)."""
    tails = np.cumsum(np.abs(series)[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.maximum((tails > ALLOWED).sum(axis=1), 1))


def _coordinate(h: Array) -> Array:
    """The scale c of the coordinate of T."""
    return np.asarray(1.0 / np.sqrt(1.0 / np.maximum(h, 1e-8) ** 2 + 1.0 / STRAIGHT**2))


def _owen_series(h: Array) -> Array:
    """T(h, b/h) = Σ_j a_j T_{2j+1}(z) with b = c sinh(z asinh(REACH/c)), (10.16): the a_j, (h, NODES/2).

    From the derivative, (h/2π) exp(-(h² + b²)/2)/(h² + b²) db/dz, integrated term by term.
    """
    size, coordinate = np.maximum(h, 1e-8)[:, None], _coordinate(h)
    scale, stretch = coordinate[:, None], np.arcsinh(REACH / coordinate)[:, None]
    angle = stretch * chebyshev_nodes(NODES)
    b = scale * np.sinh(angle)
    slope = size * np.exp(-0.5 * (size**2 + b**2)) / (size**2 + b**2) * scale * np.cosh(angle) * stretch
    series = chebyshev_coefficients(slope / (2.0 * np.pi), 1)
    even = np.pad(series[:, ::2], ((0, 0), (0, 1)))
    even[:, 0] *= 2.0
    return np.asarray((even[:, :-1] - even[:, 1:]) / (2.0 * (2.0 * np.arange(NODES // 2) + 1.0)))


@njit(**INLINE)
def _mills(x):  # type: ignore[no-untyped-def]
    """Mills' ratio Φ̄(x)/φ(x) for 0 ≤ x ≤ FAR."""
    y = (x - MIDDLE) / (x + MIDDLE)
    p = MILLS[0]
    p = p * y + MILLS[1]
    p = p * y + MILLS[2]
    p = p * y + MILLS[3]
    p = p * y + MILLS[4]
    p = p * y + MILLS[5]
    p = p * y + MILLS[6]
    p = p * y + MILLS[7]
    p = p * y + MILLS[8]
    p = p * y + MILLS[9]
    p = p * y + MILLS[10]
    p = p * y + MILLS[11]
    p = p * y + MILLS[12]
    p = p * y + MILLS[13]
    p = p * y + MILLS[14]
    p = p * y + MILLS[15]
    p = p * y + MILLS[16]
    p = p * y + MILLS[17]
    p = p * y + MILLS[18]
    p = p * y + MILLS[19]
    return (p * y + MILLS[20]) / (1.0 + x)


@njit(**INLINE)
def _owen(b, rows, first, count, work, bits, z, twice, later, latest, result):  # type: ignore[no-untyped-def]
    """T(h, b/h) of a strip: `rows` from `first` on has h …, 1/c, 1/asinh(REACH/c) and the coefficients."""
    inverse, shrink = rows[first + 3], rows[first + 4]
    for j in range(WIDTH):
        x = min(abs(b[j]), REACH) * inverse[j]
        work[j] = x + np.sqrt(1.0 + x * x)
    logarithm(work, bits, z)
    for j in range(WIDTH):
        z[j] *= shrink[j]
    for j in range(WIDTH):
        twice[j] = 4.0 * z[j] * z[j] - 2.0
    fill(later, 0.0)
    fill(latest, 0.0)
    flat = rows.reshape(-1)
    for k in range(first + 5 + 4 * ((count - 1) // 4), first + 4, -4):
        series = flat[k * WIDTH : (k + 4) * WIDTH]
        for j in range(WIDTH):
            x, one, two = twice[j], later[j], latest[j]
            two = series[j + 3 * WIDTH] + x * one - two
            one = series[j + 2 * WIDTH] + x * two - one
            two = series[j + WIDTH] + x * one - two
            later[j] = series[j] + x * two - one
            latest[j] = two
    for j in range(WIDTH):
        result[j] = np.copysign(1.0, b[j]) * z[j] * (later[j] - latest[j])


@njit(**INLINE)
def _at_zero(rho, sine, beyond, tail, height):  # type: ignore[no-untyped-def]
    """The same as `_wedge` for two kinks at zero, (3.20): X = arcsin(ρ)/2π and Y, its integral."""
    for j in range(WIDTH):
        y = 1.0 - abs(rho[j])
        angle = np.copysign(0.5 * np.pi - np.sqrt(y) * arccos_over_root(y), rho[j])
        beyond[j] = angle * (0.5 / np.pi)
        tail[j] = (rho[j] * angle + sine[j] - 1.0) * (0.5 / np.pi)
    fill(height, 0.5 / np.pi)


@njit(**OPTIONS)
def _wedge(rho, sign, left, own, right, other, one, two, zero_left, zero_right, buffers):  # type: ignore[no-untyped-def]
    """X, Y and the density of one kink of u with one of v, in the buffers BEYOND, TAIL and HEIGHT.

    X is the probability that both variables are beyond their kinks less that of independent ones, Y its integral.
    The features of the kinks begin at `one` and `two`; `zero_left` and `zero_right` say which of them is at zero.
    """
    sine, over, beyond, tail, height = buffers[0], buffers[1], buffers[BEYOND], buffers[TAIL], buffers[HEIGHT]
    a, b, upper, lower, work, z, twice, later, latest = (
        buffers[5], buffers[6], buffers[7], buffers[8], buffers[9], buffers[10], buffers[11], buffers[12], buffers[13],
    )  # fmt: skip
    bits, height_bits = work.view(np.int64), height.view(np.int64)
    h, k = left[one], right[two]
    # β - ρα and α - ρβ, with all digits where both kinks and both variables are nearly the same.
    for j in range(WIDTH):
        b[j] = (k[j] - h[j] + h[j] * (1.0 - sign * rho[j])) * over[j]
    for j in range(WIDTH):
        a[j] = (h[j] - k[j] + k[j] * (1.0 - sign * rho[j])) * over[j]
    for j in range(WIDTH):
        work[j] = max(-0.5 * (h[j] * h[j] + b[j] * b[j]), -700.0)
    exponential(work, height, height_bits)
    for j in range(WIDTH):
        height[j] = height[j] * (0.5 / np.pi) if max(h[j], k[j]) < REACH else 0.0
    # A kink at zero: T(0, ±∞) = ±1/4.
    if zero_left:
        fill(upper, 0.25)
    else:
        _owen(b, left, one, own, work, bits, z, twice, later, latest, upper)
    if zero_right:
        fill(lower, 0.25)
    else:
        _owen(a, right, two, other, work, bits, z, twice, later, latest, lower)
    chance, chances, bell, bells = left[one + 1], right[two + 1], left[one + 2], right[two + 2]
    for j in range(WIDTH):
        beyond[j] = 0.5 * (chance[j] + chances[j]) - upper[j] - lower[j] - chance[j] * chances[j]
    for j in range(WIDTH):
        beyond[j] = beyond[j] if max(h[j], k[j]) < REACH else 0.0
    # φ(α)(Φ̄(b) - Φ̄(β)) and the other way round.
    for j in range(WIDTH):
        part = height[j] * _mills(min(abs(b[j]), FAR))
        tail[j] = k[j] * ((part if b[j] >= 0.0 else bell[j] - part) - bell[j] * chances[j])
    for j in range(WIDTH):
        part = height[j] * _mills(min(abs(a[j]), FAR))
        tail[j] += h[j] * ((part if a[j] >= 0.0 else bells[j] - part) - bells[j] * chance[j])
    for j in range(WIDTH):
        tail[j] = sine[j] * height[j] - bell[j] * bells[j] - tail[j]
    for j in range(WIDTH):
        tail[j] += (sign * rho[j] + h[j] * k[j]) * beyond[j]


@njit(**OPTIONS)
def _strip(rho, left, own, right, other, products, ratio, zero, buffers, whole, slope, bend):  # type: ignore[no-untyped-def]
    """F, F' and dF'/dρ of a strip; `left` and `right` (features, WIDTH); T needs `own` and `other` terms of them.

    `zero` says that the first of the kinks is at zero.
    """
    sine, over, beyond, tail, height, sums = (
        buffers[0], buffers[1], buffers[BEYOND], buffers[TAIL], buffers[HEIGHT], buffers[14],
    )  # fmt: skip
    block = (len(left) - COMMON) // products.shape[1]
    for j in range(WIDTH):
        y = 1.0 - abs(rho[j])
        sine[j] = np.sqrt(y * (2.0 - y))
        # At the correlation 1 kinks that differ by one digit only are infinitely far apart.
        over[j] = 1.0 / max(sine[j], 1e-30)
    fill(slope, 0.0)
    fill(bend, 0.0)
    fill(sums, 0.0)
    for side in range(2):
        sign = 1.0 - 2.0 * side
        for first in range(products.shape[1]):
            for second in range(products.shape[2]):
                weight = products[side, first, second]
                if weight == 0.0:
                    continue
                zero_left, zero_right = zero and first == 0, zero and second == 0
                if zero_left and zero_right:
                    _at_zero(rho, sine, beyond, tail, height)
                else:
                    _wedge(
                        rho, sign, left, own, right, other, COMMON + first * block, COMMON + second * block,
                        zero_left, zero_right, buffers,
                    )  # fmt: skip
                for j in range(WIDTH):
                    slope[j] += sign * weight * beyond[j]
                for j in range(WIDTH):
                    bend[j] += weight * height[j] * min(over[j], STEEPEST)
                for j in range(WIDTH):
                    sums[j] += weight * tail[j]
    scale, scales, mean, means, rise, rises = left[0], right[0], left[1], right[1], left[2], right[2]
    for j in range(WIDTH):
        slope[j] += rise[j] * rises[j]
    for j in range(WIDTH):
        sums[j] += rho[j] * rise[j] * rises[j]
    for j in range(WIDTH):
        whole[j] = ratio * scale[j] * scales[j] * sums[j]
    for j in range(WIDTH):
        whole[j] += mean[j] * means[j]


@njit(**OPTIONS)
def _tiles(  # type: ignore[no-untyped-def]
    covariance, inverse, left, own, reach, inverse_right, right, other, reach_right, products, ratio, zero, todo, bends,
    value, slope, bend,
):  # fmt: skip
    """F, F' and dF'/dc of the pairs that `todo` (stack, rows, strips) names."""
    rho, whole, risen, bent, buffers, members = (
        np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH), np.ones((15, WIDTH)),
        np.ones(WIDTH, dtype=np.bool_),
    )  # fmt: skip
    stack, rows, columns = covariance.shape
    spread = np.empty((left.shape[2], WIDTH))
    for t in range(stack):
        for i in range(rows):
            ready = False
            for strip in range(right.shape[1]):
                if not todo[t, i, strip]:
                    continue
                if not ready:
                    for k in range(left.shape[2]):
                        fill(spread[k], left[t, i, k])
                    ready = True
                begin = strip * WIDTH
                width = min(WIDTH, columns - begin)
                others = inverse_right[t, strip, 0]
                correlations(covariance[t, i, begin : begin + width], inverse[t, i], others, width, rho)
                _strip(
                    rho, spread, own[t, i], right[t, strip], other[t, strip], products, ratio, zero, buffers,
                    whole, risen, bent,
                )  # fmt: skip
                for j in range(WIDTH):
                    bent[j] *= inverse[t, i] * others[j]
                end = begin + width
                put_strip(
                    whole, risen, bent, rho, todo[t, i, strip], reach[t, i],
                    reach_right[t, begin:end], members, bends, value[t, i, begin:end], slope[t, i, begin:end],
                    bend[t, i, begin:end] if bends else rho,
                )  # fmt: skip


__all__ = ["ERROR", "WIDE", "StraightPieces", "in_strips"]
