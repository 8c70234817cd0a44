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

# Sweeps of one linear equation, at most.
MOST_SWEEPS = 1200
# Linear equations are solved to this part of their residual at a time, at most so often.
QUICK, ROUNDS = 3e-7, 8
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
def _shifted_sum(field, begin, count, step, radius, result):  # type: ignore[no-untyped-def]
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
def _along_rows(work, count, geometry):  # type: ignore[no-untyped-def]
    """Sums along rows, in work[1], of the field that stands in work[0] behind the guard."""
    _, _, line, step, vertical, horizontal, circular, _ = geometry
    guard = vertical * line + horizontal * step
    begin, length = guard, count
    if circular:
        _wrap(work[0], guard, count // line, geometry)
        begin, length = guard - vertical * line, count + 2 * vertical * line
    _shifted_sum(work[0], begin, length, step, horizontal, work[1])


@njit(**OPTIONS)
def _average(work, count, geometry):  # type: ignore[no-untyped-def]
    """𝒜 times the number of taps, of the field that stands in work[0] behind the guard; it is overwritten."""
    line, vertical = geometry[2], geometry[4]
    _along_rows(work, count, geometry)
    _shifted_sum(work[1], vertical * line + geometry[5] * geometry[3], count, line, vertical, work[0])


@njit(**OPTIONS)
def _clear(work, count, guard):  # type: ignore[no-untyped-def]
    """Nothing stands behind a field of this length."""
    for part in range(2):
        behind = work[part, guard + count : guard + count + guard]
        for k in range(len(behind)):
            behind[k] = 0.0


@njit(**OPTIONS)
def _taps(geometry):  # type: ignore[no-untyped-def]
    return (2 * geometry[4] + 1) * (2 * geometry[5] + 1)


@njit(**OPTIONS)
def _largest(values):  # type: ignore[no-untyped-def]
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
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], 1.0 / _taps(geometry)
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        own, into, found = field[begin:end], work[0, guard : guard + end - begin], result[begin:end]
        for k in range(end - begin):
            into[k] = own[k]
        _clear(work, end - begin, guard)
        _average(work, end - begin, geometry)
        for k in range(end - begin):
            found[k] = share * into[k]


@njit(**OPTIONS)
def enter(  # type: ignore[no-untyped-def]
    value, entering, scale, starts, geometry, weight, inject, constant, work, covariance
):
    """What enters a layer, (10.5): weight · 𝒜value + inject · entering + constant, but not beyond |ρ| = 1."""
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], weight / _taps(geometry)
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        own, into, result = value[begin:end], work[0, guard : guard + count], covariance[begin:end]
        seen, most = entering[begin:end], scale[begin:end]
        for k in range(count):
            into[k] = own[k]
        _clear(work, count, guard)
        _average(work, count, geometry)
        for k in range(count):
            result[k] = share * into[k] + inject * seen[k] + constant
        for k in range(count):
            result[k] = min(max(result[k], -most[k]), most[k])


@njit(**OPTIONS)
def descend(adjoint, slope, starts, geometry, weight, work):  # type: ignore[no-untyped-def]
    """The adjoint of the layer before, (10.6), in the place of its slopes: F' ∘ (weight · 𝒜adjoint)."""
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], weight / _taps(geometry)
    for number in range(len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        own, into, result = adjoint[begin:end], work[0, guard : guard + count], slope[begin:end]
        for k in range(count):
            into[k] = own[k]
        _clear(work, count, guard)
        _average(work, count, geometry)
        for k in range(count):
            result[k] *= share * into[k]


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
def gaps(  # type: ignore[no-untyped-def]
    value, covariance, forcing, over, starts, systems, geometry, feedback, work, gap, residuals
):
    """The gap σ_a² 𝒜F + forcing - Λ of each system, and its largest entry relative to √(q q')."""
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], feedback / _taps(geometry)
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        own, into = value[begin:end], work[0, guard : guard + count]
        for k in range(count):
            into[k] = own[k]
        _clear(work, count, guard)
        _average(work, count, geometry)
        enters, known, found, size = (
            forcing[begin:end],
            covariance[begin:end],
            gap[begin:end],
            over[begin:end],
        )
        for k in range(count):
            found[k] = share * into[k] + enters[k] - known[k]
        for k in range(count):
            into[k] = abs(found[k]) * size[k]
        residuals[number] = _largest(into)


