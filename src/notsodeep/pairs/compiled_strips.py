"""Strips: some positions of a sample at a time, in which F and F' are evaluated; compiled helpers of all methods.

Over the diagonal a strip is a part of a flat field.  Over pairs of positions one position s of the first sample meets
LANES positions s' of the other: rows of them, which are in different systems of the field.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_mixing import OPTIONS

# Positions of a strip.
LANES = 64
INLINE = {**OPTIONS, "inline": "always"}


@njit(**INLINE)
def correlations(covariance, over, begin, count, rho):  # type: ignore[no-untyped-def]
    """ρ at a part of a flat field; what is not filled stays as it was."""
    for s in range(count):
        rho[s] = min(max(covariance[begin + s] * over[begin + s], -1.0), 1.0)


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
                rho[lane + s] = min(max(covariance[begin + s] * over[begin + s], -1.0), 1.0)
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
def fill(values, number):  # type: ignore[no-untyped-def]
    """Write one number everywhere."""
    for s in range(len(values)):
        values[s] = number


@njit(**INLINE)
def largest_square(rho, squares, bits, most, most_bits):  # type: ignore[no-untyped-def]
    """The largest ρ² of a strip.  Squares are in the order of their bits, and loops over whole numbers are vectorised."""
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
    "fill",
    "largest_square",
    "store",
    "store_pairs",
    "store_scaled",
    "store_scaled_pairs",
]
