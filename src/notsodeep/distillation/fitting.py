"""Fits of students to a teacher's outputs: the readout in closed form, relaxation factors, all weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from notsodeep.distillation.certainty import relative_error
from notsodeep.distillation.linear_fit import LARGEST, fit_linear
from notsodeep.distillation.student_networks import Student, UnrolledCell, linear_layer
from notsodeep.progress import Report

# Adam's largest learning rate for this many units, falling with their root; the share of the steps in which it rises.
_RATE, _RATE_UNITS, _WARM_UP = 2e-3, 256, 0.05
# An epoch has at least so many steps, as long as they have so many rows.
_LEAST_BATCHES, _SMALLEST_BATCH = 40, 16
# Rows per product of features, rows that relaxation factors are fitted to, and iterations of that fit.
_BLOCK, _RELAXATION_ROWS, _ITERATIONS = 2048, 512, 12
# Rows per forward pass where no gradient is recorded.
BATCH = 256

Part = tuple[Tensor, Tensor]


@torch.no_grad()
def in_batches(function: Callable[[Tensor], Tensor], X: Tensor, batch: int = BATCH) -> Tensor:
    """The outputs for all samples."""
    return torch.cat([function(part) for part in torch.split(X, batch)])


@dataclass
class Fitter:
    """Fits students to the teacher's outputs.

    Attributes:
        train: samples and the teacher's outputs to fit to.
        validation: samples and outputs that choose ridges and stop descents.
        seed: seed of the shuffling.
        report: progress callback.
    """

    train: Part
    validation: Part
    seed: int
    report: Report

    def error(self, student: nn.Module) -> float:
        """Relative error of the outputs on the validation rows; infinite if an output is not finite."""
        X, Y = self.validation
        error = relative_error(in_batches(student, X), Y)
        return error if math.isfinite(error) else math.inf

    def readout(self, student: Student) -> bool:
        """Refit the linear readout in closed form; False if there are too many features, or nothing was gained."""
        with torch.no_grad():
            width = student.features(self.train[0][:1]).shape[1]
        if width > LARGEST:
            return False
        old = copy.deepcopy(student.linear)
        if old is None:
            X, Y = self.train
            student.linear = linear_layer(Y.new_zeros(Y.shape[1], width).to(X), Y.new_zeros(Y.shape[1]).to(X))
        before = self.error(student)
        weights = student.linear.weight if student.linear is not None else None
        fit = fit_linear(*(self._blocks(student, *part) for part in (self.train, self.validation)), toward=weights)
        if fit is not None and weights is not None:
            student.linear = linear_layer(fit.weights.to(weights), fit.bias.to(weights))
        if fit is None or self.error(student) > before:
            student.linear = old
            return False
        return True

    def _blocks(self, student: Student, X: Tensor, Y: Tensor):  # type: ignore[no-untyped-def]
        for rows, target in zip(torch.split(X, _BLOCK), torch.split(Y, _BLOCK), strict=True):
            if student.base_outputs(rows[:1]) is not None:
                target = target - in_batches(student.base_outputs, rows)  # type: ignore[arg-type]
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
        student.relaxation = nn.Parameter(factors)
        scale = float((Y - Y.mean(0)).square().mean().clamp(min=1e-30))
        optimizer = torch.optim.LBFGS([student.relaxation], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = (student(X) - Y).square().mean() / scale
            (gradient,) = torch.autograd.grad(value, student.relaxation)
            student.relaxation.grad = gradient
            return value

        with torch.enable_grad():
            optimizer.step(loss)
        student.relaxation.grad = None
        if not self.error(student) < error:
            student.relaxation = before

    def all_weights(self, student: Student, epochs: int, name: str, units: int) -> None:
        """Adam on the squared distance of the outputs; the weights with the least validation error are kept.

        Args:
            student: the network.
            epochs: passes over the rows.
            name: what progress reports call it.
            units: units of a layer, by which the learning rate is scaled.
        """
        X, Y = self.train
        scale = float((Y - Y.mean(0)).square().mean().clamp(min=1e-30))
        rate = _RATE * math.sqrt(_RATE_UNITS / units)
        optimizer = torch.optim.Adam(student.parameters(), lr=rate)
        generator = torch.Generator().manual_seed(self.seed)
        best, state = self.error(student), copy.deepcopy(student.state_dict())
        batch = min(BATCH, max(_SMALLEST_BATCH, len(X) // _LEAST_BATCHES))
        batches = math.ceil(len(X) / batch)
        total = epochs * batches
        for epoch in range(epochs):
            order = torch.randperm(len(X), generator=generator).to(X.device)
            for number, part in enumerate(torch.split(order, batch)):
                done = epoch * batches + number
                for group in optimizer.param_groups:
                    group["lr"] = rate * _schedule((done + 0.5) / total)
                optimizer.zero_grad()
                with torch.enable_grad():
                    loss = (student(X[part]) - Y[part]).square().mean() / scale
                    loss.backward()
                optimizer.step()
                self.report(done + 1, total, partial(str, name))
            error = self.error(student)
            if error < best:
                best, state = error, copy.deepcopy(student.state_dict())
        student.load_state_dict(state)
        student.zero_grad()
        # Features have moved: the best readout for them is again a closed form.
        self.readout(student)


def _schedule(progress: float) -> float:
    """The factor on the learning rate: a short rise, then a cosine to zero."""
    return min(1.0, progress / _WARM_UP) * 0.5 * (1.0 + math.cos(math.pi * progress))


__all__ = ["BATCH", "Fitter", "Part", "in_batches"]
