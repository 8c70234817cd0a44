"""The inner loops: one tile of pairs at a time, compiled, without the interpreter lock.

Everything is in normalised form: ρ = Λ/(s_i s_j), and P(ρ) = F/(s_i s_j), so that P' = F'.  Columns are taken in
strips of WIDTH; loops over a strip are innermost and free of branches, which is what lets the compiler use the vector
units.
"""

from __future__ import annotations

import numpy as np
from numba import njit

WIDTH = 64
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
    series = np.zeros((levels[-1], WIDTH))
    r, rho, power = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    p, dp = np.zeros(WIDTH), np.zeros(WIDTH)
    steps, left_over = 0, 0
    residual, highest = 0.0, 0.0
    tolerance = 1e-13 if want_slope else 1e-9
    for i in range(rows):
        if lower:
            columns = i
        for start in range(0, columns, WIDTH):
            width = min(WIDTH, columns - start)
            for j in range(width):
                target = kappa * c[i, start + j] + shift_left[i] + shift_right[start + j]
                r[j] = target / (root_left[i] * root_right[start + j])
                rho[j] = r[j]
            if feedback > 0.0:
                _linear_guess(rho, left, right, top + i, side + start, width, feedback, parity)
            filled, level, stuck = 0, -1, False
            while True:
                needed = _level_for(rho, width, limits)
                if needed <= level:
                    break
                level, terms = needed, levels[needed]
                for k in range(filled, terms):
                    factor = left[k, top + i]
                    for j in range(width):
                        series[k, j] = factor * right[k, side + start + j]
                early = EARLY_STEPS if filled == 0 else 0
                filled = max(filled, terms)
                taken, left_residual = _newton(
                    series, terms, r, rho, power, p, dp, feedback, parity, tolerance, early
                )
                stuck = taken == MAX_STEPS
                steps = max(steps, taken)
                residual = max(residual, 0.0 if stuck else left_residual)
            for j in range(width):
                value[i, start + j] = p[j] * root_left[i] * root_right[start + j]
            if want_slope:
                for j in range(width):
                    slope[i, start + j] = dp[j]
            peak = _largest(rho, width)
            highest = max(highest, peak)
            for j in range(width):
                todo[i, start + j] = stuck
            if peak > limits[level]:
                for j in range(width):
                    todo[i, start + j] = stuck or abs(rho[j]) > limits[level]
            if stuck or peak > limits[level]:
                for j in range(width):
                    left_over += todo[i, start + j]
    return steps, residual, highest, left_over


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _linear_guess(rho, left, right, i, start, width, feedback, parity):  # type: ignore[no-untyped-def]
    """The solution of the equation cut after its linear term; `rho` holds r on entry."""
    for j in range(width):
        first = left[0, i] * right[0, start + j]
        constant = 0.0 if parity == -1 else first
        linear = first if parity == -1 else 0.0
        if parity == 0 and left.shape[0] > 1:
            linear = left[1, i] * right[1, start + j]
        guess = (rho[j] + feedback * constant) / max(1.0 - feedback * linear, STEEPEST)
        rho[j] = min(max(guess, -1.0), 1.0)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _largest(values, width):  # type: ignore[no-untyped-def]
    top = 0.0
    for j in range(width):
        top = max(top, abs(values[j]))
    return top


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _level_for(rho, width, limits):  # type: ignore[no-untyped-def]
    """The first level whose limit covers the strip, or the last one."""
    top = _largest(rho, width)
    needed = 0
    while needed < len(limits) - 1 and limits[needed] < top:
        needed += 1
    return needed


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _newton(series, terms, r, rho, power, p, dp, feedback, parity, tolerance, early_steps):  # type: ignore[no-untyped-def]
    """Newton's method on a strip; leaves P(ρ), carried along the last step, and P'.  Returns steps and residual.

    Half the terms are enough for the first steps, from a guess: what they leave out is the root of what all of them
    leave out.
    """
    before, largest, first = 1.0, 1.0, 1.0
    steps = 0
    while steps < MAX_STEPS:
        steps += 1
        early = steps <= early_steps and terms >= 8 and feedback > 0.0
        _horner(series, terms // 2 if early else terms, rho, power, p, dp, parity)
        if feedback == 0.0:
            return 0, 0.0
        for j in range(WIDTH):
            move = (r[j] + feedback * p[j] - rho[j]) / max(1.0 - feedback * dp[j], STEEPEST)
            fresh = min(max(rho[j] + move, -1.0), 1.0)
            power[j] = fresh - rho[j]
            rho[j] = fresh
        for j in range(WIDTH):
            p[j] += dp[j] * power[j]
        before, largest = largest, _largest(power, WIDTH)
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
def _horner(series, terms, rho, power, p, dp, parity):  # type: ignore[no-untyped-def]
    """P and P' on a strip; odd and even series are polynomials in ρ², with half as many terms."""
    for j in range(WIDTH):
        power[j] = rho[j] if parity == 0 else rho[j] * rho[j]
        p[j] = series[terms - 1, j]
        dp[j] = 0.0
    for k in range(terms - 2, -1, -1):
        for j in range(WIDTH):
            dp[j] = dp[j] * power[j] + p[j]
            p[j] = p[j] * power[j] + series[k, j]
    if parity == -1:
        for j in range(WIDTH):
            dp[j] = p[j] + 2.0 * power[j] * dp[j]
            p[j] = p[j] * rho[j]
    elif parity == 1:
        for j in range(WIDTH):
            dp[j] = 2.0 * rho[j] * dp[j]


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
