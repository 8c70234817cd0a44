"""The scalars of a kernel after its rows and columns are centred: for models with a bias, or not centred.

In high dimension an off-diagonal entry is K_ij ≃ g_0(s_i, s_j) + g_1 c_ij + g_2 c_ij², with s_i = ||x_i||². A bias
makes g_0(τ0², τ0²) a constant of order 1. Centring removes it, and with it all that depends on one of the two norms
alone; so does a readout with an intercept. What is left has the form of docs/theory.md (4.7), with

    linear = g_1,   trace = g_2,   norm = ∂²g_0/∂s∂s',   diagonal = K_ii - g_0(τ0², τ0²).

g_0 is analytic in the norms: its derivatives are those of the polynomial through a few norms around τ0.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.polynomial import polynomial

from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.equivalents.expansion import exact_diagonal, expand
from notsodeep.linalg.chebyshev import chebyshev_nodes
from notsodeep.models import DEQ, Explicit, as_tau
from notsodeep.validation import Array

# Norms of the interpolation, an odd number so that τ0 is one of them, and how far they reach, relative to τ0².
_NORMS, _REACH = 9, 0.25


def _differentiation() -> Array:
    """Weights of the values at the Chebyshev nodes in the derivative of the polynomial through them at zero."""
    nodes = chebyshev_nodes(_NORMS)
    return np.asarray(np.linalg.inv(polynomial.polyvander(nodes, _NORMS - 1))[1])


def centred_kernel_coefficients(
    model: DEQ | Explicit, tau0: float, kernel: str = "ck"
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


__all__ = ["centred_kernel_coefficients"]
