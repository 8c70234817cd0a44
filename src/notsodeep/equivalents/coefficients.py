"""The few scalars through which a model acts on high-dimensional data: docs/theory.md, section 4.

    coefficients(DEQ("tanh", 0.2), tau0=1.0)                      # implicit conjugate kernel, (4.6)
    coefficients(DEQ("relu", 0.2).centred(1.0), 1.0, "ntk")       # implicit tangent kernel, (4.11)
    coefficients(Explicit(["tanh", "tanh"]), 1.0, kernel="ntk")   # explicit tangent kernel, (4.15)

Two models with the same scalars have the same kernel, asymptotically, on every mixture of that tau0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import (
    derivative_second_moment,
    mean_derivative,
    second_moment,
    second_moment_slope,
)
from notsodeep.kernel_names import as_kernel
from notsodeep.models import DEQ, Explicit, Model, as_tau

# A mean of φ up to this fraction of its root mean square moves the scalars by its square, 1e-4 of them. What it adds to
# the kernel of n samples grows with n, and `centring` refuses what would show.
CENTRED = 1e-2

# What the papers call the scalars of each kernel.
SYMBOLS = {
    kernel: dict(zip(("diagonal", "linear", "norm", "trace"), symbols, strict=True))
    for kernel, symbols in {
        "ck": ("γ²", "α₁", "α₂", "α₃"),
        "ck_preactivations": ("γ²", "α₁", "α₂", "α₃"),
        "ntk": ("κ²", "θ₁", "θ₂", "θ₃"),
        "ntk_paper": ("κ²", "β₁", "β₂", "β₃"),
        "ntk_preactivations": ("κ²", "π₁", "π₂", "π₃"),
    }.items()
}


@dataclass(frozen=True, repr=False)
class Coefficients(Shown):
    """The scalars of an equivalent linear·XXᵀ + V C Vᵀ + identity·I, docs/theory.md (4.7).

    Attributes:
        linear: α₁ (θ₁, β₁), in front of XXᵀ.
        norm: α₂ (θ₂, β₂), of the fluctuations of the squared norms: t and ψ.
        trace: α₃ (θ₃, β₃), of T.
        diagonal: γ² (κ²), the diagonal of the kernel.
        tau0: the norm of a typical input that they belong to.
        kernel: the kernel they belong to.
        tau_star: τ_*, the scale of the (last) pre-activation.
        variance_slope: α₄, the derivative in ||x||² of the variance of the pre-activation (DEQ) or of the
            output (explicit network).
    """

    linear: float
    norm: float
    trace: float
    diagonal: float
    tau0: float
    kernel: str
    tau_star: float
    variance_slope: float

    @property
    def identity(self) -> float:
        """γ² - τ0² α₁, the factor of the identity in (4.7)."""
        return self.diagonal - self.tau0**2 * self.linear

    def _facts(self) -> dict[str, Any]:
        symbols = SYMBOLS.get(self.kernel, SYMBOLS["ck"])
        scalars = {
            f"{name} {symbols[name]}": getattr(self, name) for name in ("linear", "norm", "trace", "diagonal")
        }
        return scalars | {"tau0": self.tau0, "kernel": self.kernel}

    def as_array(self) -> NDArray[np.float64]:
        """(diagonal, linear, norm, trace), in the order of docs/theory.md (7.1)."""
        return np.array([self.diagonal, self.linear, self.norm, self.trace])


@dataclass(frozen=True)
class LayerMoments:
    """The moments of a centred activation at q: M_0 ≃ 0, M_1, M_2, S, S', E1 of docs/theory.md section 2."""

    q: float
    slope: float
    curvature: float
    energy: float
    energy_slope: float
    slope_energy: float

    @classmethod
    def of(cls, phi: Activation, q: float, where: str = "the activation") -> LayerMoments:
        """The moments at q; `where` names the layer in the error for an activation that is not centred."""
        energy = float(second_moment(phi, q))
        mean = float(mean_derivative(phi, q, 0))
        if energy < 0.0:
            raise InputError(
                f"{where.capitalize()} ({phi}) is constant up to rounding at τ = {np.sqrt(q):.4g}: its variance came "
                f"out as {energy:.1e}. Scale the data up, or the activation's argument."
            )
        if abs(mean) > CENTRED * np.sqrt(energy):
            raise InputError(
                f"The equivalents need a centred activation, E[φ(τξ)] = 0, but {where} ({phi}) has mean "
                f"{mean:.3g} at τ = {np.sqrt(q):.4g}. Use model.centred(tau0), or form='refined', which "
                "needs no centring."
            )
        return cls(
            q=q,
            slope=float(mean_derivative(phi, q, 1)),
            curvature=float(mean_derivative(phi, q, 2)),
            energy=energy,
            energy_slope=float(second_moment_slope(phi, q)),
            slope_energy=float(derivative_second_moment(phi, q)),
        )


