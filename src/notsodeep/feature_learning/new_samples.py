"""Outputs on new samples, which follow the learned features without changing them: docs/theory.md (14.7)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.feature_learning.hidden_layers import HiddenLayer
from notsodeep.feature_learning.solution import NeuronSample, Solution
from notsodeep.validation import Array

# Nodes of the Gaussian average over h* given h; numbers in one block; tolerance and steps of the fixed point.
_NODES, _BLOCK, _TOLERANCE, _MOST_STEPS = 16, 4_000_000, 1e-6, 500
# Added to the diagonal of ⟨φφᵀ⟩ of the points, relative to its mean.
_JITTER = 1e-8


def new_outputs(solution: Solution, gram: Array, squared_norms: Array) -> Array:
    """f* of each replicate, (replicates, new samples, outputs).

    Args:
        solution: the solution.
        gram: inner products of samples and new samples, (n, new).
        squared_norms: of the new samples.
    """
    posterior = solution.posterior
    readout = solution.state.residuals / posterior.richness**2
    size = max(1, _BLOCK // max(sample.weights.size for sample in solution.samples))
    blocks = []
    for first in range(0, gram.shape[1], size):
        part = slice(first, first + size)
        blocks.append(_cross_features(solution, gram[:, part], squared_norms[part]).swapaxes(-1, -2) @ readout)
    return np.concatenate(blocks, axis=1)


def _cross_features(solution: Solution, gram: Array, squares: Array) -> Array:
    """φ* = ⟨φ(h*)φ(h)⟩ of the last layer, (replicates, n, new)."""
    replicates = len(solution.state.residuals)
    cross, own = np.zeros((replicates, *gram.shape)), np.zeros((replicates, len(squares)))
    parts = zip(solution.posterior.layers, solution.samples, solution.state.features, strict=True)
    for index, (layer, points, kernel) in enumerate(parts):
        recurrent = layer.source == index and layer.weight > 0.0
        sample = _Reader.of(layer, points, kernel)
        cross, own = _layer(layer, sample, gram, squares, cross, own)
        for _ in range(_MOST_STEPS if recurrent else 0):
            before = cross
            cross, own = _layer(layer, sample, gram, squares, cross, own)
            if np.max(np.abs(cross - before)) <= _TOLERANCE * np.max(np.abs(cross)):
                break
        else:
            if recurrent:
                raise ConvergenceError(
                    "The covariances of new samples did not converge: the DEQ has no stable equilibrium there.",
                    "Use a smaller richness or sigma_a2, or new samples of smaller norm.",
                )
    return cross


class _Reader(NamedTuple):
    """Points of a layer, and what turns values of φ(h*) at the points into φ* = ⟨φ(h*)φ(h)⟩.

    φ* is regressed on the features of the points, Φ Φ_s⁻¹⟨φ(h)φ(h*)⟩_s with Φ_s = ⟨φφᵀ⟩_s of the same points. Errors of
    the two averages cancel: a training sample gets its own column of Φ, whatever the points.
    """

    points: NeuronSample
    average: Array

    @classmethod
    def of(cls, layer: HiddenLayer, points: NeuronSample, kernel: Array) -> _Reader:
        features = layer.phi(points.density.preactivations(points.u))
        weighted = (features * points.weights[..., None]).swapaxes(-1, -2)
        sampled = weighted @ features
        scale = np.trace(sampled, axis1=1, axis2=2)[:, None, None] / sampled.shape[-1]
        sampled = sampled + _JITTER * scale * np.eye(sampled.shape[-1])
        return cls(points, kernel @ np.linalg.solve(sampled, weighted))


def _layer(
    layer: HiddenLayer, reader: _Reader, gram: Array, squares: Array, cross: Array, own: Array
) -> tuple[Array, Array]:
    """⟨φ(h*)φ(h)⟩ and ⟨φ(h*)²⟩ of a layer from those of its source."""
    points = reader.points
    covariance = layer.covariance(cross, gram)
    variance = layer.covariance(own, squares)
    whitened = np.linalg.solve(points.density.root, covariance)
    spread = np.sqrt(np.maximum(variance - np.sum(whitened**2, axis=1), 0.0))[:, None, :]
    centre = points.u @ whitened
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    first, second = np.zeros_like(centre), np.zeros_like(centre)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        value = layer.phi(centre + node * spread)
        first += weight * value
        second += weight * value**2
    return reader.average @ first, np.einsum("rp,rpk->rk", points.weights, second)


__all__ = ["new_outputs"]
