"""`distill`: a trained DEQ into a few explicit steps that give the same answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.nets.distilled import Candidate, Distilled
from notsodeep.nets.doubt import Doubt, calibration_of
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.fidelity import (
    Fidelity,
    agreement_of,
    error_interval,
    milliseconds,
    relative_error,
    score_bound,
    share_interval,
)
from notsodeep.nets.samples import as_inputs
from notsodeep.nets.student_candidates import OwnSteps
from notsodeep.nets.student_choice import Entry, chosen
from notsodeep.nets.student_fit import StudentFit, in_batches
from notsodeep.nets.students import StepsNet
from notsodeep.nets.teacher_answers import Answers, Split, answers_of, frozen_copy
from notsodeep.progress import Report, reported
from notsodeep.validation import as_count

# Rows of a timed pass.
_TIMED = 512


def distill(
    teacher: EquilibriumNet,
    X: Any,
    *,
    width: int | None = None,
    until: float = 0.99,
    steps: Sequence[int] = (1, 2, 3),
    epochs: int = 8,
    batch_size: int = 256,
    seed: int = 0,
    progress: bool | Report = False,
) -> Distilled:
    """Replace a trained DEQ by a few explicit steps that give the same answers; no labels are needed.

    The students are its own first steps, each with weights of its own, whole or of low rank, docs/theory.md (12.1).
    They start from the DEQ's weights, from the same with the scales of its injected twin, or from a closed-form fit of
    each step to its equilibria, whichever is best once the readout has been fitted in closed form; then all weights are
    fitted to the teacher's outputs, with early stopping. The teacher is copied, and never changed.

    Args:
        teacher: a `DEQNet` or a `ConvDEQNet`; `DEQNet.from_weights` makes one of weights that were trained anywhere.
        X: samples without labels, as the teacher sees them: rows, or images. A quarter of them, or up to a half where
            they are few, is not fitted to: one part stops fits, another one chooses among the students, a third one
            judges the chosen one.
        width: units of the students (for images channels). If not given, those of the teacher, and some students have
            half of them. Fewer are chosen among the teacher's, so that the others are well written as combinations of
            them.
        until: the wanted share of rows with the same class; for a single output the share of variance explained. The
            result is the cheapest student that is sure to reach it, with a chance of 5 % to be wrong, docs/theory.md
            (12.5); or the most faithful one, if none is sure to.
        steps: the numbers of steps k to fit.
        epochs: passes over the rows when all weights are fitted; 0 for closed forms only.
        batch_size: rows at a time.
        seed: of the split, the shuffling and random weights: equal input gives equal students.
        progress: True for a bar on stderr, or a function that is called with the number of batches done, of all batches
            of the present fit, and a function that returns a message. To stop a distillation, let it raise: the
            exception comes out of `distill`, and the teacher is as it was.

    Raises:
        InputError: for input that cannot be used, among it fewer rows than can be fitted to.
        ConvergenceError: if the teacher has no finite answer on most rows.
    """
    settings = _Settings(width, float(until), tuple(steps), epochs, batch_size, seed)
    samples = _as_samples(X, teacher)
    copied = frozen_copy(teacher)
    with reported(progress, "distill") as report:
        answers = answers_of(copied, samples, settings.batch_size, report)
        data = Split.of(samples, answers, settings.seed, settings.until)
        fit = StudentFit(data, settings.batch_size, settings.epochs, settings.seed, report)
        return _Work(copied, data, settings, fit).result(answers)


@dataclass(frozen=True)
class _Settings:
    width: int | None
    until: float
    steps: tuple[int, ...]
    epochs: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.width is not None:
            as_count(self.width, "width")
        if not 0.0 < self.until <= 1.0:
            raise InputError(f"until is a share between 0 and 1, such as 0.99; got {self.until!r}.")
        if not self.steps:
            raise InputError("steps has the numbers of steps to fit, such as (1, 2, 3); it is empty.")
        for one in self.steps:
            as_count(one, "steps")
        as_count(self.epochs, "epochs", least=0)
        as_count(self.batch_size, "batch_size")
        as_count(self.seed, "seed", least=0)


def _as_samples(X: Any, teacher: EquilibriumNet) -> Tensor:
    if not isinstance(teacher, EquilibriumNet):
        raise InputError(
            f"distill takes a DEQNet or a ConvDEQNet as teacher, not {type(teacher).__name__}. If its cell is "
            "z = φ(W z + U x + b), DEQNet.from_weights(W, U, b, activation, readout) makes one."
        )
    return as_inputs(X, teacher, "X").clone()


@dataclass
class _Work:
    """All candidates of a teacher, judged, and the choice among them."""

    teacher: EquilibriumNet
    data: Split
    settings: _Settings
    fit: StudentFit

    def result(self, answers: Answers) -> Distilled:
        """Fit, judge, choose."""
        students = {name: (kind, net, start) for name, kind, net, start in self._students()}
        modules: dict[str, nn.Module] = {name: net for name, (_, net, _) in students.items()}
        modules[""] = self.teacher
        times = milliseconds(modules, self.data.judge[0][:_TIMED])
        front = [
            Candidate(
                name,
                kind,
                net,
                start,
                self._expected(net),
                *self._tested(net),
                self._judged(net, times[name], times[""]),
            )
            for name, (kind, net, start) in students.items()
        ]
        front.sort(key=lambda one: (one.operations, one.expected))
        place, sure = chosen(
            [Entry(one.operations, one.expected, one.lower) for one in front], self.settings.until
        )
        best = front[place]
        doubt, calibration, (X, Y) = self._doubt(best.network), None, self.data.judge
        if doubt is not None:
            outputs = in_batches(best.network, X, self.settings.batch_size)
            calibration = calibration_of(doubt.disagreement(outputs), outputs.argmax(1) != Y.argmax(1))
        return Distilled(
            best.network,
            best.name,
            best.fidelity,
            tuple(front),
            self.settings.until,
            sure,
            len(self.data.choose[0]),
            doubt,
            calibration,
            answers.held_out,
        )

    def _students(self) -> Iterator[tuple[str, str, StepsNet, str]]:
        """Name, kind, network and start of every candidate."""
        settings, X = self.settings, self.data.fit[0]
        family = OwnSteps(self.teacher, X, settings.width, settings.steps, settings.batch_size)
        for name, network in family.cuts().items():
            yield name, "cut", network, "its own weights"
        plans = list(family.plans())
        for number, plan in enumerate(plans, 1):
            place = f"{number} of {len(plans)}:"
            name, network, start = self.fit.closed_form(plan, place)
            yield name, "closed form", network, start
            if plan.all_weights and settings.epochs:
                name, fitted = self.fit.all_weights(plan, network, place)
                yield name, "fitted", fitted, start

    def _expected(self, network: StepsNet) -> float:
        """By what candidates are put in order, on the rows that stop: the smaller, the more faithful."""
        error, (X, Y) = self.fit.error(network), self.data.stop
        if Y.shape[1] == 1 or not math.isfinite(error):
            return error
        # Smoothed: few rows that differ say little.
        return float(Doubt.of(in_batches(network, X, self.settings.batch_size), Y).seen.mean())

    def _judged(self, network: nn.Module, time: float, teacher_time: float) -> Fidelity:
        X, Y = self.data.judge
        found = in_batches(network, X, self.settings.batch_size)
        same = agreement_of(found, Y)
        interval = None if same is None else share_interval(round(same * len(X)), len(X))
        return Fidelity(
            len(X), same, interval, relative_error(found, Y), error_interval(found, Y), time, teacher_time
        )

    def _tested(self, network: nn.Module) -> tuple[float, float]:
        """What `until` is compared with, on the rows that choose, and what it is at least."""
        X, Y = self.data.choose
        found = in_batches(network, X, self.settings.batch_size)
        same = agreement_of(found, Y)
        score = 1.0 - relative_error(found, Y) ** 2 if same is None else same
        return score, score_bound(found, Y)

    def _doubt(self, student: StepsNet) -> Doubt | None:
        """From rows that no weights were fitted to; None for a single output."""
        X, Y = (torch.cat(parts) for parts in zip(self.data.stop, self.data.choose, strict=True))
        return None if Y.shape[1] == 1 else Doubt.of(in_batches(student, X, self.settings.batch_size), Y)


__all__ = ["distill"]
