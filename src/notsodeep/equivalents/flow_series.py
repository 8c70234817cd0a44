"""High-dimensional equivalents of neural ODEs: their kernels as series in the inner product (docs/derivations.md).

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
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.kernels import exact_kernel
from notsodeep.models.neural_ode import NeuralODE
from notsodeep.models.time_nodes import TimeNodes, time_nodes
from notsodeep.models.time_programs import (
    base_field,
    linear_fixed_point,
    mix,
    nodes_needed,
    own_variances,
    reduce,
)
from notsodeep.validation import Array

NEWTON_STEPS, ROUNDING = 60, 1e-14


@series_of.register
def _flow(model: NeuralODE, left: Array, right: Array, point: Array, order: int) -> KernelSeries:
    squares = np.concatenate([left, right])
    nodes = time_nodes(nodes_needed(model, squares, True)[0], model.duration, model.decay)
    variances = [own_variances(model, nodes, part)[0] for part in (left, right)]
    duals = Duals(model.activation, *(part.reshape(-1) for part in variances))
    shape = (len(left), len(nodes.times), len(right), len(nodes.times))
    base, strength, matrix = base_field(model, nodes), model.sigma_w2, nodes.integral
    start = _start(duals, shape, point, model, nodes)
    derivatives = duals.derivatives(start.reshape(duals.scale.shape), order + 2)
    derivatives = derivatives.reshape(order + 2, *shape)
    beyond_linear = derivatives.copy()
    beyond_linear[:2] = 0.0
    deviation = np.zeros((order + 1, *shape))
    for power in range(1, order + 1):
        source = strength * mix(matrix, compose(beyond_linear, deviation)[power])
        if power == 1:
            source = source + base[None, :-1, None, :-1]
        deviation[power] = linear_fixed_point(source, matrix, strength * derivatives[1])
    values, slopes = compose(derivatives, deviation), compose(derivatives[1:], deviation)
    gram = np.zeros((order + 1, len(left), len(right)))
    gram[0] = point
    if order:
        gram[1] = 1.0
    features = base[-1, -1] * gram + strength * _reduced(nodes.end, values)
    inner = _tangent(model, nodes, gram, values, slopes)
    both = {"ck": features, "ck_preactivations": features}
    return both | {"ntk": features + inner, "ntk_preactivations": inner}


def _start(duals: Duals, shape: tuple[int, ...], point: Array, model: NeuralODE, nodes: TimeNodes) -> Array:
    """Λ⁰, the covariances at the inner products c⁰, by Newton's method."""
    entering = point[:, None, :, None] * base_field(model, nodes)[None, :-1, None, :-1]
    scale, field = duals.scale.reshape(shape), entering
    for _ in range(NEWTON_STEPS):
        value, slope = (
            part.reshape(shape) for part in duals.derivatives(field.reshape(duals.scale.shape), 2)
        )
        rest = entering + model.sigma_w2 * mix(nodes.integral, value) - field
        step = linear_fixed_point(rest, nodes.integral, model.sigma_w2 * slope)
        field = field + step
        if np.all(np.abs(step) <= ROUNDING * scale):
            return np.asarray(field)
    raise ConvergenceError(
        "The covariances at the starting correlation did not converge.", "Start at a smaller one: around=0."
    )


def _tangent(model: NeuralODE, nodes: TimeNodes, gram: Array, values: Array, slopes: Array) -> Array:
    """The series of what all weights but the readout give, (14.4) order by order."""
    strength, matrix, last = model.sigma_w2, nodes.backward, nodes.fade[:-1][::-1]
    gradient = np.zeros_like(values)
    for power in range(len(values)):
        source = strength * mix(matrix, multiply(gradient, slopes)[power])
        if power == 0:
            source = source + np.outer(last, last)[None, :, None, :]
        gradient[power] = linear_fixed_point(source, matrix, strength * slopes[0])
    arrived = strength * _reduced(nodes.start, multiply(gradient, slopes))
    arrived[0] += nodes.fade[-1] ** 2
    inputs = model.sigma_u2 * arrived + model.sigma_b2 * _reduced(nodes.weights, gradient)
    weights = strength * _reduced(nodes.weights, multiply(gradient, values))
    return np.asarray(weights + multiply(gram, inputs))


def _reduced(weights: Array, series: Array) -> Array:
    return np.array([reduce(weights, field) for field in series])


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
