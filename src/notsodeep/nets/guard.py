"""`guarded`: a student that asks its teacher where it is not sure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.nets.distilled import Distilled


class Guarded(nn.Module):
    """The student's outputs, and the teacher's for rows on which the student is not sure or that are not finite.

    Attributes:
        student: the explicit network.
        teacher: the module that is asked; it is the one that was given, not a copy.
        limit: the doubt above which it is asked: the estimated chance of another class, or for a single output the
            expected error.
        last_share: share of the rows of the last call on which it was asked.
    """

    def __init__(self, distilled: Distilled, teacher: nn.Module, limit: float) -> None:
        super().__init__()
        self.student, self.teacher, self.limit = distilled.network, teacher, limit
        self._doubt: Any = distilled.doubt  # of the kind that the student needs
        self.last_share = 0.0

    def doubts(self, X: Tensor) -> Tensor:
        """For each row the estimated chance of another class, or the expected error of a single output."""
        doubts: Tensor = self._doubt.answer(self.student, X)[1]
        return doubts

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs)."""
        outputs: Tensor
        outputs, doubts = self._doubt.answer(self.student, X)
        # Doubts of rows that are not finite mean nothing, even where the student's answer is finite.
        finite = torch.isfinite(X).flatten(1).all(1) & torch.isfinite(outputs).all(1)
        unsure = ~(finite & (doubts <= self.limit))
        self.last_share = float(unsure.double().mean()) if len(X) else 0.0
        if bool(unsure.any()):
            outputs = outputs.index_put((unsure.nonzero().squeeze(1),), self.teacher(X[unsure]).to(outputs))
        return outputs

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"limit={self.limit:.3g}"


def guarded(
    distilled: Distilled, teacher: nn.Module, *, tolerance: float | None = None, share: float | None = None
) -> Guarded:
    """The student, guarded by its teacher: the teacher answers for rows on which the student is not sure.

    Args:
        distilled: what `distill` returned.
        teacher: the teacher.
        tolerance: the doubt above which the teacher is asked: the chance of another class, or for a single output the
            expected error of the output.
        share: or else the share of rows on which to ask; on rows like those of the distillation.
    """
    if (tolerance is None) == (share is None):
        raise InputError(
            "guarded takes tolerance=, the doubt from which on the teacher is asked, or share=, on how many rows: one "
            "of the two."
        )
    if not isinstance(distilled, Distilled):
        raise InputError(f"guarded takes what distill returned, not {type(distilled).__name__}.")
    if tolerance is not None:
        if not tolerance >= 0.0:
            raise InputError(f"tolerance must be zero or more; got {tolerance!r}.")
        return Guarded(distilled, teacher, float(tolerance))
    if not 0.0 <= float(share or 0.0) <= 1.0:
        raise InputError(f"share is between 0 and 1; got {share!r}.")
    return Guarded(distilled, teacher, distilled.doubt.level(float(share or 0.0)))


__all__ = ["Guarded", "guarded"]
