"""Activations with one kink at zero, such as ReLU and |x|: a closed form for every pair, docs/theory.md (3.20)."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.strips import OPTIONS, WIDTH, arccos_over_root, correlations, lag
from notsodeep.gaussian.piecewise import PiecewiseLinear


def slopes_of(pieces: PiecewiseLinear) -> tuple[float, float]:
    """The factors of the linear and of the bent part of F: φ = m x + e |x| has m² and 2e²/π."""
    low, high = pieces.slopes[0], pieces.slopes[-1]
    return ((high + low) / 2.0) ** 2, ((high - low) / 2.0) ** 2 * 2.0 / np.pi


@njit(**OPTIONS)
def homogeneous_tiles(  # type: ignore[no-untyped-def]
    covariance, own, inverse, others, inverse_right, linear, bent, bends, lower, value, slope, bend
):  # fmt: skip
    """F = linear · c + bent · √(q q') J(ρ), F' and, with `bends`, dF'/dc; `own` and `others` have √q.

    F is even in ρ but for its linear part, F' odd but for a constant.  With `lower` only strips with pairs below the
    diagonal are computed.
    """
    quarter = 0.5 * np.pi
    stack, rows, columns = covariance.shape
    rho, even, odd = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    for t in range(stack):
        for i in range(rows):
            for strip in range(((i if lower else columns) + WIDTH - 1) // WIDTH):
                begin = strip * WIDTH
                width = min(WIDTH, columns - begin)
                end = begin + width
                entry, right = covariance[t, i, begin:end], others[t, begin:end]
                correlations(entry, inverse[t, i], inverse_right[t, strip, 0], width, rho)
                for j in range(WIDTH):
                    near = abs(rho[j])
                    y = 1.0 - near
                    w = np.sqrt(y)
                    even[j] = quarter * near + y * w * lag(y)
                for j in range(WIDTH):
                    y = 1.0 - abs(rho[j])
                    odd[j] = np.copysign(quarter - np.sqrt(y) * arccos_over_root(y), rho[j])
                values, slopes, scale = value[t, i, begin:end], slope[t, i, begin:end], bent * own[t, i]
                for j in range(width):
                    values[j] = scale * right[j] * even[j] + linear * entry[j]
                for j in range(width):
                    slopes[j] = linear + bent * odd[j]
                if bends:
                    bowed, factors = bend[t, i, begin:end], inverse_right[t, strip, 0]
                    for j in range(width):
                        y = 1.0 - abs(rho[j])
                        bowed[j] = bent * inverse[t, i] * factors[j] / max(np.sqrt(y * (2.0 - y)), 1e-9)


__all__ = ["homogeneous_tiles", "slopes_of"]
