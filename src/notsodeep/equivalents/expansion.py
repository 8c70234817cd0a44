"""A kernel as a power series in the inner product of two samples, to the order that high dimension needs.

In high dimension off-diagonal inner products are small, so that an entry of any kernel is, to order N,

    K_ij ≃ Σ_{k ≤ N} g_k(s_i, s_j) (c_ij - c⁰_ij)^k,   s_i = ||x_i||²,   c⁰_ij = ρ⁰ √(s_i s_j),

with functions g_k of the two squared norms alone. This module computes them, exactly, on pairs of norms.

**Implicit model.** Let q_i solve docs/theory.md (3.4), λ⁰ solve (3.5) at c⁰ and F_k = ∂^k F/∂c^k at λ⁰ (so
that F_k = M_k M_k where λ⁰ = 0). With h = c - c⁰, ε = 1/(1 - σ_a² F_1) and L = ε σ_b² h, the deviation
δ = Λ - λ⁰ solves

    δ = L + σ_a² ε (F_2 δ²/2 + F_3 δ³/6 + …),

and iterating gives δ, hence G = Σ F_k δ^k/k! and D = Σ F_{k+1} δ^k/k!, order by order. For centred φ
without a bias this is docs/theory.md (5.3). With B = F_2/2 and Γ = F_3/6 the readings are, for λ⁰ = F_0 = 0,

    G = F_1 L + ε B L² + ε (Γ + 2 σ_a² ε B²) L³
    Θ = (1 + ε) F_1 L + 3 ε² B L² + ε² (4 Γ + 10 σ_a² ε B²) L³
    Π = ε [L + 3 σ_a² ε B L² + σ_a² ε (4 Γ + 10 σ_a² ε B²) L³]
    K = ε [F_1 L + (3ε - 2) B L² + …].

The code does not use these closed forms: it multiplies and divides truncated series, which covers every case.

**Explicit network.** The same composition, layer by layer, from Σ = c⁰ + h: docs/theory.md (3.11), (7.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from math import factorial

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray

from notsodeep.equivalents.coefficients import no_equivalent
from notsodeep.errors import ConvergenceError, InputError, NotHighDimensionalError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import derivative_second_moment, mehler, second_moment, solve_variance
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array

# Beyond this correlation the series in Hermite polynomials needs too many terms for its fourth derivative.
LARGEST_CORRELATION = 0.9
_NEWTON_STEPS = 60
_ROUNDING = 1e-15
_TANGENT = ("ntk", "ntk_paper", "ntk_preactivations")


# The kernels of one model by name; each a series (order + 1, a, b) off the diagonal.
KernelSeries = dict[str, Array]


def expand(model: Model, left: Array, right: Array, kernel: str, order: int, around: float) -> Array:
    """g_k(s, s') for squared norms s in `left` and s' in `right`: shape (order + 1, len(left), len(right)).

    Args:
        model: the model; neither centring nor a vanishing bias is needed.
        left: squared norms of the first sample.
        right: squared norms of the second sample.
        kernel: name of the kernel, as in `coefficients`.
        order: the highest power N.
        around: ρ⁰, the correlation at which the series starts.
    """
    point = around * np.sqrt(left[:, None] * right)
    return series_of(model, left, right, point, order)[kernel]


@singledispatch
def series_of(model: Model, left: Array, right: Array, point: Array, order: int) -> KernelSeries:
    """The series of all kernels of one kind of model; another kind registers a function of its own here."""
    raise no_equivalent(model)


@singledispatch
def exact_diagonal(model: Model, squares: Array, kernel: str) -> Array:
    """K_ii for samples of squared norms s_i; another kind of model registers a function of its own here."""
    raise no_equivalent(model)


def refuse_uncovered(model: Model, kernel: str) -> None:
    """Refuse a model, or a kernel of it, that the expansion does not cover."""
    if series_of.dispatch(type(model)) is series_of.dispatch(object):
        raise no_equivalent(model)
    if series_of.dispatch(type(model)) is _explicit and kernel.endswith("_preactivations"):
        raise InputError(f"kernel={kernel!r} belongs to a DEQ; of an explicit network ask for 'ck' or 'ntk'.")


# --- implicit models ----------------------------------------------------------------------------------


@series_of.register
def _implicit(model: DEQ, left: Array, right: Array, point: Array, order: int) -> KernelSeries:
    q1 = _variances(model, left)
    duals = Duals(model.activation, q1, q1 if right is left else _variances(model, right))
    forcing = model.sigma_b2 * point + model.bias2
    base = _fixed_point(duals, model.sigma_a2, forcing)
    derivatives = duals.derivatives(base, order + 2)
    gain = 1.0 - model.sigma_a2 * derivatives[1]
    _refuse_divergence(gain)
    deviation = _implicit_deviation(model, derivatives, gain, order)
    features, slopes = compose(derivatives, deviation), compose(derivatives[1:], deviation)
    preactivations = deviation.copy()
    preactivations[0] = base
    return _implicit_readings(model.sigma_a2, features, preactivations, slopes)


def _implicit_readings(
    sigma_a2: float, features: Array, preactivations: Array, slopes: Array
) -> KernelSeries:
    """Series of G, Λ, Θ, K, Π from those of G, Λ, D: docs/theory.md (3.8)–(3.10)."""
    remaining = -sigma_a2 * slopes
    remaining[0] += 1.0
    inverse = _reciprocal(remaining)
    tangent = multiply(preactivations, inverse)
    return {
        "ck": features,
        "ck_preactivations": preactivations,
        "ntk": features + multiply(slopes, tangent),
        "ntk_paper": multiply(features, inverse),
        "ntk_preactivations": tangent,
    }


def _implicit_deviation(model: DEQ, derivatives: Array, gain: Array, order: int) -> Array:
    """δ = Λ - λ⁰ as a series in h: a round of δ = ε (σ_b² h + σ_a² Σ_{k≥2} F_k δ^k/k!) settles an order."""
    beyond_linear = derivatives.copy()
    beyond_linear[:2] = 0.0
    deviation = np.zeros((order + 1, *gain.shape))
    for _ in range(order):
        deviation = model.sigma_a2 * compose(beyond_linear, deviation) / gain
        deviation[1] += model.sigma_b2 / gain
    return deviation


def _variances(model: DEQ, squares: Array) -> Array:
    forcing = model.sigma_b2 * squares + model.bias2
    return np.asarray(solve_variance(model.activation, model.sigma_a2, forcing).q)


def _fixed_point(duals: Duals, sigma_a2: float, forcing: Array) -> Array:
    """λ = σ_a² F(λ) + forcing by Newton's method, docs/theory.md (3.6)."""
    scale = duals.scale
    value = forcing.copy()
    for _ in range(_NEWTON_STEPS):
        mean, slope = duals.derivatives(value, 2)
        step = (sigma_a2 * mean + forcing - value) / (1.0 - sigma_a2 * slope)
        value = value + step
        if np.all(np.abs(step) <= _ROUNDING * scale):
            return np.asarray(value)
    raise ConvergenceError(
        f"The pair equation at the starting correlation did not settle in {_NEWTON_STEPS} steps.",
        "Lower sigma_a2, or start the expansion at a smaller correlation (around=0).",
    )


@exact_diagonal.register
def _implicit_diagonal(model: DEQ, squares: Array, kernel: str) -> Array:
    q = _variances(model, squares)
    if kernel == "ck_preactivations":
        return q
    energy = np.asarray(second_moment(model.activation, q))
    if kernel == "ck":
        return energy
    slope = np.asarray(derivative_second_moment(model.activation, q))
    remaining = 1.0 - model.sigma_a2 * slope
    # Only tangent kernels are a sum over layers: a conjugate kernel exists where it diverges.
    _refuse_divergence(remaining)
    return {
        "ntk": energy + slope * q / remaining,
        "ntk_paper": energy / remaining,
        "ntk_preactivations": q / remaining,
    }[kernel]


def _refuse_divergence(remaining: Array) -> None:
    if np.any(remaining <= 0.0):
        raise ConvergenceError(
            "The sum over layers diverges: σ_a² E[φ'(u)φ'(v)] reaches "
            f"{1.0 - float(remaining.min()):.4g}, and must stay below 1.",
            "Lower sigma_a2, scale the activation down, or scale the data down.",
        )


# --- explicit networks --------------------------------------------------------------------------------


@series_of.register
def _explicit(model: Explicit, left: Array, right: Array, point: Array, order: int) -> KernelSeries:
    gram = np.zeros((order + 1, *point.shape))
    gram[0], gram[1] = point, 1.0
    features = tangent = incoming = gram
    q1, q2 = left, right
    for layer in model.inputs:
        incoming, tangent = (layer.weight * series + layer.inject * gram for series in (features, tangent))
        incoming[0] += layer.constant
        tangent[0] += layer.constant
        same = right is left
        q1, q2 = layer.enter(q1, left), layer.enter(q2, right)
        derivatives = Duals(layer.phi, q1, q1 if same else q2).derivatives(incoming[0], order + 2)
        deviation = incoming.copy()
        deviation[0] = 0.0
        features = compose(derivatives, deviation)
        tangent = features + multiply(tangent, compose(derivatives[1:], deviation))
        after = np.asarray(second_moment(layer.phi, q1))
        q1, q2 = after, after if same else np.asarray(second_moment(layer.phi, q2))
    return {"ck": features, "ck_preactivations": incoming} | dict.fromkeys(_TANGENT, tangent)


@exact_diagonal.register
def _explicit_diagonal(model: Explicit, squares: Array, kernel: str) -> Array:
    q = tangent = incoming = squares
    for layer in model.inputs:
        incoming, tangent = layer.enter(q, squares), layer.enter(tangent, squares)
        slope = np.asarray(derivative_second_moment(layer.phi, incoming))
        q = np.asarray(second_moment(layer.phi, incoming))
        tangent = q + slope * tangent
    return {"ck": q, "ck_preactivations": incoming}.get(kernel, tangent)


# --- the dual activation and its derivatives ----------------------------------------------------------


@dataclass(frozen=True)
class Duals:
    """F_k(q, q', c) = E[φ^(k)(u) φ^(k)(v)] for all pairs of variances, from docs/theory.md (3.13)."""

    phi: Activation
    left: Array
    right: Array

    @property
    def scale(self) -> Array:
        """√(q q') for every two variances, the scale of their covariance."""
        return np.sqrt(self.left[:, None] * self.right)

    def derivatives(self, covariance: Array, count: int) -> Array:
        """F_0 … F_{count-1} at the given covariances, shape (count, a, b)."""
        scale = self.scale
        rho = covariance / scale
        terms = _terms_needed(float(np.abs(rho).max()), count)
        products = self._products(terms)
        values = np.empty((count, *scale.shape))
        for k in range(count):
            ratios = _falling(np.arange(k, terms), k)
            values[k] = polyval(rho, products[k:] * ratios[:, None, None], tensor=False) / scale**k
        return values

    def _products(self, terms: int) -> Array:
        """a_k(q) a_k(q'), shape (terms, a, b)."""
        first = mehler(self.phi, self.left, terms).T
        second = first if self.right is self.left else mehler(self.phi, self.right, terms).T
        return first[:, :, None] * second[:, None, :]


def _terms_needed(rho: float, count: int) -> int:
    """Terms of Σ a_k a_k k^j ρ^{k-j}, j < count, after which the rest is below rounding."""
    if rho < _ROUNDING:
        return count
    if rho > LARGEST_CORRELATION:
        raise NotHighDimensionalError(
            f"The expansion would start at correlation {rho:.3g}, too close to 1 to be an expansion at all: "
            "these data (or this activation with its mean) are not high-dimensional. Centre the data, use "
            "model.centred(tau0), or the exact kernel."
        )
    terms = count
    while (terms - count) * np.log(rho) + (count - 1) * np.log(terms) > np.log(_ROUNDING / 10.0):
        terms += 8
    return terms


def _falling(k: NDArray[np.int_], j: int) -> Array:
    """The products k (k-1) … (k-j+1)."""
    product = np.ones(len(k))
    for i in range(j):
        product *= k - i
    return product


# --- truncated power series, in the first axis --------------------------------------------------------


def multiply(first: Array, second: Array) -> Array:
    """Multiply two truncated series."""
    product = np.zeros_like(first)
    for i in range(len(first)):
        product[i:] += first[i] * second[: len(first) - i]
    return product


def compose(derivatives: Array, deviation: Array) -> Array:
    """Σ_k derivatives[k] deviation^k/k!, where deviation has no constant term."""
    order = len(deviation) - 1
    total = np.zeros_like(deviation)
    for k in range(order, -1, -1):
        total = multiply(total, deviation)
        total[0] += derivatives[k] / factorial(k)
    return total


def _reciprocal(series: Array) -> Array:
    inverse = np.zeros_like(series)
    inverse[0] = 1.0 / series[0]
    for k in range(1, len(series)):
        inverse[k] = -inverse[0] * np.einsum("kij,kij->ij", series[1 : k + 1], inverse[k - 1 :: -1])
    return inverse
