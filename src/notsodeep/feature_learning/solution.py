"""Solving the equations of the kernel after learning from one start, with a standard error on every number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from notsodeep.feature_learning.neuron_density import NeuronDensity, diverged, second_moments
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo, log_normaliser
from notsodeep.feature_learning.self_consistency import LARGE, Gains, Posterior, State, update
from notsodeep.validation import Array

# "lazy": from a richness where features hardly move up to the given one; "rich": further up, and down again.
STARTS = ("lazy", "rich")
_RICHER = 2.0
# Variance of one neuron's readout, (16.6), at which the ramp begins; its steps, per factor e and at least.
_NEARLY_LAZY, _STEPS_PER_FOLD, _FEWEST_STEPS = 0.1, 48, 120
# Gains of stages that measure a solution, after large ones have found it; steps of a window; most windows of a stage;
# relative bias of Φ up to which it is taken as proportional to the gains.
_MEASURE = tuple(Gains(0.125, 0.25, slower) for slower in (1, 4, 16, 64))
_WINDOW, _MOST_WINDOWS, _LARGEST_BIAS = 320, 30, 0.02
# Samples up to which the bias of large gains fades by itself; from gains divided by four to zero, in their difference.
_FEW, _AHEAD = 32, 1.0 / 3.0
# Largest factor between steps of windows that is trusted when they are summed up.
_LARGEST_FACTOR = 0.75
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
    u: Array
    weights: Array


@dataclass(frozen=True)
class Diagnostics:
    """How well the equations were solved; acceptance and R-hat are 1 for quasi-Monte Carlo."""

    steps: int  # of the outer iteration
    drift: float  # of Φ during the average, relative to its size; for quasi-Monte Carlo the last change
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
            total += log_normaliser(sample.density, sample.u.shape[1], seed)
        return float(total.mean()), float(total.std(ddof=1) / np.sqrt(len(total)))


def solve(
    posterior: Posterior, kernel: Array, points: Sequence[Any], start: str, report: Callable[[str], None]
) -> Solution:
    """Solve (16.4) from one start, beginning at Φ before learning; `points` has one entry for each layer."""
    steps = 0

    def step(state: State, scale: float = 1.0, gains: Gains = LARGE) -> tuple[State, float]:
        nonlocal steps
        steps += 1
        report(f"{start} start, step {steps}")
        try:
            with np.errstate(all="ignore"):  # what overflows is refused by `update`
                return update(posterior.scaled(scale), state, points, gains)
        except np.linalg.LinAlgError:
            raise diverged("a covariance is not positive definite") from None

    state, change = State.lazy(posterior, kernel, len(points[0].u)), np.inf
    for scale in _ramp(posterior, kernel, start):
        state, change = step(state, scale)
    if isinstance(points[0], QuasiMonteCarlo):
        while change > _TOLERANCE and steps < _MOST_STEPS:
            state, change = step(state)
        numbers = Diagnostics(steps, change, change, 1.0, 1.0, min(cloud.effective for cloud in points))
        settled = change <= _TOLERANCE and numbers.effective_samples >= _FEWEST_EFFECTIVE
    else:
        state, drift, settled = _averaged(posterior, state, step, points)
        mixed = [cloud.mixing() for cloud in points]
        acceptance = min(float(cloud.acceptance.min()) for cloud in points)
        r_hat, effective = max(one[0] for one in mixed), min(one[1] for one in mixed)
        residual = max(map(_residual, state.features, state.densities(posterior), points))
        numbers = Diagnostics(steps, drift, residual, acceptance, r_hat, effective)
        settled = settled and r_hat <= _MIXED and residual <= _LARGEST_RESIDUAL
    spread = np.linalg.norm(state.features[-1].std(axis=0, ddof=1)) / np.sqrt(len(points[0].u))
    settled = settled and bool(spread <= _LARGEST_ERROR * np.linalg.norm(state.features[-1].mean(axis=0)))
    pairs = zip(state.densities(posterior), points, strict=True)
    samples = tuple(_kept(density, cloud) for density, cloud in pairs)
    return Solution(start, posterior, state, samples, _rate(posterior, samples), settled, numbers)


def _ramp(posterior: Posterior, kernel: Array, start: str) -> list[float]:
    """Factors of the richness: up from nearly lazy; for the rich start, beyond 1 and back; then 1."""
    first = min(1.0, np.sqrt(_NEARLY_LAZY / max(posterior.readout_variance(kernel), 1e-300)))
    ramp = np.geomspace(first, 1.0, max(_FEWEST_STEPS, int(-_STEPS_PER_FOLD * np.log(first)))).tolist()
    detour = np.geomspace(1.0, _RICHER, _FEWEST_STEPS).tolist() if start == "rich" and first < 1.0 else []
    return [*ramp, *detour, *detour[::-1], *[1.0] * _FEWEST_STEPS]


def _averaged(
    posterior: Posterior, state: State, step: Callable[..., Any], points: Sequence[Chains]
) -> tuple[State, float, bool]:
    """The unknowns without bias, the relative drift of Φ between the last two windows, and whether it counts as none.

    Noise of the unknowns biases their averages in proportion to the gains. Large gains find the solution; then gains
    fall, until the averages of two stages, extrapolated to a gain of zero, are close to that of the last one.
    """
    size = points[0].u.shape[1:]
    if LARGE.most(*size) > _MEASURE[0].most(*size):
        state, rough, _, _ = _stage(posterior, state, step, points, LARGE)
        if size[1] > _FEW:  # the bias fades slowly
            better = _stage(posterior, state, step, points, LARGE._replace(slower=4.0))[1]
            state = _shifted(rough, better, _AHEAD)
    stages: list[State] = []
    for gains in _MEASURE:
        state, mean, drift, settled = _stage(posterior, state, step, points, gains)
        stages.append(mean)
        if len(stages) > 1:
            last = _shifted(stages[-2], mean, _AHEAD)
            bias = np.linalg.norm(last.features - mean.features) / np.linalg.norm(last.features)
            if bias <= _LARGEST_BIAS:
                break
    return last, drift, settled and bool(bias <= _LARGEST_BIAS)


def _stage(
    posterior: Posterior, state: State, step: Callable[..., Any], points: Sequence[Chains], gains: Gains
) -> tuple[State, State, float, bool]:
    """Repeat windows of steps until two in a row agree: the state, the mean of both, drift of Φ, whether they agree."""
    windows: list[State] = []
    drift, settled, length = np.inf, False, _WINDOW * int(np.sqrt(gains.slower))
    for number in range(_MOST_WINDOWS):
        for cloud in points:
            del cloud.trace[:-length]
        windows.append(State(*(np.zeros_like(one) for one in state)))
        for _ in range(length):
            state, _ = step(state, gains=gains)
            for total, one in zip(windows[-1], state, strict=True):
                total += one / length
        if len(windows) == 1:
            continue
        drift, agree = _drift(posterior.targets, *windows[-2:])
        settled = agree and (gains.slower == 1 or gains.noise == 1.0 or drift <= _LARGEST_DRIFT)
        if settled:
            break
        length *= 2 if agree else 1  # noise hides a drift
        slow = gains.noise == 1.0 and gains.slower > 1.0 and number + 3 <= _MOST_WINDOWS
        if slow and not agree and (ahead := _steps_ahead(windows)):
            state, windows = _shifted(windows[-2], windows[-1], ahead), []
    mean = State(*(0.5 * (a + b) for a, b in zip(*windows[-2:], strict=True)))
    return state, mean, drift, settled


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
        total += second_moments(density.phi(density.preactivations(cloud.u)), weights)
        residual = float(np.linalg.norm((total / move - kernel).mean(axis=0))) / size
        if move >= _CHECKED and residual <= _LARGEST_RESIDUAL:
            break
    return residual


def _steps_ahead(windows: Sequence[State]) -> float:
    """How many of its last steps the mean is from its limit if steps shrink by one factor (Aitken); 0 if unclear."""
    if len(windows) < 3:
        return 0.0
    means = [one.features.mean(axis=1) for one in windows[-3:]]
    before, step = means[1] - means[0], means[2] - means[1]
    factor = float(np.sum(before * step) / np.sum(before**2))
    return min(factor, _LARGEST_FACTOR) / (1.0 - min(factor, _LARGEST_FACTOR)) if 0.3 < factor < 1.0 else 0.0


def _shifted(first: State, second: State, ahead: float) -> State:
    return State(*(_extrapolated(a, b, ahead) for a, b in zip(first, second, strict=True)))


def _extrapolated(first: Array, second: Array, ahead: float) -> Array:
    """second + ahead · (second − first) for small differences, along a curve of positive definite matrices."""
    values, vectors = np.linalg.eigh(second)
    root = vectors * np.sqrt(np.maximum(values, 1e-12 * values[..., -1:]))[..., None, :]
    inverse = np.linalg.inv(root)
    ratios, turn = np.linalg.eigh(inverse @ first @ inverse.swapaxes(-1, -2))
    turned = root @ turn
    return np.asarray(
        (turned * (np.clip(ratios, 0.1, 10.0) ** -ahead)[..., None, :]) @ turned.swapaxes(-1, -2)
    )


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
