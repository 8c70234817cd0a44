"""`guarded`: a student that asks its teacher where it is not sure."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.nets.distilled import Distilled
from notsodeep.nets.doubt import Doubt


class Guarded(nn.Module):
    """The student's outputs, and the teacher's for rows on which the student is not sure or that are not finite.

    Attributes:
        student: the explicit network.
        teacher: the module that is asked; it is the one that was given, not a copy.
        limit: the doubt above which it is asked: the estimated chance of another class.
        last_share: share of the rows of the last call on which it was asked.
    """

    def __init__(self, student: nn.Module, teacher: nn.Module, doubt: Doubt, limit: float) -> None:
        super().__init__()
        self.student, self.teacher, self.limit, self._doubt = student, teacher, limit, doubt
        self.last_share = 0.0

    def doubts(self, X: Tensor) -> Tensor:
        """For each row the estimated chance of another class."""
        return self._doubt.disagreement(self.student(X))

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs)."""
        outputs: Tensor = self.student(X)
        doubts = self._doubt.disagreement(outputs)
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
        tolerance: the doubt above which the teacher is asked: the chance of another class.
        share: or else the share of rows on which to ask; on rows like those of the distillation.

    Raises:
        InputError: for a single output, whose size does not tell on which rows the student is sure.
    """
    if (tolerance is None) == (share is None):
        raise InputError(
            "guarded takes tolerance=, the doubt from which on the teacher is asked, or share=, on how many rows: one "
            "of the two."
        )
    if not isinstance(distilled, Distilled):
        raise InputError(f"guarded takes what distill returned, not {type(distilled).__name__}.")
    doubt, student = distilled.doubt, distilled.network
    if doubt is None:
        raise InputError(
            "guarded takes a student of two outputs or more: the lead of the largest one tells where it is sure. With "
            "a single output, compare `distilled.fidelity.relative_error` with what you can accept."
        )
    if tolerance is not None:
        if not tolerance >= 0.0:
            raise InputError(f"tolerance must be zero or more; got {tolerance!r}.")
        return Guarded(student, teacher, doubt, float(tolerance))
    if not 0.0 <= float(share or 0.0) <= 1.0:
        raise InputError(f"share is between 0 and 1; got {share!r}.")
    return Guarded(student, teacher, doubt, doubt.level(float(share or 0.0)))


__all__ = ["Guarded", "guarded"]
