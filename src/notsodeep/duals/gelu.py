"""GELU: a closed form for every pair, docs/theory.md (3.20) at variances that are larger by 1.

GELU is (1 - s ∂/∂s) E[relu(x + sξ)] at s = 1.  Noise only adds to a variance, so that with K the dual of ReLU,
a = q + 1, b = q' + 1 and D² = ab - c²

    F = (1 - 2 ∂/∂a)(1 - 2 ∂/∂b) K(a, b, c) = K - (1/a + 1/b) D/2π + 1/(2πD),    F' = ∂F/∂c.

D is at least 1: nothing changes quickly, however parallel or large the samples are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.strips import OPTIONS, WIDTH, arccos_over_root, correlations, put_strip

# Below this variance terms of the size of 1 would cancel down to F ~ c/4: the series takes a few terms there.
SMALLEST = 0.05
ERROR = 5e-14


@njit(**OPTIONS)
def gelu_tiles(  # type: ignore[no-untyped-def]
    covariance, own, inverse, reach, others, inverse_right, reach_right, gain, square, bends, todo, value, slope, bend
):  # fmt: skip
    """F, F' and, with `bends`, dF'/dc; `own` and `others` have √q of what enters, `gain` multiplies it.

    `square` is the square of the amplitude.  `todo` (stack, rows, strips) says which pairs are written: ALL of a strip,
    or SOME, those beyond |ρ| = reach · reach'.
    """
    quarter, over = 0.5 * np.pi, 0.5 * square / np.pi
    stack, rows, columns = covariance.shape
    rho, most, size, width, whole, risen, bent = (
        np.zeros(WIDTH), np.zeros(WIDTH), np.ones(WIDTH), np.ones(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH),
        np.zeros(WIDTH),
    )  # fmt: skip
    members, square_gain = np.ones(WIDTH, dtype=np.bool_), gain * gain
    for t in range(stack):
        for i in range(rows):
            q = square_gain * own[t, i] * own[t, i]
            a = 1.0 + q
            for strip in range(todo.shape[2]):
                if not todo[t, i, strip]:
                    continue
                begin = strip * WIDTH
                end = min(begin + WIDTH, columns)
                right = others[t, begin:end]
                correlations(
                    covariance[t, i, begin:end], inverse[t, i], inverse_right[t, strip, 0], end - begin, rho
                )
                for j in range(end - begin):
                    p = square_gain * right[j] * right[j]
                    most[j] = q * p
                    size[j] = a * (1.0 + p)
                    width[j] = q * p * (1.0 - rho[j]) * (1.0 + rho[j]) + q + p + 1.0
                for j in range(end - begin):
                    c = rho[j] * np.sqrt(most[j])
                    root, d = np.sqrt(size[j]), np.sqrt(width[j])
                    y = width[j] / (root * (root + abs(c)))
                    angle = np.copysign(quarter - np.sqrt(y) * arccos_over_root(y), c)
                    scale = (a + size[j] / a) / size[j]
                    whole[j] = over * (d + c * (quarter + angle) - scale * d + 1.0 / d)
                    risen[j] = over * square_gain * (quarter + angle + (scale + 1.0 / width[j]) * c / d)
                if bends:
                    for j in range(end - begin):
                        part, x = 1.0 / width[j], rho[j] * rho[j] * most[j]
                        scale = (a + size[j] / a) / size[j]
                        bent[j] = (
                            over * square_gain * square_gain * np.sqrt(part)
                            * (1.0 + scale * (1.0 + x * part) + (1.0 + 3.0 * x * part) * part)
                        )  # fmt: skip
                put_strip(
                    whole, risen, bent, rho, todo[t, i, strip], reach[t, i],
                    reach_right[t, begin:end], members, bends, value[t, i, begin:end], slope[t, i, begin:end],
                    bend[t, i, begin:end] if bends else rho,
                )  # fmt: skip


__all__ = ["ERROR", "SMALLEST", "gelu_tiles"]
