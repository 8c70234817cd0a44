"""The inner loops: one tile of pairs at a time, compiled, without the interpreter lock.

Everything is in normalised form: ρ = Λ/(s_i s_j), and P(ρ) = F/(s_i s_j), so that P' = F'.  Columns are taken in
strips of WIDTH; loops over a strip are innermost and free of branches, which is what lets the compiler use the vector
units.
"""

from __future__ import annotations

import numpy as np
from numba import njit

WIDTH = 64
# What is known of the pairs of a strip stands in one array, so that the compiler need not ask at run time whether parts
# of it overlap: ρ, r, then ρ or ρ² (and the last step), P and P'.
SOURCE, POWER, VALUE, SLOPE, PARTS = 1, 2, 3, 4, 5
MAX_STEPS = 40
# Newton steps that are taken with half the terms.
EARLY_STEPS = 2
# Least 1 - σ_a² F' that Newton's method divides by: below it the equation has all but lost its solution.
STEEPEST = 1e-4
# Logarithm of the power of ρ at which series of listed pairs end.
LISTED_PRECISION = np.log(1e-9)
FAST = {"contract", "reassoc", "nsz", "nnan", "ninf"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def mehler_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right, left, right, top, side,
    feedback, levels, limits, parity, want_slope, lower, value, slope, todo,
):  # fmt: skip
    """Solve ρ = feedback · P(ρ) + r for every pair of the tile, P by its Mehler series, docs/theory.md (3.5), (3.13).

    `c` are Gram entries and r = (kappa c + shift_i + shift_j)/(s_i s_j); `left` and `right` hold a_k/s, one row for
    each term kept (all, or only odd or even ones, by parity), of which the tile starts at columns `top` and `side`;
    `levels` are numbers of terms and `limits` says up to which |ρ| each keeps the truncation below the tolerance.
    F, F' and the pairs that no level can bound, or that did not converge, go to `value`, `slope` and `todo`.  With
    `lower` only the pairs below the diagonal of the tile are looked at.
    Returns Newton steps, estimated residual, largest |ρ| and the number of pairs left.
    """
    rows, columns = c.shape
    series, work = np.zeros(levels[-1] * WIDTH), np.zeros(PARTS * WIDTH)
    rho = work[:WIDTH]
    steps, left_over = 0, 0
    residual, highest = 0.0, 0.0
    tolerance = 1e-13 if want_slope else 1e-9
    for i in range(rows):
        if lower:
            columns = i
        for start in range(0, columns, WIDTH):
            width = min(WIDTH, columns - start)
            stop = start + width
            line, shifts, roots = c[i, start:stop], shift_right[start:stop], root_right[start:stop]
            for j in range(width):
                work[j] = (kappa * line[j] + shift_left[i] + shifts[j]) / (root_left[i] * roots[j])
            # Places without a pair have the equation ρ = 0.
            for j in range(width, WIDTH):
                work[j] = 0.0
            for j in range(WIDTH):
                work[j + SOURCE * WIDTH] = work[j]
            if feedback > 0.0:
                _linear_guess(work, left, right, top + i, side + start, width, feedback, parity)
            filled, level, stuck = 0, -1, False
            while True:
                needed = _level_for(rho, limits)
                if needed <= level:
                    break
                level, terms = needed, levels[needed]
                for k in range(filled, terms):
                    factor, others = left[k, top + i], right[k, side + start : side + stop]
                    into = series[k * WIDTH : (k + 1) * WIDTH]
                    for j in range(width):
                        into[j] = factor * others[j]
                    for j in range(width, WIDTH):
                        into[j] = 0.0
                early = EARLY_STEPS if filled == 0 else 0
                filled = max(filled, terms)
                taken, left_residual = _newton(series, terms, work, feedback, parity, tolerance, early)
                stuck = taken == MAX_STEPS
                steps = max(steps, taken)
                residual = max(residual, 0.0 if stuck else left_residual)
            found = value[i, start:stop]
            for j in range(width):
                found[j] = work[j + VALUE * WIDTH] * root_left[i] * roots[j]
            if want_slope:
                found = slope[i, start:stop]
                for j in range(width):
                    found[j] = work[j + SLOPE * WIDTH]
            peak = _largest(rho)
            highest = max(highest, peak)
            beyond = todo[i, start:stop]
            for j in range(width):
                beyond[j] = stuck
            if stuck or peak > limits[level]:
                for j in range(width):
                    beyond[j] = stuck or abs(work[j]) > limits[level]
                    left_over += beyond[j]
    return steps, residual, highest, left_over


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _linear_guess(work, left, right, i, start, width, feedback, parity):  # type: ignore[no-untyped-def]
    """The solution of the equation cut after its linear term; ρ holds r on entry."""
    columns = right[0, start : start + width]
    first = left[0, i]
    if parity == -1:
        for j in range(width):
            work[j] /= max(1.0 - feedback * first * columns[j], STEEPEST)
    else:
        for j in range(width):
            work[j] += feedback * first * columns[j]
        if parity == 0 and left.shape[0] > 1:
            second, columns = left[1, i], right[1, start : start + width]
            for j in range(width):
                work[j] /= max(1.0 - feedback * second * columns[j], STEEPEST)
    for j in range(width):
        work[j] = min(max(work[j], -1.0), 1.0)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _largest(values):  # type: ignore[no-untyped-def]
    top = 0.0
    for j in range(WIDTH):
        top = max(top, abs(values[j]))
    return top


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _level_for(rho, limits):  # type: ignore[no-untyped-def]
    """The first level whose limit covers the strip, or the last one."""
    top = _largest(rho)
    needed = 0
    while needed < len(limits) - 1 and limits[needed] < top:
        needed += 1
    return needed


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _newton(series, terms, work, feedback, parity, tolerance, early_steps):  # type: ignore[no-untyped-def]
    """Newton's method on a strip; leaves P(ρ), carried along the last step, and P'.  Returns steps and residual.

    Half the terms are enough for the first steps, from a guess: what they leave out is the root of what all of them
    leave out.
    """
    before, largest, first = 1.0, 1.0, 1.0
    steps = 0
    while steps < MAX_STEPS:
        steps += 1
        early = steps <= early_steps and terms >= 8 and feedback > 0.0
        _horner(series, terms // 2 if early else terms, work, parity)
        if feedback == 0.0:
            return 0, 0.0
        for j in range(WIDTH):
            rho, slope = work[j], work[j + SLOPE * WIDTH]
            gap = work[j + SOURCE * WIDTH] + feedback * work[j + VALUE * WIDTH] - rho
            fresh = min(max(rho + gap / max(1.0 - feedback * slope, STEEPEST), -1.0), 1.0)
            work[j] = fresh
            work[j + POWER * WIDTH] = fresh - rho
            work[j + VALUE * WIDTH] += slope * (fresh - rho)
        before, largest = largest, _largest(work[POWER * WIDTH : (POWER + 1) * WIDTH])
        if steps == 1:
            first = largest
        elif steps == early_steps + 1 and terms >= 8:
            # This step brings in the other half of the terms. How fast steps fall, those of the first half have shown.
            before = max(before, first)
        if largest <= tolerance and not early:
            break
    # The step after the last is about its square; the ratio of the last two says how much.
    return steps, largest * min(1.0, largest / max(before, 1e-300))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _horner(series, terms, work, parity):  # type: ignore[no-untyped-def]
    """P and P' on a strip; odd and even series are polynomials in ρ², with half as many terms.

    Four terms at a time, so that sums stay in registers.
    """
    for j in range(WIDTH):
        work[j + POWER * WIDTH] = work[j] if parity == 0 else work[j] * work[j]
        work[j + VALUE * WIDTH] = 0.0
        work[j + SLOPE * WIDTH] = 0.0
    whole = terms // 4 * 4
    for k in range(terms - 1, whole - 1, -1):
        s = series[k * WIDTH : (k + 1) * WIDTH]
        for j in range(WIDTH):
            x, p, dp = work[j + POWER * WIDTH], work[j + VALUE * WIDTH], work[j + SLOPE * WIDTH]
            work[j + SLOPE * WIDTH] = dp * x + p
            work[j + VALUE * WIDTH] = p * x + s[j]
    for k in range(whole - 4, -1, -4):
        s = series[k * WIDTH : (k + 4) * WIDTH]
        for j in range(WIDTH):
            x, p, dp = work[j + POWER * WIDTH], work[j + VALUE * WIDTH], work[j + SLOPE * WIDTH]
            dp = dp * x + p
            p = p * x + s[j + 3 * WIDTH]
            dp = dp * x + p
            p = p * x + s[j + 2 * WIDTH]
            dp = dp * x + p
            p = p * x + s[j + WIDTH]
            work[j + SLOPE * WIDTH] = dp * x + p
            work[j + VALUE * WIDTH] = p * x + s[j]
    if parity == -1:
        for j in range(WIDTH):
            p = work[j + VALUE * WIDTH]
            work[j + SLOPE * WIDTH] = p + 2.0 * work[j + POWER * WIDTH] * work[j + SLOPE * WIDTH]
            work[j + VALUE * WIDTH] = p * work[j]
    elif parity == 1:
        for j in range(WIDTH):
            work[j + SLOPE * WIDTH] *= 2.0 * work[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def fit_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right,
    highest, middle, lowest, upper_value, lower_value, upper_slope, lower_slope, want_slope, lower, value, slope,
):  # fmt: skip
    """F and F' of a homogeneous activation from polynomials in the root of the distance to ρ = ±1.

    r in [middle, highest] goes through t = √((highest - r)/(highest - middle)), r below it through the distance to
    `lowest`: in t the solution is analytic up to and including ρ = ±1.  With `lower` only the pairs below the diagonal
    of the tile are looked at.
    """
    rows, columns = c.shape
    degree = len(upper_value) - 1
    up = 1.0 / (highest - middle)
    down = 1.0 / (middle - lowest)
    z = np.empty(WIDTH)
    above = np.empty(WIDTH)
    p = np.empty(WIDTH)
    for i in range(rows):
        if lower:
            columns = i
        scale = 1.0 / root_left[i]
        for start in range(0, columns, WIDTH):
            width = min(WIDTH, columns - start)
            for j in range(width):
                target = kappa * c[i, start + j] + shift_left[i] + shift_right[start + j]
                r = target * scale / root_right[start + j]
                above[j] = 1.0 if r >= middle else 0.0
                square = (highest - r) * up if r >= middle else (r - lowest) * down
                z[j] = 2.0 * np.sqrt(max(square, 0.0)) - 1.0
                p[j] = 0.0
            for k in range(degree, -1, -1):
                high, low = upper_value[k], lower_value[k]
                gap = high - low
                for j in range(width):
                    p[j] = p[j] * z[j] + (low + above[j] * gap)
            for j in range(width):
                value[i, start + j] = p[j] * root_left[i] * root_right[start + j]
            if want_slope:
                for j in range(width):
                    p[j] = 0.0
                for k in range(degree, -1, -1):
                    high, low = upper_slope[k], lower_slope[k]
                    gap = high - low
                    for j in range(width):
                        p[j] = p[j] * z[j] + (low + above[j] * gap)
                for j in range(width):
                    slope[i, start + j] = p[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def series_at_pairs(series, scale, first, second, c):  # type: ignore[no-untyped-def]
    """F and F' of listed pairs by their Mehler series, docs/theory.md (3.13) and (3.14).

    series (samples, terms) has the coefficients a_k, scale the roots of the variances, c the covariances of the pairs.
    """
    value, slope = np.empty(len(c)), np.empty(len(c))
    terms = series.shape[1]
    for p in range(len(c)):
        i, j = first[p], second[p]
        length = scale[i] * scale[j]
        rho = min(max(c[p] / length, -1.0), 1.0)
        f, df = 0.0, 0.0
        # Terms whose power of ρ is nothing beside the others are left out.
        needed = terms
        if abs(rho) < 0.9:
            needed = min(terms, 2 + int(LISTED_PRECISION / np.log(max(abs(rho), 1e-9))))
        for k in range(needed - 1, -1, -1):
            df = df * rho + f
            f = f * rho + series[i, k] * series[j, k]
        value[p] = f
        slope[p] = df / length
    return value, slope
