"""The inner loops: one tile of pairs at a time, compiled, without the interpreter lock.

Everything is in normalised form: ρ = Λ/(s_i s_j), and P(ρ) = F/(s_i s_j), so that P' = F'.  Loops over columns are
innermost and free of branches, which is what lets the compiler use the vector units.
"""

from __future__ import annotations

import numpy as np
from numba import njit

WIDTH = 64
MAX_STEPS = 40


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "nnan", "ninf"})
def mehler_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right, left, right,
    feedback, levels, limits, parity, want_slope, value, slope, todo,
):  # fmt: skip
    """Solve ρ = feedback · P(ρ) + r for every pair of the tile, P by its Mehler series, docs/theory.md (3.5), (3.13).

    `c` are Gram entries and r = (kappa c + shift_i + shift_j)/(s_i s_j); `left` and `right` hold a_k/s, one row for
    each term kept (all, or only odd or even ones, by parity); `levels` are numbers of terms and `limits` says up to
    which |ρ| each keeps the truncation below the tolerance.  F, F' and the pairs that no level can bound go to
    `value`, `slope` and `todo`.  Returns Newton steps, estimated residual, largest |ρ| and the number of pairs left.
    """
    rows, columns = c.shape
    series = np.empty((levels[-1], WIDTH))
    r = np.empty(WIDTH)
    rho = np.empty(WIDTH)
    power = np.empty(WIDTH)
    p = np.empty(WIDTH)
    dp = np.empty(WIDTH)
    steps = 0
    residual = 0.0
    highest = 0.0
    left_over = 0
    tolerance = 1e-13 if want_slope else 1e-9
    last = len(levels) - 1
    for i in range(rows):
        for start in range(0, columns, WIDTH):
            width = min(WIDTH, columns - start)
            scale = 1.0 / root_left[i]
            for j in range(width):
                target = kappa * c[i, start + j] + shift_left[i] + shift_right[start + j]
                r[j] = target * scale / root_right[start + j]
                rho[j] = r[j]
            if feedback > 0.0:
                # The first guess solves the equation cut after its linear term.
                for j in range(width):
                    constant = 0.0 if parity == -1 else left[0, i] * right[0, start + j]
                    linear = 0.0
                    if parity == -1:
                        linear = left[0, i] * right[0, start + j]
                    elif parity == 0 and levels[-1] > 1:
                        linear = left[1, i] * right[1, start + j]
                    guess = (r[j] + feedback * constant) / max(1.0 - feedback * linear, 0.05)
                    rho[j] = min(max(guess, -1.0), 1.0)
            filled = 0
            level = -1
            while True:
                top = 0.0
                for j in range(width):
                    top = max(top, abs(rho[j]))
                needed = 0
                while needed < last and limits[needed] < top:
                    needed += 1
                if needed <= level:
                    break
                level = needed
                terms = levels[level]
                for k in range(filled, terms):
                    factor = left[k, i]
                    for j in range(width):
                        series[k, j] = factor * right[k, start + j]
                filled = max(filled, terms)
                largest = 1.0
                before = 1.0
                for step in range(MAX_STEPS):
                    for j in range(width):
                        power[j] = rho[j] if parity == 0 else rho[j] * rho[j]
                        p[j] = series[terms - 1, j]
                        dp[j] = 0.0
                    for k in range(terms - 2, -1, -1):
                        for j in range(width):
                            dp[j] = dp[j] * power[j] + p[j]
                            p[j] = p[j] * power[j] + series[k, j]
                    if parity == -1:
                        for j in range(width):
                            dp[j] = p[j] + 2.0 * power[j] * dp[j]
                            p[j] = p[j] * rho[j]
                    elif parity == 1:
                        for j in range(width):
                            dp[j] = 2.0 * rho[j] * dp[j]
                    if feedback == 0.0:
                        largest = 0.0
                        break
                    before = largest
                    largest = 0.0
                    for j in range(width):
                        bend = 1.0 - feedback * dp[j]
                        move = (r[j] + feedback * p[j] - rho[j]) / (bend if bend > 0.05 else 0.05)
                        fresh = min(max(rho[j] + move, -1.0), 1.0)
                        p[j] += dp[j] * (fresh - rho[j])
                        largest = max(largest, abs(fresh - rho[j]))
                        rho[j] = fresh
                    steps = max(steps, step + 1)
                    if largest <= tolerance:
                        break
                # The step after the last is about its square; the ratio of the last two says how much.
                residual = max(residual, largest * min(1.0, largest / max(before, 1e-300)))
            for j in range(width):
                size = root_left[i] * root_right[start + j]
                value[i, start + j] = p[j] * size
                if want_slope:
                    slope[i, start + j] = dp[j]
                missed = abs(rho[j]) > limits[level]
                todo[i, start + j] = missed
                left_over += missed
                highest = max(highest, abs(rho[j]))
    return steps, residual, highest, left_over


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "nnan", "ninf"})
def fit_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right,
    highest, middle, lowest, upper_value, lower_value, upper_slope, lower_slope, want_slope, value, slope,
):  # fmt: skip
    """F and F' of a homogeneous activation from polynomials in the root of the distance to ρ = ±1.

    r in [middle, highest] goes through t = √((highest - r)/(highest - middle)), r below it through the distance to
    `lowest`: in t the solution is analytic up to and including ρ = ±1.
    """
    rows, columns = c.shape
    degree = len(upper_value) - 1
    up = 1.0 / (highest - middle)
    down = 1.0 / (middle - lowest)
    z = np.empty(WIDTH)
    above = np.empty(WIDTH)
    p = np.empty(WIDTH)
    for i in range(rows):
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
