"""Bounded least squares over the layers of a network, and what freedom it leaves spent on the norms of the samples.

The unknowns of a layer are its angles and shape parameters (`LayerKind.coordinates`); the gauge of docs/theory.md (7.7)
is fixed by working without units, and starts come in a fixed order.

The scalars of docs/theory.md (7.1) fix the kernel at one norm τ0. Real rows have different norms, and two exact
designs may differ in how their kernels change with them: their drift. What freedom a family has left is spent on it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from notsodeep.designs.matching_equations import EXACT, Candidate, Equations, LayerKind
from notsodeep.equivalents.expansion import exact_diagonal, expand
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array

# The residual that the solver aims for.
AIM = 1e-13
# Part of the diagonal below which a coefficient counts as small in the first steps.
_SOFT = 0.05
# Factors on the tilt of each layer, turns towards the odd part, place of the shape parameters in their range.
_PATTERNS: tuple[tuple[tuple[float, ...], tuple[float, ...], float], ...] = (
    ((1.0, 1.0, 1.0), (0.3, 0.3, 0.3), 0.25),
    ((1.0, 1.0, 1.0), (-0.3, -0.3, -0.3), 0.25),
    ((0.5, 1.3, 0.5), (-0.8, 0.4, 0.8), 0.35),
    ((1.3, 0.5, 0.5), (0.4, 0.8, -0.8), 0.35),
    ((0.5, 1.3, 1.0), (0.8, -0.4, -0.8), 0.6),
    ((1.3, 0.5, 1.0), (-0.4, -0.8, 0.8), 0.6),
)


class Problem:
    """The residuals of networks with layers of one kind, as a function of one vector of unknowns."""

    def __init__(self, equations: Equations, kind: LayerKind, layers: int) -> None:
        self.equations, self.kind, self.layers = equations, kind, layers
        # An odd target keeps its layers odd; a kind without an odd part has no choice.
        self._odd_only = equations.is_odd and kind.has_odd
        ranges = kind.coordinate_bounds(self._odd_only)
        self._stride = len(ranges)
        ranges = ranges * layers
        if equations.tangent:
            # The last unknown is the logarithm of the output's energy; of a conjugate kernel it is the diagonal.
            self._log_energy = math.log(equations.diagonal / (layers + 1))
            ranges.append((self._log_energy - 5.0, self._log_energy + 2.0))
        self.low, self.high = np.array(ranges).T
        self._scales = equations.scales()

    def candidate(self, vector: Array) -> Candidate:
        """The network that a vector stands for."""
        energy = math.exp(float(vector[-1])) if self.equations.tangent else self.equations.diagonal
        parts = vector[: self._stride * self.layers].reshape(self.layers, -1).tolist()
        layers = tuple(self.kind.from_coordinates(part, self._odd_only) for part in parts)
        return Candidate(self.kind, layers, energy)

    def vector(self, candidate: Candidate) -> Array:
        """The vector that stands for a network, inside the bounds."""
        values = [v for layer in candidate.layers for v in self.kind.coordinates(layer, self._odd_only)]
        if self.equations.tangent:
            values.append(math.log(candidate.energy))
        return np.clip(values, self.low, self.high)

    def residuals(self, vector: Array, floor: float = 0.0) -> Array:
        """Residuals of the four equations, relative to their scale or to a part `floor` of the diagonal."""
        scales = np.maximum(self._scales, floor * self.equations.diagonal)
        return self.equations.residuals(self.candidate(vector), scales)

    def starts(self) -> Iterator[Array]:
        """Starting points: the linear share spread over the layers, its rest even, odd or between."""
        share = min(self.equations.linear / self.equations.diagonal, 0.98)
        tilt = math.acos(math.sqrt(max(share, 0.05)) ** (1.0 / self.layers))
        count = self.kind.angles(self._odd_only)
        for tilts, turns, place in _PATTERNS:
            inner = [a + place * (b - a) for a, b in self.kind.bounds]
            values: list[float] = []
            for number in range(self.layers):
                values += [*[tilt * tilts[number % 3], turns[number % 3]][:count], *inner]
            if self.equations.tangent:
                values.append(self._log_energy)
            yield np.clip(values, self.low + 1e-6, self.high - 1e-6)


def best_network(equations: Equations, kind: LayerKind, layers: int, *, thorough: bool) -> Candidate:
    """The network that meets the equations, or the one of the smallest residual.

    A solution that exists is found in some ten steps; the thorough search is for the best approximation.
    """
    starts, steps = (6, 120) if thorough else (3, 25)
    problem = Problem(equations, kind, layers)
    best, smallest = next(problem.starts()), math.inf
    for start in itertools.islice(problem.starts(), starts):
        if thorough:
            # Where a coefficient is small, its relative error would be all that the first steps see.
            soft = partial(problem.residuals, floor=_SOFT)
            start = descend(soft, start, problem.low, problem.high, steps, least_gain=1e-3)
        vector = descend(problem.residuals, start, problem.low, problem.high, steps)
        worst = float(np.abs(problem.residuals(vector)).max())
        if worst < 0.999 * smallest:
            best, smallest = vector, worst
        if worst <= EXACT * 1e-2:
            break
    return problem.candidate(best)


def descend(
    function: Callable[[Array], Array],
    start: Array,
    low: Array,
    high: Array,
    steps: int,
    least_gain: float = 1e-10,
) -> Array:
    """Levenberg–Marquardt inside the bounds, for few equations: each step solves a system of their number.

    It stops at the aim, when a step gains less than `least_gain` of the sum of squares, or after `steps` steps.
    """
    vector, value = start, function(start)
    damping = 1e-3
    slopes = _jacobian(function, vector, value, high)
    for _ in range(steps):
        moved = _step(slopes, value, damping, vector, low, high)
        found = function(moved)
        before, after = value @ value, found @ found
        if after < before:
            vector, value, damping = moved, found, max(damping * 0.2, 1e-14)
            if after < AIM**2 or before - after < least_gain * before:
                break
            slopes = _jacobian(function, vector, value, high)
        elif damping > 1e8:
            break
        else:
            damping *= 8.0
    return vector


def _step(slopes: Array, value: Array, damping: float, vector: Array, low: Array, high: Array) -> Array:
    """The damped step; unknowns that it would push through a bound stay where they are."""
    free = np.ones(len(vector), dtype=bool)
    moved = vector
    for _ in range(3):
        active = slopes[:, free]
        normal = active @ active.T
        normal[np.diag_indices_from(normal)] += damping * (np.trace(normal) / len(value) + 1e-300)
        moved = vector.copy()
        moved[free] -= active.T @ np.linalg.solve(normal, value)
        blocked = free & (((vector <= low) & (moved < low)) | ((vector >= high) & (moved > high)))
        if not blocked.any():
            break
        free &= ~blocked
        if not free.any():
            return vector
    return np.clip(moved, low, high)


def _jacobian(function: Callable[[Array], Array], vector: Array, value: Array, high: Array) -> Array:
    """Forward differences, backward at an upper bound."""
    columns = []
    for j in range(len(vector)):
        step = 1e-7 if vector[j] + 1e-7 <= high[j] else -1e-7
        shifted = vector.copy()
        shifted[j] += step
        columns.append((function(shifted) - value) / step)
    return np.array(columns).T


# --- norms of the samples ---------------------------------------------------------------------------------------------

# Squared norms, relative to τ0², at which two kernels are compared.
NORMS = np.array([0.8, 1.25])
# Drifts, as shares of the diagonal, small enough to take the simplest family of a depth, and large enough to take a
# layer more. Tangent kernels of plain networks are closer to the DEQ's to begin with: less is allowed.
SIMPLEST, DEEPER = {"ck": 0.025, "ntk": 0.01}, {"ck": 0.05, "ntk": 0.02}
# Candidates looked at; in the refinement: networks evaluated, what the drift weighs against the equations, and the
# relative gain below which it stops.
_LOOK, _EVALUATIONS, _WEIGHT, _GAIN = 12, 100, 0.1, 0.05


class NormResponse:
    """The diagonal and the linear coefficient of a model's kernel at norms around τ0.

    Attributes:
        enough: the drift up to which no other family of the same depth is tried.
        tolerable: the drift up to which no deeper network is tried.

    Networks are compared with the diagonal less `constant`, which a bias adds to every entry.
    """

    def __init__(self, model: DEQ | Explicit, tau0: float, kernel: str, constant: float = 0.0) -> None:
        self.tau0, self.kernel = tau0, kernel
        group = "ck" if kernel == "ck" else "ntk"
        self.enough, self.tolerable = SIMPLEST[group], DEEPER[group]
        self._size = float(exact_diagonal(model, np.array([tau0**2]), kernel)[0])
        self._wanted = self._of(model)
        self._wanted[: len(NORMS)] -= constant

    def _of(self, model: DEQ | Explicit) -> Array:
        squares = self.tau0**2 * NORMS
        diagonal = exact_diagonal(model, squares, self.kernel)
        slopes = expand(model, squares, squares, self.kernel, 1, 0.0)[1].diagonal()
        return np.concatenate([diagonal, self.tau0**2 * slopes])

    def mismatch(self, network: Explicit) -> Array:
        """Differences between the network's kernel and the model's at these norms, relative to the diagonal."""
        return np.asarray((self._of(network) - self._wanted) / self._size)

    def drift(self, network: Explicit) -> float:
        """The largest difference between the network's kernel and the model's, relative to the diagonal."""
        return float(np.abs(self.mismatch(network)).max())


def least_drift(
    equations: Equations, candidates: Sequence[Candidate], response: NormResponse
) -> tuple[Candidate, float]:
    """Of exact candidates the one that drifts least, refined along the designs that stay exact, with its drift."""
    stride = max(1, -(-len(candidates) // _LOOK))
    measured = [(response.drift(c.network(response.tau0)), c) for c in candidates[::stride]]
    drift, best = min(measured, key=lambda entry: entry[0])
    if not best.kind.has_freedom:
        return best, drift
    refined = _refined(equations, best, response)
    if equations.largest_residual(refined) > EXACT / 10.0:
        return best, drift
    after = response.drift(refined.network(response.tau0))
    return (refined, after) if after < 0.9 * drift else (best, drift)


def _refined(equations: Equations, start: Candidate, response: NormResponse) -> Candidate:
    """First the equations together with the drift, then the equations alone from there: the nearest exact design."""
    problem = Problem(equations, start.kind, len(start.layers))

    def together(vector: Array) -> Array:
        network = problem.candidate(vector).network(response.tau0)
        return np.concatenate([problem.residuals(vector), _WEIGHT * response.mismatch(network)])

    vector = problem.vector(start)
    steps = _EVALUATIONS // len(vector)
    near = descend(together, vector, problem.low, problem.high, steps, least_gain=_GAIN)
    return problem.candidate(descend(problem.residuals, near, problem.low, problem.high, 40))
