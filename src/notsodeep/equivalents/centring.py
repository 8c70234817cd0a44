"""How much a mean of the activation that is not quite zero adds to a kernel, and when that is negligible.

A model that was centred at one τ0 and is used at another one nearby (estimated from samples, say) has entries
g_0(s_i, s_j) that do not depend on inner products (`expansion`). With δ_i = ||x_i||² - τ0² they add to the kernel

    g_0 11ᵀ + ∂_s g_0 (1δᵀ + δ1ᵀ),   at most   n |g_0| + 2 |∂_s g_0| √n ||δ||   in operator norm.

The equivalents leave out terms of order n^{-1/2}, (4.8): a mean that adds less than that, relative to the kernel, is
accepted.

Models with a bias, or not centred, have scalars after their kernel is centred. In high dimension an off-diagonal entry
is K_ij ≃ g_0(s_i, s_j) + g_1 c_ij + g_2 c_ij², with s_i = ||x_i||². A bias makes g_0(τ0², τ0²) a constant of order 1.
Centring removes it, and with it all that depends on one of the two norms alone; so does a readout with an intercept.
What is left has the form of docs/theory.md (4.7), with

    linear = g_1,   trace = g_2,   norm = ∂²g_0/∂s∂s',   diagonal = K_ii - g_0(τ0², τ0²).

g_0 is analytic in the norms: its derivatives are those of the polynomial through a few norms around τ0.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.polynomial import polynomial

from notsodeep.data import ClassStatistics
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.equivalents.expansion import exact_diagonal, expand
from notsodeep.errors import InputError
from notsodeep.linalg.chebyshev import chebyshev_nodes
from notsodeep.models import DEQ, Explicit, Model, NeuralODE, as_tau
from notsodeep.validation import Array

# Norms of the interpolation, an odd number so that τ0 is one of them, and how far they reach, relative to τ0².
_NORMS, _REACH = 9, 0.25
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


def _differentiation() -> Array:
    """Weights of the values at the Chebyshev nodes in the derivative of the polynomial through them at zero."""
    nodes = chebyshev_nodes(_NORMS)
    return np.asarray(np.linalg.inv(polynomial.polyvander(nodes, _NORMS - 1))[1])


def centred_kernel_coefficients(
    model: DEQ | Explicit | NeuralODE, tau0: float, kernel: str = "ck"
) -> tuple[Coefficients, float]:
    """Compute the scalars of a kernel after centring, and the constant g_0(τ0², τ0²) that centring removes.

    Args:
        model: with or without a bias; its activations need not be centred. Where they are, and without a bias, the
            scalars are those of `coefficients` and the constant is zero.
        tau0: the norm of a typical input.
        kernel: "ck", "ntk" or "ntk_paper".

    Raises:
        NotHighDimensionalError: where the bias correlates all samples too strongly for an expansion.
    """
    square = as_tau(tau0) ** 2
    squares = square * (1.0 + _REACH * chebyshev_nodes(_NORMS))
    weights = _differentiation() / (_REACH * square)
    at_tau = squares[_NORMS // 2 : _NORMS // 2 + 1]
    constant, linear, trace = expand(model, at_tau, at_tau, kernel, 2, 0.0)[:, 0, 0].tolist()
    norm = float(weights @ expand(model, squares, squares, kernel, 1, 0.0)[0] @ weights)
    diagonal = float(exact_diagonal(model, at_tau, kernel)[0]) - constant
    # τ_* and α₄ of `Coefficients`: of the pre-activations of a DEQ, and of the output of an explicit network.
    if isinstance(model, DEQ):
        q, variances = model.preactivation_variance(tau0), "ck_preactivations"
    else:
        q, variances = model.preactivation_variances(tau0)[-1], "ck"
    slope = float(weights @ exact_diagonal(model, squares, variances))
    return Coefficients(linear, norm, trace, diagonal, tau0, kernel, sqrt(q), slope), constant