@njit(**OPTIONS)
def _sweep(count, middle, half, share, goal, geometry, fast):  # type: ignore[no-untyped-def]
    """Chebyshev's iteration in the precision of `fast`, until the mean square of the weighted residual is `goal`².

    In `fast` stand, after the two rows of `_average`, slopes, what is wanted, weights, the solution and the last move.
    """
    line, vertical = geometry[2], geometry[4]
    guard = vertical * line + geometry[5] * geometry[3]
    mixed, gains, wanted, size = (
        fast[0, guard : guard + count],
        fast[2, :count],
        fast[3, :count],
        fast[4, :count],
    )
    result, move = fast[5, :count], fast[6, :count]
    # Numbers of this precision: others would make double precision of every product.
    factors = np.empty(4, dtype=fast.dtype)
    factors[0], factors[1] = 1.0 / middle, share
    last = half / middle
    for k in range(count):
        move[k] = factors[0] * wanted[k]
        result[k] = move[k]
    for k in range(count):
        mixed[k] = gains[k] * result[k]
    _clear(fast, count, guard)
    for _ in range(MOST_SWEEPS):
        _along_rows(fast, count, geometry)
        if vertical == 1:
            summed, above, below = (
                fast[1, guard : guard + count],
                fast[1, guard - line : guard - line + count],
                fast[1, guard + line : guard + line + count],
            )
            for k in range(count):
                mixed[k] = wanted[k] - result[k] + factors[1] * (above[k] + summed[k] + below[k])
        else:
            _shifted_sum(fast[1], guard, count, line, vertical, fast[0])
            for k in range(count):
                mixed[k] = wanted[k] - result[k] + factors[1] * mixed[k]
        total = factors[1] - factors[1]
        for k in range(count):
            weighted = mixed[k] * size[k]
            total += weighted * weighted
        if total <= goal * goal * count:
            break
        factor = 1.0 / (2.0 * middle - half * last)
        factors[2], factors[3] = half * factor * last, 2.0 * factor
        last = half * factor
        for k in range(count):
            moved = factors[2] * move[k] + factors[3] * mixed[k]
            found = result[k] + moved
            move[k] = moved
            result[k] = found
            mixed[k] = gains[k] * found


