"""What a mean of the activation that is not quite zero adds to a kernel, and when that is negligible.

A model that was centred at one τ0 and is used at another one nearby (estimated from samples, say) has a mean
m = E[φ(τ_* ξ)] that is small and not zero.  With M_0(q_i) ≃ m + ½ M_2 α_4 δ_i in (4.9) of docs/theory.md the kernel
gains

    m² 11ᵀ + ½ m M_2 α_4 (1δᵀ + δ1ᵀ),   at most   n m² + m |M_2| α_4 √n ||δ||   in operator norm,

over d for a DEQ, over d² in its tangent kernels.  What the equivalents leave out is of order n^{-1/2}, (4.8): a mean
that adds less than that, relative to the kernel, is let through.
"""

from __future__ import annotations

from functools import singledispatch
from math import sqrt

from notsodeep.data import ClassStatistics
from notsodeep.equivalents.coefficients import Coefficients, LayerMoments, entering_layer, explicit_layer
from notsodeep.errors import InputError
from notsodeep.models import DEQ, Explicit, Model


def refuse_large_mean(model: Model, stats: ClassStatistics, scalars: Coefficients) -> None:
    """Refuse a model whose mean would show in the kernel of these samples, and offer the centred one.

    Args:
        model: the model, centred or nearly so.
        stats: of the classes of the samples.
        scalars: of the kernel, at `stats.tau0`.
    """
    effect, negligible = mean_effect(model, stats) / _size(stats, scalars), stats.n**-0.5
    if effect > negligible:
        raise InputError(
            f"The equivalents need a centred activation. The mean of {model} at τ0 = {stats.tau0:.6g} adds about "
            f"{effect:.2g} of its norm to the kernel of {stats.n} samples; up to {negligible:.2g} is negligible. Use "
            f"model.centred({stats.tau0:.6g}), or form='refined' of an equivalent, which needs no centring."
        )


def _size(stats: ClassStatistics, scalars: Coefficients) -> float:
    """The norm of the kernel, as it is at least for classes without means: that of (4.7) with ||XXᵀ|| at its edge."""
    return scalars.identity + scalars.linear * stats.tau0**2 * (1.0 + sqrt(stats.n / stats.p)) ** 2


@singledispatch
def mean_effect(model: Model, stats: ClassStatistics) -> float:
    """The norm of what the means of its activations add to a model's kernels, at most."""
    return 0.0


@mean_effect.register
def _implicit(model: DEQ, stats: ClassStatistics) -> float:
    moments = LayerMoments.of(model.activation, model.preactivation_variance(stats.tau0))
    gain = 1.0 - model.sigma_a2 * moments.slope**2
    variance_slope = model.sigma_b2 / (1.0 - model.sigma_a2 * moments.energy_slope)
    return _of_layer(moments, variance_slope, stats) / gain**2


@mean_effect.register
def _explicit(model: Explicit, stats: ClassStatistics) -> float:
    tau0, effect = stats.tau0, 0.0
    features = Coefficients(1.0, 0.0, 0.0, tau0**2, tau0, "ck", tau0, 1.0)
    for number, layer in enumerate(model.inputs, 1):
        features = entering_layer(features, layer.weight, layer.inject)
        moments = LayerMoments.of(layer.phi, features.diagonal, f"layer {number}")
        # Through the next layer goes what came before it times w M_1²; its readout adds its own part.
        effect = layer.weight * moments.slope**2 * effect + _of_layer(moments, features.variance_slope, stats)
        features = explicit_layer(features, moments)
    return effect


def _of_layer(moments: LayerMoments, variance_slope: float, stats: ClassStatistics) -> float:
    mean, n = abs(moments.mean), stats.n
    # E δ_i² = (t_a² + 2 T_aa)/p; an estimate of T_aa may be negative.
    squares = (stats.t**2 + 2.0 * stats.T.diagonal().clip(min=0.0)) / stats.p
    spread = sqrt(float(stats.sizes @ squares))
    return float(n * mean**2 + mean * abs(moments.curvature) * variance_slope * sqrt(n) * spread)


__all__ = ["mean_effect", "refuse_large_mean"]
