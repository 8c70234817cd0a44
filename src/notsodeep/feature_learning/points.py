"""Points that represent the density of one neuron: Hamiltonian Monte Carlo, or a weighted quasi-Monte Carlo rule.

The sampler integrates the Gaussian factor exactly, by a rotation of (u, v), and the other factor by kicks. Without the
other factor (the lazy limit) every proposal is accepted and a quarter turn gives an independent point.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np
from scipy.special import logsumexp, ndtri

from notsodeep.feature_learning.neuron_density import NeuronDensity, cholesky, diverged, second_moments
from notsodeep.validation import Array

# A trajectory is a quarter turn, in at most this many kicks.
_TURN, _MOST_KICKS = 0.5 * np.pi, 40
_TARGET_ACCEPTANCE = 0.85
# Points further out than this many times their typical norm belong to a density that cannot be normalised.
_FAR = 1e3

# Temperatures of annealed importance sampling.
_ANNEALING_STEPS = 60

# What importance samples add to the second moments of the density, relatively and absolutely.
_ENLARGED, _LEAST_SPREAD = 1.2, 0.05

LogFactor = Callable[[Array], tuple[Array, Array]]


class Points(Protocol):
    """Weighted points under a density that changes from one iteration to the next."""

    u: Array

    def update(self, density: NeuronDensity) -> Array:
        """Adapt the points to a density, and return their weights."""


class QuasiMonteCarlo:
    """A scrambled Sobol sequence for each replicate as importance sample; for few samples only.

    Points are Gaussian with the second moments that the density had before, slightly enlarged.

    Attributes:
        u: the points, (replicates, points, n).
        effective: smallest effective number of points, as a share of all.
    """

    def __init__(self, replicates: int, points: int, n: int, seed: tuple[int, ...]) -> None:
        from scipy.stats import qmc

        log2 = int(np.ceil(np.log2(points)))
        rules = [
            qmc.Sobol(n, rng=np.random.default_rng((*seed, number))).random_base2(log2)
            for number in range(replicates)
        ]
        self._normal = ndtri(np.clip(np.stack(rules), 1e-15, 1.0 - 1e-15))
        self._root = np.repeat(np.eye(n)[None], replicates, axis=0)
        self.u = self._normal
        self.effective = 1.0

    def update(self, density: NeuronDensity) -> Array:
        """Importance weights, which sum to 1."""
        self.u = self._normal @ self._root.swapaxes(-1, -2)
        squares = np.sum(self.u**2 - self._normal**2, axis=-1)
        logs = density.log_factor(self.u) - 0.5 * squares
        weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        self.effective = float(np.min(1.0 / np.sum(weights**2, axis=-1)) / weights.shape[-1])
        spread = _ENLARGED * second_moments(self.u, weights) + _LEAST_SPREAD * np.eye(self.u.shape[-1])
        self._root = cholesky(spread)
        return weights


class Chains:
    """Hamiltonian Monte Carlo, many chains side by side; they go on when the density changes.

    Attributes:
        u: the states, (replicates, chains, n).
        angle: angle of one kick, one for each replicate.
        acceptance: share of accepted proposals of the last move, one for each replicate.
        adapting: whether the angle still follows the acceptance.
        trace: log w of all chains after each move since `adapting` was switched off.
    """

    def __init__(self, replicates: int, chains: int, n: int, seed: tuple[int, ...], moves: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._moves = moves
        self._weights = np.full((replicates, chains), 1.0 / chains)
        self.u = self._rng.standard_normal((replicates, chains, n))
        self.angle = np.full(replicates, 0.3)
        self.acceptance = np.ones(replicates)
        self.adapting = True
        self.trace: list[Array] = []

    def update(self, density: NeuronDensity) -> Array:
        """Move every chain a few times; all weights are equal."""
        for _ in range(self._moves):
            self.u, logs, accepted = hamiltonian_move(
                density.log_factor_and_gradient, self.u, self.angle, self._rng
            )
            self.acceptance = accepted.mean(axis=-1)
            if self.adapting:
                grown = self.angle * np.exp(0.5 * (self.acceptance - _TARGET_ACCEPTANCE))
                self.angle = np.clip(grown, 1e-3, _TURN)
        if not self.adapting:
            self.trace.append(logs)
        self._refuse_escape()
        return self._weights

    def _refuse_escape(self) -> None:
        n = self.u.shape[-1]
        if not np.all(np.einsum("...i,...i->...", self.u, self.u) < _FAR**2 * (n + 1.0)):
            raise diverged("the density of one neuron cannot be normalised")

    def effective_samples(self) -> float:
        """Number of independent values of log w among the trace, from the variance of the chains' means."""
        values = np.stack(self.trace)
        total, means = values.var(axis=(0, -1)), values.mean(axis=0).var(axis=-1, ddof=1)
        ratio = np.divide(total, means, out=np.full_like(total, float(len(values))), where=means > 0.0)
        return float(values.shape[-1] * np.minimum(ratio, len(values)).sum())

    def potential_scale_reduction(self) -> float:
        """R-hat of log w over all chains: near 1 if they have mixed; the largest of the replicates."""
        values = np.stack(self.trace)
        length = len(values)
        within, means = values.var(axis=0, ddof=1).mean(axis=-1), values.mean(axis=0).var(axis=-1, ddof=1)
        ratio = np.divide(means, within, out=np.zeros_like(within), where=within > 0.0)
        return float(np.sqrt(np.max((length - 1.0) / length + ratio)))


