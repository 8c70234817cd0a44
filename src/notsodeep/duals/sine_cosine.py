"""Sine and cosine: closed forms of F and F' at every correlation, docs/theory.md (3.22)."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.strips import OPTIONS, WIDTH, exponential


@njit(**OPTIONS)
def wave_tiles(covariance, own, others, sine, lower, value, slope):  # type: ignore[no-untyped-def]
    """e^{-(q+q')/2} sinh c and e^{-(q+q')/2} cosh c for all pairs; `own` and `others` have √q."""
    stack, rows, columns = covariance.shape
    size, exponent, height, less = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    height_bits, less_bits = height.view(np.int64), less.view(np.int64)
    for t in range(stack):
        for i in range(rows):
            left, last = own[t, i], i if lower else columns
            for begin in range(0, last, WIDTH):
                width = min(WIDTH, last - begin)
                entry, right = covariance[t, i, begin : begin + width], others[t, begin : begin + width]
                for j in range(width):
                    bound, apart = left * right[j], left - right[j]
                    size[j] = min(abs(entry[j]), bound)
                    # √q √q' - |c| and (√q - √q')² add up to the exponent without cancelling large numbers.
                    exponent[j] = max(-0.5 * apart * apart - (bound - size[j]), -700.0)
                exponential(exponent, height, height_bits)
                for j in range(WIDTH):
                    exponent[j] = max(-2.0 * size[j], -700.0)
                exponential(exponent, less, less_bits)
                values, slopes = value[t, i, begin : begin + width], slope[t, i, begin : begin + width]
                for j in range(width):
                    x = size[j]
                    # 1 - e^{-2x}, by its series where the difference would cancel.
                    y = 2.0 * x
                    series = y * (
                        1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0 * (1.0 - y / 5.0 * (1.0 - y / 6.0))))
                    )
                    rest = series if y < 0.004 else 1.0 - less[j]
                    odd = np.copysign(0.5 * height[j] * rest, entry[j])
                    even = 0.5 * height[j] * (1.0 + less[j])
                    values[j] = odd if sine else even
                    slopes[j] = even if sine else odd


__all__ = ["wave_tiles"]
