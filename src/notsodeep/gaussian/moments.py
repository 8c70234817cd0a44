"""One-dimensional Gaussian moments of an activation at variance q = s² (docs/theory.md, section 2).

Every function takes q as a number or an array and returns the same form.  Closed forms where there are any,
quadrature on graded panels otherwise; scaling and shifting are applied here, so that shapes know nothing of them.
`solve_variance` finds the variance at which a DEQ settles, `contraction_rates` how fast it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import MAX_ORDER
from notsodeep.validation import Array

MAX_STEPS = 60
TOLERANCE = 4e-16
# A variance this many times that of the input alone is on its way to infinity.
_RUN_AWAY = 1e3
# Accepted residual, relative to q, and rounding of a sum of moments, relative to its terms.
ACCEPTED = 1e-12
ROUNDING = 1e-15


def _variances(q: ArrayLike) -> tuple[Array, tuple[int, ...]]:
    array = np.asarray(q, dtype=np.float64)
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise InputError("A variance q must be finite and not negative.")
    return np.ascontiguousarray(array.reshape(-1)), array.shape


def mean_derivative(phi: Activation, q: ArrayLike, k: int = 0) -> Any:
    """Mean derivative M_k(q) = E[φ^(k)(√q ξ)], k = 0, 1, 2, (2.1)."""
    if not 0 <= k <= MAX_ORDER:
        raise InputError(f"Mean derivatives of order 0 to {MAX_ORDER} are available, not {k}.")
    flat, form = _variances(q)
    factor = phi.amplitude * phi.gain**k
    # The mean derivative of a shape with a kink may be infinite at q = 0; a constant has none all the same.
    value = factor * phi.shape.mean_derivative(phi.gain**2 * flat, k) if factor else np.zeros_like(flat)
    return (value + phi.offset if k == 0 else value).reshape(form)[()]


def second_moment(phi: Activation, q: ArrayLike) -> Any:
    """Second moment S(q) = E[φ(√q ξ)²], (2.2)."""
    flat, form = _variances(q)
    inner = phi.gain**2 * flat
    value = phi.amplitude**2 * phi.shape.second_moment(inner)
    if phi.offset:
        value = value + 2.0 * phi.amplitude * phi.offset * phi.shape.mean_derivative(inner, 0) + phi.offset**2
    return value.reshape(form)[()]


def second_moment_slope(phi: Activation, q: ArrayLike) -> Any:
    """Derivative S'(q) = dS/dq of the second moment, (2.3)."""
    flat, form = _variances(q)
    if phi.amplitude == 0.0 or phi.gain == 0.0:
        return np.zeros(form)[()]
    inner = phi.gain**2 * flat
    value = phi.amplitude**2 * phi.shape.second_moment_slope(inner)
    if phi.offset:
        # dM_0/dq = M_2/2, (2.5).
        value = value + phi.amplitude * phi.offset * phi.shape.mean_derivative(inner, 2)
    return (phi.gain**2 * value).reshape(form)[()]


def derivative_second_moment(phi: Activation, q: ArrayLike) -> Any:
    """Second moment of the slope E1(q) = E[φ'(√q ξ)²], (2.4)."""
    flat, form = _variances(q)
    value = (phi.amplitude * phi.gain) ** 2 * phi.shape.derivative_second_moment(phi.gain**2 * flat)
    return value.reshape(form)[()]


def mehler(phi: Activation, q: ArrayLike, terms: int) -> Array:
    """Mehler coefficients a_k(q) = E[φ(√q ξ) He_k(ξ)]/√k! for k < terms, as (len(q), terms), (2.6)."""
    if terms < 1:
        raise InputError(f"A Mehler series needs at least one term, not {terms}.")
    flat, _ = _variances(q)
    table = (
        phi.amplitude * np.sign(phi.gain) ** np.arange(terms) * phi.shape.mehler(phi.gain**2 * flat, terms)
    )
    table[:, 0] += phi.offset
    return np.asarray(table)


# --- the variance of a DEQ's pre-activations ------------------------------------------------------------------------

# q = σ_a² S(q) + forcing, one scalar equation per sample, (3.4).  A wide equilibrium has two modes: a perturbation in a
# random direction shrinks by r, r² = σ_a² E[φ'(√q ξ)²], in each step z ← φ(σ_a A z + σ_b B x)/√m; one of the norm
# shrinks by σ_a² S'(q).  The iteration settles if both are below 1.


@dataclass(frozen=True)
class Variance:
    """The solution q, and σ_a² S'(q) < 1, (1.7)."""

    q: Any
    slope: Any


