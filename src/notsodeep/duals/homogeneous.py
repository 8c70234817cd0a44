"""Activations with one kink at zero, such as ReLU and |x|: a closed form at every correlation, docs/theory.md (3.20)."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.strips import OPTIONS, ROUNDING, arccos_over_root, lag
from notsodeep.gaussian.shapes import Pieces


def slopes_of(pieces: Pieces) -> tuple[float, float]:
    """The factors of the linear and of the bent part of F: φ = m x + e |x| has m² and 2e²/π."""
    low, high = pieces.slopes[0], pieces.slopes[-1]
    return ((high + low) / 2.0) ** 2, ((high - low) / 2.0) ** 2 * 2.0 / np.pi


@njit(**OPTIONS)
def homogeneous_tiles(covariance, own, others, linear, bent, lower, value, slope):  # type: ignore[no-untyped-def]
    """F = linear · c + bent · √(q q') J(ρ), and F', for all pairs; `own` and `others` have √q.

    F is even in ρ but for its linear part, F' odd but for a constant.  With `lower` only pairs on and below the
    diagonal are computed.
    """
    quarter = 0.5 * np.pi
    stack, rows, columns = covariance.shape
    for t in range(stack):
        for i in range(rows):
            entry, found, risen, right = covariance[t, i], value[t, i], slope[t, i], others[t]
            left, inverse = own[t, i], 1.0 / own[t, i]
            for j in range(i + 1 if lower else columns):
                rho = entry[j] * inverse / right[j]
                near = min(abs(rho), 1.0)
                near = 1.0 if near > 1.0 - ROUNDING else near
                y = 1.0 - near
                w = np.sqrt(y)
                angle = quarter - w * arccos_over_root(y)
                even = quarter * near + y * w * lag(y)
                found[j] = bent * left * right[j] * even + linear * entry[j]
                risen[j] = linear + bent * np.copysign(angle, rho)


__all__ = ["homogeneous_tiles", "slopes_of"]
