"""All networks that are tried in place of a teacher, each fitted to its outputs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
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
from notsodeep.nets.torch_activation import TorchActivation

# Steps after which a cell is cut; own steps of a DEQ beyond those that are trained, in closed form only.
CUTS, CLOSED_FORMS = (1, 2, 3, 4, 5, 6, 8, 12), (3, 4, 5, 7)
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
        steps: numbers of own steps of a DEQ for which all weights are trained as well.
        epochs: passes over the rows of such a training; 0 for closed forms only.
    """
    network = teacher.network
    hidden: Sequence[tuple[int, ...]] = _MLPS
    if network is not None:
        yield from _unrolled(DEQCell(network), fitter)
        yield from _own_steps(network, fitter, steps, epochs)
        units = max(_LEAST_MLP, min(_MOST_MLP, network.layer_size))
        hidden = ((units // 2,), (units,))
    elif teacher.cell is not None:
        yield from _unrolled(teacher.cell, fitter)
    X, Y = fitter.train
    student = PlainMLP(X, (), Y.shape[1])
    if fitter.readout(student):
        yield Draft("linear map", "mlp", student)
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
        yield Draft(f"cut after {name}", "cut", UnrolledCell(cell, count))
        refitted = UnrolledCell(cell, count)
        if fitter.readout(refitted):
            yield Draft(f"cut after {name}, readout refitted", "refitted", refitted)
        if count == 1:
            continue
        # From the teacher's own readout: a refitted one would hold the factors near 1.
        relaxed = UnrolledCell(cell, count)
        fitter.relaxation(relaxed, factors)
        refit = fitter.readout(relaxed)
        if refit:
            fitter.relaxation(relaxed, relaxed.relaxation)
            fitter.readout(relaxed)
        factors = relaxed.relaxation
        if factors is not None:
            words = ", readout refitted" if refit else ""
            yield Draft(f"{name} with relaxation{words}", "relaxed", relaxed)


def _own_steps(teacher: EquilibriumNet, fitter: Fitter, steps: Sequence[int], epochs: int) -> Iterator[Draft]:
    """The first steps of a DEQ, each with weights of its own, docs/theory.md (12.1); of all units and of half."""
    units, weights = teacher.units, teacher.plain_weights()
    equilibria = Equilibria.of(teacher, fitter.train[0])
    longer = [count for count in CLOSED_FORMS if count > max(steps)]
    yield from _family(teacher, weights, equilibria, fitter, [*steps, *longer], epochs, len(steps))
    if units > 1:
        rows = max(1, _STATES // teacher.connection.count)
        with torch.no_grad():
            states = TorchActivation(teacher.spec.activation)(equilibria.inner[:rows])
        kept, mix = representative_units(states, teacher.connection, units, units // 2)
        small, counts = narrowed(weights, kept, mix), [count for count in steps if count < 3]
        yield from _family(teacher, small, equilibria.of_units(kept), fitter, counts, epochs, len(counts))


def _family(
    teacher: EquilibriumNet,
    weights: PlainWeights,
    equilibria: Equilibria,
    fitter: Fitter,
    counts: Sequence[int],
    epochs: int,
    trained: int,
) -> Iterator[Draft]:
    """Students of one width, in closed form; the first `trained` of them also with all weights trained."""
    units = len(weights.recurrent)
    words = f", {units} of {teacher.units} units" if units != teacher.units else ""
    # Steps are fitted one after the other, so that all students share the first ones.
    longest = StepsNet(teacher, weights, max(counts, default=1))
    has_fit = longest.length > 1 and fit_steps(longest, equilibria)
    few = len(equilibria.X) * equilibria.positions < _MANY * weights.recurrent[0].numel()
    for number, count in enumerate(counts):
        name = f"{_steps(count)} of its own{words}"
        fitter.report(number, len(counts), partial(str, name))
        student = StepsNet(teacher, weights, count)
        if count == 1:
            fit_steps(student, equilibria)
        elif has_fit:
            for mine, fitted in ((student.recurrent, longest.recurrent), (student.biases, longest.biases)):
                for one, other in zip(mine, fitted, strict=False):
                    one.data.copy_(other)
        fitter.readout(student)
        if few:
            plain = StepsNet(teacher, weights, count)
            fitter.readout(plain)
            student = min(student, plain, key=fitter.error)
        yield Draft(f"{name}, closed form", "closed form", student)
        if epochs and number < trained:
            student = copy.deepcopy(student)
            fitter.all_weights(student, epochs, name, units)
            yield Draft(f"{name}, all weights trained", "trained", student)


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count > 1)}"


__all__ = ["CLOSED_FORMS", "CUTS", "Draft", "all_candidates"]
