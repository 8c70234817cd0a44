"""`distill`: fit candidates to the outputs of a trained network, and choose the fastest one that gives its answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from notsodeep.distillation.certainty import (
    agreement,
    agreement_interval,
    relative_error,
    risk_of_claim,
    seconds_per_call,
)
from notsodeep.distillation.distilled import Candidate, Distilled, choose
from notsodeep.distillation.fitting import BATCH, Equilibria, Fitter, Part, fit_steps, in_batches
from notsodeep.distillation.guard import ErrorEstimate
from notsodeep.distillation.student_networks import (
    AcceleratedCell,
    Cell,
    PlainMLP,
    StepsNet,
    Student,
    UnrolledCell,
)
from notsodeep.distillation.teachers import (
    SAME,
    Reach,
    Split,
    Teacher,
    reach_of,
    read_samples,
    split_rows,
)
from notsodeep.errors import InputError
from notsodeep.intervals import RISK
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.modules import Net
from notsodeep.progress import Message, Report, reported
from notsodeep.validation import as_count, as_number

# Own steps of a DEQ beyond those that are trained, in closed form only.
CLOSED_FORMS = (3, 4, 5, 7)
# A cell is cut after each number of steps up to the first one, then in steps of this factor; fits of its readout and of
# relaxation end earlier than the teacher.
_EACH, _FACTOR, _MOST_FITTED = 8, 1.2, 12
# Tolerances of Anderson acceleration, up to the first that gives the teacher's answers; samples on which that is seen.
_TOLERANCES, _SEEN = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4), 1000
# Observations for each weight of a unit from which on steps fitted to equilibria were always the best start.
_MANY = 14
# Hidden layers of MLPs for teachers without known steps; passes for each epoch of other fits, since they start anew.
_MLPS, _MLP_PASSES = ((64,), (256,), (256, 256), (512, 512)), 2
_LEAST_MLP, _MOST_MLP = 16, 1024
# Sizes of batches for which a speed-up is measured as well.
_BATCH_SIZES = (1, 64, 1024)
# Share of a limit of time that fits may take; the rest measures. Runs of an MLP until it stops improving, in the
# forecast of the time; passes over a cell for a cut and its fits, and for the gradients of a relaxation; seconds that
# the measurement of a candidate takes.
_FITS, _RUNS, _PASSES, _GRADIENTS, _MEASURED = 0.8, 3, 4, 200, 0.1


class Draft(NamedTuple):
    """A fitted network, not yet measured.

    Attributes:
        name: description in words.
        kind: that of the candidate.
        network: the network.
    """

    name: str
    kind: str
    network: Student


def all_candidates(
    teacher: Teacher,
    fitter: Fitter,
    reach: Reach | None,
    plan: Sequence[tuple[Student, int]],
    steps: Sequence[int],
) -> Iterator[Draft]:
    """Fit every candidate for a teacher.

    Args:
        teacher: the teacher.
        fitter: fits to its outputs.
        reach: how many steps of its cell it takes; None if no cell is known.
        plan: networks of which all weights are trained, with the number of passes, own steps first.
        steps: numbers of own steps of a DEQ for which all weights are trained as well.
    """
    if teacher.cell is not None and reach is not None:
        yield from _unrolled(teacher.cell, reach, fitter)
        if reach.settles:
            yield from _accelerated(teacher.cell, reach, fitter)
    if teacher.network is not None:
        yield from _own_steps(teacher.network, fitter, steps, plan)
    X, Y = fitter.train
    student = PlainMLP(X, (), Y.shape[1])
    if fitter.readout(student):
        yield Draft("linear map", "mlp", student)
    for network, passes in plan:
        if isinstance(network, PlainMLP):
            name = f"MLP with {' and '.join(map(str, network.hidden))} hidden units"
            fitter.all_weights(network, passes, name, max(network.hidden), again=True)
            yield Draft(name, "mlp", network)


def _descents(teacher: Teacher, split: Split, steps: Sequence[int], epochs: int) -> list[tuple[Student, int]]:
    """The networks of which all weights are trained, with the number of passes over the rows."""
    X, Y = split.train
    plan: list[tuple[Student, int]] = []
    hidden: Sequence[tuple[int, ...]] = _MLPS
    if teacher.network is not None and epochs:
        weights = teacher.network.plain_weights()
        plan += [(StepsNet(teacher.network, weights, count), epochs) for count in steps]
    if teacher.cell is not None:
        units = teacher.cell(teacher.cell.start(drive := teacher.cell.drive(X[:1])), drive).numel()
        widths = (int(units * factor) for factor in (0.25, 0.5, 1.0, 2.0))
        hidden = [(one,) for one in dict.fromkeys(max(_LEAST_MLP, min(_MOST_MLP, one)) for one in widths)]
    # A black box has no other candidates.
    passes = _MLP_PASSES * (epochs if teacher.cell is not None else max(epochs, 1))
    return plan + [(PlainMLP(X, layers, Y.shape[1]), passes) for layers in hidden if passes]


def _cuts(reach: Reach) -> list[int]:
    """Numbers of steps up to the teacher's own."""
    counts = list(range(1, min(reach.own, _EACH) + 1))
    while counts[-1] < reach.own:
        counts.append(min(reach.own, math.ceil(_FACTOR * counts[-1])))
    return sorted({*counts, reach.same})


