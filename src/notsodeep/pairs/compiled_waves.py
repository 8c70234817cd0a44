"""Sine and cosine: Newton's method with their closed forms on tiles of pairs, compiled, docs/theory.md (3.22)."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.gaussian.price import FAST, WIDTH, exponential, exponential_less_one
from notsodeep.pairs.compiled_series import MAX_STEPS, STEEPEST

# Steps below which the next one would be nothing, its square: of a covariance, or relative to it where it is small.
SMALL_STEP = 1e-8
# And what rounding leaves of a large covariance, relative to √(q_i q_j).
ROUNDING = 4e-16


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def wave_tile(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, root_left, root_right, feedback, sine, want_slope, lower, value, slope
):  # fmt: skip
    """F and F' of all pairs.  Returns the most steps and an estimate of the worst residual, relative to √(q_i q_j).

    Values and slopes are carried along the last step: F'' = F for both functions.
    """
    rows, columns = c.shape
    target, bound, apart, x = np.zeros(WIDTH), np.ones(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    height, less, work = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    f, df, move = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    most, residual = 0, 0.0
    for i in range(rows):
        if lower:
            columns = i
        own = root_left[i]
        for first in range(0, columns, WIDTH):
            width = min(WIDTH, columns - first)
            for j in range(width):
                other = root_right[first + j]
                bound[j] = own * other
                apart[j] = -0.5 * (own - other) * (own - other)
                target[j] = kappa * c[i, first + j] + shift_left[i] + shift_right[first + j]
            for j in range(width):
                x[j] = min(max(target[j], -bound[j]), bound[j])
            largest, steps = 0.0, 0
            while True:
                steps += 1
                # √q1 √q2 - |x| and (√q1 - √q2)² add up to the exponent without cancelling large numbers.
                for j in range(WIDTH):
                    work[j] = max(apart[j] - (bound[j] - abs(x[j])), -700.0)
                exponential(work, height)
                for j in range(WIDTH):
                    work[j] = max(-2.0 * abs(x[j]), -700.0)
                exponential_less_one(work, less)
                for j in range(WIDTH):
                    odd = np.copysign(-0.5 * height[j] * less[j], x[j])
                    even = 0.5 * height[j] * (2.0 + less[j])
                    f[j] = odd if sine else even
                    df[j] = even if sine else odd
                if feedback == 0.0:
                    break
                largest = 0.0
                for j in range(WIDTH):
                    gap = feedback * f[j] + target[j] - x[j]
                    fresh = x[j] + gap / max(1.0 - feedback * df[j], STEEPEST)
                    fresh = min(max(fresh, -bound[j]), bound[j])
                    move[j] = fresh - x[j]
                    x[j] = fresh
                for j in range(width):
                    largest = max(
                        largest, abs(move[j]) / (min(bound[j], 1.0) + ROUNDING / SMALL_STEP * bound[j])
                    )
                if largest <= SMALL_STEP or steps == MAX_STEPS:
                    for j in range(WIDTH):
                        rise = df[j]
                        df[j] += f[j] * move[j]
                        f[j] += rise * move[j]
                    residual = max(residual, largest * largest if steps < MAX_STEPS else largest)
                    break
            most = max(most, steps)
            for j in range(width):
                value[i, first + j] = f[j]
            if want_slope:
                for j in range(width):
                    slope[i, first + j] = df[j]
    return most if feedback > 0.0 else 0, residual
