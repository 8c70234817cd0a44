"""`distill`: a trained DEQ, or any module, into a few explicit steps that give the same answers."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from notsodeep.designs import design
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ
from notsodeep.models.mixing import Convolution
from notsodeep.nets.checkpoints import checkpoint_path, tensor_hash
from notsodeep.nets.connections import Connection, DenseConnection, FilterConnection
from notsodeep.nets.distillation_journal import Journal
from notsodeep.nets.distilled import Candidate, Distilled
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.fidelity import (
    Doubt,
    Fidelity,
    agreement_of,
    doubt_of,
    milliseconds,
    relative_error,
    wilson,
)
from notsodeep.nets.readout_fit import fit_readout
from notsodeep.nets.students import StepsNet, first_steps, narrowed, random_steps
from notsodeep.nets.teacher_answers import Answers, Split, answers_of
from notsodeep.progress import Report, reported
from notsodeep.validation import as_count, as_real

# Steps after which the DEQ is also cut, to have the baseline at every price.
_CUTS = (1, 2, 3, 4, 5)
# Of teachers whose weights cannot be read: what is tried, and the share of the recurrent weights.
_ACTIVATIONS, _FEEDBACK, _UNITS, _CHANNELS = ("relu", "gelu", "tanh"), 0.2, 1024, 32
_RATE, _RATE_UNITS, _WARM_UP = 1e-3, 256, 0.05
_TIMED, _STATES = 512, 2000


def distill(
    teacher: nn.Module,
    X: Any,
    *,
    width: int | None = None,
    until: float = 0.99,
    steps: Sequence[int] = (1, 2, 3),
    epochs: int = 8,
    batch_size: int = 256,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    resume: bool = True,
    progress: bool | Report = False,
) -> Distilled:
    """Replace a trained module by a few explicit steps that give the same answers; no labels are needed.

    A DEQ's students start as the DEQ cut after k steps, its own weights in each of them. Then their steps are rescaled
    as an injected twin's are, where that helps; the readout is fitted in closed form; and all weights are fitted to the
    teacher's outputs, with early stopping. For other modules the students are random steps, of the activation that
    fits best. The teacher is copied, and never changed.

    Args:
        teacher: a `DEQNet`, a `ConvDEQNet`, or any module that maps samples to outputs (n, outputs).
        X: samples without labels, as the teacher sees them: rows, or images. A fifth of them is not fitted to: half of
            it stops and chooses, the other half judges.
        width: units of the students (for images channels); the teacher's if not given. Fewer are chosen among the
            teacher's, so that the others are well written as combinations of them.
        until: the wanted share of rows with the same class; for a single output the share of variance explained.
        steps: the numbers of steps k to fit.
        epochs: passes over the rows when all weights are fitted; 0 for readouts only.
        batch_size: rows at a time.
        seed: of the split, the shuffling and random weights: equal input gives equal students.
        checkpoint: a file that holds what is done, after each epoch; a second call goes on from there.
        resume: with False an existing file is replaced.
        progress: True for a bar on stderr, or a function to report to.

    Raises:
        InputError: for input that cannot be used, among it fewer rows than can be fitted to.
        ConvergenceError: if the teacher has no finite answer on most rows.
    """
    settings = _Settings(width, float(until), tuple(steps), epochs, batch_size, seed)
    samples = _as_samples(X, teacher)
    path = checkpoint_path(checkpoint)
    with reported(progress, "distill") as report:
        answers = answers_of(teacher, samples, settings.batch_size, report)
        data = Split.of(samples, answers, settings.seed)
        identity = tensor_hash(
            {"settings": repr(settings), "X": samples, "Y": answers.outputs, **_state(teacher)}
        )
        journal = Journal.of(path, identity, resume)
        work = _Work(teacher, data, settings, journal, report)
        return work.result(answers)


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


def _as_samples(X: Any, teacher: nn.Module) -> Tensor:
    if not isinstance(teacher, nn.Module):
        raise InputError(f"distill takes a torch module as teacher, not {type(teacher).__name__}.")
    values = X.detach() if isinstance(X, Tensor) else torch.from_numpy(np.array(as_real(X, "X")))
    like = next((one for one in _state(teacher).values() if one.is_floating_point()), torch.zeros(1))
    values = values.to(like.device, like.dtype)
    if values.ndim not in (2, 3, 4):
        raise InputError(
            f"X must have samples in rows, or be images (n, channels, height, width); got {tuple(values.shape)}."
        )
    if isinstance(teacher, EquilibriumNet):
        teacher.check_shape(values.shape)
    if not bool(torch.isfinite(values).all()):
        raise InputError("X has NaN or infinite entries. Remove or impute them.")
    return values


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}


# --- the candidates ---------------------------------------------------------------------------------------------------


@dataclass
class _Work:
    teacher: nn.Module
    data: Split
    settings: _Settings
    journal: Journal
    report: Report

    def result(self, answers: Answers) -> Distilled:
        """All candidates, and the choice among them."""
        students = dict(self._students())
        names = list(students)
        chooses, judges = self.data.choose, self.data.judge
        modules: dict[str, nn.Module] = {"": answers.teacher, **{n: net for n, (_, net) in students.items()}}
        times = milliseconds(modules, judges[0][:_TIMED])
        front = []
        for name in names:
            kind, net = students[name]
            with torch.no_grad():
                found = _batched(net, judges[0], self.settings.batch_size)
                score = _score(_batched(net, chooses[0], self.settings.batch_size), chooses[1])
            same = agreement_of(found, judges[1])
            fidelity = Fidelity(
                len(judges[0]),
                same,
                None if same is None else wilson(same, len(judges[0])),
                relative_error(found, judges[1]),
                times[name],
                times[""],
            )
            front.append(Candidate(name, kind, net, score, fidelity))
        front.sort(key=lambda one: one.fidelity.milliseconds)
        best = self._choice(front)
        doubt = self._doubt(best.network)
        expected = None
        if judges[1].shape[1] > 1:
            with torch.no_grad():
                inner = best.network.features(judges[0])
                expected = float(doubt.disagreement(inner, best.network.outputs(inner)).mean())
        remarks = () if isinstance(self.teacher, EquilibriumNet) else (_UNREADABLE,)
        return Distilled(
            best.network,
            best.name,
            best.fidelity,
            tuple(front),
            self.settings.until,
            doubt,
            expected,
            answers.left_out,
            remarks,
        )

    def _choice(self, front: list[Candidate]) -> Candidate:
        """The fastest that reaches `until` on the rows that choose, or the most faithful."""
        enough = [one for one in front if one.score >= self.settings.until]
        if enough:
            return enough[0]
        return max(front, key=lambda one: (one.score, -one.fidelity.relative_error))

    def _students(self) -> Iterator[tuple[str, tuple[str, StepsNet]]]:
        if isinstance(self.teacher, EquilibriumNet):
            yield from self._own_steps(self.teacher)
        else:
            yield from self._random_steps()

    def _own_steps(self, teacher: EquilibriumNet) -> Iterator[tuple[str, tuple[str, StepsNet]]]:
        """The DEQ cut after a few steps, and what can be made of it."""
        weights = teacher.plain_weights()
        wanted = self.settings.width
        if wanted is not None and wanted != teacher.units:
            with torch.no_grad():
                rows = self.data.fit[0][: max(1, _STATES // teacher.connection.count)]
                states = teacher._settings.phi(teacher.preactivations(rows)) * math.sqrt(teacher.units)
            weights = narrowed(weights, teacher.connection, states, wanted)
        for count in _CUTS:
            yield f"DEQ cut after {_steps(count)}", ("cut", first_steps(teacher, count))
        for count in self.settings.steps:
            starts = [self._built(teacher, weights, count)]
            scales = _injected_scales(teacher, count, self.data.fit[0])
            if scales is not None:
                starts.append(self._built(teacher, weights, count))
                starts[-1].rescale(*scales)
            yield from self._fitted(_words(count, wanted, teacher.units), starts)

    def _built(self, teacher: EquilibriumNet, weights: PlainWeights, count: int) -> StepsNet:
        return StepsNet(weights, teacher.spec.activation, teacher.connection, teacher.sample_shape, count)

    def _random_steps(self) -> Iterator[tuple[str, tuple[str, StepsNet]]]:
        """Random steps for a teacher whose weights cannot be read: the activation is chosen by fit."""
        X, Y = self.data.fit
        shape = tuple(X.shape[1:])
        connection = _connection(shape)
        units = self.settings.width or (_UNITS if len(shape) == 1 else _CHANNELS)
        square = float(X.square().flatten(1).sum(1).mean()) / connection.count
        for count in self.settings.steps:
            starts = [
                random_steps(
                    activation(name),
                    connection,
                    shape,
                    units,
                    Y.shape[1],
                    count,
                    sigma_a2=_FEEDBACK,
                    input_square=max(square, 1e-30),
                    seed=self.settings.seed,
                    like=X,
                )
                for name in _ACTIVATIONS
            ]
            yield from self._fitted(f"{_steps(count)} drawn at random, {units} units", starts)

    def _fitted(self, words: str, starts: list[StepsNet]) -> Iterator[tuple[str, tuple[str, StepsNet]]]:
        """Readouts in closed form for all starts; the best one as it is, and with all its weights fitted."""
        refitted = f"{words}, readout fitted"
        kept = self._kept(refitted, starts[0])
        if kept is None:
            for student in starts:
                self._fit_readout(student)
            kept = min(starts, key=self._error)
            self.journal.finish(refitted, kept)
        yield refitted, ("readout", kept)
        if not self.settings.epochs:
            return
        everything = f"{words}, all weights fitted"
        student = self._kept(everything, kept) or copy.deepcopy(kept)
        if everything not in self.journal.done:
            self._fit_all(everything, student)
            # Features have moved: the best readout for them is again a closed form.
            before = copy.deepcopy(student)
            self._fit_readout(student)
            if self._error(before) < self._error(student):
                student = before
            self.journal.finish(everything, student)
        yield everything, ("fitted", student)

    def _kept(self, name: str, like: StepsNet) -> StepsNet | None:
        """A student of an earlier call."""
        state = self.journal.done.get(name)
        if state is None:
            return None
        found = copy.deepcopy(like)
        found.load_state_dict(state)
        return found

    def _fit_readout(self, student: StepsNet) -> None:
        found = fit_readout(student.features, self.data.fit, self.data.choose, self.settings.batch_size)
        if found is not None:
            student.set_readout(found.weights, found.bias)

    def _error(self, student: StepsNet) -> float:
        X, Y = self.data.choose
        with torch.no_grad():
            return relative_error(_batched(student, X, self.settings.batch_size), Y)

    def _doubt(self, student: StepsNet) -> Doubt:
        found = fit_readout(student.features, self.data.fit, self.data.choose, self.settings.batch_size)
        metric = None if found is None else found.metric
        return doubt_of(student.features, student.outputs, *self.data.choose, metric)

    def _fit_all(self, name: str, student: StepsNet) -> None:
        """Adam on the squared distance of the outputs; the weights with the smallest error on other rows stay."""
        settings, (X, Y) = self.settings, self.data.fit
        scale = float((Y - Y.mean(0)).square().mean().clamp(min=1e-30))
        rate = _RATE * math.sqrt(_RATE_UNITS / student.units)
        optimizer = torch.optim.Adam(student.parameters(), lr=rate)
        generator = torch.Generator().manual_seed(settings.seed)
        best, state, first = self._error(student), copy.deepcopy(student.state_dict()), 0
        work = self.journal.work
        if work.get("name") == name:
            student.load_state_dict(work["student"])
            optimizer.load_state_dict(work["optimizer"])
            generator.set_state(work["generator"])
            best, state, first = work["best"], work["state"], work["epoch"]
        batches = math.ceil(len(X) / settings.batch_size)
        total = settings.epochs * batches
        for epoch in range(first, settings.epochs):
            order = torch.randperm(len(X), generator=generator).to(X.device)
            for number, part in enumerate(torch.split(order, settings.batch_size)):
                done = epoch * batches + number
                for group in optimizer.param_groups:
                    group["lr"] = rate * _schedule((done + 0.5) / total)
                optimizer.zero_grad()
                loss = (student(X[part]) - Y[part]).square().mean() / scale
                loss.backward()
                optimizer.step()
                self.report(done + 1, total, lambda: name)
            error = self._error(student)
            if error < best:
                best, state = error, copy.deepcopy(student.state_dict())
            self.journal.work = {
                "name": name,
                "epoch": epoch + 1,
                "student": student.state_dict(),
                "optimizer": optimizer.state_dict(),
                "generator": generator.get_state(),
                "best": best,
                "state": state,
            }
            self.journal.save()
        student.load_state_dict(state)


_UNREADABLE = (
    "The teacher's weights cannot be read as z = φ(W z + U x + b): the students are random networks whose activation "
    "was chosen by fit. If it is such a cell, DEQNet.from_weights makes a teacher whose own steps are better students."
)


def _schedule(progress: float) -> float:
    """The factor on the learning rate: a short rise, then a cosine to zero."""
    return min(1.0, progress / _WARM_UP) * 0.5 * (1.0 + math.cos(math.pi * progress))


def _score(found: Tensor, wanted: Tensor) -> float:
    same = agreement_of(found, wanted)
    return 1.0 - relative_error(found, wanted) ** 2 if same is None else same


def _batched(module: Callable[[Tensor], Tensor], X: Tensor, batch: int) -> Tensor:
    return torch.cat([module(part) for part in torch.split(X, batch)])


def _connection(shape: tuple[int, ...]) -> Connection:
    """Matrices for rows, filters of three taps for sequences and images."""
    if len(shape) == 1:
        return DenseConnection()
    return FilterConnection(Convolution(shape[1:], min(3, 2 * (min(shape[1:]) // 2) + 1), "zeros"), "flatten")


def _injected_scales(
    teacher: EquilibriumNet, count: int, X: Tensor
) -> tuple[list[float], list[float]] | None:
    """How the injected twin of a cell with these variances scales its steps; None where there is none."""
    model = teacher.spec
    if count not in (2, 3) or not isinstance(model, DEQ) or model.bias2:
        return None
    weights = teacher.plain_weights()
    sigma_a2 = float(weights.recurrent.square().sum()) / teacher.units
    sigma_b2 = float(weights.inputs.square().mean())
    tau0 = math.sqrt(float(X.square().sum(1).mean()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = design(
                replace(model, sigma_a2=sigma_a2, sigma_b2=sigma_b2), tau0, "ck", "injected", layers=count
            )
    except (InputError, ConvergenceError):
        return None
    network = found.network
    recurrent = [math.sqrt(one / max(sigma_a2, 1e-30)) for one in network.weights[1:]]
    gains = [math.sqrt(one / sigma_b2) for one in (network.weights[0], *network.inject)]
    return recurrent, gains


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count > 1)}"


def _words(count: int, width: int | None, units: int) -> str:
    narrow = "" if width is None or width == units else f", {width} of {units} units"
    return f"{_steps(count)} of its own{narrow}"


__all__ = ["distill"]