def _unrolled(cell: Cell, reach: Reach, fitter: Fitter) -> Iterator[Draft]:
    """The cell cut after some steps: as it is, with a refitted readout, and with relaxation factors as well."""
    factors, counts = None, _cuts(reach)
    for place, count in enumerate(counts):
        name = _steps(count)
        fitter.report(place, len(counts), partial(str, f"cut after {name}"))
        yield Draft(f"cut after {name}", "cut", UnrolledCell(cell, count))
        if count > _MOST_FITTED or fitter.is_late:
            continue
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


def _accelerated(cell: Cell, reach: Reach, fitter: Fitter) -> Iterator[Draft]:
    """The cell by Anderson acceleration, to tolerances down to the loosest that gives the teacher's answers."""
    X, Y = (part[:_SEEN] for part in fitter.train)
    for tolerance in _TOLERANCES:
        student = AcceleratedCell(cell, tolerance, 2 * reach.own)
        yield Draft(f"Anderson acceleration to {tolerance:g}", "accelerated", student)
        if agreement(in_batches(student, X), Y) >= SAME:
            return


def _own_steps(
    teacher: EquilibriumNet, fitter: Fitter, steps: Sequence[int], plan: Sequence[tuple[Student, int]]
) -> Iterator[Draft]:
    """The first steps of a DEQ, each with weights of its own, docs/theory.md (12.1)."""
    weights, equilibria = teacher.plain_weights(), Equilibria.of(teacher, fitter.train[0])
    counts = [*steps, *(count for count in CLOSED_FORMS if count > max(steps))]
    # Steps are fitted one after the other, so that all students share the first ones.
    longest = StepsNet(teacher, weights, max(counts))
    has_fit = longest.length > 1 and fit_steps(longest, equilibria)
    few = len(equilibria.X) * equilibria.positions < _MANY * weights.recurrent[0].numel()
    for number, count in enumerate(counts):
        name = f"{_steps(count)} of its own"
        fitter.report(number, len(counts), partial(str, name))
        student = StepsNet(teacher, weights, count)
        if count == 1:
            fit_steps(student, equilibria)
        elif has_fit:
            student.layers.load_state_dict(longest.layers[: count - 1].state_dict())
            for mine, fitted in zip(student.biases, longest.biases, strict=False):
                mine.data.copy_(fitted)
        fitter.readout(student)
        if few:
            plain = StepsNet(teacher, weights, count)
            fitter.readout(plain)
            student = min(student, plain, key=fitter.error)
        yield Draft(f"{name}, closed form", "closed form", student)
        for network, passes in plan:
            if isinstance(network, StepsNet) and network.steps == count:
                network.load_state_dict(student.state_dict())
                fitter.all_weights(network, passes, name, teacher.units)
                yield Draft(f"{name}, all weights trained", "trained", network)


