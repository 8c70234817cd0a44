"""The average over the taps of a filter, and the linear equations that it makes of a field: compiled loops.

Fields are flat arrays with room for the borders, laid out by `field_layout.Layout`: a shift of both positions is one
of the flat index, so that every loop is long, contiguous and free of branches.  `geometry` is `Layout.geometry`;
`starts` has where each system of equations begins, `systems` which of them are meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_series import FAST

# Few arrays in each loop: the compiler vectorises only what it can check for overlap.
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": FAST}


@njit(**OPTIONS)
def _wrap(field, guard, lines, geometry):  # type: ignore[no-untyped-def]
    """Around a field stands its opposite side."""
    width, wide, line, _, vertical, horizontal, _, pairs = geometry
    for number in range(lines):
        begin = guard + number * line
        for x in range(width if pairs else 1):
            row = begin + x * wide
            for d in range(horizontal):
                field[row + width + d] = field[row + d]
                field[row - 1 - d] = field[row + width - 1 - d]
        if pairs:
            for d in range(horizontal):
                for k in range(-horizontal, width + horizontal):
                    field[begin + (width + d) * wide + k] = field[begin + d * wide + k]
                    field[begin - (1 + d) * wide + k] = field[begin + (width - 1 - d) * wide + k]
    reach = horizontal * (wide + 1) if pairs else horizontal
    for d in range(vertical):
        above, below = guard - (1 + d) * line, guard + (lines + d) * line
        first, last = guard + d * line, guard + (lines - 1 - d) * line
        for k in range(-reach, line - reach):
            field[above + k] = field[last + k]
            field[below + k] = field[first + k]


@njit(**OPTIONS)
def shifted_sum(field, begin, count, step, radius, result):  # type: ignore[no-untyped-def]
    """result[k] = Σ field[k + d · step] over |d| ≤ radius, for `count` places from `begin` on."""
    found, middle = result[begin : begin + count], field[begin : begin + count]
    if radius == 0:
        for k in range(count):
            found[k] = middle[k]
        return
    before, after = field[begin - step : begin - step + count], field[begin + step : begin + step + count]
    for k in range(count):
        found[k] = before[k] + middle[k] + after[k]
    for d in range(2, radius + 1):
        before, after = (
            field[begin - d * step : begin - d * step + count],
            field[begin + d * step : begin + d * step + count],
        )
        for k in range(count):
            found[k] += before[k] + after[k]


@njit(**OPTIONS)
def along_rows(work, count, geometry):  # type: ignore[no-untyped-def]
    """Sums along rows, in work[1], of the field that stands in work[0] behind the guard."""
    _, _, line, step, vertical, horizontal, circular, _ = geometry
    guard = vertical * line + horizontal * step
    begin, length = guard, count
    if circular:
        _wrap(work[0], guard, count // line, geometry)
        begin, length = guard - vertical * line, count + 2 * vertical * line
    shifted_sum(work[0], begin, length, step, horizontal, work[1])


@njit(**OPTIONS)
def average(work, count, geometry):  # type: ignore[no-untyped-def]
    """𝒜 times the number of taps, of the field that stands in work[0] behind the guard; it is overwritten."""
    line, vertical = geometry[2], geometry[4]
    along_rows(work, count, geometry)
    shifted_sum(work[1], vertical * line + geometry[5] * geometry[3], count, line, vertical, work[0])


@njit(**OPTIONS)
def clear(work, count, guard):  # type: ignore[no-untyped-def]
    """Nothing stands behind a field of this length."""
    for part in range(2):
        behind = work[part, guard + count : guard + count + guard]
        for k in range(len(behind)):
            behind[k] = 0.0


@njit(**OPTIONS)
def taps(geometry):  # type: ignore[no-untyped-def]
    """Number of taps of the filter."""
    return (2 * geometry[4] + 1) * (2 * geometry[5] + 1)


@njit(**OPTIONS)
def largest(values):  # type: ignore[no-untyped-def]
    """The largest of numbers that are not negative: their bits are in the same order."""
    most = np.int64(0)
    bits = values.view(np.int64)
    for k in range(len(bits)):
        most = max(most, bits[k])
    found = np.empty(1, dtype=np.int64)
    found[0] = most
    return found.view(np.float64)[0]


@njit(**OPTIONS)
def mix(field, starts, geometry, work, result):  # type: ignore[no-untyped-def]
    """𝒜 of all systems of a field."""
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], 1.0 / taps(geometry)
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        own, into, found = field[begin:end], work[0, guard : guard + end - begin], result[begin:end]
        for k in range(end - begin):
            into[k] = own[k]
        clear(work, end - begin, guard)
        average(work, end - begin, geometry)
        for k in range(end - begin):
            found[k] = share * into[k]


@njit(**OPTIONS)
def enter(  # type: ignore[no-untyped-def]
    value, entering, scale, starts, geometry, weight, inject, constant, work, covariance
):
    """What enters a layer, (10.5): weight · 𝒜value + inject · entering + constant, but not beyond |ρ| = 1."""
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], weight / taps(geometry)
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        own, into, result = value[begin:end], work[0, guard : guard + count], covariance[begin:end]
        seen, most = entering[begin:end], scale[begin:end]
        for k in range(count):
            into[k] = own[k]
        clear(work, count, guard)
        average(work, count, geometry)
        for k in range(count):
            result[k] = share * into[k] + inject * seen[k] + constant
        for k in range(count):
            result[k] = min(max(result[k], -most[k]), most[k])


@njit(**OPTIONS)
def descend(adjoint, slope, starts, geometry, weight, work):  # type: ignore[no-untyped-def]
    """The adjoint of the layer before, (10.6), in the place of its slopes: F' ∘ (weight · 𝒜adjoint)."""
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], weight / taps(geometry)
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        own, into, result = adjoint[begin:end], work[0, guard : guard + count], slope[begin:end]
        for k in range(count):
            into[k] = own[k]
        clear(work, count, guard)
        average(work, count, geometry)
        for k in range(count):
            result[k] *= share * into[k]


