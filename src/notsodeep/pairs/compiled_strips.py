"""Strips: some positions of a sample at a time, in which F and F' are evaluated; compiled helpers of all methods.

Over the diagonal a strip is a part of a flat field.  Over pairs of positions one position s of the first sample meets
LANES positions s' of the other: rows of them, which are in different systems of the field.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_mixing import OPTIONS

# Positions of a strip.
LANES = 32
INLINE: dict[str, Any] = {**OPTIONS, "inline": "always"}
# The bits of √½, and those of a number that are not its exponent.
ROOT, MANTISSA = 0x3FE6A09E667F3BCD, 0x000FFFFFFFFFFFFF
LOG_2 = 0.6931471805599453
# Correlations closer to ±1 than this are taken for ±1.
ROUNDING = 4e-15


@njit(**INLINE)
def snapped(rho):  # type: ignore[no-untyped-def]
    """A correlation within ±1.  Equal surroundings have 1 but for rounding, and a root would halve its digits."""
    return rho if abs(rho) <= 1.0 - ROUNDING else np.copysign(1.0, rho)


@njit(**INLINE)
def correlations(covariance, over, begin, count, rho):  # type: ignore[no-untyped-def]
    """ρ at a part of a flat field; what is not filled stays as it was."""
    for s in range(count):
        rho[s] = snapped(covariance[begin + s] * over[begin + s])


@njit(**INLINE)
def store(found, begin, count, field):  # type: ignore[no-untyped-def]
    """Write a strip into a part of a flat field."""
    for s in range(count):
        field[begin + s] = found[s]


@njit(**INLINE)
def correlations_of_pairs(covariance, over, places, position, strip, geometry, rho):  # type: ignore[no-untyped-def]
    """ρ of one position with those of a strip; `places[y, y']` has where two rows meet, or -1 if they need not.

    Returns whether any of them does.
    """
    width, wide = geometry[0], geometry[1]
    height = len(places)
    y, x = position // width, position % width
    first, last = strip * LANES, min((strip + 1) * LANES, height * width)
    met = False
    for row in range(first // width, (last - 1) // width + 1):
        start, end = max(first, row * width), min(last, (row + 1) * width)
        begin, lane = places[y, row] + x * wide + start - row * width, start - first
        if places[y, row] >= 0:
            met = True
            for s in range(end - start):
                rho[lane + s] = snapped(covariance[begin + s] * over[begin + s])
    return met


@njit(**INLINE)
def store_pairs(found, places, position, strip, geometry, field):  # type: ignore[no-untyped-def]
    """Write a strip of one position with others into the field."""
    width, wide = geometry[0], geometry[1]
    height = len(places)
    y, x = position // width, position % width
    first, last = strip * LANES, min((strip + 1) * LANES, height * width)
    for row in range(first // width, (last - 1) // width + 1):
        start, end = max(first, row * width), min(last, (row + 1) * width)
        begin, lane = places[y, row] + x * wide + start - row * width, start - first
        if places[y, row] >= 0:
            for s in range(end - start):
                field[begin + s] = found[lane + s]


@njit(**INLINE)
def store_scaled(found, scale, begin, count, field):  # type: ignore[no-untyped-def]
    """Write a strip times a field into a part of another."""
    for s in range(count):
        field[begin + s] = found[s] * scale[begin + s]


@njit(**INLINE)
def store_scaled_pairs(found, scale, places, position, strip, geometry, field):  # type: ignore[no-untyped-def]
    """Write a strip of one position with others times a field into another."""
    width, wide = geometry[0], geometry[1]
    height = len(places)
    y, x = position // width, position % width
    first, last = strip * LANES, min((strip + 1) * LANES, height * width)
    for row in range(first // width, (last - 1) // width + 1):
        start, end = max(first, row * width), min(last, (row + 1) * width)
        begin, lane = places[y, row] + x * wide + start - row * width, start - first
        if places[y, row] >= 0:
            for s in range(end - start):
                field[begin + s] = found[lane + s] * scale[begin + s]


@njit(**INLINE)
def logarithm(x, bits, result):  # type: ignore[no-untyped-def]
    """log x for positive x, of which `bits` are the bits; x is overwritten.  Loops with the library's do not vectorise.

    x is 2^e m with m from √½ to √2, and log m = 2 artanh f with f = (m - 1)/(m + 1).
    """
    for s in range(len(x)):
        result[s] = float((bits[s] - ROOT) >> 52)
        bits[s] = ((bits[s] - ROOT) & MANTISSA) + ROOT
    for s in range(len(x)):
        f = (x[s] - 1.0) / (x[s] + 1.0)
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
        result[s] = result[s] * LOG_2 + 2.0 * f * (1.0 + g * p)


@njit(**INLINE)
def exponential(x, result, bits):  # type: ignore[no-untyped-def]
    """e^x for -700 ≤ x ≤ 0; `bits` are those of the result, x is overwritten: x = k log 2 + r with |r| ≤ log(2)/2."""
    for s in range(len(x)):
        whole = np.floor(x[s] * (1.0 / LOG_2) + 0.5)
        x[s] -= whole * LOG_2
        bits[s] = (np.int64(whole) + 1023) << 52
    for s in range(len(x)):
        r = x[s]
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
        result[s] *= 1.0 + (r + r * r * p)


@njit(**INLINE)
def fill(values, number):  # type: ignore[no-untyped-def]
    """Write one number everywhere."""
    for s in range(len(values)):
        values[s] = number


@njit(**INLINE)
def largest_square(rho, squares, bits, most, most_bits):  # type: ignore[no-untyped-def]
    """The largest ρ² of a strip: squares are in the order of their bits, and loops over whole numbers vectorise."""
    for s in range(len(rho)):
        squares[s] = rho[s] * rho[s]
    largest = np.int64(0)
    for s in range(len(rho)):
        largest = max(largest, bits[s])
    most_bits[0] = largest
    return most[0]


__all__ = [
    "INLINE",
    "LANES",
    "correlations",
    "correlations_of_pairs",
    "exponential",
    "fill",
    "largest_square",
    "logarithm",
    "snapped",
    "store",
    "store_pairs",
    "store_scaled",
    "store_scaled_pairs",
]
