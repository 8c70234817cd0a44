"""The equations of the kernel after learning, docs/theory.md (16.4), and steps of their iteration.

Replicates are independent of one another, so that their spread is the standard error of every number, the feedback of
sampling noise included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from notsodeep.feature_learning.hidden_layers import HiddenLayer
from notsodeep.feature_learning.neuron_density import (
    NeuronDensity,
    diverged,
    relative_jitter,
    second_moments,
)
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo
from notsodeep.validation import Array

# Steps of Φ and Newton steps of Δ are shortened to these relative sizes.
_LARGEST_CHANGE, _LARGEST_STEP = 0.04, 0.3
# Gain of Δ relative to that of Φ. Iterated at the same pace they oscillate.
_FASTER = 3.0
# Share of the second order in `_transport`, relative to the gain.
_AHEAD = 6.0
# Weight of the newest points in the average of the Hessian, relative to the gain.
_MEMORY = 0.3


@dataclass(frozen=True)
class Posterior:
    """What is solved: the layers, the data, and the scales of (16.1)."""

    layers: tuple[HiddenLayer, ...]  # the last one is read out
    gram: Array  # XXᵀ
    targets: Array  # y, (n, outputs)
    richness: float  # γ
    precision: float  # β

    def scaled(self, factor: float) -> Posterior:
        """The same lazy limit at another richness: γ times the factor, β/γ² as it is."""
        return replace(self, richness=self.richness * factor, precision=self.precision * factor**2)

    def residuals(self, features: Array) -> Array:
        """Solve for Δ = (Φ/γ² + I/β)⁻¹ y."""
        matrix = features / self.richness**2 + np.eye(len(self.gram)) / self.precision
        shape = (*matrix.shape[:-1], self.targets.shape[1])
        return np.asarray(np.linalg.solve(matrix, np.broadcast_to(self.targets, shape)), dtype=np.float64)

    def readout_variance(self, kernel: Array) -> float:
        """⟨|Δᵀφ|²⟩/γ² under a lazy kernel, (16.6): well below 1 features hardly move."""
        residuals = self.residuals(kernel)
        return float(np.sum(residuals * (kernel @ residuals)) / self.richness**2)


class State(NamedTuple):
    """The unknowns of (16.4)."""

    features: Array  # Φ, (layers, replicates, n, n)
    conjugates: Array  # Φ̂, (layers, replicates, n, n)
    residuals: Array  # Δ, (replicates, n, outputs)
    hessian: Array  # γ² times that of `_newton_step`, without the ridge, (replicates, n, n)

    def density(self, posterior: Posterior, index: int) -> NeuronDensity:
        """The density of one neuron of a layer."""
        layer, coupling = posterior.layers[index], self.conjugates[index]
        if index == len(posterior.layers) - 1:
            scaled = self.residuals / posterior.richness
            coupling = coupling - scaled @ scaled.swapaxes(-1, -2)
        covariance = layer.covariance(self.features[layer.source], posterior.gram)
        return NeuronDensity.of(layer.phi, covariance, coupling)


def update(
    posterior: Posterior, state: State, points: Sequence[Chains | QuasiMonteCarlo], gain: float
) -> tuple[State, float]:
    """Move the points of all layers once, and make a damped step of the unknowns.

    Returns:
        The state, and the relative size of the full step of Φ.
    """
    features, conjugates = state.features.copy(), np.zeros_like(state.conjugates)
    for index, layer in enumerate(posterior.layers):
        density = state.density(posterior, index)
        weights = points[index].update(density)
        features[index], curvature = density.moments(points[index].u, weights)
        if layer.weight:
            conjugates[layer.source] = -layer.weight * curvature
    values = density.phi(density.preactivations(points[-1].u))
    residuals, hessian = _newton_step(posterior, state, features[-1], values, weights, gain)
    change = float(np.linalg.norm(features - state.features) / np.linalg.norm(state.features))
    if not np.isfinite(change) or not np.isfinite(conjugates).all():
        raise diverged("Φ overflows")
    gain = min(gain, _LARGEST_CHANGE / max(change, 1e-300))
    features = state.features + gain * (features - state.features)
    conjugates = state.conjugates + gain * (conjugates - state.conjugates)
    for index, layer in enumerate(posterior.layers):
        if layer.is_recurrent(index):
            moved = layer.weight * (features[index] - state.features[index])
            covariance = layer.covariance(state.features[index], posterior.gram)
            ahead = min(1.0, _AHEAD * gain)
            conjugates[index] += _transport(state.conjugates[index], layer.weight, covariance, moved, ahead)
    return State(features, conjugates, residuals, hessian), change


def _newton_step(
    posterior: Posterior, state: State, kernel: Array, values: Array, weights: Array, gain: float
) -> tuple[Array, Array]:
    """Make a Newton step of Δ at fixed Λ and Φ̂, faster than those of Φ; also returns the Hessian.

    There Δ maximises the concave function y·Δ − |Δ|²/2β − log Z(Δ), whose Hessian is the covariance of a φ plus 1/β.
    Outputs share an upper bound of it, so that steps do not overshoot. It is averaged over earlier points: a Hessian
    and a gradient of the same points are correlated, and the bias of their quotient does not average out.
    """
    gamma2, gain = posterior.richness**2, min(1.0, _FASTER * gain)
    mismatch = posterior.targets - kernel @ state.residuals / gamma2 - state.residuals / posterior.precision
    ridge = gamma2 / posterior.precision * np.eye(len(posterior.gram))
    step = gain * np.linalg.solve(state.hessian + ridge, gamma2 * mismatch)
    size, largest = (np.linalg.norm(one, axis=(1, 2), keepdims=True) for one in (step, state.residuals))
    step *= np.minimum(1.0, _LARGEST_STEP * largest / np.maximum(size, 1e-300))
    scale = np.sqrt(1.0 + np.sum((values @ state.residuals) ** 2, axis=-1, keepdims=True) / gamma2)
    newest = second_moments(values * scale, weights)
    return state.residuals + step, state.hessian + _MEMORY * gain * (newest - state.hessian)


def _transport(conjugate: Array, weight: float, covariance: Array, moved: Array, ahead: float) -> Array:
    """Change of Φ̂ = weight · Λ⁻¹(Λ − ⟨hhᵀ⟩)Λ⁻¹ when Λ moves at the same ⟨hhᵀ⟩.

    Without it Φ̂ of a DEQ lags behind Φ, and where features feed back strongly the iteration ends in a cycle. Exact for
    ahead = 1, to first order for 0: the second order is needed for stability at large gains, and turns the noise of a
    step into a bias.
    """
    position = covariance + ahead * moved
    inverse = np.linalg.inv(position + relative_jitter(position))
    relative = inverse @ moved
    first = relative @ conjugate
    second = ahead * first @ relative.swapaxes(-1, -2)
    return np.asarray(weight * relative @ inverse - first - first.swapaxes(-1, -2) + second)