def coefficients(model: Model, tau0: float, kernel: str = "ck") -> Coefficients:
    """Compute the scalars α₁, α₂, α₃, γ² of a model's kernel at inputs of norm tau0.

    Args:
        model: a `DEQ` or an `Explicit` whose activations are centred at the scale where they act:
            `model.centred(tau0)`. Odd activations are centred as they are.
        tau0: τ0 of (4.2), the norm of a typical input.
        kernel: "ck" (4.6), "ntk" for the NTK of the network (4.11), "ntk_paper" for the papers' one (4.12);
            of a DEQ also "ck_preactivations" (4.10) and "ntk_preactivations" (4.13). An explicit network has
            one NTK, (4.15), so that "ntk" and "ntk_paper" mean the same there.

    Raises:
        InputError: for an activation that is not centred, a bias, or σ_b² = 0.
        ConvergenceError: where the variance equation (4.5) or the sum over layers of the NTK has no solution.
    """
    return scalars_of(model, as_tau(tau0), str(as_kernel(kernel)))


@singledispatch
def scalars_of(model: Model, tau0: float, kernel: str) -> Coefficients:
    """The scalars of one kind of model; another kind registers a function of its own here."""
    raise no_equivalent(model)


def no_equivalent(model: object) -> InputError:
    """The error for a model whose behaviour in high dimension is not known."""
    return InputError(
        f"No high-dimensional equivalent is known for {type(model).__name__}: a DEQ or an Explicit network is needed. "
        "Others have exact kernels."
    )


@scalars_of.register
def _implicit(model: DEQ, tau0: float, kernel: str) -> Coefficients:
    _refuse_bias(model)
    if model.sigma_b2 == 0.0:
        raise InputError(
            "sigma_b2 = 0 cuts the network off from its input: its kernel does not depend on the data."
        )
    moments = LayerMoments.of(model.activation, model.preactivation_variance(tau0))
    features = _implicit_features(model, tau0, moments)
    if kernel == "ck":
        return features
    if kernel == "ck_preactivations":
        return _preactivations(model, moments, features)
    return _implicit_tangent(model, moments, features, kernel)


def _refuse_bias(model: DEQ | Explicit) -> None:
    if model.bias2 > 0.0:
        raise InputError(
            f"bias2 = {model.bias2:g} puts a constant of order 1 off the diagonal, which the asymptotic "
            "equivalent does not cover. Set bias2=0, or use form='refined', which carries the bias."
        )


def _implicit_features(model: DEQ, tau0: float, moments: LayerMoments) -> Coefficients:
    """α₁, α₂, α₃, γ² of docs/theory.md (4.6)."""
    gain = _loop_gain(model, moments)
    preactivation_slope = model.sigma_b2 / gain
    variance_slope = model.sigma_b2 / (1.0 - model.sigma_a2 * moments.energy_slope)
    return Coefficients(
        linear=moments.slope**2 * preactivation_slope,
        norm=moments.curvature**2 * variance_slope**2 / (4.0 * gain),
        trace=moments.curvature**2 * preactivation_slope**2 / (2.0 * gain),
        diagonal=moments.energy,
        tau0=tau0,
        kernel="ck",
        tau_star=float(np.sqrt(moments.q)),
        variance_slope=variance_slope,
    )


def _loop_gain(model: DEQ, moments: LayerMoments) -> float:
    """The loop gain d = 1 - σ_a² M_1², docs/theory.md (4.5); positive because q M_1² ≤ S(q) < q/σ_a²."""
    return 1.0 - model.sigma_a2 * moments.slope**2


def _preactivations(model: DEQ, moments: LayerMoments, features: Coefficients) -> Coefficients:
    """The scalars of Λ = σ_a² G + σ_b² XXᵀ, docs/theory.md (4.10)."""
    return replace(
        features,
        kernel="ck_preactivations",
        linear=model.sigma_a2 * features.linear + model.sigma_b2,
        norm=model.sigma_a2 * features.norm,
        trace=model.sigma_a2 * features.trace,
        diagonal=moments.q,
    )


