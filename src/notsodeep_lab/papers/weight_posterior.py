"""Posterior of a DEQ of finite width, sampled over all weights: what docs/theory.md section 16 is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from notsodeep.feature_learning.points import hamiltonian_move, tuned
from notsodeep.models import DEQ
from notsodeep.validation import Array

# Of equilibria and adjoints, which are solved by plain iteration.
_TOLERANCE, _MOST_STEPS = 1e-7, 200
# Step of noisy gradient descent.
_RATE = 0.005


class WeightSamples(NamedTuple):
    """Averages over the posterior of the weights, one from each chain."""

    kernel: Array  # φ(h)ᵀφ(h)/m of samples and test samples, (chains, n + n_test, n + n_test)
    outputs: Array  # f on the same, (chains, n + n_test)


@dataclass(frozen=True)
class WeightPosterior:
    """The likelihood of all weights, −(mβ/2)|y − f|² with f = aᵀφ(h)/(γm), under a unit Gaussian prior."""

    model: DEQ
    X: Array
    y: Array
    width: int
    richness: float
    precision: float

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return self.width * (self.width + int(self.X.shape[1]) + 1)

    def split(self, u: Array) -> tuple[Array, Array, Array]:
        """A (chains, m, m), B (chains, m, p) and a (chains, m)."""
        m, p = self.width, self.X.shape[1]
        recurrent, inputs, readout = np.split(u, [m * m, m * (m + p)], axis=-1)
        return recurrent.reshape(-1, m, m), inputs.reshape(-1, m, p), readout

    def preactivations(self, recurrent: Array, inputs: Array, X: Array, strict: bool) -> Array:
        """h at the equilibrium, (chains, m, samples); NaN if `strict` and the iteration does not converge."""
        weights = sqrt(self.model.sigma_a2 / self.width) * recurrent
        drive = sqrt(self.model.sigma_b2) * inputs @ X.T
        return _fixed_point(lambda h: weights @ self.model.activation(h) + drive, drive, strict)

    def log_likelihood(self, u: Array) -> tuple[Array, Array]:
        """The logarithm of the likelihood and its gradient in all weights."""
        m, (recurrent, inputs, readout) = self.width, self.split(u)
        h = self.preactivations(recurrent, inputs, self.X, strict=True)
        features, slopes = self.model.activation(h), self.model.activation.derivative(h)
        mismatch = self.y - np.einsum("cm,cmn->cn", readout, features) / (self.richness * m)
        pull = self.precision * mismatch / self.richness  # mβ(y − f)/(γm)
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

    def sample(
        self, X_test: Array, moves: int, warmup: int, chains: int, seed: int, detour: float = 1.0
    ) -> WeightSamples:
        """Run independent chains from the prior; the first `warmup` moves tune the step and are discarded.

        Half of them are made at `detour` times the richness, which may lead to another solution.
        """
        richer = replace(self, richness=self.richness * detour, precision=self.precision * detour**2)
        rng, every, angle = np.random.default_rng(seed), np.concatenate([self.X, X_test]), np.array(0.1)
        u = rng.standard_normal((chains, self.dimension))
        kernel, outputs = np.zeros((chains, len(every), len(every))), np.zeros((chains, len(every)))
        for move in range(warmup + moves):
            posterior = richer if 2 * move < warmup else self
            u, _, accepted = hamiltonian_move(posterior.log_likelihood, u, angle, rng)
            if move < warmup:
                angle = tuned(angle, accepted.mean())
                continue
            recurrent, inputs, readout = self.split(u)
            h = self.preactivations(recurrent, inputs, every, strict=False)
            features = self.model.activation(h)
            kernel += features.swapaxes(-1, -2) @ features / (self.width * moves)
            outputs += np.einsum("cm,cmn->cn", readout, features) / (self.richness * self.width * moves)
        return WeightSamples(kernel, outputs)

    def descend(self, X_test: Array, steps: int, seed: int) -> WeightSamples:
        """Average a `DEQNet` over gradient descent with noise and weight decay, in thirds after the first quarter."""
        import torch

        from notsodeep.nets import DEQNet

        n, every = len(self.y), np.concatenate([self.X, X_test])
        options: dict[str, Any] = {"seed": seed, "scaling": "ntk", "dtype": torch.float64}
        scale = 1.0 / (self.richness * sqrt(self.width))
        net = DEQNet(self.model, every.shape[1], self.width, 1, output_scale=scale, **options)
        rows, targets = torch.from_numpy(every), torch.from_numpy(self.y)
        generator = torch.Generator().manual_seed(seed + 1)
        kernels, outputs = [], []
        for step in range(steps):
            net.zero_grad()
            mismatch = net(rows[:n])[:, 0] - targets
            (0.5 * self.width * self.precision * mismatch.square().sum()).backward()
            with torch.no_grad():
                for weights in net.parameters():
                    slope = torch.zeros_like(weights) if weights.grad is None else weights.grad
                    noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
                    weights.add_(-_RATE * (weights + slope) + sqrt(2.0 * _RATE) * noise)
                if step >= steps // 4 and step % 10 == 0:
                    features = net.features(rows)
                    kernels.append((features @ features.mT).numpy())
                    outputs.append(net.outputs(features)[:, 0].numpy())
        thirds = np.array_split(np.arange(len(kernels)), 3)
        parts = [
            np.stack([np.stack(one)[third].mean(axis=0) for third in thirds]) for one in (kernels, outputs)
        ]
        return WeightSamples(*parts)


def _fixed_point(step: Callable[[Array], Array], state: Array, strict: bool) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_MOST_STEPS):
            new = step(state)
            if np.max(np.abs(new - state)) <= _TOLERANCE * max(1.0, float(np.max(np.abs(new)))):
                return new
            state = new
    return np.full_like(state, np.nan) if strict else state
