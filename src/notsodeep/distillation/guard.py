"""`guarded`: the teacher answers for samples on which the student is likely to be wrong."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from notsodeep.distillation.error_estimate import ErrorEstimate
from notsodeep.distillation.result import Distilled
from notsodeep.errors import InputError

# Share of samples for which the teacher answers if the caller does not say.
_SHARE = 0.05


class Guarded(nn.Module):
    """The student's outputs, and the teacher's for samples on which the student is likely to be wrong.

    The teacher also answers for samples that are not finite.

    Attributes:
        student: the explicit network.
        teacher: the teacher that was given, not a copy.
        threshold: the teacher answers where `risk` exceeds it.
        last_share: share of the samples of the last call for which the teacher answered.
    """

    def __init__(self, student: nn.Module, teacher: nn.Module, estimate: ErrorEstimate, threshold: float) -> None:
        super().__init__()
        self.student, self.teacher, self.threshold, self._estimate = student, teacher, threshold, estimate
        self.last_share = 0.0

    def risk(self, X: Tensor) -> Tensor:
        """For each sample the chance of another class; for a single output its error in standard deviations."""
        return self._estimate.risk(X, self.student(X))

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, outputs)."""
        outputs: Tensor = self.student(X)
        finite = torch.isfinite(X).flatten(1).all(1) & torch.isfinite(outputs).all(1)
        unsure = ~(finite & (self._estimate.risk(X, outputs) <= self.threshold))
        self.last_share = float(unsure.double().mean()) if len(X) else 0.0
        if bool(unsure.any()):
            answers = self.teacher(X[unsure]).to(outputs).reshape(-1, outputs.shape[1])
            outputs = outputs.index_put((unsure.nonzero().squeeze(1),), answers)
        return outputs

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"threshold={self.threshold:.3g}"


def guarded(
    distilled: Distilled,
    teacher: nn.Module,
    *,
    threshold: float | None = None,
    max_fallback_share: float | None = None,
) -> Guarded:
    """Let the teacher answer for the samples on which the distilled network is likely to be wrong.

    Args:
        distilled: what `distill` returned.
        teacher: the teacher.
        threshold: the teacher answers where the estimated chance of another class (for a single output the estimated
            error in standard deviations of the teacher's outputs) is above it.
        max_fallback_share: instead of a threshold, the share of samples for which the teacher answers, on samples like
            those of the distillation; 0.05 if neither is given.
    """
    if not isinstance(distilled, Distilled):
        raise InputError(f"guarded takes what distill returned, not {type(distilled).__name__}.")
    if threshold is not None and max_fallback_share is not None:
        raise InputError("guarded takes threshold= or max_fallback_share=, not both.")
    estimate = distilled.error_estimate
    if threshold is None:
        share = _SHARE if max_fallback_share is None else float(max_fallback_share)
        if not 0.0 <= share <= 1.0:
            raise InputError(f"max_fallback_share must be between 0 and 1; got {max_fallback_share!r}.")
        threshold = estimate.threshold(share)
    elif not threshold >= 0.0:
        raise InputError(f"threshold must be 0 or more; got {threshold!r}.")
    return Guarded(distilled.network, teacher, estimate, float(threshold))


__all__ = ["Guarded", "guarded"]
