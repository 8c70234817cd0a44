"""What a teacher says on samples without labels, and which of them are fitted to, stop, choose and judge."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import count
from math import ceil

import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.progress import Report

# Samples below which nothing can be fitted and judged.
_FEWEST = 50
# The share of the rows that choose, and of those that judge: at least, and at most where rows are few. Where they are,
# certainty is what is missing first: 1000 rows are to be enough for that of 99 %.
_LEAST_KEPT, _MOST_CHOOSING, _MOST_JUDGING = 0.1, 0.3, 0.15
# A student that differs half as often as allowed passes with so many rows over the share that it may differ on.
_ENOUGH = 12.0
# The share of rows that stop a fit, and how many of them are enough where rows are few.
_STOPPING, _FEW_STOPPING = 0.05, 50
# Outputs that vary by so many units in the last place are constant.
_ROUNDING = 4.0


@dataclass(frozen=True)
class Answers:
    """The teacher's outputs, and on which rows they can be used.

    Attributes:
        outputs: (rows, outputs).
        good: whether a row has a converged, finite output.
    """

    outputs: Tensor
    good: Tensor

    @property
    def held_out(self) -> float:
        """Share of the rows without an answer."""
        return 1.0 - float(self.good.double().mean())


def frozen_copy(teacher: EquilibriumNet) -> EquilibriumNet:
    """A copy of the teacher that answers as it would in use, and never raises because a sample did not converge."""
    found = copy.deepcopy(teacher).eval()
    found._settings = replace(found._settings, on_failure="ignore")
    return found


@torch.no_grad()
def answers_of(teacher: EquilibriumNet, X: Tensor, batch: int, report: Report) -> Answers:
    """Outputs of a teacher; rows without a converged, finite answer are marked."""
    outputs, good = [], []
    for start in range(0, len(X), batch):
        rows = X[start : start + batch]
        found = teacher(rows)
        fine, solve = torch.isfinite(found).all(1), teacher.last_solve
        if solve is not None:
            fine &= solve.residuals.to(found.device) <= solve.tolerance
        outputs.append(found)
        good.append(fine)
        report(start + len(rows), len(X), lambda: "teacher's outputs")
    answers = Answers(torch.cat(outputs), torch.cat(good))
    if answers.held_out > 0.5:
        raise ConvergenceError(
            f"The teacher has no converged, finite output on {answers.held_out:.0%} of the rows.",
            "Give its solver more steps or a looser tolerance, or scale X as in its training.",
        )
    return answers


@dataclass(frozen=True)
class Split:
    """Rows with the teacher's outputs, in four parts that have no row in common.

    Attributes:
        fit: to fit to.
        stop: choose ridges and starts, end a descent, and put the students in order.
        choose: choose one of the students, which no fit has depended on.
        judge: tell how faithful the chosen one is, which no choice has depended on.
    """

    fit: tuple[Tensor, Tensor]
    stop: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    judge: tuple[Tensor, Tensor]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of rows of the parts."""
        return tuple(len(part[0]) for part in (self.fit, self.stop, self.choose, self.judge))

    @classmethod
    def of(cls, X: Tensor, answers: Answers, seed: int, until: float = 0.99) -> Split:
        """The parts in random order: a tenth chooses and a tenth judges, or more where `until` needs more rows.

        Args:
            X: the samples.
            answers: of the teacher.
            seed: of the order.
            until: the share of rows that must agree: the closer to 1, the more rows tell whether it is reached.
        """
        places = answers.good.nonzero().squeeze(1)
        outputs = answers.outputs.shape[1]
        needed = max(_FEWEST, 2 * outputs)
        if len(places) < needed:
            raise InputError(
                f"{len(places)} usable rows are too few to fit {outputs} outputs and to judge the result: give at "
                f"least {needed}."
            )
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed)).to(places.device)
        places, rows = places[order], len(places)
        wanted = ceil(_ENOUGH / max(1.0 - until, 1e-9))
        least = max(wanted, int(_LEAST_KEPT * rows))
        choosing, judging = (min(least, int(most * rows)) for most in (_MOST_CHOOSING, _MOST_JUDGING))
        stopping = max(int(_STOPPING * rows), min(_FEW_STOPPING, rows // 10))
        sizes = [rows - stopping - choosing - judging, stopping, choosing, judging]
        parts = [(X[part], answers.outputs[part]) for part in torch.split(places, sizes)]
        for _, values in parts:
            _refuse_constant(values)
        return cls(*parts)


def _refuse_constant(outputs: Tensor) -> None:
    """Errors are relative to the variation of the outputs: refuse what varies by rounding alone."""
    low, high = outputs.double().aminmax(dim=0)
    if bool((high - low <= _ROUNDING * torch.finfo(outputs.dtype).eps * high.abs().maximum(low.abs())).all()):
        raise InputError(
            f"The teacher's outputs are the same on {len(outputs)} random rows of X: there is nothing to learn or to "
            "judge a student by. Give more or other rows; a constant teacher needs no student."
        )


def rows_with(choosing: int) -> int:
    """The number of rows of which so many choose, where rows are few."""
    return next(rows for rows in count(choosing) if int(_MOST_CHOOSING * rows) >= choosing)


__all__ = ["Answers", "Split", "answers_of", "frozen_copy", "rows_with"]
