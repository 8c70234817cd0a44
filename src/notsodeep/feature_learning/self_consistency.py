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
from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged, principal_root
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo
from notsodeep.validation import Array

# Largest gain; largest change of Φ in one step, relative to its norm.
GAIN, _LARGEST_CHANGE = 0.25, 0.1


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
    """The unknowns of (16.4), each (layers, replicates, n, n)."""

    features: Array  # Φ = ⟨φφᵀ⟩
    removed: Array  # Λ − ⟨hhᵀ⟩ = ΛΦ̂Λ/σ_a², the variance that learning removes from pre-activations

    @classmethod
    def lazy(cls, posterior: Posterior, kernel: Array, replicates: int) -> State:
        """A start with this Φ in every layer, where learning has removed nothing."""
        features = np.tile(kernel, (len(posterior.layers), replicates, 1, 1))
        return cls(features, np.zeros_like(features))

    def densities(self, posterior: Posterior) -> list[NeuronDensity]:
        """The density of one neuron of each layer."""
        scaled = posterior.residuals(self.features[-1]) / posterior.richness
        couplings = np.zeros_like(self.features)
        couplings[-1] = -scaled @ scaled.swapaxes(-1, -2)
        roots = []
        for layer, removed in zip(posterior.layers, self.removed, strict=True):
            root, inverse = principal_root(layer.covariance(self.features[layer.source], posterior.gram))
            roots.append((root, inverse))
            if layer.weight:
                transposed = inverse.swapaxes(-1, -2)
                couplings[layer.source] += (
                    layer.weight * transposed @ (inverse @ removed @ transposed) @ inverse
                )
        parts = zip(posterior.layers, roots, couplings, strict=True)
        return [NeuronDensity(layer.phi, *root, coupling) for layer, root, coupling in parts]


def update(
    posterior: Posterior, state: State, points: Sequence[Chains | QuasiMonteCarlo], gain: float = GAIN
) -> tuple[State, float]:
    """Move the unknowns towards their averages over the densities, by the share `gain` of the way.

    Also returns the change of Φ that the averages ask for, relative to Φ; if it is large, the gain is smaller.
    """
    means = State(*(np.empty_like(one) for one in state))
    for index, density in enumerate(state.densities(posterior)):
        weights = points[index].update(density)
        means.features[index], means.removed[index] = density.moments(points[index].h, weights)
    change = float(np.linalg.norm(means.features - state.features) / np.linalg.norm(state.features))
    if not np.isfinite(change) or not np.isfinite(means.removed).all():
        raise diverged("Φ overflows")
    gain = min(gain, _LARGEST_CHANGE / max(change, 1e-300))
    return State(*(one + gain * (mean - one) for one, mean in zip(state, means, strict=True))), change
