"""The scalars of a kernel after its rows and columns are centred: for models with a bias, or not centred.

In high dimension an off-diagonal entry is K_ij ≃ g_0(s_i, s_j) + g_1 c_ij + g_2 c_ij², with s_i = ||x_i||². A bias
makes g_0(τ0², τ0²) a constant of order 1. Centring removes it, and with it all that depends on one of the two norms
alone; so does a readout with an intercept. What is left has the form of docs/theory.md (4.7), with

    linear = g_1,   trace = g_2,   norm = ∂²g_0/∂s∂s',   diagonal = K_ii - g_0(τ0², τ0²).

The mixed derivative follows from ∂F/∂q = ½ E[φ''(u)φ(v)]: every derivative of F is a series in Hermite coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, sqrt

import numpy as np

from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.equivalents.expansion import exact_diagonal, expand
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mehler, second_moment, second_moment_slope
from notsodeep.models import DEQ, Explicit, as_tau

# The size of the first term of a series that is left out, and the least number of terms.
_ROUNDING, _TERMS = 1e-17, 12


@dataclass(frozen=True)
class _Jet:
    """A symmetric function of two squared norms at equal norms: its value, first and mixed derivative."""

    value: float
    first: float = 0.0
    mixed: float = 0.0

    def __add__(self, other: _Jet) -> _Jet:
        return _Jet(self.value + other.value, self.first + other.first, self.mixed + other.mixed)

    def __mul__(self, other: _Jet) -> _Jet:
        mixed = self.mixed * other.value + 2.0 * self.first * other.first + self.value * other.mixed
        return _Jet(self.value * other.value, self.first * other.value + self.value * other.first, mixed)

    def scaled(self, factor: float, constant: float = 0.0) -> _Jet:
        """factor · f + constant."""
        return _Jet(factor * self.value + constant, factor * self.first, factor * self.mixed)

    def inverse(self) -> _Jet:
        """1/f."""
        one = 1.0 / self.value
        return _Jet(one, -(one**2) * self.first, one**2 * (2.0 * one * self.first**2 - self.mixed))


@dataclass(frozen=True)
class _Dual:
    """F(q, q', λ) and its derivatives at equal variances q, whose derivative in the squared norm is `slope`."""

    phi: Activation
    q: float
    slope: float

    def derivative(self, left: int, right: int, covariance: float, order: int) -> float:
        """The derivative of F of these orders in q, q' and λ: ½^(left + right) Σ_m M_(m+…) M_(m+…) λ^m/m!."""
        rho = covariance / self.q
        count = 1 if rho == 0.0 else _TERMS + int(np.ceil(1.5 * np.log(_ROUNDING) / np.log(abs(rho))))
        first, second = order + 2 * left, order + 2 * right
        hermite = mehler(self.phi, np.array([self.q]), count + max(first, second))[0]
        total = sum(
            hermite[m + first] * hermite[m + second] * rho**m * _root_factorials(m, first, second)
            for m in range(count)
        )
        return float(total) / (2.0 ** (left + right) * self.q ** (order + left + right))

    def jet(self, covariance: _Jet, order: int = 0) -> _Jet:
        """∂^order F/∂λ^order along a covariance that depends on the norms."""

        def derivative(left: int, right: int, more: int) -> float:
            return self.derivative(left, right, covariance.value, order + more)

        slope, along, moved = self.slope, derivative(0, 0, 1), covariance.first
        mixed = derivative(1, 1, 0) * slope**2 + 2.0 * derivative(1, 0, 1) * slope * moved
        mixed += derivative(0, 0, 2) * moved**2 + along * covariance.mixed
        return _Jet(derivative(0, 0, 0), derivative(1, 0, 0) * slope + along * moved, mixed)


def _root_factorials(m: int, first: int, second: int) -> float:
    """√((m + first)! (m + second)!)/m!."""
    return exp(0.5 * (lgamma(m + first + 1) + lgamma(m + second + 1)) - lgamma(m + 1))


def _implicit_jet(model: DEQ, tau0: float, kernel: str, point: float) -> tuple[_Jet, float]:
    """g_0 of a DEQ around λ⁰ = `point`, the covariance of orthogonal samples, and the slope of its variance."""
    q = model.preactivation_variance(tau0)
    slope = model.sigma_b2 / (1.0 - model.sigma_a2 * float(second_moment_slope(model.activation, q)))
    dual, recurrent = _Dual(model.activation, q, slope), model.sigma_a2
    gain = 1.0 - recurrent * dual.derivative(0, 0, point, 1)
    # λ = σ_a² F(λ) + bias2: the derivatives of λ on the right-hand side are moved to the left, order by order.
    first = recurrent * dual.jet(_Jet(point)).first / gain
    covariance = _Jet(point, first, recurrent * dual.jet(_Jet(point, first)).mixed / gain)
    features, slopes = dual.jet(covariance), dual.jet(covariance, 1)
    if kernel == "ck":
        return features, slope
    inverse = slopes.scaled(-recurrent, 1.0).inverse()
    tangent = features * inverse if kernel == "ntk_paper" else features + slopes * covariance * inverse
    return tangent, slope


def _explicit_jet(model: Explicit, tau0: float, kernel: str) -> tuple[_Jet, float]:
    """g_0 of an explicit network, whose inputs are orthogonal, and the slope of the energy of its output."""
    square = tau0**2
    q, slope, features, tangent = square, 1.0, _Jet(0.0), _Jet(0.0)
    for layer in model.inputs:
        q = layer.weight * q + layer.inject * square + layer.constant
        slope = layer.weight * slope + layer.inject
        dual, covariance = _Dual(layer.phi, q, slope), features.scaled(layer.weight, layer.constant)
        features = dual.jet(covariance)
        tangent = features + dual.jet(covariance, 1) * tangent.scaled(layer.weight, layer.constant)
        slope *= float(second_moment_slope(layer.phi, q))
        q = float(second_moment(layer.phi, q))
    return (features if kernel == "ck" else tangent), slope


def centred_kernel_coefficients(
    model: DEQ | Explicit, tau0: float, kernel: str = "ck"
) -> tuple[Coefficients, float]:
    """The scalars of a kernel after centring, and the constant g_0(τ0², τ0²) that centring removes.

    Args:
        model: with or without a bias; its activations need not be centred. Where they are, and without a bias, the
            scalars are those of `coefficients` and the constant is zero.
        tau0: the norm of a typical input.
        kernel: "ck", "ntk" or "ntk_paper".

    Raises:
        NotHighDimensionalError: where the bias correlates all samples too strongly for an expansion.
    """
    squares = np.array([as_tau(tau0) ** 2])
    series = expand(model, squares, squares, kernel, 2, 0.0)[:, 0, 0]
    if isinstance(model, DEQ):
        point = float(expand(model, squares, squares, "ck_preactivations", 0, 0.0)[0, 0, 0])
        (jet, slope), q = _implicit_jet(model, tau0, kernel, point), model.preactivation_variance(tau0)
    else:
        (jet, slope), q = _explicit_jet(model, tau0, kernel), model.preactivation_variances(tau0)[-1]
    constant, linear, trace = series.tolist()
    diagonal = float(exact_diagonal(model, squares, kernel)[0]) - constant
    return Coefficients(linear, jet.mixed, trace, diagonal, tau0, kernel, sqrt(q), slope), constant


__all__ = ["centred_kernel_coefficients"]
