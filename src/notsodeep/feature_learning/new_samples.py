"""Outputs on new samples, which follow the learned features without changing them: docs/theory.md (16.7)."""

from __future__ import annotations

import warnings

import numpy as np

from notsodeep.feature_learning.hidden_layers import HiddenLayer
from notsodeep.feature_learning.neuron_density import relative_jitter
from notsodeep.feature_learning.solution import NeuronSample, Solution
from notsodeep.validation import Array

# Nodes of the Gaussian average over h* given h; numbers in one block; tolerance and steps of the fixed point.
_NODES, _BLOCK, _TOLERANCE, _MOST_STEPS = 10, 2_000_000, 1e-4, 100


def new_outputs(solution: Solution, gram: Array, squared_norms: Array) -> Array:
    """Compute f* of each replicate, (replicates, new, outputs), from inner products (n, new) and squared norms."""
    cross, settled = _in_blocks(solution, gram, squared_norms)
    if not settled:
        text = "Some new samples have several equilibria or a slow one; their outputs are rough."
        warnings.warn(text, stacklevel=3)
    readout = solution.posterior.residuals(solution.state.features[-1]) / solution.posterior.richness**2
    return cross.swapaxes(-1, -2) @ readout


def missed_equilibrium(solution: Solution) -> float:
    """How far iteration from zero ends from the equilibrium of the training samples, relative to Φ.

    A training sample that is treated as a new one follows the iterates of a network. After learning a network may have
    several equilibria, and its solver another one than the one that has been learned.
    """
    gram, kernel = solution.posterior.gram, solution.state.features[-1]
    cross, _ = _in_blocks(solution, gram, np.diag(gram))
    return float(np.linalg.norm((cross - kernel).mean(axis=0)) / np.linalg.norm(solution.kernel))


def _in_blocks(solution: Solution, gram: Array, squared_norms: Array) -> tuple[Array, bool]:
    size = max(1, _BLOCK // max(sample.weights.size for sample in solution.samples))
    blocks = [
        _cross_features(solution, gram[:, first : first + size], squared_norms[first : first + size])
        for first in range(0, gram.shape[1], size)
    ]
    return np.concatenate([cross for cross, _ in blocks], axis=-1), all(settled for _, settled in blocks)


def _cross_features(solution: Solution, gram: Array, squares: Array) -> tuple[Array, bool]:
    """φ* = ⟨φ(h*)φ(h)⟩ of the last layer, (replicates, n, new), by iteration from zero, and whether it settled."""
    replicates, settled = solution.state.features.shape[1], True
    cross, own = np.zeros((replicates, *gram.shape)), np.zeros((replicates, len(squares)))
    parts = zip(solution.posterior.layers, solution.samples, solution.state.features, strict=True)
    for index, (layer, sample, kernel) in enumerate(parts):
        average = _regression(layer, sample, kernel)
        recurrent, change, steps = layer.is_recurrent(index), np.inf, 0
        while steps == 0 or (recurrent and change > _TOLERANCE):
            if steps == _MOST_STEPS:
                settled = False
                break
            before, steps = cross, steps + 1
            covariance, variance = layer.covariance(cross, gram), layer.covariance(own, squares)
            cross, own = _read(layer, sample, average, covariance, variance)
            change = float(np.max(np.abs(cross - before)) / max(np.max(np.abs(cross)), 1e-300))
    return cross, settled


def _regression(layer: HiddenLayer, sample: NeuronSample, kernel: Array) -> Array:
    """What turns values of φ(h*) at the points into φ*: Φ Φ_s⁻¹⟨φ(h) ·⟩_s with Φ_s = ⟨φφᵀ⟩_s of the same points.

    Errors of the two averages cancel: a training sample gets its own column of Φ, whatever the points.
    """
    features = layer.phi(sample.h)
    weighted = (features * sample.weights[..., None]).swapaxes(-1, -2)
    sampled = weighted @ features
    return kernel @ np.linalg.solve(sampled + relative_jitter(sampled), weighted)


def _read(
    layer: HiddenLayer, sample: NeuronSample, average: Array, covariance: Array, variance: Array
) -> tuple[Array, Array]:
    """⟨φ(h*)φ(h)⟩ and ⟨φ(h*)²⟩ for given covariances of h* with h, and variances of h*."""
    whitened = sample.density.inverse @ covariance
    spread = np.sqrt(np.maximum(variance - np.sum(whitened**2, axis=1), 0.0))[:, None, :]
    centre = sample.density.whitened(sample.h) @ whitened
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    first, second = np.zeros_like(centre), np.zeros_like(centre)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        value = layer.phi(centre + node * spread)
        first += weight * value
        second += weight * value**2
    return average @ first, np.einsum("rp,rpk->rk", sample.weights, second)
