"""Compiled helpers that all methods share: strips of WIDTH columns, and functions that the compiler can vectorise.

A loop over a strip has a fixed length and no branches, which lets the compiler use the vector units; calls of the
library's logarithm or exponential, or a loop over the coefficients of a polynomial, would prevent that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.polynomial import Chebyshev, Polynomial

from notsodeep.validation import Array

OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "nnan", "ninf"},
}
INLINE: dict[str, Any] = {**OPTIONS, "inline": "always"}
# Columns of a strip.
WIDTH = 64
# Which pairs of a strip the series leaves to another method: those beyond its reach, or all.
SOME, ALL = 1, 2
# Correlations closer to ±1 than this are taken for ±1: equal samples have 1 but for rounding.
ROUNDING = 4e-15
# The bits of √½, and those of a number that are not its exponent.
ROOT_BITS, MANTISSA = 0x3FE6A09E667F3BCD, 0x000FFFFFFFFFFFFF
LOG_2 = 0.6931471805599453


def packed(features: Array) -> Array:
    """Features (stack, n, features) as strips (stack, strips, features, WIDTH), zero where there is no column."""
    stack, count, size = features.shape
    strips = np.empty((stack, -(-count // WIDTH), size, WIDTH))
    _pack(np.ascontiguousarray(features), strips)
    return strips


@njit(**OPTIONS)
def _pack(features, strips):  # type: ignore[no-untyped-def]
    """Turn the last two axes, eight columns at a time so that both sides stay in the cache."""
    stack, count, size = features.shape
    for t in range(stack):
        for strip in range(strips.shape[1]):
            into = strips[t, strip]
            for first in range(0, WIDTH, 8):
                begin = strip * WIDTH + first
                width = min(max(count - begin, 0), 8)
                for k in range(size):
                    for j in range(width):
                        into[k, first + j] = features[t, begin + j, k]
                    for j in range(width, 8):
                        into[k, first + j] = 0.0


def _arccos_series(y: Array, integrated: bool) -> Array:
    """arccos(1 - y)/√y = √2 Σ (2n)!/(8ⁿ n!² (2n+1)) yⁿ, or ∫₀ʸ arccos(1 - t) dt/y^{3/2} by the same series."""
    total, factor, power = np.zeros_like(y), 1.0, np.ones_like(y)
    for n in range(120):
        total += factor / (2 * n + 1) / (n + 1.5 if integrated else 1.0) * power
        factor *= (2 * n + 1) * (2 * n + 2) / (8.0 * (n + 1) ** 2)
        power = power * y
    return np.asarray(np.sqrt(2.0) * total)


def _polynomial(degree: int, integrated: bool) -> tuple[float, ...]:
    """A polynomial for y from 0 to 1 in the place of that series, highest power first."""
    fit = Chebyshev.interpolate(lambda y: _arccos_series(y, integrated), degree, domain=[0.0, 1.0])
    return tuple(float(c) for c in fit.convert(kind=Polynomial).coef[::-1])


# Both are right to 3e-15 on [0, 1].
ANGLE, LAG = _polynomial(16, False), _polynomial(15, True)


@njit(**INLINE)
def arccos_over_root(y):  # type: ignore[no-untyped-def]
    """arccos(1 - y)/√y for 0 ≤ y ≤ 1."""
    p = ANGLE[0]
    p = p * y + ANGLE[1]
    p = p * y + ANGLE[2]
    p = p * y + ANGLE[3]
    p = p * y + ANGLE[4]
    p = p * y + ANGLE[5]
    p = p * y + ANGLE[6]
    p = p * y + ANGLE[7]
    p = p * y + ANGLE[8]
    p = p * y + ANGLE[9]
    p = p * y + ANGLE[10]
    p = p * y + ANGLE[11]
    p = p * y + ANGLE[12]
    p = p * y + ANGLE[13]
    p = p * y + ANGLE[14]
    p = p * y + ANGLE[15]
    return p * y + ANGLE[16]


@njit(**INLINE)
def lag(y):  # type: ignore[no-untyped-def]
    """(√(1-ρ²) - ρ arccos ρ)/y^{3/2} at ρ = 1 - y, for 0 ≤ y ≤ 1."""
    p = LAG[0]
    p = p * y + LAG[1]
    p = p * y + LAG[2]
    p = p * y + LAG[3]
    p = p * y + LAG[4]
    p = p * y + LAG[5]
    p = p * y + LAG[6]
    p = p * y + LAG[7]
    p = p * y + LAG[8]
    p = p * y + LAG[9]
    p = p * y + LAG[10]
    p = p * y + LAG[11]
    p = p * y + LAG[12]
    p = p * y + LAG[13]
    p = p * y + LAG[14]
    return p * y + LAG[15]


@njit(**INLINE)
def correlations(covariance, own, inverse, width, rho):  # type: ignore[no-untyped-def]
    """ρ of a strip from covariances and one over the scales; 0 where there is no pair.  Returns the largest |ρ|."""
    for j in range(width):
        value = covariance[j] * (own * inverse[j])
        rho[j] = value if abs(value) <= 1.0 - ROUNDING else np.copysign(1.0, value)
    for j in range(width, WIDTH):
        rho[j] = 0.0
    peak = 0.0
    for j in range(WIDTH):
        peak = max(peak, abs(rho[j]))
    return peak


@njit(**INLINE)
def put_strip(  # type: ignore[no-untyped-def]
    values, slopes, bends, rho, pairs, own, reach, members, bent, value, slope, bend
):
    """Write F, F' and, if `bent`, dF'/dc of the members of a strip: ALL, or SOME, with |ρ| > own · reach."""
    if pairs == ALL and np.all(members):
        for j in range(len(value)):
            value[j] = values[j]
        for j in range(len(value)):
            slope[j] = slopes[j]
        for j in range(len(value) if bent else 0):
            bend[j] = bends[j]
        return
    for j in range(len(value)):
        if members[j] and (pairs == ALL or abs(rho[j]) > own * reach[j]):
            value[j] = values[j]
            slope[j] = slopes[j]
            if bent:
                bend[j] = bends[j]


@njit(**INLINE)
def fill(values, number):  # type: ignore[no-untyped-def]
    """Write one number everywhere."""
    for j in range(len(values)):
        values[j] = number


@njit(**INLINE)
def logarithm(x, bits, result):  # type: ignore[no-untyped-def]
    """log x for positive x with these bits; x is overwritten.

    x is 2^e m with m from √½ to √2, and log m = 2 artanh f with f = (m - 1)/(m + 1).
    """
    for j in range(len(x)):
        result[j] = float((bits[j] - ROOT_BITS) >> 52)
        bits[j] = ((bits[j] - ROOT_BITS) & MANTISSA) + ROOT_BITS
    for j in range(len(x)):
        f = (x[j] - 1.0) / (x[j] + 1.0)
        g = f * f
        p = 1.0 / 21.0
        p = p * g + 1.0 / 19.0
        p = p * g + 1.0 / 17.0
        p = p * g + 1.0 / 15.0
        p = p * g + 1.0 / 13.0
        p = p * g + 1.0 / 11.0
        p = p * g + 1.0 / 9.0
        p = p * g + 1.0 / 7.0
        p = p * g + 1.0 / 5.0
        p = p * g + 1.0 / 3.0
        result[j] = result[j] * LOG_2 + 2.0 * f * (1.0 + g * p)


@njit(**INLINE)
def exponential(x, result, bits):  # type: ignore[no-untyped-def]
    """e^x for -700 ≤ x ≤ 0; `bits` are those of the result, x is overwritten: x = k log 2 + r with |r| ≤ log(2)/2."""
    for j in range(len(x)):
        whole = np.floor(x[j] * (1.0 / LOG_2) + 0.5)
        x[j] = (x[j] - whole * 0.693145751953125) - whole * 1.42860682030941723212e-6
        bits[j] = (np.int64(whole) + 1023) << 52
    for j in range(len(x)):
        r = x[j]
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        result[j] *= 1.0 + (r + r * r * p)
