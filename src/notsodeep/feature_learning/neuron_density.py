"""The density of one neuron's pre-activations after learning, docs/theory.md (16.3), and its moments.

Replicates are computed side by side: matrices are (replicates, n, n), points (replicates, points, n). Points are
whitened, h = L u with Λ = L Lᵀ, so that the Gaussian factor of the density is the standard one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.validation import Array

# Added to the diagonal of covariances, relative to its mean.
_JITTER = 1e-8


def diverged(why: str) -> ConvergenceError:
    """The error of an iteration that left the domain of the equations."""
    return ConvergenceError(
        f"The iteration for the kernel after learning diverged: {why}. Unbounded activations have no solution beyond "
        "some richness.",
        "Use a smaller richness or precision, more chains, or a bounded activation such as tanh or erf.",
    )


@dataclass(frozen=True)
class NeuronDensity:
    """The density p(h) ∝ exp(−½ hᵀΛ⁻¹h) w(h) with log w = −½ φᵀMφ."""

    phi: Activation
    root: Array  # L, lower triangular
    coupling: Array  # M = Φ̂ − ΔΔᵀ/γ², symmetric

    @classmethod
    def of(cls, phi: Activation, covariance: Array, coupling: Array) -> NeuronDensity:
        """The density with these Λ and M."""
        return cls(phi, np.asarray(np.linalg.cholesky(covariance), dtype=np.float64), coupling)

    def replicate(self, index: int) -> NeuronDensity:
        """The density of one replicate; points are then (points, n)."""
        return NeuronDensity(self.phi, self.root[index], self.coupling[index])

    def preactivations(self, u: Array) -> Array:
        """Compute h = L u."""
        return u @ self.root.swapaxes(-1, -2)

    def log_factor(self, u: Array) -> tuple[Array, Array]:
        """Compute log w at each point, (replicates, points), and its gradient in u."""
        h = self.preactivations(u)
        features = self.phi(h)
        field = features @ self.coupling
        logs = -0.5 * np.einsum("...i,...i->...", features, field)
        return logs, (self.phi.derivative(h) * -field) @ self.root

    def moments(self, u: Array, weights: Array) -> tuple[Array, Array]:
        """Compute ⟨φφᵀ⟩ and ⟨hhᵀ⟩ over weighted points.

        ⟨hhᵀ⟩ has two estimates: the plain one, and (16.5), which is without noise if w = 1 but multiplies the noise of
        M. Each is weighted by the other's variance, as seen between halves of the points.
        """
        middle = u.shape[1] // 2
        halves = [self._moments(u[:, part], weights[:, part]) for part in (np.s_[:middle], np.s_[middle:])]
        share = weights[:, :middle].sum(axis=1)[:, None, None]
        features, plain, by_parts = (a + share * (b - a) for b, a in zip(*halves, strict=True))
        noise, noise_by_parts = (
            np.sum((halves[0][i] - halves[1][i]) ** 2, axis=(-2, -1), keepdims=True) for i in (1, 2)
        )
        trust = noise / np.maximum(noise + noise_by_parts, 1e-300)
        whitened = plain + trust * (by_parts - plain)
        return features, self.root @ whitened @ self.root.swapaxes(-1, -2)

    def _moments(self, u: Array, weights: Array) -> tuple[Array, Array, Array]:
        """⟨φφᵀ⟩ and two estimates of ⟨uuᵀ⟩; weights need not sum to 1."""
        weights = weights / weights.sum(axis=-1, keepdims=True)
        h = self.preactivations(u)
        features, slopes = self.phi(h), self.phi.derivative(h)
        field = features @ self.coupling
        gradient = -slopes * field
        curvature = second_moments(gradient, weights) - self.coupling * second_moments(slopes, weights)
        if self.phi.kinks:
            # φ'' has a point mass at a kink: ⟨∂² w/w⟩ = ⟨(Λ⁻¹h) ∂ log w⟩, with one inverse of L.
            inverse = np.linalg.solve(self.root.swapaxes(-1, -2), u.swapaxes(-1, -2)).swapaxes(-1, -2)
            diagonal, added = inverse * gradient, 0.0
        else:
            diagonal, added = -self.phi.derivative(h, 2) * field, 1.0
        index = np.arange(h.shape[-1])
        own = np.einsum("...p,...pi->...i", weights, diagonal)
        curvature[..., index, index] = added * curvature[..., index, index] + own
        by_parts = np.eye(u.shape[-1]) + self.root.swapaxes(-1, -2) @ curvature @ self.root
        return second_moments(features, weights), second_moments(u, weights), by_parts


def relative_jitter(matrix: Array) -> Array:
    """A small multiple of the unit matrix, relative to the mean of the diagonal."""
    n = matrix.shape[-1]
    mean = np.trace(matrix, axis1=-2, axis2=-1) / n
    return np.asarray(_JITTER * mean[..., None, None] * np.eye(n))


def second_moments(values: Array, weights: Array) -> Array:
    """Compute ⟨v vᵀ⟩ over weighted points."""
    return (values * weights[..., None]).swapaxes(-1, -2) @ values
