"""Bounded least squares over the layers of a family, from a few starts in a fixed order.

The unknowns of a layer are two angles (its linear share, and how the rest splits into even and odd) and its shape
parameters; signs are fixed by the ranges of the angles, the gauge of docs/theory.md (7.7) by working at unit scale.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from notsodeep.designs.goal import Goal, reached
from notsodeep.designs.parts import EXACT
from notsodeep.designs.reduce import Candidate
from notsodeep.designs.units import HardTanh, Layer, Unit

Array = NDArray[np.float64]

# The residual that the solver aims for.
AIM = 1e-13
# Angles stay off the corners, where a weight vanishes and with it the derivative.
_CORNER = 1e-9
# Part of the diagonal below which a coefficient counts as small in the first steps.
_SOFT = 0.05


@dataclass(frozen=True)
class _Slot:
    """Where the unknowns of one unit stand in the vector."""

    unit: Unit
    start: int
    odd_only: bool

    @property
    def angles(self) -> int:
        if isinstance(self.unit, HardTanh):
            return 0
        return 1 if self.odd_only or not self.unit.has_odd else 2

    @property
    def stop(self) -> int:
        return self.start + self.angles + len(self.unit.bounds)

    def bounds(self) -> list[tuple[float, float]]:
        if self.angles == 0:
            return list(self.unit.bounds)
        quarter = math.pi / 2
        tilt = (-quarter, quarter) if self.odd_only else (_CORNER, quarter - _CORNER)
        return [tilt, *[(-quarter, quarter)][: self.angles - 1], *self.unit.bounds]

    def layer(self, vector: Array) -> Layer:
        values = [float(value) for value in vector[self.start : self.stop]]
        knots = tuple(values[self.angles :])
        if isinstance(self.unit, HardTanh):
            return self.unit.at(knots[0])
        linear, side = math.cos(values[0]), math.sin(values[0])
        if self.odd_only:
            return self.unit.layer(linear, 0.0, side, knots)
        turn = values[1] if self.angles == 2 else 0.0
        return self.unit.layer(linear, side * math.cos(turn), side * math.sin(turn), knots)

    def values(self, layer: Layer) -> list[float]:
        """The unknowns that stand for a layer."""
        tilt = math.acos(min(layer.linear, 1.0))
        if self.odd_only:
            tilt = math.copysign(tilt, layer.odd)
        angles = [tilt, math.atan2(layer.odd, layer.even)][: self.angles]
        return [*angles, *layer.knots]


@dataclass(frozen=True)
class Effort:
    """How long to search: starting points, steps from each, and whether small coefficients wait for the large ones."""

    starts: int
    steps: int
    soften: bool


# A solution that exists is found in some ten steps; the thorough search is for the best approximation.
QUICK = Effort(starts=3, steps=25, soften=False)
THOROUGH = Effort(starts=6, steps=120, soften=True)


class Problem:
    """The residuals of a chain of units against a goal, as a function of one vector."""

    def __init__(self, goal: Goal, units: Sequence[Unit]) -> None:
        self.goal, self.units = goal, tuple(units)
        self.slots: list[_Slot] = []
        position = 0
        for unit in units:
            # An odd target keeps its layers odd; a family without an odd part has no choice.
            self.slots.append(_Slot(unit, position, goal.is_odd and unit.has_odd))
            position = self.slots[-1].stop
        self.size = position
        self._wanted, self._scales = goal.as_array(), goal.scales()

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds; for the tangent kernel the last unknown is the logarithm of the output energy."""
        ranges = [pair for slot in self.slots for pair in slot.bounds()]
        if self.goal.tangent:
            centre = math.log(self.goal.diagonal / (len(self.units) + 1))
            ranges.append((centre - 5.0, centre + 2.0))
        low, high = zip(*ranges, strict=True)
        return np.array(low), np.array(high)

    def candidate(self, vector: Array) -> Candidate:
        """The layers that a vector stands for."""
        energy = math.exp(float(vector[-1])) if self.goal.tangent else self.goal.diagonal
        return Candidate(tuple(slot.layer(vector) for slot in self.slots), self.units, energy)

    def vector(self, candidate: Candidate) -> Array:
        """The vector that stands for a candidate, inside the bounds."""
        values = [
            v for slot, layer in zip(self.slots, candidate.layers, strict=True) for v in slot.values(layer)
        ]
        if self.goal.tangent:
            values.append(math.log(candidate.energy))
        return np.clip(values, *self.bounds)

    def residuals(self, vector: Array) -> Array:
        """Relative residuals of the four equations."""
        return residuals(self.goal, self.candidate(vector), self._scales)

    def softened(self, vector: Array) -> Array:
        """Residuals relative to no less than a part of the diagonal."""
        floor = _SOFT * self.goal.diagonal
        return residuals(self.goal, self.candidate(vector), np.maximum(self._scales, floor))

    def starts(self) -> Iterator[Array]:
        """Starting points: the linear share spread over the layers, its rest even, odd or between."""
        low, high = self.bounds
        share = min(self.goal.linear / self.goal.diagonal, 0.98)
        tilt = math.acos(math.sqrt(max(share, 0.05)) ** (1.0 / len(self.units)))
        for tilts, turns, place in _PATTERNS:
            vector = np.empty(len(low))
            for number, slot in enumerate(self.slots):
                angles = [tilt * tilts[number % 3], turns[number % 3]][: slot.angles]
                inner = [a + place * (b - a) for a, b in slot.unit.bounds]
                vector[slot.start : slot.stop] = [*angles, *inner]
            if self.goal.tangent:
                vector[-1] = math.log(self.goal.diagonal / (len(self.units) + 1))
            yield np.clip(vector, low + 1e-6, high - 1e-6)