def _forecast(
    teacher: Teacher, fitter: Fitter, reach: Reach | None, plan: Sequence[tuple[Student, int]]
) -> float:
    """Seconds that the fits will take, from the time of one batch of each kind."""
    X = fitter.train[0][:BATCH]
    seconds, rows = 0.0, sum(len(part[0]) for part in (fitter.train, fitter.validation))
    if teacher.cell is not None and reach is not None:
        step = seconds_per_call({"": UnrolledCell(teacher.cell, _EACH)}, X)[""] / _EACH
        counts = _cuts(reach)
        fitted = sum(count for count in counts if count <= _MOST_FITTED)
        seconds += step * (sum(counts) * _PASSES * rows / len(X) + fitted * _GRADIENTS)
    for network, passes in plan:
        runs = 2**_RUNS - 1 if isinstance(network, PlainMLP) else 1
        seconds += runs * passes * fitter.seconds_per_pass(network)
    return seconds + _MEASURED * (3 * _MOST_FITTED + len(plan))


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
    seconds: float | None = None,
    progress: bool | Report = True,
) -> Distilled:
    """Replace a trained network by a fast explicit one that gives the same answers; no labels are needed.

    Candidates for a DEQ: cut after numbers of steps up to its own, as it is, with a refitted readout, and with one
    relaxation factor for each step; Anderson acceleration to loose tolerances; a few steps with weights of their own,
    docs/theory.md (12.1), fitted in closed form and trained; MLPs of a quarter to twice its width, trained until they
    stop improving. For another module with a known `cell` all of these but own steps. For any other module or function:
    MLPs of several sizes. The result is the fastest measured candidate whose agreement certainly reaches the target,
    (12.5); if none does, the most faithful one, or a faster one that cannot be distinguished from it. The teacher is
    copied and never changed.

    Args:
        teacher: a `DEQNet` or a `ConvDEQNet` (`from_weights` makes one of weights that were trained anywhere), any
            other torch module, or a function from samples to outputs (rows, outputs). Modules are copied and put in
            evaluation mode; a function is called as it is.
        X: samples without labels, as the teacher sees them: an array, a tensor or a DataLoader, of rows or images. Use
            held-out samples: a teacher is more confident on its training samples.
        target_agreement: share of samples with the same class; for a single output the share of variance explained.
        batch_size: samples of a forward pass in use; times are measured for it.
        steps: numbers of own steps of a DEQ for which all weights are trained as well.
        epochs: passes over the samples in a training, twice as many in the first run of an MLP; 0 for closed forms
            only.
        seed: random seed of the split, the shuffling and the MLPs.
        cell: for a module other than a DEQNet, cell(z, x), which returns the next state: a module, or a method of one.
            The results have copies of its weights; a function that uses weights of other modules is refused.
        readout: with `cell`, the function from the last state to the outputs.
        z0: with `cell`, the first state: a tensor of the shape of one state, or a function of the samples; zero if
            `readout` is a `torch.nn.Linear` and z0 is None.
        seconds: about how long it may take; fits are then shorter. None for no limit.
        progress: a bar on a terminal after two seconds; False for none,
            or a function that is called with the number of batches done, the number of
            all batches of the present fit, and a function that returns a message, which also says how long the
            distillation takes. An exception that it raises stops the distillation.

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
    start = time.monotonic()
    deadline = math.inf if seconds is None else start + _FITS * as_number(seconds, "seconds", positive=True)
    with reported(progress, "distill") as report, torch.random.fork_rng(_devices(teacher)):
        torch.manual_seed(seed)
        samples = read_samples(X, teacher)
        copied = Teacher.of(teacher, samples, cell, readout, z0)
        outputs, usable = copied.outputs(samples, report)
        split = split_rows(samples, outputs, usable, seed, target_agreement)
        seen = [part[:_SEEN] for part in split.train]
        reach = None if copied.cell is None else reach_of(copied.cell, *seen)
        plan = _descents(copied, split, steps, epochs)
        fitter = Fitter(split.train, split.validation, seed, report, deadline, len(plan))
        predicted = time.monotonic() - start + _forecast(copied, fitter, reach, plan)
        if seconds is not None:
            predicted = min(predicted, seconds)
        fitter.report = _announced(report, predicted)
        fitter.report(0, 1, str)
        with torch.enable_grad():
            drafts = list(all_candidates(copied, fitter, reach, plan, steps))
        return _measured(copied, drafts, split, float(target_agreement), batch_size, usable, predicted)


def _announced(report: Report, seconds: float) -> Report:
    """The same reports, with the time that all will take."""

    def with_time(done: int, total: int, message: Message) -> None:
        report(done, total, lambda: f"{message()} (about {max(1.0, seconds):.0f} s in all)".strip())

    return with_time


def _devices(teacher: Any) -> list[Any]:
    """The GPUs whose random state is restored."""
    parameters = teacher.parameters() if isinstance(teacher, nn.Module) else ()
    return sorted({one.device.index or 0 for one in parameters if one.device.type == "cuda"})


@torch.no_grad()
def _measured(
    teacher: Teacher,
    drafts: list[Draft],
    split: Split,
    target: float,
    batch_size: int,
    usable: Tensor,
    predicted: float,
) -> Distilled:
    """Measure all candidates, and choose one."""
    X, Y = split.test
    for draft in drafts:
        draft.network.eval()
    ways = _ways(teacher, drafts, split)
    times = seconds_per_call(ways | {one.name: one.network for one in drafts}, _repeated(X, batch_size))
    candidates, outputs = [], {}
    for name, kind, network in sorted(drafts, key=lambda one: times[one.name]):
        outputs[name] = answers = in_batches(network, X)
        candidates.append(
            Candidate(
                name,
                kind,
                network,
                agreement(answers, Y),
                agreement_interval(answers, Y),
                risk_of_claim(answers, Y, target),
                relative_error(answers, Y),
                times[name],
                _expected_error(network, split.validation),
            )
        )
    place, certain, risks = choose(candidates)
    candidates = [
        replace(one, tested_risk=risk, interval=agreement_interval(outputs[one.name], Y, risk or RISK))
        for one, risk in zip(candidates, risks, strict=True)
    ]
    chosen = candidates[place]
    held_out = [torch.cat(parts) for parts in zip(split.validation, split.test, strict=True)]
    way = min(ways, key=lambda name: times[name])
    return Distilled(
        chosen,
        tuple(candidates),
        target,
        certain,
        len(X),
        batch_size,
        times[way],
        way if way == "teacher" else f"teacher, {way}",
        {size: _speedup(ways, chosen.network, _repeated(X, size)) for size in _BATCH_SIZES},
        predicted,
        1.0 - float(usable.double().mean()),
        int(usable.sum()),
        Y.shape[1] == 1,
        ErrorEstimate.of(held_out[0], in_batches(chosen.network, held_out[0]), held_out[1]),
    )


def _repeated(X: Tensor, rows: int) -> Tensor:
    """So many rows of X, again and again."""
    return X.repeat(-(-rows // len(X)), *[1] * (X.ndim - 1))[:rows]


def _ways(teacher: Teacher, drafts: Sequence[Draft], split: Split) -> dict[str, Callable[[Tensor], Any]]:
    """Ways to the teacher's answers: its forward pass; for a network of ours also its cell, stopped early."""
    ways: dict[str, Callable[[Tensor], Any]] = {"teacher": teacher.function}
    X, Y = (part[:_SEEN] for part in split.train)
    for way in ("cut", "accelerated") if isinstance(teacher.function, Net) else ():
        # Drafts of a kind are ordered by their time.
        for name, kind, network in drafts:
            if kind == way and agreement(in_batches(network, X), Y) >= SAME:
                ways[name] = network
                break
    return ways


def _speedup(ways: dict[str, Callable[[Tensor], Any]], network: Student, X: Tensor) -> float:
    times = seconds_per_call(ways | {"": network}, X)
    return min(time for name, time in times.items() if name) / times[""]


def _expected_error(network: Callable[[Tensor], Tensor], validation: Part) -> float:
    """The expected share of rows with another class; for a single output the relative error."""
    X, Y = validation
    outputs = in_batches(network, X)
    error = relative_error(outputs, Y)
    if not math.isfinite(error):
        return math.inf
    # Expected rather than observed: a few rows that differ say little.
    return error if Y.shape[1] == 1 else float(ErrorEstimate.of(X, outputs, Y).seen.mean())
