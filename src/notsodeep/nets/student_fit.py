"""The fit of a student to its teacher's outputs: the readout in closed form, then all weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from notsodeep.nets.fidelity import relative_error
from notsodeep.nets.readout_fit import fit_readout
from notsodeep.nets.student_candidates import Plan
from notsodeep.nets.students import StepsNet
from notsodeep.nets.teacher_answers import Split
from notsodeep.progress import Report

# Adam's largest rate at so many units, falling with their root; the share of the steps in which it rises.
_RATE, _RATE_UNITS, _WARM_UP = 2e-3, 256, 0.05
# An epoch has at least so many steps, as long as they have so many rows.
_LEAST_BATCHES, _SMALLEST_BATCH = 40, 16
# Rows whose readouts tell starts apart: at least so many, and so many for each feature.
_FEW, _FEW_PER_FEATURE = 2000, 2


@dataclass
class StudentFit:
    """Fits students to the teacher's outputs.

    Attributes:
        data: the rows to fit to, and those that stop.
        batch: rows at a time.
        epochs: passes over the rows that all weights are fitted in.
        seed: of the shuffling.
        report: of progress.
    """

    data: Split
    batch: int
    epochs: int
    seed: int
    report: Report

    def closed_form(self, plan: Plan, place: str) -> tuple[str, StepsNet, str]:
        """The best start with its readout in closed form: name, network, and which start it was."""
        name = f"{plan.words}, closed form"
        starts = list(plan.starts())
        for number, (words, student) in enumerate(starts if len(starts) > 1 else ()):
            self.report(number, len(starts), partial(str, f"{place} {name}, from {words}"))
            self.fit_readout(student, rows=max(_FEW, _FEW_PER_FEATURE * student.width))
        words, best = min(starts, key=lambda one: self.error(one[1])) if len(starts) > 1 else starts[0]
        self.fit_readout(best)
        return name, best, words

    def all_weights(self, plan: Plan, start: StepsNet, place: str) -> tuple[str, StepsNet]:
        """The same with all weights fitted."""
        name = f"{plan.words}, all weights fitted"
        student = copy.deepcopy(start)
        self._descend(name, student, place)
        # Features have moved: the best readout for them is again a closed form.
        before = copy.deepcopy(student)
        self.fit_readout(student)
        if self.error(before) < self.error(student):
            student = before
        return name, student

    def fit_readout(self, student: StepsNet, rows: int | None = None) -> None:
        """Correct the readout to the best one on so many rows, unless there are too many features to say."""
        X, Y = self.data.fit
        few = X[:rows], Y[:rows]
        found = fit_readout(student.features, few, self.data.stop, self.batch, toward=student.readout)
        if found is not None:
            student.set_readout(found.weights.to(student.readout), found.bias.to(student.readout))

    def error(self, student: nn.Module) -> float:
        """Relative error of the outputs on the rows that stop; infinite if one is not finite."""
        X, Y = self.data.stop
        found = relative_error(in_batches(student, X, self.batch), Y)
        return found if math.isfinite(found) else math.inf

    def _descend(self, name: str, student: StepsNet, place: str) -> None:
        """Adam on the squared distance of the outputs; the weights with the smallest error on other rows stay."""
        X, Y = self.data.fit
        scale = float((Y - Y.mean(0)).square().mean().clamp(min=1e-30))
        rate = _RATE * math.sqrt(_RATE_UNITS / student.units)
        optimizer = torch.optim.Adam(student.parameters(), lr=rate)
        generator = torch.Generator().manual_seed(self.seed)
        best, state = self.error(student), copy.deepcopy(student.state_dict())
        batch = min(self.batch, max(_SMALLEST_BATCH, len(X) // _LEAST_BATCHES))
        batches = math.ceil(len(X) / batch)
        total = self.epochs * batches
        for epoch in range(self.epochs):
            order = torch.randperm(len(X), generator=generator).to(X.device)
            for number, part in enumerate(torch.split(order, batch)):
                done = epoch * batches + number
                for group in optimizer.param_groups:
                    group["lr"] = rate * _schedule((done + 0.5) / total)
                optimizer.zero_grad()
                loss = (student(X[part]) - Y[part]).square().mean() / scale
                loss.backward()
                optimizer.step()
                self.report(done + 1, total, lambda: f"{place} {name}")
            error = self.error(student)
            if error < best:
                best, state = error, copy.deepcopy(student.state_dict())
        student.load_state_dict(state)
        student.zero_grad()


def _schedule(progress: float) -> float:
    """The factor on the learning rate: a short rise, then a cosine to zero."""
    return min(1.0, progress / _WARM_UP) * 0.5 * (1.0 + math.cos(math.pi * progress))


@torch.no_grad()
def in_batches(module: Callable[[Tensor], Tensor], X: Tensor, batch: int) -> Tensor:
    """The outputs of all samples."""
    return torch.cat([module(part) for part in torch.split(X, batch)])


__all__ = ["StudentFit", "in_batches"]
