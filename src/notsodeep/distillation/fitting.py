"""Fits of students to a teacher's outputs: the readout in closed form, relaxation factors, all weights.

Own steps of a DEQ are fitted one after the other to its equilibria in closed form, docs/theory.md (12.4).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from notsodeep.distillation.certainty import relative_error
from notsodeep.distillation.student_networks import (
    LARGEST,
    Step,
    StepsNet,
    Student,
    UnrolledCell,
    linear_layer,
)
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.progress import Report

# Ridges to choose from, relative to the mean square of a feature; fewer of them where each one costs seconds.
RIDGES = tuple(10.0**power for power in range(-9, 1))
_FEW_RIDGES, _MANY_FEATURES = RIDGES[1::2], 300
# Adam's largest learning rate for this many units, falling with their root; the share of the steps in which it rises.
_RATE, _RATE_UNITS, _WARM_UP = 2e-3, 256, 0.05
# Descents follow each other, each twice as long, while one lowers the error below this share; so many at most.
_GAIN, _RUNS = 0.95, 4
# Updates that are timed for a forecast; the first one does not count.
_REHEARSED = 11
# An epoch has at least so many steps, as long as they have so many rows.
_LEAST_BATCHES, _SMALLEST_BATCH = 40, 16
# Rows per product of features, rows that relaxation factors are fitted to, and iterations of that fit.
_BLOCK, _RELAXATION_ROWS, _ITERATIONS = 2048, 512, 12
# Rows per forward pass where no gradient is recorded.
BATCH = 256

# Samples and outputs; features and targets of some observations, block by block.
Part = tuple[Tensor, Tensor]
Blocks = Iterable[Part]


@torch.no_grad()
def in_batches(function: Callable[[Tensor], Tensor], X: Tensor, batch: int = BATCH) -> Tensor:
    """The outputs for all samples."""
    return torch.cat([function(part) for part in torch.split(X, batch)])


class LinearFit(NamedTuple):
    """Targets ≈ weights · features + bias, in double precision: (targets, features) and (targets,)."""

    weights: Tensor
    bias: Tensor


@torch.no_grad()
def fit_linear(
    blocks: Blocks, validation: Blocks, ridges: Sequence[float] | None = None, toward: Tensor | None = None
) -> LinearFit | None:
    """Ridge regression with an intercept that is not penalised; None if there are too many features.

    Args:
        blocks: features and targets to fit to.
        validation: features and targets by which the ridge is chosen.
        ridges: ridges to choose from, relative to the mean square of a feature; ten powers of ten if None.
        toward: weights, the distance to which is penalised; zero if None.
    """
    count, sums = 0, None
    for features, targets in blocks:
        if features.shape[1] > LARGEST:
            return None
        # Products in the precision of the features, which have no more digits; sums in double precision.
        targets = targets.to(features)
        parts = (
            features.mT @ features,
            features.mT @ targets,
            features.double().sum(0),
            targets.double().sum(0),
        )
        sums = [part.double() + (0.0 if sums is None else sums[i]) for i, part in enumerate(parts)]
        count += len(features)
    if sums is None or not count:
        return None
    mean, goal = sums[2] / count, sums[3] / count
    second = sums[0] - count * torch.outer(mean, mean)
    cross = sums[1] - count * torch.outer(mean, goal)
    known = 0.0 if toward is None else toward.to(second).mT
    if toward is not None:
        cross = cross - second @ known
    fits: list[LinearFit] = []
    for ridge in ridges or (RIDGES if len(mean) <= _MANY_FEATURES else _FEW_RIDGES):
        shifted = second.clone()
        shifted.diagonal().add_(ridge * second.diagonal().mean().clamp(min=1e-300))
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            weights = (torch.cholesky_solve(cross, factor) + known).mT
            fits.append(LinearFit(weights, goal - weights @ mean))
    errors = torch.zeros(len(fits), dtype=torch.float64)
    for features, targets in validation:
        for number, (weights, bias) in enumerate(fits):
            outputs = torch.addmm(bias.to(features), features, weights.to(features).mT)
            errors[number] += float((outputs - targets).double().square().sum())
    if not fits or not bool(torch.isfinite(errors).any()):
        return None
    return fits[int(errors.nan_to_num(torch.inf).argmin())]


@dataclass
class Fitter:
    """Fits students to the teacher's outputs.

    Attributes:
        train: samples and the teacher's outputs to fit to.
        validation: samples and outputs that choose ridges and stop descents.
        seed: seed of the shuffling.
        report: progress callback.
        deadline: when fits have to end, on the monotonic clock; infinite for no limit.
        descents: number of descents that are left, among which the time is shared.
    """

    train: Part
    validation: Part
    seed: int
    report: Report
    deadline: float = math.inf
    descents: int = 1

    @property
    def is_late(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.deadline

    @cached_property
    def _scale(self) -> float:
        """The variance of the outputs, to which losses are relative."""
        Y = self.train[1]
        return float((Y - Y.mean(0)).square().mean().clamp(min=1e-30))

    def error(self, student: nn.Module) -> float:
        """Relative error of the outputs on the validation rows; infinite if an output is not finite."""
        X, Y = self.validation
        error = relative_error(in_batches(student, X), Y)
        return error if math.isfinite(error) else math.inf

    def readout(self, student: Student) -> bool:
        """Refit the readout in closed form; False if it has too many features, or nothing was gained."""
        old, before = student.linear, self.error(student)
        if old.in_features > LARGEST:
            return False
        train, validation = (self._blocks(student, *part) for part in (self.train, self.validation))
        fit = fit_linear(train, validation, toward=old.weight)
        if fit is None:
            return False
        student.linear = linear_layer(*(one.to(old.weight) for one in fit))
        if self.error(student) < before:
            return True
        student.linear = old
        return False

    def _blocks(self, student: Student, X: Tensor, Y: Tensor) -> Blocks:
        for rows, target in zip(torch.split(X, _BLOCK), torch.split(Y, _BLOCK), strict=True):
            yield in_batches(student.features, rows), target

    def relaxation(self, student: UnrolledCell, start: Tensor | None = None) -> None:
        """Fit one relaxation factor for each step to the outputs, by L-BFGS; factors that do not help are undone.

        Args:
            student: the cut cell, with a readout.
            start: factors of the first steps to start from; 1 for the others.
        """
        X, Y = (part[:_RELAXATION_ROWS] for part in self.train)
        factors = torch.ones(student.length, dtype=X.dtype, device=X.device)
        before, error = student.relaxation, self.error(student)
        if start is not None:
            factors[: len(start)] = start.detach()
        student.relaxation = relaxation = nn.Parameter(factors)
        optimizer = torch.optim.LBFGS(
            [student.relaxation], max_iter=_ITERATIONS, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            value: Tensor = (student(X) - Y).square().mean() / self._scale
            (relaxation.grad,) = torch.autograd.grad(value, relaxation)
            return value

        with torch.enable_grad():
            optimizer.step(loss)  # type: ignore[no-untyped-call]
        relaxation.grad = None
        if not self.error(student) < error:
            student.relaxation = before

    def all_weights(self, student: Student, passes: int, name: str, units: int, again: bool = False) -> None:
        """Adam on the squared distance of the outputs; the weights with the least validation error are kept.

        Args:
            student: the network.
            passes: passes over the rows.
            name: what progress reports call it.
            units: units of a layer, by which the learning rate is scaled.
            again: whether twice as many passes follow, as long as they lower the error.
        """
        end = self.end_of_next()
        for _ in range(_RUNS if again else 1):
            before = self.error(student)
            self._descent(student, passes, name, _RATE * math.sqrt(_RATE_UNITS / units), end)
            if self.error(student) > _GAIN * before:
                break
            passes *= 2
        # Features have moved: the best readout for them is again a closed form.
        self.readout(student)

    def batches(self) -> tuple[int, int]:
        """The rows of a batch, and the number of batches of a pass."""
        rows = len(self.train[0])
        batch = min(BATCH, max(_SMALLEST_BATCH, rows // _LEAST_BATCHES))
        return batch, math.ceil(rows / batch)

    def end_of_next(self) -> float:
        """When the next descent has to end: the time that is left is shared among those that are left."""
        left, self.descents = self.descents, max(1, self.descents - 1)
        now = time.monotonic()
        return now + (self.deadline - now) / left

    def _descent(self, student: Student, passes: int, name: str, rate: float, end: float) -> None:
        optimizer = torch.optim.Adam(student.parameters(), lr=rate, fused=True)
        generator = torch.Generator().manual_seed(self.seed)
        best, state = self.error(student), copy.deepcopy(student.state_dict())
        batch, batches = self.batches()
        total, done, start = passes * batches, 0, time.monotonic()
        while done < total and time.monotonic() < end:
            order = torch.randperm(len(self.train[0]), generator=generator).to(self.train[0].device)
            for part in torch.split(order, batch):
                # A limit of time shortens the schedule.
                passed = (time.monotonic() - start) / (end - start)
                for group in optimizer.param_groups:
                    group["lr"] = rate * _schedule(max((done + 0.5) / total, passed))
                self._update(student, optimizer, part)
                done += 1
                self.report(done, total, partial(str, name))
            error = self.error(student)
            if error < best:
                best, state = error, copy.deepcopy(student.state_dict())
        student.load_state_dict(state)
        student.zero_grad()

    def _update(self, student: Student, optimizer: torch.optim.Optimizer, part: Tensor) -> None:
        X, Y = self.train
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = (student(X[part]) - Y[part]).square().mean() / self._scale
            loss.backward()
        optimizer.step()

    def seconds_per_pass(self, student: Student) -> float:
        """The time of a pass of a descent over the rows, from a few updates of a copy."""
        student, (batch, batches) = copy.deepcopy(student), self.batches()
        optimizer = torch.optim.Adam(student.parameters(), fused=True)
        part, times = torch.arange(batch, device=self.train[0].device), []
        for _ in range(_REHEARSED):
            start = time.monotonic()
            self._update(student, optimizer, part)
            times.append(time.monotonic() - start)
        return batches * sum(times[1:]) / (_REHEARSED - 1)


def _schedule(progress: float) -> float:
    """The factor on the learning rate: a short rise, then a cosine to zero."""
    return min(1.0, progress / _WARM_UP) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


# Largest size of the equilibria in bytes; largest number of observations for the fit of a step (each position of a
# sample is one); share of them that chooses the ridge.
_BUDGET, _OBSERVATIONS, _VALIDATION = 2**27, 200_000, 0.1
# Relative to the mean square of a feature.
_RIDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Equilibria:
    """Samples and the teacher's pre-activations at their equilibria.

    Attributes:
        X: the samples.
        inner: h = W z + U x + b, (samples, units × positions).
        positions: number of positions of a unit.
    """

    X: Tensor
    inner: Tensor
    positions: int

    @classmethod
    @torch.no_grad()
    def of(cls, teacher: EquilibriumNet, X: Tensor) -> Equilibria:
        """The equilibria of as many samples as are needed and fit into memory."""
        count = teacher.connection.count
        size = teacher.units * count * X.element_size()
        rows = max(1, min(len(X), _BUDGET // size, -(-_OBSERVATIONS // count)))
        parts = [teacher.preactivations(part) for part in torch.split(X[:rows], BATCH)]
        return cls(X[:rows], torch.cat(parts), count)

    def by_position(self, values: Tensor) -> Tensor:
        """Rows as (samples × positions, units)."""
        return values.reshape(len(values), -1, self.positions).movedim(1, 2).flatten(0, 1)


@torch.no_grad()
def fit_steps(student: StepsNet, equilibria: Equilibria) -> bool:
    """Fit the steps of a student that has the teacher's U and b; False if its layers are too large for that.

    Each step is to predict, from the step before it, the feedback W z of the equilibrium. With one step there is no
    feedback: then U and b are fitted to the pre-activations of the equilibria.
    """
    if student.length == 1:
        fit = _regression(student, equilibria, equilibria.X.flatten(1), lambda X, inner: inner)
        if fit is None:
            return False
        student.drive.weights.copy_(fit.weights.reshape(student.drive.weights.shape))
        student.drive.bias.copy_(fit.bias)
        return True
    drives = torch.cat([student.drive(X) for X in torch.split(equilibria.X, BATCH)])
    states = student.phi(drives)
    for number in range(2, student.length + 1):
        fit = _regression(student, equilibria, states, lambda X, inner: inner - student.drive(X))
        if fit is None:
            return False
        weights: Tensor = cast(Step, student.layers[number - 2]).weights
        weights.copy_(fit.weights.reshape(weights.shape))
        student.biases[number - 2].copy_(fit.bias)
        pairs = zip(torch.split(states, BATCH), torch.split(drives, BATCH), strict=True)
        states = torch.cat([student.step(number, z, drive) for z, drive in pairs])
    return True


def _regression(
    student: StepsNet, equilibria: Equilibria, states: Tensor, target: Callable[[Tensor, Tensor], Tensor]
) -> LinearFit | None:
    """Regress the target on what the weights of a step multiply, at every position."""
    first = max(1, round(_VALIDATION * len(equilibria.X)))

    def blocks(start: int, stop: int) -> Blocks:
        for begin in range(start, stop, BATCH):
            part = slice(begin, min(begin + BATCH, stop))
            values = target(equilibria.X[part], equilibria.inner[part])
            yield student.connection.seen(states[part]), equilibria.by_position(values)

    return fit_linear(blocks(first, len(equilibria.X)), blocks(0, first), _RIDGES)
