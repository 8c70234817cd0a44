"""The density of one neuron's pre-activations after learning, docs/theory.md (14.3), and its moments.

Everything is batched over independent replicates: matrices are (replicates, n, n), points (replicates, points, n).
Points are whitened, h = L u with Λ = L Lᵀ, so that the Gaussian factor of the density is the standard one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.validation import Array

# Added to the diagonal of Λ, relative to its mean.
_JITTER = 1e-9


def diverged(why: str) -> ConvergenceError:
    """The error of an iteration that left the domain of the equations."""
    return ConvergenceError(
        f"The iteration for the kernel after learning diverged: {why}. Unbounded activations have no solution beyond "
        "some richness.",
        "Use a smaller richness or precision, or a bounded activation such as tanh or erf.",
    )


def cholesky(matrix: Array) -> Array:
    """The lower triangular root of positive definite matrices."""
    try:
        return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        raise diverged("a covariance is not positive definite") from None


class Moments(NamedTuple):
    """Averages over the density of one neuron.

    Attributes:
        features: Φ = ⟨φφᵀ⟩.
        curvature: ⟨∇² log w + ∇log w ∇log wᵀ⟩ = 2 d log Z/dΛ.
        slopes: ⟨φ'(h_i)²⟩.
    """

    features: Array
    curvature: Array
    slopes: Array


@dataclass(frozen=True)
class NeuronDensity:
    """p(h) ∝ exp(−½ hᵀΛ⁻¹h) w(h) with log w = −½ φᵀMφ.

    Attributes:
        phi: the activation.
        root: L, lower triangular.
        coupling: M = Φ̂ − Σ ΔΔᵀ/γ², symmetric.
    """

    phi: Activation
    root: Array
    coupling: Array

    @classmethod
    def of(cls, phi: Activation, covariance: Array, coupling: Array) -> NeuronDensity:
        """The density with these Λ and M."""
        n = covariance.shape[-1]
        scale = np.trace(covariance, axis1=-2, axis2=-1)[..., None, None] / n
        return cls(phi, cholesky(covariance + _JITTER * scale * np.eye(n)), coupling)

    def preactivations(self, u: Array) -> Array:
        """h = L u."""
        return u @ self.root.swapaxes(-1, -2)

    def log_factor(self, u: Array) -> Array:
        """The logarithm of w at each point, (replicates, points)."""
        features = self.phi(self.preactivations(u))
        return -0.5 * np.einsum("...i,...i->...", features, features @ self.coupling)

    def log_factor_and_gradient(self, u: Array) -> tuple[Array, Array]:
        """The logarithm of w and its gradient in u."""
        h = self.preactivations(u)
        features = self.phi(h)
        field = features @ self.coupling
        gradient = (self.phi.derivative(h) * -field) @ self.root
        return -0.5 * np.einsum("...i,...i->...", features, field), gradient

    def moments(self, u: Array, weights: Array) -> Moments:
        """Averages over weighted points; `weights` sum to 1 in every replicate."""
        h = self.preactivations(u)
        features, slopes = self.phi(h), self.phi.derivative(h)
        field = features @ self.coupling
        gradient = -slopes * field
        curvature = second_moments(gradient, weights) - self.coupling * second_moments(slopes, weights)
        index = np.arange(h.shape[-1])
        if self.phi.kinks:
            # φ'' has a point mass at a kink: integrate by parts once instead of twice, with one inverse of L.
            direct = np.linalg.solve(self.root.swapaxes(-1, -2), u.swapaxes(-1, -2)).swapaxes(-1, -2)
            curvature[..., index, index] = np.einsum("...p,...pi->...i", weights, direct * gradient)
        else:
            bend = self.phi.derivative(h, 2) * field
            curvature[..., index, index] -= np.einsum("...p,...pi->...i", weights, bend)
        squares = np.einsum("...p,...pi->...i", weights, slopes**2)
        return Moments(second_moments(features, weights), curvature, squares)


def second_moments(values: Array, weights: Array) -> Array:
    """⟨v vᵀ⟩ over weighted points."""
    return (values * weights[..., None]).swapaxes(-1, -2) @ values


__all__ = ["Moments", "NeuronDensity", "cholesky", "diverged", "second_moments"]
