"""The equations of the kernel after learning, docs/theory.md (14.4), and their damped iteration.

The unknowns are, for each layer, Φ = ⟨φφᵀ⟩ and its conjugate Φ̂, and the residuals Δ. Replicates are independent of one
another, so that their spread is the standard error of every number, feedback of sampling noise included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from notsodeep.feature_learning.hidden_layers import HiddenLayer
from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged, second_moments
from notsodeep.feature_learning.points import Points
from notsodeep.validation import Array


# Steps of Φ are shortened to this relative size.
_LARGEST_CHANGE = 0.2
# The same for a Newton step of Δ.
_LARGEST_STEP = 0.3


@dataclass(frozen=True)
class Posterior:
    """What is solved: the layers, the data, and the scales of (14.1).

    Attributes:
        layers: the hidden layers; the last one is read out.
        gram: XXᵀ.
        targets: y, (n, outputs).
        richness: γ.
        precision: β.
    """

    layers: tuple[HiddenLayer, ...]
    gram: Array
    targets: Array
    richness: float
    precision: float

    def scaled(self, factor: float) -> Posterior:
        """The same lazy limit at another richness: γ times the factor, β/γ² as it is."""
        return replace(self, richness=self.richness * factor, precision=self.precision * factor**2)

    def residuals(self, features: Array) -> Array:
        """Δ = (Φ/γ² + I/β)⁻¹ y."""
        ridge = np.eye(len(self.gram)) / self.precision
        shape = (*features.shape[:-1], self.targets.shape[-1])
        return np.linalg.solve(features / self.richness**2 + ridge, np.broadcast_to(self.targets, shape))


@dataclass(frozen=True)
class State:
    """The unknowns; every array has the replicates on its first axis.

    Attributes:
        features: Φ of each layer, (replicates, n, n).
        conjugates: Φ̂ of each layer, without the part of the residuals.
        residuals: Δ, (replicates, n, outputs).
    """

    features: tuple[Array, ...]
    conjugates: tuple[Array, ...]
    residuals: Array

    @classmethod
    def lazy(cls, posterior: Posterior, kernels: Sequence[Array], replicates: int) -> State:
        """The kernels before learning."""
        features = tuple(np.repeat(kernel[None], replicates, axis=0) for kernel in kernels)
        return cls(features, tuple(0.0 * one for one in features), posterior.residuals(features[-1]))

    def plus(self, other: State) -> State:
        """The sum of two states."""
        return State(
            tuple(a + b for a, b in zip(self.features, other.features, strict=True)),
            tuple(a + b for a, b in zip(self.conjugates, other.conjugates, strict=True)),
            self.residuals + other.residuals,
        )

    def times(self, factor: float) -> State:
        """The state multiplied by a number."""
        return State(
            tuple(factor * one for one in self.features),
            tuple(factor * one for one in self.conjugates),
            factor * self.residuals,
        )


def density_of(posterior: Posterior, state: State, index: int) -> NeuronDensity:
    """The density of one neuron of a layer."""
    layer, coupling = posterior.layers[index], state.conjugates[index]
    if index == len(posterior.layers) - 1:
        scaled = state.residuals / posterior.richness
        coupling = coupling - scaled @ scaled.swapaxes(-1, -2)
    return NeuronDensity.of(
        layer.phi, layer.covariance(state.features[layer.source], posterior.gram), coupling
    )


def update_residuals(posterior: Posterior, state: State, points: Points, gain: float) -> State:
    """A Newton step of Δ at fixed covariances.

    With Λ and Φ̂ fixed, Δ maximises the concave function y·Δ − |Δ|²/2β − log Z(Δ). Its Hessian is the covariance of a φ
    plus 1/β; outputs share an upper bound of it, so that steps do not overshoot.
    """
    density = density_of(posterior, state, len(posterior.layers) - 1)
    weights = points.update(density)
    features = density.phi(density.preactivations(points.u))
    readout = features @ state.residuals / posterior.richness
    scale = np.sqrt(1.0 + np.einsum("...po,...po->...p", readout, readout))
    hessian = second_moments(features * scale[..., None], weights) / posterior.richness**2
    hessian = hessian + np.eye(len(posterior.gram)) / posterior.precision
    outputs = second_moments(features, weights) @ state.residuals / posterior.richness**2
    mismatch = posterior.targets - outputs - state.residuals / posterior.precision
    step = np.linalg.solve(hessian, mismatch)
    size, largest = (np.linalg.norm(one, axis=(1, 2), keepdims=True) for one in (step, state.residuals))
    # Long steps may leave the Δ for which an unbounded activation has a density at all.
    step = step * np.minimum(1.0, _LARGEST_STEP * largest / np.maximum(size, 1e-300))
    return replace(state, residuals=state.residuals + gain * step)


def update_features(
    posterior: Posterior, state: State, points: Sequence[Points], gain: float
) -> tuple[State, float]:
    """A damped step of Φ and Φ̂ of all layers, and the relative size of the undamped step of Φ."""
    features, conjugates = list(state.features), [np.zeros_like(one) for one in state.conjugates]
    for index, layer in enumerate(posterior.layers):
        density = density_of(posterior, state, index)
        moments = density.moments(points[index].u, points[index].update(density))
        features[index] = moments.features
        if layer.weight:
            conjugates[layer.source] = -layer.weight * moments.curvature
    pairs = zip(features, state.features, strict=True)
    change = max(float(np.linalg.norm(new - old) / np.linalg.norm(old)) for new, old in pairs)
    if not np.isfinite(change) or not np.isfinite(conjugates).all():
        raise diverged("Φ overflows")
    gain = gain * min(1.0, _LARGEST_CHANGE / change)
    moved = [
        old + gain * (new - old)
        for old, new in zip(state.features + state.conjugates, features + conjugates, strict=True)
    ]
    count = len(features)
    return State(tuple(moved[:count]), tuple(moved[count:]), state.residuals), change


__all__ = ["Posterior", "State", "density_of", "update_features", "update_residuals"]
