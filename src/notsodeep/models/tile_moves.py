"""Compiled loops over tiles: into a matrix and its mirror image, and from G and F' to the other kernels."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.strips import OPTIONS

# Side of the squares by which a tile is turned: both of its images are in the cache.
SQUARE = 16
# Side of the squares by which a tile is written into its mirror image: one of their lines is one of the cache.
TURNED = 8


@njit(**OPTIONS)
def put_tile(tile, output, top, left, mirrored):  # type: ignore[no-untyped-def]
    """Write a tile whose first entry is (top, left), and, if `mirrored`, its mirror image."""
    rows, columns = tile.shape
    for i in range(rows):
        line = output[top + i, left : left + columns]
        for j in range(columns):
            line[j] = tile[i, j]
    if not mirrored:
        return
    turned = np.empty((TURNED, TURNED))
    for begin in range(0, columns, TURNED):
        width = min(TURNED, columns - begin)
        for first in range(0, rows, TURNED):
            height = min(TURNED, rows - first)
            for i in range(height):
                for j in range(width):
                    turned[j, i] = tile[first + i, begin + j]
            for j in range(width):
                line = output[left + begin + j, top + first : top + first + height]
                for i in range(height):
                    line[i] = turned[j, i]


@njit(**OPTIONS)
def mirror_lower(tile):  # type: ignore[no-untyped-def]
    """Copy what is below the diagonal of a square tile to the other side of it."""
    size = len(tile)
    for begin in range(0, size, SQUARE):
        for first in range(begin, size, SQUARE):
            for i in range(begin, min(begin + SQUARE, size)):
                for j in range(max(first, i + 1), min(first + SQUARE, size)):
                    tile[i, j] = tile[j, i]


@njit(**OPTIONS)
def equilibrium_tile(c, features, slope, feedback, gain, constant, resolve, carry, features_carried, result):  # type: ignore[no-untyped-def]
    """Λ = feedback G + gain c + constant; then Λ/(1 - feedback D), times D and plus G, as the flags say.

    `features_carried` has G/(1 - feedback D) in the place of all that.
    """
    rows, columns = c.shape
    for i in range(rows):
        for j in range(columns):
            result[i, j] = feedback * features[i, j] + gain * c[i, j] + constant
        if features_carried:
            for j in range(columns):
                result[i, j] = features[i, j] / (1.0 - feedback * slope[i, j])
        elif carry:
            for j in range(columns):
                result[i, j] = features[i, j] + slope[i, j] * result[i, j] / (1.0 - feedback * slope[i, j])
        elif resolve:
            for j in range(columns):
                result[i, j] /= 1.0 - feedback * slope[i, j]
