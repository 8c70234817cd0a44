"""Solving the equations of the kernel after learning from one start, with a standard error on every number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo, log_normaliser
from notsodeep.feature_learning.self_consistency import (
    Posterior,
    State,
    density_of,
    update_features,
    update_residuals,
)
from notsodeep.validation import Array

# "lazy": from a richness where features hardly move up to the given one; "rich": further up, and down again.
STARTS = ("lazy", "rich")
_RICHER = 2.0
# Variance of the readout of one neuron, (14.6), at which the ramp from the lazy limit begins.
_NEARLY_LAZY = 0.1
# Steps of the ramp, per factor e and at least; steps after it that are not averaged.
_STEPS_PER_FOLD, _FEWEST_STEPS, _SETTLING = 12, 30, 30
# Newton steps of Δ before each step of Φ, whose gain is damped.
_INNER, _GAIN = 3, 0.6
# Steps that are averaged, and how often that is repeated until no drift is seen.
_AVERAGED, _MOST_ROUNDS = 60, 6
# Relative change of Φ at which the iteration over a fixed rule has converged, and its largest number of steps.
_TOLERANCE, _MOST_STEPS = 1e-6, 400
# Drift that counts as none: in standard errors (mean square), or relative to Φ.
_DRIFT, _NEGLIGIBLE_DRIFT = 6.0, 2e-3
# R-hat up to which chains count as mixed; share of a rule's points that must be effective.
_MIXED, _LEAST_EFFECTIVE = 1.1, 0.002
# Points that are kept for predictions, in all replicates.
_KEPT = 8192
# Points of each replicate that the contraction rate is computed from.
_RATE_POINTS = 512


class NeuronSample(NamedTuple):
    """Weighted points under the density of one neuron of a layer."""

    density: NeuronDensity
    u: Array
    weights: Array


@dataclass(frozen=True)
class Diagnostics:
    """How well the equations were solved.

    Attributes:
        method: "sampling" or "quasi-monte-carlo".
        steps: steps of the outer iteration.
        drift: drift of Φ during the average, relative to its size; for a rule the last change.
        acceptance: smallest acceptance of a replicate; 1 for a rule.
        r_hat: potential scale reduction of the chains; 1 for a rule.
        effective_samples: independent values of log w in the average, or effective points of the rule.
    """

    method: str
    steps: int
    drift: float
    acceptance: float
    r_hat: float
    effective_samples: float


@dataclass(frozen=True)
class Solution:
    """A solution of (14.4): replicates of the unknowns, and points for averages.

    Attributes:
        start: where the iteration began, see `STARTS`.
        posterior: the equations.
        state: the unknowns, averaged over the last steps.
        samples: points of each layer.
        rate: contraction rate of a DEQ, (14.8); at 1 or more it has no stable equilibrium. 0 for explicit networks.
        converged: whether no drift was seen and chains have mixed.
        diagnostics: the numbers behind `converged`.
    """

    start: str
    posterior: Posterior
    state: State
    samples: tuple[NeuronSample, ...]
    rate: float
    converged: bool
    diagnostics: Diagnostics

    @property
    def kernel(self) -> Array:
        """Φ of the layer that is read out."""
        return np.asarray(self.state.features[-1].mean(axis=0))

    @property
    def standard_error(self) -> Array:
        """The standard error of `kernel`, entry by entry."""
        features = self.state.features[-1]
        return np.asarray(features.std(axis=0, ddof=1) / np.sqrt(len(features)))

    def log_evidence(self, seed: int) -> tuple[float, float]:
        """The logarithm of the posterior of Φ per neuron, (14.5), and its standard error; ranks solutions."""
        features, posterior = self.state.features, self.posterior
        total = -0.5 * np.einsum("no,rno->r", posterior.targets, posterior.residuals(features[-1]))
        for kernel, sample in zip(features, self.samples, strict=True):
            total = total + 0.5 * np.einsum("rij,rij->r", kernel, sample.density.coupling)
            total = total + log_normaliser(sample.density, sample.u.shape[1], seed)
        return float(total.mean()), float(total.std(ddof=1) / np.sqrt(len(total)))


def readout_variance(posterior: Posterior, kernel: Array) -> float:
    """⟨|Δᵀφ|²⟩/γ² under the lazy kernel, (14.6): well below 1 features hardly move."""
    residuals = posterior.residuals(kernel)
    return float(np.sum(residuals * (kernel @ residuals)) / posterior.richness**2)


def solve(
    posterior: Posterior,
    kernels: Sequence[Array],
    points: Sequence[Chains] | Sequence[QuasiMonteCarlo],
    start: str,
    report: Callable[[str], None],
) -> Solution:
    """Solve (14.4) from one start.

    Args:
        posterior: the equations.
        kernels: Φ of each layer before learning.
        points: for each layer.
        start: one of `STARTS`.
        report: called with a message after every step.
    """
    steps = 0

    def step(state: State, scale: float, gain: float, gain_of_residuals: float) -> tuple[State, float]:
        nonlocal steps
        steps += 1
        scaled = posterior if scale == 1.0 else posterior.scaled(scale)
        report(f"{start} start, step {steps}")
        try:
            for _ in range(_INNER):
                state = update_residuals(scaled, state, points[-1], gain_of_residuals)
            return update_features(scaled, state, points, gain)
        except np.linalg.LinAlgError:
            raise diverged("a matrix is singular") from None

    ramp = _ramp(posterior, kernels[-1], start)
    state, change = State.lazy(posterior.scaled(ramp[0]), kernels, len(points[0].u)), np.inf
    for scale in [*ramp, *[1.0] * _SETTLING]:
        state, change = step(state, float(scale), _GAIN, 1.0)
    if isinstance(points[0], QuasiMonteCarlo):
        while change > _TOLERANCE and steps < _MOST_STEPS:
            state, change = step(state, 1.0, _GAIN, 1.0)
        effective = min(cloud.effective for cloud in points if isinstance(cloud, QuasiMonteCarlo))
        numbers = Diagnostics(
            "quasi-monte-carlo", steps, change, 1.0, 1.0, effective * points[0].u.shape[1]
        )
        settled = change <= _TOLERANCE and effective >= _LEAST_EFFECTIVE
    else:
        state, drift, settled = _average(state, step, points)
        numbers = Diagnostics("sampling", steps, drift, *_mixing(points))
        settled = settled and numbers.r_hat <= _MIXED
    samples = tuple(_kept(density_of(posterior, state, i), cloud) for i, cloud in enumerate(points))
    return Solution(start, posterior, state, samples, _rate(posterior, samples), settled, numbers)


def _ramp(posterior: Posterior, kernel: Array, start: str) -> Array:
    """Factors of the richness: up from nearly lazy; for the rich start, beyond 1 and back."""
    first = min(1.0, np.sqrt(_NEARLY_LAZY / max(readout_variance(posterior, kernel), 1e-300)))
    ramp = np.geomspace(first, 1.0, max(_FEWEST_STEPS, int(-_STEPS_PER_FOLD * np.log(first))))
    if start == "lazy" or first == 1.0:
        return ramp
    detour = np.geomspace(1.0, _RICHER, _FEWEST_STEPS)
    return np.concatenate([ramp, detour, detour[::-1]])


def _average(
    state: State, step: Callable[[State, float, float, float], tuple[State, float]], points: Sequence[Chains]
) -> tuple[State, float, bool]:
    """Steps with decreasing gains, averaged; again, from where they ended, until no drift is seen."""
    for cloud in points:
        cloud.adapting = False
    mean, drift, settled = state, np.inf, False
    for _ in range(_MOST_ROUNDS):
        for cloud in points:
            cloud.trace.clear()
        sums: list[State] = []
        for count in range(_AVERAGED):
            state, _ = step(state, 1.0, _GAIN / (1.0 + count) ** 0.6, 1.0 / (1.0 + count) ** 0.3)
            half = count // (_AVERAGED // 2)
            sums = [*sums, state] if half == len(sums) else [*sums[:half], sums[half].plus(state)]
        halves = [one.features[-1] / (_AVERAGED // 2) for one in sums]
        mean = sums[0].plus(sums[1]).times(1.0 / _AVERAGED)
        moved = halves[1] - halves[0]
        drift = float(np.linalg.norm(moved.mean(axis=0)) / np.linalg.norm(mean.features[-1].mean(axis=0)))
        error = moved.std(axis=0, ddof=1) / np.sqrt(len(moved))
        settled = bool(np.mean((moved.mean(axis=0) / error) ** 2) <= _DRIFT or drift <= _NEGLIGIBLE_DRIFT)
        if settled:
            break
    return mean, drift, settled


def _mixing(points: Sequence[Chains]) -> tuple[float, float, float]:
    """The worst acceptance, R-hat and effective number of samples of all layers."""
    return (
        float(min(cloud.acceptance.min() for cloud in points)),
        max(cloud.potential_scale_reduction() for cloud in points),
        min(cloud.effective_samples() for cloud in points),
    )


def _kept(density: NeuronDensity, cloud: Chains | QuasiMonteCarlo) -> NeuronSample:
    """Points under the final density; of chains several moves, of a rule all points."""
    if isinstance(cloud, QuasiMonteCarlo):
        return NeuronSample(density, cloud.u, cloud.update(density))
    states = []
    for _ in range(max(1, _KEPT // (cloud.u.shape[0] * cloud.u.shape[1]))):
        cloud.update(density)
        states.append(cloud.u)
    u = np.concatenate(states, axis=1)
    return NeuronSample(density, u, np.full(u.shape[:2], 1.0 / u.shape[1]))


def _rate(posterior: Posterior, samples: Sequence[NeuronSample]) -> float:
    """The contraction rate of a recurrent layer, (14.8): bulk and isolated eigenvalues of the Jacobian."""
    rates = [0.0]
    for index, (layer, sample) in enumerate(zip(posterior.layers, samples, strict=True)):
        if layer.source == index and layer.weight:
            u, weights = sample.u[:, :_RATE_POINTS], sample.weights[:, :_RATE_POINTS]
            weights = weights / weights.sum(axis=-1, keepdims=True)
            h = sample.density.preactivations(u)
            features, slopes = layer.phi(h), layer.phi.derivative(h) * weights[..., None]
            squares = np.einsum("rpi,rpi->ri", slopes, layer.phi.derivative(h)).mean(axis=0)
            rates.append(float(np.sqrt(layer.weight * squares.max())))
            inverse = np.linalg.solve(sample.density.root.swapaxes(-1, -2), u.swapaxes(-1, -2))
            for i in range(u.shape[-1]):
                isolated = (layer.weight * (inverse * slopes[:, None, :, i]) @ features).mean(axis=0)
                rates.append(float(np.abs(np.linalg.eigvals(isolated)).max()))
    return max(rates)


__all__ = ["STARTS", "Diagnostics", "NeuronSample", "Solution", "readout_variance", "solve"]