@njit(**OPTIONS)
def resolve(  # type: ignore[no-untyped-def]
    target, weight, slope, starts, systems, geometry, feedback, residuals, goals, cautious, work, fast, found
):
    """Solve (I - σ_a² 𝒜F') found = target, until the mean square of the weighted residual is `goals`².

    Where the slopes are so steep that this is no contraction, or, if `cautious`, nearly none for so large `residuals`,
    the target itself is returned.

    The sweeps are in the precision of `fast`; residuals are taken in double precision and what is left is solved for
    again.  With F' ≥ 0 the eigenvalues of σ_a² 𝒜F' are real and between -r/3 and r, r = σ_a² max F': those of the
    average over an odd number of taps are between -1/3 and 1, which Chebyshev's iteration uses.  Otherwise all that is
    known is that they are within a circle of radius r, and the iteration is the Neumann series.
    """
    guard, share = geometry[4] * geometry[2] + geometry[5] * geometry[3], feedback / _taps(geometry)
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        wanted, gains, result, size = target[begin:end], slope[begin:end], found[begin:end], weight[begin:end]
        mixed = work[0, guard : guard + count]
        quick, remaining, weights, correction = (
            fast[2, :count],
            fast[3, :count],
            fast[4, :count],
            fast[5, :count],
        )
        for k in range(count):
            mixed[k] = abs(gains[k])
        rate, negative = feedback * _largest(mixed), 0.0
        for k in range(count):
            negative += mixed[k] - gains[k]
        middle, half = (1.0 - rate / 3.0, 2.0 * rate / 3.0) if negative == 0.0 else (1.0, 0.0)
        if rate >= 1.0 or (cautious and residuals[number] > 0.1 * (1.0 - rate) ** 2):
            # Newton's step could go anywhere: that of plain iteration.
            for k in range(count):
                result[k] = wanted[k]
            continue
        for k in range(count):
            quick[k] = gains[k]
        for k in range(count):
            weights[k] = size[k]
        for k in range(count):
            result[k] = 0.0
        for k in range(count):
            mixed[k] = wanted[k]
        _clear(work, count, guard)
        for _ in range(ROUNDS):
            total = 0.0
            for k in range(count):
                total += (mixed[k] * size[k]) ** 2
            left = np.sqrt(total / count)
            if left <= goals[number]:
                break
            for k in range(count):
                remaining[k] = mixed[k]
            _sweep(count, middle, half, share, max(goals[number], QUICK * left), geometry, fast)
            for k in range(count):
                result[k] += correction[k]
            if goals[number] >= QUICK * left:
                break
            for k in range(count):
                mixed[k] = gains[k] * result[k]
            _average(work, count, geometry)
            for k in range(count):
                mixed[k] = wanted[k] - result[k] + share * mixed[k]


@njit(**OPTIONS)
def advance(covariance, scale, starts, systems, step):  # type: ignore[no-untyped-def]
    """Take a step, but not beyond |ρ| = 1; `step` becomes what was taken."""
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        known, most, taken = covariance[begin:end], scale[begin:end], step[begin:end]
        for k in range(end - begin):
            moved = min(max(known[k] + taken[k], -most[k]), most[k])
            taken[k] = moved - known[k]
            known[k] = moved


@njit(**OPTIONS)
def add(field, starts, systems, result):  # type: ignore[no-untyped-def]
    """Add a field to another, in these systems."""
    for number in systems:
        part, into = field[starts[number] : starts[number + 1]], result[starts[number] : starts[number + 1]]
        for k in range(len(part)):
            into[k] += part[k]


@njit(**OPTIONS)
def left_out(step, over, covariance, starts, systems, scratch, result):  # type: ignore[no-untyped-def]
    """What Taylor's formula of first order leaves out of F', on average over a system.

    Δρ²/(1 - |ρ|)^{3/2}: with a kink F' has a root at ρ = ±1, and nothing that occurs is worse.
    """
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        count = end - begin
        moved, inverse, entry, room = (
            step[begin:end],
            over[begin:end],
            covariance[begin:end],
            scratch[begin:end],
        )
        for k in range(count):
            room[k] = max(1.0 - abs(entry[k] * inverse[k]), 1e-14)
        total = 0.0
        for k in range(count):
            change = moved[k] * inverse[k]
            total += change * change / (room[k] * np.sqrt(room[k]))
        result[number] = total / count


@njit(**OPTIONS)
def carry(step, over, bend, starts, systems, slope, value):  # type: ignore[no-untyped-def]
    """F and F' along a step so small that what Taylor's formula leaves out is smaller than rounding."""
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        moved, inverse, bent = step[begin:end], over[begin:end], bend[begin:end]
        rises, found = slope[begin:end], value[begin:end]
        for k in range(end - begin):
            bent[k] *= moved[k] * inverse[k]
        for k in range(end - begin):
            found[k] += moved[k] * (rises[k] + 0.5 * bent[k])
        for k in range(end - begin):
            rises[k] += bent[k]


__all__ = [
    "OPTIONS",
    "add",
    "advance",
    "carry",
    "descend",
    "enter",
    "gaps",
    "inner_products",
    "left_out",
    "mix",
    "resolve",
]
