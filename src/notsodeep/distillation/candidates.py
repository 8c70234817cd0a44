"""All networks that are tried in place of a teacher, each fitted to its outputs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod, sqrt
from typing import NamedTuple

import torch

from notsodeep.distillation.fitting import Fitter
from notsodeep.distillation.step_fit import Equilibria, fit_steps, narrowed, representative_units
from notsodeep.distillation.student_networks import (
    DEQCell,
    ModuleCell,
    PlainMLP,
    StepsNet,
    Student,
    UnrolledCell,
)
from notsodeep.distillation.teachers import Teacher
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights

# Steps after which a cell is cut; own steps of a DEQ beyond those that are trained, in closed form only.
CUTS, CLOSED_FORMS = (1, 2, 3, 4, 5, 6, 8, 12), (3, 4, 5, 7)
# Weights of low rank have one direction for this number of units, and at least so many directions.
_UNITS_PER_DIRECTION, _FEWEST_DIRECTIONS = 8, 8
# Largest number of features that are read out where the last step alone has fewer.
_MOST_READ = 3400
# Observations of equilibria by which units are chosen.
_STATES = 4000
# Observations for each weight of a unit from which on steps fitted to equilibria were always the best start.
_MANY = 14
# Hidden layers of MLPs for teachers without known steps; passes for each epoch of other fits, since they start anew.
_MLPS, _MLP_PASSES = ((64,), (256,), (256, 256), (512, 512)), 4
_LEAST_MLP, _MOST_MLP = 64, 1024


class Draft(NamedTuple):
    """A fitted network, not yet measured.

    Attributes:
        name: what it is, in words.
        kind: "cut", "refitted", "relaxed", "closed form", "trained" or "mlp".
        network: the network.
    """

    name: str
    kind: str
    network: Student


def all_candidates(teacher: Teacher, fitter: Fitter, steps: Sequence[int], epochs: int) -> Iterator[Draft]:
    """Fit every candidate for a teacher.

    Args:
        teacher: the teacher.
        fitter: fits to its outputs.
        steps: numbers of own steps of a DEQ of which all weights are trained.
        epochs: passes over the rows of such a training; 0 for closed forms only, and no MLPs.
    """
    network = teacher.network
    hidden = _MLPS
    if network is not None:
        yield from _unrolled(DEQCell(network), fitter)
        yield from _OwnSteps(network, fitter, steps, epochs).drafts()
        units = max(_LEAST_MLP, min(_MOST_MLP, network.layer_size))
        hidden = ((units // 2,), (units,))
    elif teacher.cell is not None:
        yield from _unrolled(teacher.cell, fitter)
    X, Y = fitter.train
    # A black box has no other candidates.
    known = network is not None or teacher.cell is not None
    passes = _MLP_PASSES * (epochs if known else max(epochs, 1))
    for layers in hidden if passes else ():
        name = f"MLP with {' and '.join(map(str, layers))} hidden units"
        student = PlainMLP(X, layers, Y.shape[1])
        fitter.all_weights(student, passes, name, max(layers))
        yield Draft(name, "mlp", student)


def _unrolled(cell: DEQCell | ModuleCell, fitter: Fitter) -> Iterator[Draft]:
    """The cell cut after some steps: as it is, with a refitted readout, and with relaxation factors as well."""
    factors = None
    for place, count in enumerate(CUTS):
        name = _steps(count)
        fitter.report(place, len(CUTS), partial(str, f"cut after {name}"))
        if cell.readout is not None:
            yield Draft(f"cut after {name}", "cut", UnrolledCell(cell, count))
        refitted = UnrolledCell(cell, count)
        if fitter.readout(refitted):
            yield Draft(f"cut after {name}, readout refitted", "refitted", refitted)
        if count == 1:
            continue
        # From the teacher's own readout, if there is one: a refitted one would hold the factors near 1.
        relaxed = UnrolledCell(cell, count)
        relaxed.linear = refitted.linear if cell.readout is None else relaxed.linear
        fitter.relaxation(relaxed, factors)
        refit = fitter.readout(relaxed)
        if refit:
            fitter.relaxation(relaxed, relaxed.relaxation)
            fitter.readout(relaxed)
        factors = relaxed.relaxation
        if factors is not None:
            words = ", readout refitted" if refit else ""
            yield Draft(f"{name} with relaxation{words}", "relaxed", relaxed)


class _OwnSteps:
    """The first steps of a DEQ, each with weights of its own, docs/theory.md (12.1).

    Full rank and low rank, all units and half of them; closed forms, and the same with all weights trained.
    """

    def __init__(self, teacher: EquilibriumNet, fitter: Fitter, steps: Sequence[int], epochs: int) -> None:
        self.teacher, self.fitter, self.steps, self.epochs = teacher, fitter, tuple(steps), epochs
        self.equilibria = Equilibria.of(teacher, fitter.train[0])

    def drafts(self) -> Iterator[Draft]:
        """All of them."""
        units = self.teacher.units
        weights = self.teacher.plain_weights()
        longer = tuple(count for count in CLOSED_FORMS if count > max(self.steps))
        yield from self._family(weights, self.equilibria, None, (*self.steps, *longer))
        several = tuple(count for count in self.steps if count > 1)
        if several and _is_low(units):
            yield from self._family(weights, self.equilibria, _rank(units), several)
        half = units // 2
        if half:
            rows = max(1, _STATES // self.teacher.connection.count)
            with torch.no_grad():
                states = self.teacher._settings.phi(self.equilibria.inner[:rows]) * sqrt(units)
            kept, mix = representative_units(states, self.teacher.connection, units, half)
            rank = _rank(half) if _is_low(half) else None
            small, equilibria = narrowed(weights, kept, mix), self.equilibria.of_units(kept)
            yield from self._family(small, equilibria, rank, tuple(count for count in self.steps if count < 3))

    def _family(
        self, weights: PlainWeights, equilibria: Equilibria, rank: int | None, counts: tuple[int, ...]
    ) -> Iterator[Draft]:
        """Students of one width and rank. Steps are fitted one after the other, so that all share the first ones."""
        units, total = len(weights.recurrent), self.teacher.units
        longest = self._build(weights, max(counts, default=1), rank)
        fits = len(counts) > 0 and fit_steps(longest, equilibria)
        few = len(equilibria.X) * equilibria.positions < _MANY * weights.recurrent[0].numel()
        for count in counts:
            name = f"{_steps(count)} of its own"
            name += f", {units} of {total} units" if units != total else ""
            name += f", rank {rank}" if rank is not None and count > 1 else ""
            student = self._build(weights, count, rank)
            if count == 1 and not student.guess:
                fit_steps(student, equilibria)
            elif fits:
                _copy_steps(longest, student)
            elif rank is not None:
                continue
            self.fitter.readout(student)
            if few and rank is None:
                plain = self._build(weights, count, rank)
                self.fitter.readout(plain)
                student = min(student, plain, key=self.fitter.error)
            yield Draft(f"{name}, closed form", "closed form", student)
            if self.epochs and count in self.steps:
                trained = copy.deepcopy(student)
                self.fitter.all_weights(trained, self.epochs, name, units)
                yield Draft(f"{name}, all weights trained", "trained", trained)

    def _build(self, weights: PlainWeights, count: int, rank: int | None) -> StepsNet:
        """The DEQ cut after some steps, with room for weights of its own in each."""
        teacher, units = self.teacher, len(weights.recurrent)
        features = teacher.connection.features_of(units)
        inputs = prod(teacher.sample_shape)
        read, direct = next(
            (
                (read, direct)
                for read, direct in ((2, True), (1, True), (2, False))
                if read * features + direct * inputs <= _MOST_READ
            ),
            (1, False),
        )
        return StepsNet(
            weights,
            teacher.spec.activation,
            teacher.connection,
            teacher.sample_shape,
            count,
            rank=rank,
            guess=_rank(units) if count > 1 and _is_low(units) else 0,
            read=read,
            direct=direct,
        )


@torch.no_grad()
def _copy_steps(longest: StepsNet, student: StepsNet) -> None:
    """Take the first steps of a longer student."""
    for place, feedback in enumerate(student.feedback):
        feedback.load_state_dict(longest.feedback[place].state_dict())
        student.biases[place].copy_(longest.biases[place])


def _rank(units: int) -> int:
    return max(_FEWEST_DIRECTIONS, units // _UNITS_PER_DIRECTION)


def _is_low(units: int) -> bool:
    """Whether weights of low rank are cheaper than full ones."""
    return _rank(units) < units // 2


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count > 1)}"


__all__ = ["CLOSED_FORMS", "CUTS", "Draft", "all_candidates"]
