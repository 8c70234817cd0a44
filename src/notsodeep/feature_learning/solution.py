"""Solving the equations of the kernel after learning from one start, with a standard error on every number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo, log_normaliser
from notsodeep.feature_learning.self_consistency import Posterior, State, update
from notsodeep.validation import Array

# "lazy": from a richness where features hardly move up to the given one; "rich": further up, and down again.
STARTS = ("lazy", "rich")
_RICHER = 2.0
# Variance of one neuron's readout, (16.6), at which the ramp begins; its steps, per factor e and at least.
_NEARLY_LAZY, _STEPS_PER_FOLD, _FEWEST_STEPS = 0.1, 48, 120
# Gain of the first steps.
_GAIN = 1.0 / 6.0
# Relaxation at that gain: steps of a window, and most windows.
_WINDOW, _MOST_WINDOWS = 240, 60
# Stages of averaging, in steps; steps after which gains fall.
_STAGES, _SLOWING = (960, 1920, 3840), 150.0
# Drift that counts as none: relative to Φ, or in standard errors (mean square) up to a relative one; R-hat if mixed.
_NEGLIGIBLE_DRIFT, _DRIFT, _LARGEST_DRIFT, _MIXED = 3e-3, 4.0, 0.01, 1.1
# Solutions are distinct if they differ by more than these: standard errors (root mean square), and relative to Φ.
_DISTINCT_ERRORS, _DISTINCT = 4.0, 2.0 * _LARGEST_DRIFT
# Relative standard error up to which replicates agree on one solution.
_LARGEST_ERROR = 0.05
# For a rule: last relative change of Φ, largest number of steps, fewest effective points.
_TOLERANCE, _MOST_STEPS, _FEWEST_EFFECTIVE = 1e-6, 2400, 100.0
# Points kept for predictions in all replicates; points of each replicate for the contraction rate.
_KEPT, _RATE_POINTS = 4096, 512


class NeuronSample(NamedTuple):
    """Weighted points under the density of one neuron of a layer."""

    density: NeuronDensity
    u: Array
    weights: Array


@dataclass(frozen=True)
class Diagnostics:
    """How well the equations were solved; acceptance and R-hat are 1 for quasi-Monte Carlo."""

    steps: int  # of the outer iteration
    drift: float  # of Φ during the average, relative to its size; for quasi-Monte Carlo the last change
    acceptance: float  # smallest of the replicates
    r_hat: float  # potential scale reduction of the chains
    effective_samples: float  # independent values of log w in the average, or effective points of a replicate


@dataclass(frozen=True)
class Solution:
    """A solution of (16.4)."""

    start: str  # where the iteration began: "lazy" or "rich"
    posterior: Posterior
    state: State  # averaged over the last steps, for each replicate
    samples: tuple[NeuronSample, ...]  # points of each layer
    rate: float  # contraction rate of a DEQ, (16.8); 0 for explicit networks
    converged: bool  # whether no drift was seen and chains have mixed
    diagnostics: Diagnostics  # the numbers behind `converged`

    @property
    def kernel(self) -> Array:
        """Φ of the layer that is read out."""
        return np.asarray(self.state.features[-1].mean(axis=0))

    def is_distinct(self, other: Solution) -> bool:
        """Whether the kernels differ by more than the standard errors of both and the tolerated drift."""
        distance, errors = compared(self.state.features[-1] - other.state.features[-1])
        return errors > _DISTINCT_ERRORS and distance > _DISTINCT * float(np.linalg.norm(self.kernel))

    def log_evidence(self, seed: int) -> tuple[float, float]:
        """Estimate the log posterior of Φ per neuron, (16.2), and its standard error; it ranks solutions."""
        features, posterior = self.state.features, self.posterior
        total = -0.5 * np.einsum("no,rno->r", posterior.targets, posterior.residuals(features[-1]))
        for kernel, sample in zip(features, self.samples, strict=True):
            total += 0.5 * np.einsum("rij,rij->r", kernel, sample.density.coupling)
            total += log_normaliser(sample.density, sample.u.shape[1], seed)
        return float(total.mean()), float(total.std(ddof=1) / np.sqrt(len(total)))


def solve(
    posterior: Posterior, kernel: Array, points: Sequence[Any], start: str, report: Callable[[str], None]
) -> Solution:
    """Solve (16.4) from one start, beginning at Φ before learning; `points` has one entry for each layer."""
    steps = 0

    def step(state: State, scale: float, gain: float) -> tuple[State, float]:
        nonlocal steps
        steps += 1
        report(f"{start} start, step {steps}")
        try:
            return update(posterior.scaled(scale), state, points, gain)
        except np.linalg.LinAlgError:
            raise diverged("a covariance is not positive definite") from None

    ramp = _ramp(posterior, kernel, start)
    features = np.tile(kernel, (len(points), len(points[0].u), 1, 1))
    state = State(features, 0.0 * features, posterior.scaled(ramp[0]).residuals(features[-1]), features[-1])
    change = np.inf
    for scale in ramp:
        state, change = step(state, scale, _GAIN)
    if isinstance(points[0], QuasiMonteCarlo):
        while change > _TOLERANCE and steps < _MOST_STEPS:
            state, change = step(state, 1.0, _GAIN)
        numbers = Diagnostics(steps, change, 1.0, 1.0, min(cloud.effective for cloud in points))
        settled = change <= _TOLERANCE and numbers.effective_samples >= _FEWEST_EFFECTIVE
    else:
        state, drift, settled = _average(_relaxed(state, step), step, points)
        mixed = [cloud.mixing() for cloud in points]
        acceptance = min(float(cloud.acceptance.min()) for cloud in points)
        r_hat, effective = max(one[0] for one in mixed), min(one[1] for one in mixed)
        numbers = Diagnostics(steps, drift, acceptance, r_hat, effective)
        settled = settled and r_hat <= _MIXED
    spread = np.linalg.norm(state.features[-1].std(axis=0, ddof=1)) / np.sqrt(len(state.residuals))
    settled = settled and bool(spread <= _LARGEST_ERROR * np.linalg.norm(state.features[-1].mean(axis=0)))
    samples = tuple(_kept(state.density(posterior, i), cloud) for i, cloud in enumerate(points))
    return Solution(start, posterior, state, samples, _rate(posterior, samples), settled, numbers)


def _ramp(posterior: Posterior, kernel: Array, start: str) -> list[float]:
    """Factors of the richness: up from nearly lazy; for the rich start, beyond 1 and back; then 1."""
    first = min(1.0, np.sqrt(_NEARLY_LAZY / max(posterior.readout_variance(kernel), 1e-300)))
    ramp = np.geomspace(first, 1.0, max(_FEWEST_STEPS, int(-_STEPS_PER_FOLD * np.log(first)))).tolist()
    detour = np.geomspace(1.0, _RICHER, _FEWEST_STEPS).tolist() if start == "rich" and first < 1.0 else []
    return [*ramp, *detour, *detour[::-1], *[1.0] * _FEWEST_STEPS]


Step = Callable[[State, float, float], tuple[State, float]]


def _relaxed(state: State, step: Step) -> State:
    """Steps at the full gain until three windows agree within their errors; at most `_MOST_WINDOWS`.

    Where features begin to align, one direction relaxes over thousands of steps: falling gains would freeze it.
    """
    means: list[State] = []
    for _ in range(_MOST_WINDOWS):
        state, mean = _mean_state(state, step, [_GAIN] * _WINDOW)
        means = [*means[-2:], mean]
        changes = [second.features[-1] - first.features[-1] for first, second in pairwise(means)]
        if len(changes) == 2 and all(compared(change)[1] ** 2 <= _DRIFT for change in changes):
            break
    return state


def _average(state: State, step: Step, points: Sequence[Chains]) -> tuple[State, float, bool]:
    """Steps with decreasing gains, averaged in stages of growing length until halves of a stage agree.

    Noise of the unknowns biases averages over the density in proportion to the gains, which vanish.
    """
    drift, settled, count = np.inf, False, 0
    for length in _STAGES:
        for cloud in points:
            cloud.trace.clear()
        halves = []
        for _ in range(2):
            numbers = np.arange(count + 1, count + length // 2 + 1)
            state, total = _mean_state(state, step, _GAIN / (1.0 + numbers / _SLOWING) ** 0.8)
            halves.append(total)
            count += length // 2
        drift, settled = _is_settled(*halves)
        if settled:
            break
    return State(*(0.5 * (a + b) for a, b in zip(*halves, strict=True))), drift, settled


def _mean_state(state: State, step: Step, gains: Sequence[float] | Array) -> tuple[State, State]:
    """The state after steps with these gains, and its mean over them."""
    total = State(*(np.zeros_like(one) for one in state))
    for gain in gains:
        state, _ = step(state, 1.0, float(gain))
        total = State(*(a + b / len(gains) for a, b in zip(total, state, strict=True)))
    return state, total


def _is_settled(first: State, second: State) -> tuple[float, bool]:
    """Relative drift of Φ between two means, and whether it counts as none."""
    kernels = first.features[-1], second.features[-1]
    drift, errors = compared(kernels[1] - kernels[0])
    drift /= float(np.linalg.norm(kernels[1].mean(axis=0)))
    return drift, drift <= _NEGLIGIBLE_DRIFT or (drift <= _LARGEST_DRIFT and errors**2 <= _DRIFT)


def compared(replicates: Array) -> tuple[float, float]:
    """Norm of the mean over replicates, and its root mean square in standard errors."""
    mean = replicates.mean(axis=0)
    error = replicates.std(axis=0, ddof=1) / np.sqrt(len(replicates))
    floor = 1e-12 * float(np.abs(mean).max()) + 1e-100
    return float(np.linalg.norm(mean)), float(np.sqrt(np.mean((mean / np.maximum(error, floor)) ** 2)))


def _kept(density: NeuronDensity, cloud: Any) -> NeuronSample:
    """Points under the final density: of chains after several moves, of a rule all points."""
    if isinstance(cloud, QuasiMonteCarlo):
        weights = cloud.update(density)
        return NeuronSample(density, cloud.u, weights)
    states = []
    for _ in range(max(1, _KEPT // cloud.u[..., 0].size)):
        cloud.update(density)
        states.append(cloud.u)
    u = np.concatenate(states, axis=1)
    return NeuronSample(density, u, np.full(u.shape[:2], 1.0 / u.shape[1]))


def _rate(posterior: Posterior, samples: Sequence[NeuronSample]) -> float:
    """The contraction rate of a recurrent layer, (16.8): bulk and isolated eigenvalues of the Jacobian."""
    rates = [0.0]
    for index, (layer, (density, points, all_weights)) in enumerate(
        zip(posterior.layers, samples, strict=True)
    ):
        if layer.is_recurrent(index):
            u, weights = points[:, :_RATE_POINTS], all_weights[:, :_RATE_POINTS]
            h = density.preactivations(u)
            features, slopes = layer.phi(h), layer.phi.derivative(h)
            weighted = slopes * (weights / weights.sum(axis=-1, keepdims=True))[..., None]
            squares = np.einsum("rpi,rpi->ri", weighted, slopes).mean(axis=0)
            rates.append(float(np.sqrt(layer.weight * squares.max())))
            inverse = np.linalg.solve(density.root.swapaxes(-1, -2), u.swapaxes(-1, -2))
            for i in range(u.shape[-1]):
                isolated = layer.weight * ((inverse * weighted[:, None, :, i]) @ features).mean(axis=0)
                rates.append(float(np.abs(np.linalg.eigvals(isolated)).max()))
    return max(rates)