def solve_variance(
    phi: Activation, sigma_a2: float, forcing: ArrayLike, *, centred: bool = False
) -> Variance:
    """The root q of q = σ_a² S(q) + forcing that the depth recursion from q = forcing reaches, by Newton's method.

    With `centred` the activation is φ - E[φ(√q ξ)], so that S - M_0² stands for S, (2.11).

    Raises:
        ConvergenceError: if there is no such root, or if it is not stable (σ_a² S'(q) ≥ 1).
    """
    force = np.asarray(forcing, dtype=np.float64)
    flat = force.reshape(-1)
    q = flat.copy()
    step = np.full_like(q, np.inf)
    gap = slope = np.zeros_like(q)
    for _ in range(MAX_STEPS):
        gap, slope, rounding = _equation(phi, sigma_a2, flat, q, centred)
        falling = slope >= 1.0
        # Where Newton would turn back, the recursion itself still moves the right way.
        step = np.where(falling, gap, gap / np.where(falling, 1.0, 1.0 - slope))
        q = np.maximum(q + step, 0.0)
        if not np.all(np.isfinite(q)) or np.any(q > 1e12 * (1.0 + flat)):
            _refuse(sigma_a2, flat, q, slope)
        if np.all(np.abs(step) <= TOLERANCE * q + rounding):
            break
    gap, slope, rounding = _equation(phi, sigma_a2, flat, q, centred)
    sizes = np.maximum(q, 1e-300)
    if np.any(slope >= 1.0) or np.any(np.abs(gap) > ACCEPTED * sizes + rounding):
        _refuse(sigma_a2, flat, q, slope)
    return Variance(q.reshape(force.shape)[()], slope.reshape(force.shape)[()])


def _equation(
    phi: Activation, sigma_a2: float, forcing: Array, q: Array, centred: bool
) -> tuple[Array, Array, Array]:
    """σ_a² S(q) + forcing - q, σ_a² S'(q), and how far rounding may move the first."""
    if sigma_a2 == 0.0:
        return forcing - q, np.zeros_like(q), np.zeros_like(q)
    energy, slope = second_moment(phi, q), second_moment_slope(phi, q)
    # An offset is squared and taken off again: at small q what is left has few digits.
    rounding = np.full_like(q, ROUNDING * sigma_a2 * phi.offset**2)
    if centred:
        mean = mean_derivative(phi, q, 0)
        # At small q both terms are φ(0)² and their difference is of order q.
        rounding += ROUNDING * sigma_a2 * (energy + mean**2)
        energy, slope = energy - mean**2, slope - mean * mean_derivative(phi, q, 2)
    return sigma_a2 * energy + forcing - q, sigma_a2 * slope, rounding


def _refuse(sigma_a2: float, forcing: Array, q: Array, slope: Array) -> None:
    worst = int(np.nanargmax(slope)) if np.any(np.isfinite(slope)) else 0
    # Of an activation that grows like a line the slope tells which sigma_a2 would do; of others it grows with q.
    if not q[worst] < _RUN_AWAY * forcing[worst] and not slope[worst] < _RUN_AWAY:
        raise ConvergenceError(
            f"The pre-activation variance q = σ_a² S(q) + {forcing[worst]:.6g} has no stable solution with σ_a² = "
            f"{sigma_a2:g}: the activation grows so fast that q runs off to infinity.",
            "Use an activation that grows no faster than a line, scale the data down, or lower sigma_a2 by much.",
        )
    limit = sigma_a2 / slope[worst] if slope[worst] > 0 else np.nan
    hint = f" (below {limit:.4g} at this scale)" if np.isfinite(limit) and limit < sigma_a2 else ""
    raise ConvergenceError(
        f"The pre-activation variance q = σ_a² S(q) + {forcing[worst]:.6g} has no stable solution: "
        f"σ_a² S'(q) = {slope[worst]:.4g} ≥ 1 is reached at q = {q[worst]:.4g} with σ_a² = {sigma_a2:g}.",
        f"Lower sigma_a2{hint}, use an activation with smaller slopes, or scale the data down.",
    )


@dataclass(frozen=True)
class Rates:
    """Contraction rates of samples of a model of rows.

    Attributes:
        variance: variance q of the pre-activations at the equilibrium.
        spread: r, the factor per step of a perturbation in a random direction.
        norm: σ_a² S'(q), the factor per step of a perturbation of the norm.
    """

    variance: Array
    spread: Array
    norm: Array

    @property
    def slowest(self) -> Array:
        """The larger of both modes, which decides whether the iteration settles."""
        return np.maximum(self.spread, np.abs(self.norm))


def contraction_rates(phi: Activation, sigma_a2: float, forcing: ArrayLike) -> Rates:
    """Rates of samples whose input alone gives pre-activations of variance `forcing`.

    Raises:
        ConvergenceError: if the variance of the pre-activations has no stable fixed point.
    """
    solved = solve_variance(phi, sigma_a2, forcing)
    q = np.asarray(solved.q, dtype=np.float64)
    spread = np.sqrt(sigma_a2 * derivative_second_moment(phi, q))
    return Rates(q, np.asarray(spread), np.asarray(solved.slope, dtype=np.float64))


def predicted_rate(phi: Activation, sigma_a2: float, forcing: float) -> str:
    """One sentence on the predicted contraction rate, for error messages of networks."""
    try:
        rate = float(contraction_rates(phi, sigma_a2, forcing).slowest)
    except (ConvergenceError, InputError):
        return (
            f"Predicted at these weights (σ_a² = {sigma_a2:.4g}): the norm of the state grows without limit, so that "
            "no equilibrium is expected."
        )
    if rate < 0.9:
        means = "a random network of this size would settle, so that the structure of the weights prevents it"
    elif rate < 1.0:
        means = "so close to 1 that networks of finite width often have no equilibrium"
    else:
        means = "no equilibrium is expected; perturbations grow from step to step"
    return f"Predicted rate {rate:.3g} at these weights (σ_a² = {sigma_a2:.4g}): {means}."
