"""The density of one neuron's pre-activations after learning, docs/theory.md (16.3), and its moments.

Replicates are computed side by side: matrices are (replicates, n, n), points (replicates, points, n). The sampler sees
whitened points u, h = L u with Λ = L Lᵀ, so that the Gaussian factor of the density is the standard one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.validation import Array

# Smallest eigenvalue of a covariance, and what is added to a matrix of samples, relative to the mean eigenvalue.
JITTER = 1e-8


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
    root: Array  # L, principal directions of Λ in columns, times the roots of its eigenvalues
    inverse: Array  # L⁻¹
    coupling: Array  # M = Φ̂ − ΔΔᵀ/γ², symmetric

    def replicate(self, index: int) -> NeuronDensity:
        """The density of one replicate; points are then (points, n)."""
        return NeuronDensity(self.phi, self.root[index], self.inverse[index], self.coupling[index])

    def preactivations(self, u: Array) -> Array:
        """Compute h = L u."""
        return u @ self.root.swapaxes(-1, -2)

    def whitened(self, h: Array) -> Array:
        """Compute u = L⁻¹h."""
        return h @ self.inverse.swapaxes(-1, -2)

    def log_factor(self, u: Array) -> tuple[Array, Array]:
        """Compute log w at each point, (replicates, points), and its gradient in u."""
        h = self.preactivations(u)
        features = self.phi(h)
        field = features @ self.coupling
        logs = -0.5 * np.einsum("...i,...i->...", features, field)
        return logs, (self.phi.derivative(h) * -field) @ self.root

    def moments(self, h: Array, weights: Array) -> tuple[Array, Array]:
        """Compute ⟨φφᵀ⟩ and Λ − ⟨hhᵀ⟩ over weighted points.

        ⟨uuᵀ⟩ has two estimates: the plain one, and (16.5), which hardly has noise where Λ is small but multiplies the
        noise of M where it is large. Between principal directions of Λ, each entry is weighted by the variance of the
        other, as seen between halves of the points.
        """
        middle = h.shape[1] // 2
        halves = [self._moments(h[:, part], weights[:, part]) for part in (np.s_[:middle], np.s_[middle:])]
        share = weights[:, :middle].sum(axis=1)[:, None, None]
        features, plain, by_parts = (b + share * (a - b) for a, b in zip(*halves, strict=True))
        noise, noise_by_parts = (_variances(halves[0][i] - halves[1][i]) for i in (1, 2))
        trust = noise / np.maximum(noise + noise_by_parts, 1e-300)
        whitened = np.eye(h.shape[-1]) - plain - trust * (by_parts - plain)
        return features, self.root @ whitened @ self.root.swapaxes(-1, -2)

    def _moments(self, h: Array, weights: Array) -> tuple[Array, Array, Array]:
        """⟨φφᵀ⟩ and two estimates of ⟨uuᵀ⟩; weights need not sum to 1."""
        weights = weights / weights.sum(axis=-1, keepdims=True)
        u, features, slopes = self.whitened(h), self.phi(h), self.phi.derivative(h)
        field = features @ self.coupling
        gradient = -slopes * field
        curvature = second_moments(gradient, weights) - self.coupling * second_moments(slopes, weights)
        if self.phi.kinks:
            # φ'' has a point mass at a kink: ⟨∂² w/w⟩ = ⟨(Λ⁻¹h) ∂ log w⟩, with one inverse of L.
            diagonal, added = (u @ self.inverse) * gradient, 0.0
        else:
            diagonal, added = -self.phi.derivative(h, 2) * field, 1.0
        index = np.arange(h.shape[-1])
        own = np.einsum("...p,...pi->...i", weights, diagonal)
        curvature[..., index, index] = added * curvature[..., index, index] + own
        by_parts = np.eye(h.shape[-1]) + self.root.swapaxes(-1, -2) @ curvature @ self.root
        return second_moments(features, weights), second_moments(u, weights), by_parts


def _variances(differences: Array) -> Array:
    """Variances of the entries of a noisy matrix as a product of one number for each row and column."""
    rows = np.sum(differences**2, axis=-1)
    total = np.maximum(rows.sum(axis=-1), 1e-300)[..., None, None]
    return np.asarray(rows[..., :, None] * rows[..., None, :] / total)


def principal_root(covariance: Array) -> tuple[Array, Array]:
    """L and its inverse, Λ = L Lᵀ, with columns along principal directions; eigenvalues near zero are raised."""
    values, vectors = np.linalg.eigh(covariance)
    floor = JITTER * np.mean(values, axis=-1, keepdims=True)
    scales = np.sqrt(np.maximum(values, floor))[..., None, :]
    return vectors * scales, (vectors / scales).swapaxes(-1, -2)


def relative_jitter(matrix: Array) -> Array:
    """A small multiple of the unit matrix, relative to the mean of the diagonal."""
    n = matrix.shape[-1]
    mean = np.trace(matrix, axis1=-2, axis2=-1) / n
    return np.asarray(JITTER * mean[..., None, None] * np.eye(n))


def second_moments(values: Array, weights: Array) -> Array:
    """Compute ⟨v vᵀ⟩ over weighted points."""
    return (values * weights[..., None]).swapaxes(-1, -2) @ values
