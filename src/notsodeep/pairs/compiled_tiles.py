"""Moving tiles: into a matrix and into its mirror image, from one order of the samples to another; compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_series import FAST

# Side of the squares by which a tile is turned: both of its images are in the cache.
SQUARE = 16
# Side of the squares by which a tile is written into its mirror image: one of their lines is one of the cache.
TURNED = 8


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def put_tile(tile, output, top, left, mirrored):  # type: ignore[no-untyped-def]
    """Write a tile whose first entry is (top, left), and its mirror image if it is wanted."""
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def mirror_lower(tile):  # type: ignore[no-untyped-def]
    """Copy what is below the diagonal of a square tile to the other side of it."""
    size = len(tile)
    for begin in range(0, size, SQUARE):
        for first in range(begin, size, SQUARE):
            for i in range(begin, min(begin + SQUARE, size)):
                for j in range(max(first, i + 1), min(first + SQUARE, size)):
                    tile[i, j] = tile[j, i]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def move_rows_and_columns(matrix, rows, columns, buffer, moved):  # type: ignore[no-untyped-def]
    """matrix[i, j] becomes what matrix[rows[i], columns[j]] was, in place; `buffer` holds a row, `moved` is False."""
    count, width = matrix.shape
    for begin in range(count):
        if moved[begin]:
            continue
        for j in range(width):
            buffer[j] = matrix[begin, j]
        i = begin
        while not moved[i]:
            moved[i] = True
            source = rows[i]
            into = matrix[i]
            if source == begin:
                for j in range(width):
                    into[j] = buffer[columns[j]]
            else:
                line = matrix[source]
                for j in range(width):
                    into[j] = line[columns[j]]
            i = source


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def equilibrium_tile(c, features, slope, feedback, gain, constant, resolve, carry, features_carried, result):  # type: ignore[no-untyped-def]
    """Λ = feedback G + gain c + constant; then Λ/(1 - feedback D), times D and plus G, as is asked for.

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


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def any_close(c, left, right, lower):  # type: ignore[no-untyped-def]
    """Whether |c_ij| ≥ left_i right_j for any pair, or any below the diagonal."""
    rows, columns = c.shape
    for i in range(rows):
        if lower:
            columns = i
        found = 0
        for j in range(columns):
            found += abs(c[i, j]) >= left[i] * right[j]
        if found > 0:
            return True
    return False