@njit(**OPTIONS)
def outer(left, right, lines, geometry, found):  # type: ignore[no-untyped-def]
    """Σ_c left[c, s] right[c, s'] over a system, zero at borders; positions as `Layout.side` has them."""
    width, wide, line, pairs = geometry[0], geometry[1], geometry[2], geometry[7]
    if not pairs:
        for c in range(len(left)):
            one, other = left[c], right[c]
            if c == 0:
                for k in range(len(found)):
                    found[k] = one[k] * other[k]
            else:
                for k in range(len(found)):
                    found[k] += one[k] * other[k]
        return
    for k in range(len(found)):
        found[k] = 0.0
    for number in range(len(lines)):
        top, bottom = lines[number, 0] * width, lines[number, 1] * width
        for x in range(width):
            begin = number * line + x * wide
            row = found[begin : begin + width]
            for c in range(len(left)):
                own, others = left[c, top + x], right[c, bottom : bottom + width]
                for k in range(width):
                    row[k] += own * others[k]


@njit(**OPTIONS)
def inner_products(left, right, parts):  # type: ignore[no-untyped-def]
    """Σ left · right over each of so many equal parts of two flat fields."""
    found = np.empty(parts)
    count = len(left) // parts
    for number in range(parts):
        one, other = left[number * count : (number + 1) * count], right[number * count : (number + 1) * count]
        total = 0.0
        for k in range(count):
            total += one[k] * other[k]
        found[number] = total
    return found


@njit(**OPTIONS)
def add(field, starts, systems, result):  # type: ignore[no-untyped-def]
    """Add a field to another, in these systems."""
    for number in systems:
        part, into = field[starts[number] : starts[number + 1]], result[starts[number] : starts[number + 1]]
        for k in range(len(part)):
            into[k] += part[k]


__all__ = [
    "OPTIONS",
    "add",
    "along_rows",
    "average",
    "clear",
    "descend",
    "enter",
    "inner_products",
    "largest",
    "mix",
    "outer",
    "shifted_sum",
    "taps",
]
