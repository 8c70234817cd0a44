"""Contraction rates of the iteration z ← φ(σ_a A z + σ_b B x)/√m at its equilibrium, for wide networks.

A wide equilibrium has two modes. A perturbation in a random direction shrinks by r, r² = σ_a² E[φ'(√q ξ)²], in each
step; one of the norm shrinks by σ_a² S'(q). The iteration settles if both are below 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import derivative_second_moment
from notsodeep.gaussian.variance import solve_variance
from notsodeep.validation import Array


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


__all__ = ["Rates", "contraction_rates", "predicted_rate"]
