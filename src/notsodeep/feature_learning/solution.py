"""Solving the equations of the kernel after learning from one start, with a standard error on every number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged, second_moments
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo, log_normaliser
from notsodeep.feature_learning.self_consistency import GAIN, Posterior, State, update
from notsodeep.validation import Array

# "lazy": from a richness where features hardly move up to the given one; "rich": further up, and down again.
STARTS = ("lazy", "rich")
_RICHER = 2.0
# Variance of one neuron's readout, (16.6), at which the ramp begins; its steps, per factor e and at least.
_NEARLY_LAZY, _STEPS_PER_FOLD, _FEWEST_STEPS = 0.1, 48, 120
# Each stage divides the gain by four, until the noise of log w is small: it biases Φ by less than half of itself.
_MOST_STAGES, _BIAS_BY_NOISE = 6, 0.5
# Steps of a window at the largest gain; most steps of a stage in such windows; measurements of the noise in a window.
_WINDOW, _MOST_WINDOWS, _NOISE_SAMPLES = 320, 30, 8
# Noise of log w beyond which points no longer follow the density.
_OVERWHELMING = 10.0
# Drift that counts as none, in standard errors (of Φ, of the alignment) and relative to Φ; R-hat if mixed.
_DRIFT, _ALIGNMENT_DRIFT, _LARGEST_DRIFT, _MIXED = 1.5, 2.5, 0.01, 1.1
# Solutions are distinct if they differ by more than these: standard errors, and relative to Φ.
_DISTINCT_ERRORS, _DISTINCT = 4.0, 2.0 * _LARGEST_DRIFT
# Largest residual of (16.4); fewest and most moves over which it is averaged, after some for chains to follow.
_LARGEST_RESIDUAL, _CHECKED, _MOST_CHECKED, _FOLLOW = 0.02, 96, 400, 16
# Relative standard error up to which replicates agree on one solution.
_LARGEST_ERROR = 0.05
# For a rule: last relative change of Φ, largest number of steps, fewest effective points.
_TOLERANCE, _MOST_STEPS, _FEWEST_EFFECTIVE = 1e-6, 6000, 100.0
# Points kept for predictions in all replicates; points of each replicate for the contraction rate.
_KEPT, _RATE_POINTS = 4096, 512


class NeuronSample(NamedTuple):
    """Weighted points under the density of one neuron of a layer."""

    density: NeuronDensity
    h: Array
    weights: Array


@dataclass(frozen=True)
class Diagnostics:
    """How well the equations were solved; acceptance and R-hat are 1 for quasi-Monte Carlo."""

    steps: int  # of the outer iteration
    drift: float  # of Φ during the average, relative to its size; for quasi-Monte Carlo the last change
    noise: float  # variance of log w between replicates; it biases all of them alike
    residual: float  # difference of Φ from its average over the final density, relative to its size
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
            total += log_normaliser(sample.density, sample.h.shape[1], seed)
        return float(total.mean()), float(total.std(ddof=1) / np.sqrt(len(total)))


def solve(
    posterior: Posterior,
    kernel: Array,
    replicates: int,
    make_points: Callable[[NeuronDensity, int], Any],
    start: str,
    tolerance: float,
    report: Callable[[int], None],
) -> Solution:
    """Solve (16.4) from one start, beginning at Φ before learning.

    `make_points` returns points under the density of a layer, given its index; `tolerance` bounds the relative bias.
    """
    steps = 0

    def step(state: State, scale: float = 1.0, gain: float = GAIN) -> tuple[State, float]:
        nonlocal steps
        steps += 1
        report(steps)
        try:
            with np.errstate(all="ignore"):  # what overflows is refused by `update`
                return update(posterior.scaled(scale), state, points, gain)
        except np.linalg.LinAlgError:
            raise diverged("a covariance is not finite") from None

    state, change = State.lazy(posterior, kernel, replicates), np.inf
    points = [make_points(density, layer) for layer, density in enumerate(state.densities(posterior))]
    for scale in _ramp(posterior, kernel, start):
        state, change = step(state, scale)
    if isinstance(points[0], QuasiMonteCarlo):
        while change > _TOLERANCE and steps < _MOST_STEPS:
            state, change = step(state)
        numbers = Diagnostics(steps, change, 0.0, change, 1.0, 1.0, min(cloud.effective for cloud in points))
        settled = change <= _TOLERANCE and numbers.effective_samples >= _FEWEST_EFFECTIVE
    else:
        mean = state
        for stage in range(_MOST_STAGES):
            state, mean, drift, noise, settled = _stage(posterior, state, step, points, GAIN / 4**stage)
            if quiet := noise * _BIAS_BY_NOISE <= tolerance:
                break
        state, mixed = mean, [cloud.mixing() for cloud in points]
        acceptance = min(float(cloud.acceptance.min()) for cloud in points)
        r_hat, effective = max(one[0] for one in mixed), min(one[1] for one in mixed)
        residual = max(map(_residual, state.features, state.densities(posterior), points))
        numbers = Diagnostics(steps, drift, noise, residual, acceptance, r_hat, effective)
        settled = settled and quiet and r_hat <= _MIXED and residual <= max(_LARGEST_RESIDUAL, tolerance)
    settled = settled and 1.0 / compared(state.features[-1])[1] <= _LARGEST_ERROR
    pairs = zip(state.densities(posterior), points, strict=True)
    samples = tuple(_kept(density, cloud) for density, cloud in pairs)
    return Solution(start, posterior, state, samples, _rate(posterior, samples), bool(settled), numbers)


def _ramp(posterior: Posterior, kernel: Array, start: str) -> list[float]:
    """Factors of the richness: up from nearly lazy; for the rich start, beyond 1 and back; then 1."""
    first = min(1.0, np.sqrt(_NEARLY_LAZY / max(posterior.readout_variance(kernel), 1e-300)))
    ramp = np.geomspace(first, 1.0, max(_FEWEST_STEPS, int(-_STEPS_PER_FOLD * np.log(first)))).tolist()
    detour = np.geomspace(1.0, _RICHER, _FEWEST_STEPS).tolist() if start == "rich" and first < 1.0 else []
    return [*ramp, *detour, *detour[::-1], *[1.0] * _FEWEST_STEPS]


def _stage(
    posterior: Posterior, state: State, step: Callable[..., Any], points: Sequence[Chains], gain: float
) -> tuple[State, State, float, float, bool]:
    """Repeat windows of steps until two in a row agree.

    Returns the state, its mean over both windows, the drift of Φ between them, the noise of log w, and whether they
    agree.
    """
    windows: list[State] = []
    length, taken = int(_WINDOW * np.sqrt(GAIN / gain)), 0
    most = _MOST_WINDOWS * length
    while taken < most:
        for cloud in points:
            del cloud.trace[:-length]
        windows.append(State(*(np.zeros_like(one) for one in state)))
        noise = 0.0
        for number in range(length):
            state, _ = step(state, gain=gain)
            for total, one in zip(windows[-1], state, strict=True):
                total += one / length
            if number % (length // _NOISE_SAMPLES) == 0:
                noise += _noise(state.densities(posterior), points) / _NOISE_SAMPLES
        taken += length
        drift, agree = _drift(posterior.targets, *windows[-2:]) if len(windows) > 1 else (np.inf, False)
        settled = agree and drift <= _LARGEST_DRIFT
        if settled:
            break
        length *= 2 if agree else 1  # noise hides a drift
    mean = State(*(0.5 * (a + b) for a, b in zip(*windows[-2:], strict=True)))
    return state, mean, drift, noise, settled


def _noise(densities: Sequence[NeuronDensity], points: Sequence[Chains]) -> float:
    """Variance of log w between replicates at the points of the first one, the largest of all layers."""
    variances = []
    for density, cloud in zip(densities, points, strict=True):
        features = density.phi(cloud.h[0])
        logs = -0.5 * np.einsum("pi,rpi->rp", features, features @ density.coupling)
        variances.append(float(np.mean((logs - logs.mean(axis=1, keepdims=True)).var(axis=0, ddof=1))))
    if not max(variances) <= _OVERWHELMING:
        raise diverged(
            f"the noise of sampling overwhelms the density (variance of log w: {max(variances):.1g})"
        )
    return max(variances)


def _residual(kernel: Array, density: NeuronDensity, cloud: Chains) -> float:
    """How far Φ is from ⟨φφᵀ⟩ over the density that follows from it, relative to Φ.

    It sees what the spread of replicates does not: an error that all of them share, and points that leave for another
    mode of the density once nothing holds them back. Its own noise adds to it, and falls with the number of moves.
    """
    for _ in range(_FOLLOW):
        cloud.update(density)
    total, size = np.zeros_like(kernel), float(np.linalg.norm(kernel.mean(axis=0)))
    for move in range(1, _MOST_CHECKED + 1):
        weights = cloud.update(density)
        total += second_moments(density.phi(cloud.h), weights)
        residual = float(np.linalg.norm((total / move - kernel).mean(axis=0))) / size
        if move >= _CHECKED and residual <= _LARGEST_RESIDUAL:
            break
    return residual


def _drift(targets: Array, first: State, second: State) -> tuple[float, bool]:
    """Relative drift of Φ between two means, and whether it and that of the alignment are within their errors."""
    kernels = first.features[-1], second.features[-1]
    drift, errors = compared(kernels[1] - kernels[0])
    aligned = [
        np.einsum("io,rij,jo->r", targets, one, targets) / np.linalg.norm(one, axis=(1, 2)) for one in kernels
    ]
    still = compared(aligned[1] - aligned[0])[1] <= _ALIGNMENT_DRIFT
    return drift / float(np.linalg.norm(kernels[1].mean(axis=0))), errors <= _DRIFT and still


def compared(replicates: Array) -> tuple[float, float]:
    """Norm of the mean over replicates, and its ratio to the norm of the standard errors."""
    distance = float(np.linalg.norm(replicates.mean(axis=0)))
    error = float(np.linalg.norm(replicates.std(axis=0, ddof=1))) / np.sqrt(len(replicates))
    return distance, distance / max(error, 1e-12 * distance, 1e-100)


def _kept(density: NeuronDensity, cloud: Any) -> NeuronSample:
    """Points under the final density: of chains after several moves, of a rule all points."""
    if isinstance(cloud, QuasiMonteCarlo):
        weights = cloud.update(density)
        return NeuronSample(density, cloud.h, weights)
    states = []
    for _ in range(max(1, _KEPT // cloud.h[..., 0].size)):
        cloud.update(density)
        states.append(cloud.h)
    h = np.concatenate(states, axis=1)
    return NeuronSample(density, h, np.full(h.shape[:2], 1.0 / h.shape[1]))


def _rate(posterior: Posterior, samples: Sequence[NeuronSample]) -> float:
    """The contraction rate of a recurrent layer, (16.8): bulk and isolated eigenvalues of the Jacobian."""
    rates = [0.0]
    for index, (layer, (density, points, all_weights)) in enumerate(
        zip(posterior.layers, samples, strict=True)
    ):
        if layer.is_recurrent(index):
            h, weights = points[:, :_RATE_POINTS], all_weights[:, :_RATE_POINTS]
            features, slopes = layer.phi(h), layer.phi.derivative(h)
            weighted = slopes * (weights / weights.sum(axis=-1, keepdims=True))[..., None]
            squares = np.einsum("rpi,rpi->ri", weighted, slopes).mean(axis=0)
            rates.append(float(np.sqrt(layer.weight * squares.max())))
            inverse = (density.whitened(h) @ density.inverse).swapaxes(-1, -2)  # Λ⁻¹h
            for i in range(h.shape[-1]):
                isolated = layer.weight * ((inverse * weighted[:, None, :, i]) @ features).mean(axis=0)
                rates.append(float(np.abs(np.linalg.eigvals(isolated)).max()))
    return max(rates)