def hamiltonian_move(
    log_factor: LogFactor, u: Array, angle: Array, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """One Metropolis step of exp(−½|u|²) w(u) with trajectories of about a quarter turn.

    Args:
        log_factor: log w and its gradient.
        u: states, (..., chains, dimension).
        angle: of one kick, of shape (...).
        rng: random numbers.

    Returns:
        The new states, log w there, and which proposals were accepted.
    """
    kicks = int(np.clip(np.ceil(_TURN / np.min(angle)), 1, _MOST_KICKS))
    step = (np.minimum(angle, _TURN) * rng.uniform(0.7, 1.0))[..., None, None]
    cosine, sine = np.cos(step), np.sin(step)
    velocity = rng.standard_normal(u.shape)
    logs, gradient = log_factor(u)
    new, new_logs = u, logs
    energy = _energy(u, velocity, logs)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(kicks):
            velocity = velocity + 0.5 * step * gradient
            new, velocity = cosine * new + sine * velocity, cosine * velocity - sine * new
            new_logs, gradient = log_factor(new)
            velocity = velocity + 0.5 * step * gradient
        change = energy - _energy(new, velocity, new_logs)
    accepted = np.log(rng.uniform(size=logs.shape)) < np.nan_to_num(change, nan=-np.inf)
    return np.where(accepted[..., None], new, u), np.where(accepted, new_logs, logs), accepted


def log_normaliser(density: NeuronDensity, chains: int, seed: int) -> Array:
    """log Z = log E w(h) under the Gaussian factor, by annealed importance sampling; one for each replicate."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((len(density.root), chains, density.root.shape[-1]))
    total, angle = np.zeros(u.shape[:2]), np.full(len(u), 0.3)
    powers = np.linspace(0.0, 1.0, _ANNEALING_STEPS + 1) ** 2
    for low, high in itertools.pairwise(powers):
        total += (high - low) * density.log_factor(u)
        tempered = replace(density, coupling=high * density.coupling)
        u, _, accepted = hamiltonian_move(tempered.log_factor_and_gradient, u, angle, rng)
        angle = np.clip(angle * np.exp(0.5 * (accepted.mean(axis=-1) - _TARGET_ACCEPTANCE)), 1e-3, _TURN)
    return np.asarray(logsumexp(total, axis=-1) - np.log(chains))


def _energy(u: Array, velocity: Array, logs: Array) -> Array:
    squares = np.einsum("...i,...i->...", u, u) + np.einsum("...i,...i->...", velocity, velocity)
    return 0.5 * squares - logs


__all__ = ["Chains", "Points", "QuasiMonteCarlo", "hamiltonian_move", "log_normaliser"]