# Factors on the tilt of each layer, turns towards the odd part, place of the shape parameters in their range.
_PATTERNS: tuple[tuple[tuple[float, ...], tuple[float, ...], float], ...] = (
    ((1.0, 1.0, 1.0), (0.3, 0.3, 0.3), 0.25),
    ((1.0, 1.0, 1.0), (-0.3, -0.3, -0.3), 0.25),
    ((0.5, 1.3, 0.5), (-0.8, 0.4, 0.8), 0.35),
    ((1.3, 0.5, 0.5), (0.4, 0.8, -0.8), 0.35),
    ((0.5, 1.3, 1.0), (0.8, -0.4, -0.8), 0.6),
    ((1.3, 0.5, 1.0), (-0.4, -0.8, 0.8), 0.6),
)


def residuals(goal: Goal, candidate: Candidate, scales: Array | None = None) -> Array:
    """Relative residuals of the four equations, in the order of `EQUATIONS`."""
    found = candidate.energy * reached(candidate.layers, tangent=goal.tangent)
    return np.asarray((found - goal.as_array()) / (goal.scales() if scales is None else scales))


def least_squares(goal: Goal, units: Sequence[Unit], effort: Effort) -> Candidate:
    """The best layers of these units: the first exact ones, else those of the smallest residual."""
    problem = Problem(goal, units)
    best: tuple[float, Array] | None = None
    for start in itertools.islice(problem.starts(), effort.starts):
        if effort.soften:
            # Where a coefficient is small, its relative error would be all that the first steps see.
            start = descend(problem.softened, start, problem.bounds, effort.steps, least_gain=1e-3)
        vector = descend(problem.residuals, start, problem.bounds, effort.steps)
        worst = float(np.abs(problem.residuals(vector)).max())
        if best is None or worst < 0.999 * best[0]:
            best = (worst, vector)
        if worst <= EXACT * 1e-2:
            break
    if best is None:
        raise RuntimeError("a problem has at least one starting point")
    return problem.candidate(best[1])


def descend(
    function: Callable[[Array], Array],
    start: Array,
    bounds: tuple[Array, Array],
    steps: int,
    least_gain: float = 1e-10,
) -> Array:
    """Levenberg–Marquardt inside the bounds, for few equations: each step solves a system of their number.

    It stops at the aim, when a step gains less than `least_gain` of the sum of squares, or after `steps` steps.
    """
    low, high = bounds
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
