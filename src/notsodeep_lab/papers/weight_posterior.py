"""Posterior of a DEQ of finite width, sampled over all weights: what docs/theory.md section 14 is compared with.

The same sampler as in the library, `hamiltonian_move`, but in the m² + m (inputs + outputs) dimensions of all weights,
with equilibria and adjoints solved here by plain iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from notsodeep.feature_learning.points import hamiltonian_move
from notsodeep.models import DEQ
from notsodeep.validation import Array

_TOLERANCE, _MOST_STEPS = 1e-7, 200
_ACCEPTANCE = 0.8


class WeightSamples(NamedTuple):
    """Averages over the posterior of the weights, each from independent chains.

    Attributes:
        kernel: φ(h)ᵀφ(h)/m of the samples and the test samples, (chains, n + n_test, n + n_test).
        outputs: f on the same, (chains, n + n_test).
        acceptance: share of accepted proposals.
    """

    kernel: Array
    outputs: Array
    acceptance: float


@dataclass(frozen=True)
class WeightPosterior:
    """log p(weights | y) up to the unit Gaussian prior: −(mβ/2)|y − f|², f = aᵀφ(h)/(γm)."""

    model: DEQ
    X: Array
    y: Array
    width: int
    richness: float
    precision: float

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return self.width * (self.width + self.X.shape[1] + 1)

    def split(self, u: Array) -> tuple[Array, Array, Array]:
        """A (chains, m, m), B (chains, m, p) and a (chains, m)."""
        m, p = self.width, self.X.shape[1]
        recurrent, inputs, readout = np.split(u, [m * m, m * (m + p)], axis=-1)
        return recurrent.reshape(-1, m, m), inputs.reshape(-1, m, p), readout

    def features(self, recurrent: Array, inputs: Array, X: Array, strict: bool = True) -> tuple[Array, Array]:
        """φ and h at the equilibrium, (chains, m, samples); NaN if `strict` and the iteration does not converge."""
        phi = self.model.activation
        weights = sqrt(self.model.sigma_a2 / self.width) * recurrent
        drive = sqrt(self.model.sigma_b2) * inputs @ X.T
        h = _fixed_point(lambda h: weights @ phi(h) + drive, drive, strict)
        return phi(h), h

    def log_likelihood(self, u: Array) -> tuple[Array, Array]:
        """The logarithm of the likelihood and its gradient in all weights."""
        m, gamma = self.width, self.richness
        recurrent, inputs, readout = self.split(u)
        features, h = self.features(recurrent, inputs, self.X)
        outputs = np.einsum("cm,cmn->cn", readout, features) / (gamma * m)
        mismatch = self.y - outputs
        pull = self.precision * mismatch / gamma  # mβ(y − f)/(γm)
        slopes = self.model.activation.derivative(h)
        scale = sqrt(self.model.sigma_a2 / m)
        weights = scale * recurrent.swapaxes(-1, -2)
        start = slopes * readout[:, :, None] * pull[:, None, :]
        adjoint = _fixed_point(lambda t: start + slopes * (weights @ t), start, True)
        gradient = [
            (scale * adjoint @ features.swapaxes(-1, -2)).reshape(len(u), -1),
            (sqrt(self.model.sigma_b2) * adjoint @ self.X).reshape(len(u), -1),
            np.einsum("cn,cmn->cm", pull, features),
        ]
        likelihood = -0.5 * m * self.precision * np.sum(mismatch**2, axis=-1)
        return likelihood, np.concatenate(gradient, axis=-1)

    def sample(self, X_test: Array, moves: int, warmup: int, chains: int, seed: int) -> WeightSamples:
        """Run independent chains from the prior; the first `warmup` moves tune the step and are discarded."""
        rng = np.random.default_rng(seed)
        u = rng.standard_normal((chains, self.dimension))
        angle, every = np.array(0.02), np.concatenate([self.X, X_test])
        kernel, outputs, accepted = np.zeros((chains, len(every), len(every))), np.zeros((chains, len(every))), 0.0
        for move in range(warmup + moves):
            u, _, hits = hamiltonian_move(self.log_likelihood, u, angle, rng)
            if move < warmup:
                angle = np.clip(angle * np.exp(0.3 * (hits.mean() - _ACCEPTANCE)), 1e-4, 1.0)
                continue
            recurrent, inputs, readout = self.split(u)
            features, _ = self.features(recurrent, inputs, every, strict=False)
            kernel += features.swapaxes(-1, -2) @ features / (self.width * moves)
            outputs += np.einsum("cm,cmn->cn", readout, features) / (self.richness * self.width * moves)
            accepted += float(hits.mean()) / moves
        return WeightSamples(kernel, outputs, accepted)


def _fixed_point(step: Callable[[Array], Array], start: Array, strict: bool) -> Array:
    state = start
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_MOST_STEPS):
            new = step(state)
            if np.max(np.abs(new - state)) <= _TOLERANCE * max(1.0, float(np.max(np.abs(new)))):
                return new
            state = new
    return np.full_like(start, np.nan) if strict else state
