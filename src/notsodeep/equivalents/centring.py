"""How much a mean of the activation that is not quite zero adds to a kernel, and when that is negligible.

A model that was centred at one τ0 and is used at another one nearby (estimated from samples, say) has entries
g_0(s_i, s_j) that do not depend on inner products (`expansion`). With δ_i = ||x_i||² - τ0² they add to the kernel

    g_0 11ᵀ + ∂_s g_0 (1δᵀ + δ1ᵀ),   at most   n |g_0| + 2 |∂_s g_0| √n ||δ||   in operator norm.

The equivalents leave out terms of order n^{-1/2}, (4.8): a mean that adds less than that, relative to the kernel, is
accepted.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from notsodeep.data import ClassStatistics
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.equivalents.expansion import expand
from notsodeep.errors import InputError
from notsodeep.models import Model

# The step of the derivative in the squared norm, relative to it.
_STEP = 1e-3


def refuse_large_mean(model: Model, stats: ClassStatistics, scalars: Coefficients) -> None:
    """Refuse a model whose mean would show in the kernel of these samples, and suggest the centred one.

    Args:
        model: the model, centred or nearly so.
        stats: statistics of the classes of the samples.
        scalars: the scalars of the kernel at `stats.tau0`.
    """
    # At least the norm of the kernel without class means: that of (4.7) with ||XXᵀ|| at its edge.
    size = scalars.identity + scalars.linear * stats.tau0**2 * (1.0 + sqrt(stats.n / stats.p)) ** 2
    effect, negligible = mean_effect(model, stats, scalars.kernel) / size, stats.n**-0.5
    if effect > negligible:
        raise InputError(
            f"The equivalents need a centred activation. The mean of {model} at τ0 = {stats.tau0:.6g} adds about "
            f"{effect:.2g} of its norm to the kernel of {stats.n} samples; up to {negligible:.2g} is negligible. Use "
            f"model.centred({stats.tau0:.6g}), or form='refined' of an equivalent, which needs no centring."
        )


def mean_effect(model: Model, stats: ClassStatistics, kernel: str) -> float:
    """A bound on the norm of what the means of a model's activations add to its kernel."""
    square = stats.tau0**2
    squares = square * np.array([1.0, 1.0 + _STEP])
    values = expand(model, squares, squares, kernel, 1, 0.0)[0]
    slope = (values[0, 1] - values[0, 0]) / (_STEP * square)
    # E δ_i² = (t_a² + 2 T_aa)/p; an estimate of T_aa may be negative.
    deviations = (stats.t**2 + 2.0 * stats.T.diagonal().clip(min=0.0)) / stats.p
    spread = sqrt(float(stats.sizes @ deviations))
    return float(stats.n * abs(values[0, 0]) + 2.0 * abs(slope) * sqrt(stats.n) * spread)


__all__ = ["mean_effect", "refuse_large_mean"]
