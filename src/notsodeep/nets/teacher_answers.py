"""What a teacher says on samples without labels, and which of them are fitted to, choose and judge."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.progress import Report

# Samples below which nothing can be fitted and judged.
_FEWEST = 50


@dataclass(frozen=True)
class Answers:
    """The teacher's outputs, and on which rows they can be used."""

    outputs: Tensor
    good: Tensor
    teacher: nn.Module

    @property
    def left_out(self) -> float:
        """Share of the rows without an answer."""
        return 1.0 - float(self.good.double().mean())


@torch.no_grad()
def answers_of(teacher: nn.Module, X: Tensor, batch: int, report: Report) -> Answers:
    """Outputs of a copy of the teacher; rows without a converged, finite answer are marked."""
    asked = copy.deepcopy(teacher).eval()
    if isinstance(asked, EquilibriumNet):
        asked._settings = replace(asked._settings, on_failure="ignore")
    outputs, good = [], []
    for start in range(0, len(X), batch):
        rows = X[start : start + batch]
        found = asked(rows)
        if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(rows):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"The teacher must give one row of outputs for each sample, (n, outputs); got {shape}."
            )
        fine = torch.isfinite(found).all(1)
        solve = getattr(asked, "last_solve", None)
        if isinstance(asked, EquilibriumNet) and solve is not None:
            fine &= solve.residuals.to(found.device) <= solve.tolerance
        outputs.append(found)
        good.append(fine)
        report(start + len(rows), len(X), lambda: "teacher's outputs")
    answers = Answers(torch.cat(outputs), torch.cat(good), asked)
    if answers.left_out > 0.5:
        raise ConvergenceError(
            f"The teacher has no converged, finite output on {answers.left_out:.0%} of the rows.",
            "Give its solver more steps or a looser tolerance, or scale X as in its training.",
        )
    return answers


@dataclass(frozen=True)
class Split:
    """Rows to fit to, rows that stop and choose, rows that judge; each with the teacher's outputs."""

    fit: tuple[Tensor, Tensor]
    choose: tuple[Tensor, Tensor]
    judge: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, X: Tensor, answers: Answers, seed: int) -> Split:
        """Four fifths to fit to, a tenth to choose, a tenth to judge, in random order."""
        places = answers.good.nonzero().squeeze(1)
        outputs = answers.outputs.shape[1]
        needed = max(_FEWEST, 2 * outputs)
        if len(places) < needed:
            raise InputError(
                f"{len(places)} usable rows are too few to fit {outputs} outputs and to judge the result: give at "
                f"least {needed}."
            )
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed)).to(places.device)
        places = places[order]
        tenth = max(len(places) // 10, 1)
        parts = places[2 * tenth :], places[:tenth], places[tenth : 2 * tenth]
        return cls(*((X[part], answers.outputs[part]) for part in parts))


__all__ = ["Answers", "Split", "answers_of"]
