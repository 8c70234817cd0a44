"""`distill`: replace a trained network by a fast explicit one that gives the same answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from notsodeep.distillation.candidates import Draft, all_candidates
from notsodeep.distillation.certainty import (
    agreement,
    agreement_interval,
    lower_bound,
    relative_error,
    risk_of_claim,
    seconds_per_call,
)
from notsodeep.distillation.distilled import Candidate, Distilled, choose
from notsodeep.distillation.fitting import Fitter, Part, in_batches
from notsodeep.distillation.guard import ErrorEstimate
from notsodeep.distillation.teachers import Split, Teacher, read_samples, split_rows
from notsodeep.errors import InputError
from notsodeep.progress import Report, reported
from notsodeep.validation import as_count


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
    progress: bool | Report = False,
) -> Distilled:
    """Replace a trained network by a fast explicit one that gives the same answers; no labels are needed.

    Candidates for a DEQ: cut after a few steps, as it is, with a refitted readout, and with one relaxation factor for
    each step; a few steps with weights of their own, docs/theory.md (12.1), fitted in closed form and trained; MLPs
    trained on its outputs. For another module with a known `cell`: the cut cell and MLPs. For any other module or
    function: MLPs of several sizes. The result is the fastest measured candidate whose agreement certainly reaches the
    target, (12.5); if none does, the most faithful one, or a faster one that cannot be told from it. The teacher is
    copied and never changed.

    Args:
        teacher: a `DEQNet` or a `ConvDEQNet` (`from_weights` makes one of weights that were trained anywhere), any
            other torch module, or a function from samples to outputs (rows, outputs). Modules are copied and put in
            evaluation mode; a function is called as it is.
        X: samples without labels, as the teacher sees them: an array, a tensor or a DataLoader, of rows or images. Use
            held-out samples: on its training samples a teacher is surer of its answers.
        target_agreement: share of samples with the same class; for a single output the share of variance explained.
        batch_size: samples of a forward pass in use; times are measured for it.
        steps: numbers of own steps of a DEQ for which all weights are trained as well.
        epochs: passes over the samples in a training; 0 for closed forms only.
        seed: random seed of the split, the shuffling and the MLPs.
        cell: for a module other than a DEQNet, its function cell(z, x), which returns the next state.
        readout: with `cell`, the function from the last state to the outputs.
        z0: with `cell`, the first state: a tensor of the shape of one state, or a function of the samples; zero if
            `readout` is a `torch.nn.Linear` and z0 is None.
        progress: True for a bar on stderr, or a function that is called with the number of batches done, the number of
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
                lower_bound(outputs, Y),
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


__all__ = ["distill"]