def _implicit_tangent(model: DEQ, moments: LayerMoments, features: Coefficients, kernel: str) -> Coefficients:
    """θ, β or π of docs/theory.md (4.11)–(4.13)."""
    remaining = 1.0 - model.sigma_a2 * moments.slope_energy
    if remaining <= 0.0:
        raise ConvergenceError(
            f"The tangent kernel diverges: σ_a² E[φ'(τξ)²] = {1.0 - remaining:.4g} ≥ 1 "
            f"at τ = {features.tau_star:.4g}.",
            f"Lower sigma_a2 below {1.0 / moments.slope_energy:.4g}, or scale the activation down.",
        )
    gain = _loop_gain(model, moments)
    rate = model.sigma_b2 / gain
    curved = moments.curvature**2 * rate**2 / gain**2
    if kernel == "ntk":
        return replace(
            features,
            kernel=kernel,
            linear=features.linear + moments.slope**2 * rate / gain,
            norm=features.norm / gain,
            trace=features.trace / gain + curved,
            diagonal=features.diagonal + moments.slope_energy * moments.q / remaining,
        )
    if kernel == "ntk_paper":
        return replace(
            features,
            kernel=kernel,
            linear=features.linear / gain,
            norm=features.norm / gain,
            trace=(features.trace + features.linear / gain * model.sigma_a2 * moments.curvature**2 * rate)
            / gain,
            diagonal=features.diagonal / remaining,
        )
    return replace(
        features,
        kernel=kernel,
        linear=rate / gain,
        norm=model.sigma_a2 * features.norm / gain,
        trace=model.sigma_a2 * (features.trace / gain + curved),
        diagonal=moments.q / remaining,
    )


@scalars_of.register
def explicit_coefficients(model: Explicit, tau0: float, kernel: str) -> Coefficients:
    """The scalars of an explicit network, (4.14) and (4.15); with injection, (7.10)."""
    _refuse_bias(model)
    if kernel.endswith("_preactivations"):
        raise InputError(
            f"kernel={kernel!r} belongs to a DEQ; of an explicit network ask for 'ck' or 'ntk' "
            "(the pre-activations of a layer have the features kernel of the network without it)."
        )
    features = Coefficients(1.0, 0.0, 0.0, tau0**2, tau0, "ck", tau0, 1.0)
    tangent = replace(features, kernel=kernel)
    for number, layer in enumerate(model.inputs):
        features = entering_layer(features, layer.weight, layer.inject)
        tangent = entering_layer(tangent, layer.weight, layer.inject)
        moments = LayerMoments.of(layer.phi, features.diagonal, f"layer {number + 1}")
        before, features = features, explicit_layer(features, moments)
        tangent = _tangent_layer(tangent, before, features, moments)
    return features if kernel == "ck" else tangent


def entering_layer(signal: Coefficients, weight: float, inject: float) -> Coefficients:
    """The scalars of weight · K + inject · XXᵀ, what enters a layer that sees the input again, (7.10)."""
    return replace(
        signal,
        linear=weight * signal.linear + inject,
        norm=weight * signal.norm,
        trace=weight * signal.trace,
        diagonal=weight * signal.diagonal + inject * signal.tau0**2,
        variance_slope=weight * signal.variance_slope + inject,
    )


def explicit_layer(features: Coefficients, moments: LayerMoments) -> Coefficients:
    """The scalars of the features after one more layer, its moments taken at `features.diagonal`, (4.14)."""
    squared_slope, squared_curvature = moments.slope**2, moments.curvature**2
    return replace(
        features,
        linear=squared_slope * features.linear,
        norm=squared_slope * features.norm + squared_curvature * features.variance_slope**2 / 4.0,
        trace=squared_slope * features.trace + squared_curvature * features.linear**2 / 2.0,
        diagonal=moments.energy,
        tau_star=float(np.sqrt(moments.q)),
        variance_slope=moments.energy_slope * features.variance_slope,
    )


def _tangent_layer(
    tangent: Coefficients, before: Coefficients, features: Coefficients, moments: LayerMoments
) -> Coefficients:
    """The scalars of the NTK after one more layer, given the features before and after it, (4.15)."""
    squared_slope = moments.slope**2
    return replace(
        tangent,
        linear=features.linear + squared_slope * tangent.linear,
        norm=features.norm + squared_slope * tangent.norm,
        trace=features.trace
        + squared_slope * tangent.trace
        + moments.curvature**2 * tangent.linear * before.linear,
        diagonal=features.diagonal + moments.slope_energy * tangent.diagonal,
        tau_star=features.tau_star,
        variance_slope=features.variance_slope,
    )
