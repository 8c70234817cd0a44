"""`distill`: fit candidates to the outputs of a trained network, and choose the fastest one that gives its answers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from notsodeep.distillation.certainty import (
    agreement,
    agreement_interval,
    relative_error,
    risk_of_claim,
    seconds_per_call,
)
from notsodeep.distillation.distilled import Candidate, Distilled, choose
from notsodeep.distillation.fitting import (
    Equilibria,
    Fitter,
    Part,
    fit_steps,
    in_batches,
    narrowed,
    representative_units,
)
from notsodeep.distillation.guard import ErrorEstimate
from notsodeep.distillation.student_networks import (
    DEQCell,
    ModuleCell,
    PlainMLP,
    StepsNet,
    Student,
    UnrolledCell,
)
from notsodeep.distillation.teachers import Split, Teacher, read_samples, split_rows
from notsodeep.errors import InputError
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.progress import Report, reported
from notsodeep.validation import as_count

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
        name: description in words.
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


def distill(
    teacher: Any,
    X: Any,
    *,
    target_agreement: float = 0.99,
    batch_size: int = 256,
    steps: Sequence[int] = (1, 2, 3),
    epochs: int = 8,
    seed: int = 0,
    cell: Callable[[Tensor, Tensor], Tensor] | None = None,
    readout: Callable[[Tensor], Tensor] | None = None,
    z0: Any = None,
    progress: bool | Report = True,
) -> Distilled:
    """Replace a trained network by a fast explicit one that gives the same answers; no labels are needed.

    Candidates for a DEQ: cut after a few steps, as it is, with a refitted readout, and with one relaxation factor for
    each step; a few steps with weights of their own, docs/theory.md (12.1), fitted in closed form and trained; MLPs
    trained on its outputs. For another module with a known `cell`: the cut cell and MLPs. For any other module or
    function: MLPs of several sizes. The result is the fastest measured candidate whose agreement certainly reaches the
    target, (12.5); if none does, the most faithful one, or a faster one that cannot be distinguished from it. The
    teacher is copied and never changed.

    Args:
        teacher: a `DEQNet` or a `ConvDEQNet` (`from_weights` makes one of weights that were trained anywhere), any
            other torch module, or a function from samples to outputs (rows, outputs). Modules are copied and put in
            evaluation mode; a function is called as it is.
        X: samples without labels, as the teacher sees them: an array, a tensor or a DataLoader, of rows or images. Use
            held-out samples: a teacher is more confident on its training samples.
        target_agreement: share of samples with the same class; for a single output the share of variance explained.
        batch_size: samples of a forward pass in use; times are measured for it.
        steps: numbers of own steps of a DEQ for which all weights are trained as well.
        epochs: passes over the samples in a training; 0 for closed forms only.
        seed: random seed of the split, the shuffling and the MLPs.
        cell: for a module other than a DEQNet, its function cell(z, x), which returns the next state.
        readout: with `cell`, the function from the last state to the outputs.
        z0: with `cell`, the first state: a tensor of the shape of one state, or a function of the samples; zero if
            `readout` is a `torch.nn.Linear` and z0 is None.
        progress: a bar on a terminal after two seconds; False for none,
            or a function that is called with the number of batches done, the number of
            all batches of the present fit, and a function that returns a message. An exception that it raises stops the
            distillation.

    Raises:
        InputError: for input that cannot be used, such as too few samples.
        ConvergenceError: if the teacher has no finite output for most samples.
    """
    if not 0.0 < float(target_agreement) <= 1.0:
        raise InputError(
            f"target_agreement must be above 0 and at most 1, such as 0.99; got {target_agreement!r}."
        )
    if not len(tuple(steps)):
        raise InputError("steps is empty; give the numbers of steps to train, such as (1, 2, 3).")
    for count in steps:
        as_count(count, "steps")
    as_count(epochs, "epochs", least=0)
    as_count(batch_size, "batch_size")
    as_count(seed, "seed", least=0)
    if cell is None and (readout is not None or z0 is not None):
        raise InputError("readout= and z0= belong to cell=, the function cell(z, x) of the teacher.")
    with reported(progress, "distill") as report, torch.random.fork_rng(_devices(teacher)):
        torch.manual_seed(seed)
        samples = read_samples(X, teacher)
        copied = Teacher.of(teacher, samples, cell, readout, z0)
        outputs, usable = copied.outputs(samples, report)
        split = split_rows(samples, outputs, usable, seed, target_agreement)
        fitter = Fitter(split.train, split.validation, seed, report)
        with torch.enable_grad():
            drafts = list(all_candidates(copied, fitter, tuple(steps), epochs))
        return _measured(copied, drafts, split, float(target_agreement), batch_size, usable)


def _devices(teacher: Any) -> list[Any]:
    """The GPUs whose random state is restored."""
    parameters = teacher.parameters() if isinstance(teacher, nn.Module) else ()
    return sorted({one.device.index or 0 for one in parameters if one.device.type == "cuda"})


@torch.no_grad()
def _measured(
    teacher: Teacher, drafts: list[Draft], split: Split, target: float, batch_size: int, usable: Tensor
) -> Distilled:
    """Measure all candidates, and choose one."""
    X, Y = split.test
    batch = X.repeat(-(-batch_size // len(X)), *[1] * (X.ndim - 1))[:batch_size]
    for draft in drafts:
        draft.network.eval()
    times = seconds_per_call({"": teacher.function} | {one.name: one.network for one in drafts}, batch)
    candidates = []
    for name, kind, network in drafts:
        outputs = in_batches(network, X)
        candidates.append(
            Candidate(
                name,
                kind,
                network,
                agreement(outputs, Y),
                agreement_interval(outputs, Y),
                risk_of_claim(outputs, Y, target),
                relative_error(outputs, Y),
                times[name],
                _operations(network, X[:1]),
                _expected_error(network, split.validation),
            )
        )
    candidates.sort(key=lambda one: one.seconds)
    chosen, certain = choose(candidates)
    held_out = [torch.cat(parts) for parts in zip(split.validation, split.test, strict=True)]
    return Distilled(
        chosen,
        tuple(candidates),
        target,
        certain,
        len(X),
        batch_size,
        times[""],
        1.0 - float(usable.double().mean()),
        Y.shape[1] == 1,
        ErrorEstimate.of(held_out[0], in_batches(chosen.network, held_out[0]), held_out[1]),
    )


def _operations(network: Callable[[Tensor], Tensor], X: Tensor) -> int:
    """Multiplications of matrices and filters for one sample."""
    with FlopCounterMode(display=False) as counter:
        network(X)
    return int(counter.get_total_flops()) // 2


def _expected_error(network: Callable[[Tensor], Tensor], validation: Part) -> float:
    """The expected share of rows with another class; for a single output the relative error."""
    X, Y = validation
    outputs = in_batches(network, X)
    error = relative_error(outputs, Y)
    if not math.isfinite(error):
        return math.inf
    # Expected rather than observed: a few rows that differ say little.
    return error if Y.shape[1] == 1 else float(ErrorEstimate.of(X, outputs, Y).seen.mean())
