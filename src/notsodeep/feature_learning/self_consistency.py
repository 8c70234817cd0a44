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
from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged, relative_jitter
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo
from notsodeep.validation import Array

# Largest gain; largest change of Φ in one step, relative to its norm.
_GAIN, _LARGEST_CHANGE = 0.25, 0.1


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
    """The unknowns of (16.4): second moments of one neuron, each (layers, replicates, n, n)."""

    features: Array  # Φ = ⟨φφᵀ⟩
    preactivations: Array  # ⟨hhᵀ⟩

    @classmethod
    def lazy(cls, posterior: Posterior, kernel: Array, replicates: int) -> State:
        """A start with this Φ in every layer, and ⟨hhᵀ⟩ = Λ."""
        features = np.tile(kernel, (len(posterior.layers), replicates, 1, 1))
        covariances = [layer.covariance(features[layer.source], posterior.gram) for layer in posterior.layers]
        return cls(features, np.stack(covariances))

    def densities(self, posterior: Posterior) -> list[NeuronDensity]:
        """The density of one neuron of each layer."""
        scaled = posterior.residuals(self.features[-1]) / posterior.richness
        couplings = np.zeros_like(self.features)
        couplings[-1] = -scaled @ scaled.swapaxes(-1, -2)
        covariances = []
        for layer, moments in zip(posterior.layers, self.preactivations, strict=True):
            covariance = layer.covariance(self.features[layer.source], posterior.gram)
            covariances.append(covariance + relative_jitter(covariance))
            if layer.weight:
                inverse = np.linalg.inv(covariances[-1])
                couplings[layer.source] += layer.weight * (inverse - inverse @ moments @ inverse)
        parts = zip(posterior.layers, covariances, couplings, strict=True)
        return [NeuronDensity.of(layer.phi, covariance, coupling) for layer, covariance, coupling in parts]


class Gains(NamedTuple):
    """How far second moments move towards their averages over m points in one step.

    Noise in n² entries acts on every point at once, and biases the averages by about its sum over entries. So gains are
    at most `noise` · m/n². The largest one is for √(`leading` · m) leading principal directions, where features are
    learned.
    """

    noise: float = 1.0
    leading: float = 1.0
    slower: float = 1.0  # divides all gains

    def most(self, points: int, n: int) -> float:
        """The gain outside of the leading directions, before it is divided."""
        return min(_GAIN, self.noise * points / n**2)

    def step(self, moments: Array, mean: Array, points: int, slower: float) -> Array:
        """Moments moved towards their average over the points; gains are divided by at least `slower`."""
        n, step, slower = moments.shape[-1], mean - moments, max(self.slower, slower)
        gain = self.most(points, n)
        moved: Array = moments + gain / slower * step
        if gain > 0.5 * _GAIN:
            return moved
        leading = np.linalg.eigh(moments)[1][..., -min(n, int(np.sqrt(self.leading * points))) :]
        across = leading.swapaxes(-1, -2)
        return np.asarray(moved + (_GAIN - gain) / slower * leading @ (across @ step @ leading) @ across)


LARGE = Gains()


def update(
    posterior: Posterior, state: State, points: Sequence[Chains | QuasiMonteCarlo], gains: Gains = LARGE
) -> tuple[State, float]:
    """Move the unknowns towards their averages over the densities.

    Small steps lower a functional (docs/derivations.md, section 9), so that they do not cycle. Also returns the change
    of Φ that the averages ask for, relative to Φ.
    """
    means = State(*(np.empty_like(one) for one in state))
    for index, density in enumerate(state.densities(posterior)):
        weights = points[index].update(density)
        means.features[index], means.preactivations[index] = density.moments(points[index].u, weights)
    change = float(np.linalg.norm(means.features - state.features) / np.linalg.norm(state.features))
    if not np.isfinite(change) or not np.isfinite(means.preactivations).all():
        raise diverged("Φ overflows")
    count, slower = points[0].u.shape[1], _GAIN * change / _LARGEST_CHANGE
    pairs = zip(state, means, strict=True)
    return State(*(gains.step(one, mean, count, slower) for one, mean in pairs)), change
