"""A first guess of the covariances of equilibrium models, from moments of one variable."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.sides import Side
from notsodeep.duals.strips import OPTIONS
from notsodeep.validation import Array

# Closer to ±1 than this, a correlation is ±1: rounding must not move equal positions apart.
ROUNDING_OF_ONE = 1e-14


def guess_terms(side: Side, alone: Array) -> Array:
    """M_0, M_1, the roots of what they leave of S and of q E1, and √(q/b); `alone` is b of a variable with itself."""
    q, mean, rise = side.variances, side.mean, side.rise
    rest = np.sqrt(np.maximum(side.energy - mean**2 - q * rise**2, 0.0))
    steep = np.sqrt(np.maximum(side.steep - rise**2, 0.0) * q)
    growth = np.sqrt(np.divide(q, alone, out=np.ones_like(q), where=alone > 0.0))
    return np.stack([mean, rise, rest, steep, growth])


@njit(**OPTIONS)
def guess_dual(left, right, odd, entering, scale, covariance, value, slope):  # type: ignore[no-untyped-def]
    """An approximation of F and F' that is exact at ρ = 0 and, for equal variances, at ρ = 1.

    F ≈ M_0M_0' + M_1M_1'c + (α + β ρ²) ρ^p, p = 2, or 3 for an odd activation, at the correlations of `entering`.
    `left` and `right` (5, stack, n) have M_0, M_1, the roots of what they leave of S and of q E1, from which α and β
    follow, and the factors that turn `entering` into a covariance with its correlation.
    """
    power = 3.0 if odd else 2.0
    for t in range(covariance.shape[0]):
        for i in range(covariance.shape[1]):
            c, most, values, rise = covariance[t, i], scale[t, i], value[t, i], slope[t, i]
            enters, growth, growths = entering[t, i], left[4, t, i], right[4, t]
            means, rises, rests, steeps = right[0, t], right[1, t], right[2, t], right[3, t]
            mean, first, rest, steep = left[0, t, i], left[1, t, i], left[2, t, i], left[3, t, i]
            for j in range(len(c)):
                near, start = most[j] * (1.0 - ROUNDING_OF_ONE), enters[j] * growth * growths[j]
                c[j] = most[j] if start > near else (-most[j] if start < -near else start)
            for j in range(len(c)):
                whole = rest * rests[j]
                beta = min(max(0.5 * (steep * steeps[j] - power * whole), 0.0), whole)
                alpha, rho = whole - beta, c[j] / most[j]
                x = rho * rho
                lead = x if odd else rho
                values[j] = mean * means[j] + first * rises[j] * c[j] + (alpha + beta * x) * lead * rho
                rise[j] = first * rises[j] + (power * alpha + (power + 2.0) * beta * x) * lead / most[j]


__all__ = ["ROUNDING_OF_ONE", "guess_dual", "guess_terms"]
