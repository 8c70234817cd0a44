"""High-dimensional equivalents of neural ODEs: their kernels as series in the inner product (docs/theory.md).

With h = c - c⁰ and fields over two times, the covariance Λ = Λ⁰ + δ solves

    δ = h b + σ_w² I (F_1 ∘ δ + F_2 ∘ δ²/2 + …) Iᵀ,   F_k = ∂^k F/∂c^k at Λ⁰,

where b is what an inner product of 1 gives without feedback. Each order is one linear equation with the same operator
Δ ↦ σ_w² I (F_1 ∘ Δ) Iᵀ; the gradient field B of the tangent kernel follows in the same way from F' = F_1 + F_2 δ + ….
The scalars of (4.7) are linear = g_1, trace = g_2, norm = ∂²g_0/∂s∂s' of the series at ||x||² = τ0².
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from notsodeep.equivalents.centring import centred_kernel_coefficients
from notsodeep.equivalents.coefficients import CENTRED, Coefficients, scalars_of
from notsodeep.equivalents.expansion import Duals, KernelSeries, compose, exact_diagonal, multiply, series_of
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.models.neural_ode import NeuralODE
from notsodeep.models.time_nodes import time_nodes
from notsodeep.models.time_programs import (
    base_field,
    linear_fixed_point,
    mix,
    nodes_needed,
    own_states,
    reduced,
    solve_pairs,
    tangent_series,
)
from notsodeep.validation import Array


@series_of.register
def _flow(model: NeuralODE, left: Array, right: Array, point: Array, order: int) -> KernelSeries:
    squares = np.concatenate([left, right])
    nodes = time_nodes(nodes_needed(model, squares, True)[0], model.duration, model.decay)
    variances = [own_states(model, nodes, part)[0] for part in (left, right)]
    duals = Duals(model.activation, *(part.reshape(-1) for part in variances))
    shape = (len(left), len(nodes.times), len(right), len(nodes.times))
    base, strength, matrix = base_field(model, nodes), model.sigma_w2, nodes.integral

    def expanded(field: Array, terms: int) -> Array:
        return duals.derivatives(field.reshape(duals.scale.shape), terms).reshape(terms, *shape)

    def dual(field: Array) -> tuple[Array, Array]:
        value, slope = expanded(field, 2)
        return value, slope

    entering = point[:, None, :, None] * base[None, :-1, None, :-1]
    start = solve_pairs(model, nodes, entering, duals.scale.reshape(shape), dual)[0]
    derivatives = expanded(start, order + 2)
    gain = strength * derivatives[1]
    beyond_linear = derivatives.copy()
    beyond_linear[:2] = 0.0
    deviation = np.zeros((order + 1, *shape))
    for power in range(1, order + 1):
        source = strength * mix(matrix, compose(beyond_linear, deviation)[power])
        if power == 1:
            source = source + base[None, :-1, None, :-1]
        deviation[power] = linear_fixed_point(source, lambda field: mix(matrix, gain * field))
    values, slopes = compose(derivatives, deviation), compose(derivatives[1:], deviation)
    gram = np.zeros((order + 1, len(left), len(right)))
    gram[0] = point
    if order:
        gram[1] = 1.0
    features = base[-1, -1] * gram + strength * reduced(nodes.end, values)
    inner = tangent_series(model, nodes, gram, values, slopes, multiply)
    both = {"ck": features, "ck_preactivations": features}
    return both | {"ntk": features + inner, "ntk_preactivations": inner}


@exact_diagonal.register
def _flow_diagonal(model: NeuralODE, squares: Array, kernel: str) -> Array:
    return exact_kernel(model, np.sqrt(squares)[:, None], kernel=kernel).diagonal().copy()


@scalars_of.register
def flow_coefficients(model: NeuralODE, tau0: float, kernel: str) -> Coefficients:
    """The scalars of a neural ODE, from the derivatives of its series at τ0."""
    if kernel == "ntk_paper":
        raise InputError("The papers' tangent kernel 'ntk_paper' is not defined for a neural ODE. Use 'ntk'.")
    scalars, constant = centred_kernel_coefficients(model, tau0, kernel)
    whole = scalars.diagonal + constant
    if abs(constant) > CENTRED**2 * whole:
        raise InputError(
            f"The mean of φ(h(t)) in {model} adds {constant / whole:.2g} of the diagonal to all entries of the kernel; "
            "the asymptotic equivalent needs mean zero at all times, which odd activations have. Use "
            "model.centred(tau0), which makes it small, or form='refined', which needs no centring."
        )
    return replace(scalars, diagonal=whole)
