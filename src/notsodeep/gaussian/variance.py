"""The variance of a DEQ's pre-activations: q = σ_a² S(q) + forcing, one scalar equation per sample, (3.4).

A wide equilibrium has two modes. A perturbation in a random direction shrinks by r, r² = σ_a² E[φ'(√q ξ)²], in each
step z ← φ(σ_a A z + σ_b B x)/√m; one of the norm shrinks by σ_a² S'(q). The iteration settles if both are below 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import (
    derivative_second_moment,
    mean_derivative,
    second_moment,
    second_moment_slope,
)
from notsodeep.validation import Array

MAX_STEPS = 60
TOLERANCE = 4e-16
# A variance this many times that of the input alone is on its way to infinity.
_RUN_AWAY = 1e3
# Accepted residual, relative to q, and rounding of a sum of moments, relative to its terms.
ACCEPTED = 1e-12
ROUNDING = 1e-15


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
