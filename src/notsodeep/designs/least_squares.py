"""Bounded least squares over the layers of a network, from a few starts in a fixed order.

The unknowns of a layer are its angles and shape parameters (`LayerKind.coordinates`); the gauge of docs/theory.md (7.7)
is fixed by working without units.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from notsodeep.designs.matching_equations import EXACT, Candidate, Equations, LayerKind
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
