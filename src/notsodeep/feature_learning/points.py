"""Points under the density of one neuron: Hamiltonian Monte Carlo, or a weighted quasi-Monte Carlo rule.

The sampler integrates the Gaussian factor exactly, by a rotation of (u, v), and the other factor by kicks. Without the
other factor (the lazy limit) every proposal is accepted and a quarter turn gives an independent point.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtri

from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged, second_moments
from notsodeep.validation import Array

# A trajectory is a quarter turn, in at most this many kicks.
_TURN, _MOST_KICKS = 0.5 * np.pi, 40
_ACCEPTANCE = 0.85
# Points further out than this many times their typical norm belong to a density that cannot be normalised.
_FAR = 1e3
# Temperatures of annealed importance sampling.
_TEMPERATURES = 60
# By how much importance samples spread more than the density, relatively and absolutely.
_ENLARGED, _LEAST_SPREAD = 1.2, 0.05


class QuasiMonteCarlo:
    """A scrambled Sobol sequence for each replicate as importance sample; for few samples only.

    Points are Gaussian with the second moments that the density had before, slightly enlarged.

    Attributes:
        h: the points, (replicates, points, n).
        effective: smallest effective number of points.
    """

    def __init__(self, density: NeuronDensity, points: int, seed: tuple[int, ...]) -> None:
        from scipy.stats import qmc

        rules = [
            qmc.Sobol(density.root.shape[-1], rng=np.random.default_rng((*seed, number))).random(points)
            for number in range(len(density.root))
        ]
        self._normal = ndtri(np.clip(np.stack(rules), 1e-15, 1.0 - 1e-15))
        self._root, self.effective = density.root, float(points)
        self.h = density.preactivations(self._normal)

    def update(self, density: NeuronDensity) -> Array:
        """Adapt the points to a density, and return importance weights, which sum to 1."""
        self.h = self._normal @ self._root.swapaxes(-1, -2)
        u = density.whitened(self.h)
        logs = density.log_factor(u)[0] - 0.5 * np.sum(u**2 - self._normal**2, axis=-1)
        weights = np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))
        self.effective = float(np.min(1.0 / np.sum(weights**2, axis=-1)))
        spread = _ENLARGED * second_moments(u, weights) + _LEAST_SPREAD * np.eye(u.shape[-1])
        # Principal directions may change sign from step to step; this root does not.
        spread = density.root @ spread @ density.root.swapaxes(-1, -2)
        self._root = np.asarray(np.linalg.cholesky(spread), dtype=np.float64)
        return np.asarray(weights)


class Chains:
    """Hamiltonian Monte Carlo, many chains side by side; they go on when the density changes.

    Attributes:
        h: the states, (replicates, chains, n).
        acceptance: share of accepted proposals of the last move, one for each replicate.
        trace: log w of all chains after each move since it was cleared.
    """

    def __init__(self, density: NeuronDensity, chains: int, seed: tuple[int, ...]) -> None:
        replicates, n, _ = density.root.shape
        self._rng = np.random.default_rng(seed)
        self._weights = np.full((replicates, chains), 1.0 / chains)
        self._angle = np.full(replicates, 0.3)
        self.h = density.preactivations(self._rng.standard_normal((replicates, chains, n)))
        self.acceptance = np.ones(replicates)
        self.trace: list[Array] = []

    def update(self, density: NeuronDensity) -> Array:
        """Move every chain once, and return equal weights."""
        # One replicate after the other: their points stay in the cache, which saves a third of the time.
        moves = [
            hamiltonian_move(density.replicate(i).log_factor, u, angle, self._rng)
            for i, (u, angle) in enumerate(zip(density.whitened(self.h), self._angle, strict=True))
        ]
        u, logs, accepted = (np.stack(part) for part in zip(*moves, strict=True))
        self.h = density.preactivations(u)
        self.acceptance = accepted.mean(axis=-1)
        self._angle = tuned(self._angle, self.acceptance)
        self.trace.append(logs)
        if not np.all(np.sum(u**2, axis=-1) < _FAR**2 * (u.shape[-1] + 1.0)):
            raise diverged("the density of one neuron cannot be normalised")
        return self._weights

    def mixing(self) -> tuple[float, float]:
        """R-hat of log w over all chains, the largest of the replicates, and the number of independent values."""
        values = np.stack(self.trace)
        length, chains = len(values), values.shape[-1]
        within = np.maximum(values.var(axis=0, ddof=1).mean(axis=-1), 1e-300)
        ratio = values.mean(axis=0).var(axis=-1, ddof=1) / within
        effective = chains * np.minimum(1.0 / np.maximum(ratio, 1e-300), length)
        return float(np.sqrt(np.max((length - 1.0) / length + ratio))), float(effective.sum())


def tuned(angle: Array, acceptance: Array) -> Array:
    """Return the angle of a kick after a move with this acceptance."""
    return np.clip(angle * np.exp(0.5 * (acceptance - _ACCEPTANCE)), 1e-3, _TURN)


def hamiltonian_move(
    log_factor: Callable[[Array], tuple[Array, Array]], u: Array, angle: Array, rng: np.random.Generator
) -> tuple[Any, Any, Any]:
    """Make one Metropolis step of exp(−½|u|²) w(u) with trajectories of about a quarter turn.

    `log_factor` returns log w and its gradient at states of shape (..., chains, dimension); angles of one kick have
    shape (...). Returns the new states, log w there, and which proposals were accepted.
    """
    kicks = int(np.clip(np.ceil(_TURN / np.min(angle)), 1, _MOST_KICKS))
    step = (np.asarray(angle) * rng.uniform(0.7, 1.0))[..., None, None]
    cosine, sine = np.cos(step), np.sin(step)
    velocity = rng.standard_normal(u.shape)
    logs, gradient = log_factor(u)
    new, new_logs, energy = u, logs, _energy(u, velocity, logs)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(kicks):
            velocity = velocity + 0.5 * step * gradient
            new, velocity = cosine * new + sine * velocity, cosine * velocity - sine * new
            new_logs, gradient = log_factor(new)
            velocity = velocity + 0.5 * step * gradient
        gain = np.nan_to_num(energy - _energy(new, velocity, new_logs), nan=-np.inf)
    accepted = np.log(rng.uniform(size=logs.shape)) < gain
    return np.where(accepted[..., None], new, u), np.where(accepted, new_logs, logs), accepted


def _energy(u: Array, velocity: Array, logs: Array) -> Array:
    return np.asarray(0.5 * np.sum(u**2 + velocity**2, axis=-1) - logs)


def log_normaliser(density: NeuronDensity, chains: int, seed: int) -> Array:
    """Estimate log E w(h) under the Gaussian factor by annealed importance sampling; one for each replicate."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((len(density.root), chains, density.root.shape[-1]))
    total, angle = np.zeros(u.shape[:2]), np.full(len(u), 0.3)
    for low, high in itertools.pairwise(np.linspace(0.0, 1.0, _TEMPERATURES + 1) ** 2):
        total += (high - low) * density.log_factor(u)[0]
        tempered = replace(density, coupling=high * density.coupling)
        u, _, accepted = hamiltonian_move(tempered.log_factor, u, angle, rng)
        angle = tuned(angle, accepted.mean(axis=-1))
    return np.asarray(logsumexp(total, axis=-1) - np.log(chains))
