"""Which students are tried for a teacher, and what their fits start from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from notsodeep.designs import design
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.step_fit import Equilibria, FittedSteps, feedback_directions, fit_steps
from notsodeep.nets.students import StepsNet, chosen_units, first_steps, narrowed

# Steps after which the DEQ is cut, to have the baseline at every price; numbers of steps fitted in closed form only.
CUTS, CLOSED_FORMS = (1, 2, 3, 4, 5, 6, 8), (3, 4, 5, 7)
# Weights of low rank have one direction for so many units, and at least so many.
_UNITS_PER_DIRECTION, _FEWEST_DIRECTIONS = 8, 8
# Features that are read out at most where the last step alone has fewer: beyond it the closed form takes long.
_READ = 3400
# Observations of equilibria by which units are chosen.
_STATES = 4000
# Observations for each weight of a unit from which on steps fitted to equilibria were always the best start.
_MANY = 14
_LARGEST_VARIANCE = 0.99

# A start: what it is, in words, and the network.
Start = tuple[str, StepsNet]


@dataclass(frozen=True)
class Plan:
    """A student to be fitted.

    Attributes:
        words: what it is.
        all_weights: whether all weights are to be fitted after the closed form.
        starts: networks to begin with; the one that is best in closed form is taken.
    """

    words: str
    all_weights: bool
    starts: Callable[[], Iterator[Start]]


@dataclass(frozen=True)
class _Shape:
    """Of a student.

    Attributes:
        count: its steps.
        width: its units.
        rank: of the feedback; None for whole.
        guessed: whether the first step guesses the feedback.
        plain: whether only the last step is read out, as of the DEQ cut: it costs no more.
    """

    count: int
    width: int
    rank: int | None = None
    guessed: bool = False
    plain: bool = False


class OwnSteps:
    """Students of a DEQ: its own first steps.

    Args:
        teacher: the DEQ.
        X: the rows to fit to.
        width: units of the students; None for the teacher's, and for some students half as many.
        steps: numbers of steps whose weights are all fitted.
        batch: rows at a time.
    """

    def __init__(
        self, teacher: EquilibriumNet, X: Tensor, width: int | None, steps: tuple[int, ...], batch: int
    ) -> None:
        self.teacher, self.X, self.width, self.steps, self.batch = teacher, X, width, steps, batch
        self.weights = teacher.plain_weights()
        if width is not None and width > teacher.units:
            raise InputError(f"width={width} is not between 1 and the {teacher.units} units of the teacher.")

    def cuts(self) -> dict[str, StepsNet]:
        """The DEQ stopped early, nothing fitted."""
        return {f"DEQ cut after {_steps(count)}": first_steps(self.teacher, count) for count in CUTS}

    def plans(self) -> Iterator[Plan]:
        """Whole and low-rank steps, of all units and of half of them; beyond `steps` in closed form only."""
        units = self.teacher.units
        width = self.width or units
        low = _rank(width) < width // 2
        yield self._plan(_Shape(1, width, plain=True), False)
        for count in self.steps:
            yield self._plan(_Shape(count, width, guessed=low and count > 1), True)
            if count > 1 and low:
                yield self._plan(_Shape(count, width, _rank(width), guessed=True), True)
            if count == 2 and low:
                yield self._plan(_Shape(count, width, _rank(width), guessed=False), True)
        half = units // 2
        if self.width is None and half and 2 in self.steps:
            rank = _rank(half) if _rank(half) < half // 2 else None
            yield self._plan(_Shape(2, half, rank, guessed=rank is not None), True)
        for count in CLOSED_FORMS:
            if count > max(self.steps):
                yield self._plan(_Shape(count, width, guessed=low), False)

    def whole(self, count: int) -> Plan:
        """Some whole steps in closed form, as `plans` has them."""
        width = self.width or self.teacher.units
        return self._plan(_Shape(count, width, guessed=_rank(width) < width // 2 and count > 1), False)

    def _plan(self, shape: _Shape, all_weights: bool) -> Plan:
        words = f"{_steps(shape.count)} of its own"
        if shape.width != self.teacher.units:
            words += f", {shape.width} of {self.teacher.units} units"
        if shape.rank is not None:
            words += f", rank {shape.rank}"
        if shape.rank is not None and not shape.guessed:
            words += " without a guess"
        if shape.plain:
            words += ", the last step read out alone"
        return Plan(
            words,
            all_weights,
            lambda: self._starts(shape),
        )

    def _built(self, weights: PlainWeights, shape: _Shape) -> StepsNet:
        teacher = self.teacher
        units = len(weights.recurrent)
        features = teacher.connection.features_of(units)
        read, direct = (1, False) if shape.plain else _readable(features, prod(teacher.sample_shape))
        return StepsNet(
            weights,
            teacher.spec.activation,
            teacher.connection,
            teacher.sample_shape,
            shape.count,
            rank=shape.rank,
            guess=min(_rank(units), units) if shape.guessed else 0,
            read=read,
            direct=direct,
        )

    def _starts(self, shape: _Shape) -> Iterator[Start]:
        """Steps fitted to the DEQ's equilibria; where rows are few also it cut, and with the scales of its twin."""
        weights, equilibria = self._cell(shape.width)
        fitted = self._built(weights, shape)
        begun = self._begun.setdefault((shape.width, shape.rank, shape.guessed), FittedSteps())
        if fit_steps(fitted, equilibria, self.batch, begun):
            yield "steps fitted to its equilibria", fitted
            seen = weights.recurrent[0].numel()
            if len(equilibria.X) * equilibria.positions >= _MANY * seen:
                return
        yield "its own weights", self._own(weights, equilibria, shape)
        scales = injected_scales(
            weights, self.teacher.spec.activation, self.teacher.connection, self.X, shape.count
        )
        if scales is not None:
            scaled = self._own(weights, equilibria, shape)
            scaled.rescale(*scales)
            yield "scales of the injected twin", scaled

    def _own(self, weights: PlainWeights, equilibria: Equilibria, shape: _Shape) -> StepsNet:
        """The cell cut after some steps; weights of low rank keep the directions in which feedback varies most."""
        student = self._built(weights, shape)
        for number, feedback in enumerate(student.feedback.steps(), student.first_feedback()):
            if feedback.rank is not None:
                directions = feedback_directions(student, equilibria, feedback.rank)
                kept = weights.recurrent if number > 1 else torch.zeros_like(weights.recurrent)
                feedback.set_weights(kept, directions)
        return student

    @cached_property
    def _equilibria(self) -> Equilibria:
        return Equilibria.of(self.teacher, self.X, self.batch)

    def _cell(self, width: int) -> tuple[PlainWeights, Equilibria]:
        """The teacher's cell and its equilibria, or those of some of its units."""
        teacher, equilibria = self.teacher, self._equilibria
        if width == teacher.units:
            return self.weights, equilibria
        if width not in self._narrow:
            rows = max(1, _STATES // teacher.connection.count)
            with torch.no_grad():
                states = teacher._settings.phi(equilibria.inner[:rows]) * math.sqrt(teacher.units)
            chosen, mix = chosen_units(states, teacher.connection, teacher.units, width)
            self._narrow[width] = narrowed(self.weights, chosen, mix), equilibria.of_units(chosen)
        return self._narrow[width]

    @cached_property
    def _begun(self) -> dict[tuple[int, int | None, bool], FittedSteps]:
        return {}

    @cached_property
    def _narrow(self) -> dict[int, tuple[PlainWeights, Equilibria]]:
        return {}


def injected_scales(
    weights: PlainWeights, phi: Activation, connection: Connection, X: Tensor, count: int
) -> tuple[list[float], list[float]] | None:
    """How the injected twin of a cell with these variances scales its steps, (7.11); None where there is none.

    A bias is a constant column of the rows: it is scaled as they are. Filters have the twin that they have on images of
    one colour.
    """
    sigma_a2 = min(float(weights.recurrent.square().sum()) / len(weights.recurrent), _LARGEST_VARIANCE)
    sigma_b2 = float(weights.inputs.square().mean()) * connection.taps
    if not (1 <= count <= 3 and sigma_a2 > 0.0 and sigma_b2 > 0.0):
        return None
    square = float(X.square().flatten(1).sum(1).mean()) / connection.count
    square += float(weights.bias.square().mean()) / sigma_b2
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = DEQ(phi, sigma_a2, sigma_b2)
            network = design(model, math.sqrt(square), "ck", "injected", layers=count).network
    except (InputError, ConvergenceError):
        return None
    recurrent = [math.sqrt(one / sigma_a2) for one in network.weights[1:]]
    gains = [math.sqrt(one / sigma_b2) for one in (network.weights[0], *network.inject)]
    return recurrent, gains


def _readable(features: int, inputs: int) -> tuple[int, bool]:
    """How many steps are read out, and whether the input is: as much as has a readout in closed form soon."""
    for read, direct in ((2, True), (1, True), (2, False)):
        if read * features + direct * inputs <= _READ:
            return read, direct
    return 1, False


def _rank(units: int) -> int:
    return max(_FEWEST_DIRECTIONS, units // _UNITS_PER_DIRECTION)


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count > 1)}"


__all__ = ["CLOSED_FORMS", "CUTS", "OwnSteps", "Plan", "injected_scales"]
