"""On which samples a student is likely to be wrong, and `guarded`: there the teacher answers instead."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.distillation.fitting import LinearFit, fit_linear
from notsodeep.errors import InputError

# Share of samples for which the teacher answers if the caller does not say.
_SHARE = 0.05
# The root mean square error of the outputs counts for this number of observed disagreements.
_PRIOR = 2.0
# Entries of a sample up to which they help to predict the error of a single output.
_MOST_ENTRIES = 200


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimate, for each sample, of how wrong a student is, docs/theory.md (12.3).

    Attributes:
        error: size of an output's error, scaled so that the expected number of disagreements is the observed one.
        regression: for a single output, the logarithm of its relative error as a linear function of sample and output.
        seen: the estimates for the samples it was fitted to, in ascending order.
    """

    error: float
    regression: LinearFit | None
    seen: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, X: Tensor, outputs: Tensor, target: Tensor) -> ErrorEstimate:
        """The estimate, from outputs for samples that the student was not fitted to."""
        size = float((outputs.double() - target.double()).square().mean().sqrt().clamp(min=1e-300))
        regression = None
        if target.shape[1] == 1:
            spread = float(target.double().std().clamp(min=1e-300))
            errors = ((outputs - target).abs().double() / spread).clamp(min=1e-12).log()
            features, third = _features(X, outputs), len(X) // 3
            parts = [(features[third:], errors[third:])], [(features[:third], errors[:third])]
            regression = fit_linear(*parts)
        else:
            observed = float((outputs.argmax(1) != target.argmax(1)).sum())
            size *= _stretch(outputs, size, observed)
        unsorted = cls(size, regression, torch.zeros(1)).risk(X, outputs)
        return cls(size, regression, unsorted.sort().values)

    @torch.no_grad()
    def risk(self, X: Tensor, outputs: Tensor) -> Tensor:
        """For each sample the chance of another class; for a single output its error in standard deviations."""
        if outputs.shape[1] > 1:
            return chance_of_another_class(outputs, self.error)
        if self.regression is None:
            return torch.full((len(outputs),), self.error, dtype=torch.float64, device=outputs.device)
        weights, bias = self.regression.weights, self.regression.bias
        return (_features(X, outputs).double() @ weights.mT + bias).squeeze(1).exp()

    def threshold(self, share: float) -> float:
        """The estimate that this share of the samples exceeds."""
        if share >= 1.0:
            return -1.0
        return float(self.seen[max(0, round((1.0 - share) * len(self.seen)) - 1)])


def _features(X: Tensor, outputs: Tensor) -> Tensor:
    """The output, its size and the mean square of the sample; of small samples also their entries."""
    rows, values = X.flatten(1).double(), outputs.double()
    features = torch.cat([rows.square().mean(1, keepdim=True), values, values.abs()], dim=1)
    return torch.cat([features, rows], dim=1) if rows.shape[1] <= _MOST_ENTRIES else features


def chance_of_another_class(outputs: Tensor, error: float) -> Tensor:
    """The chance, for each row, that another output is the largest when all have independent errors of this size.

    The two largest change places with the chance that an error of size √2 exceeds their difference, and so on for the
    others; the sum is a bound that is nearly attained. Errors have Student's distribution with four degrees of freedom,
    since a student is more wrong on some samples than on others.
    """
    ordered = outputs.double().sort(dim=1, descending=True).values
    # Of a student without errors the square of a gap would be infinite.
    gaps = ((ordered[:, :1] - ordered[:, 1:]) / (sqrt(2.0) * error)).clamp(max=1e150)
    square = gaps.square()
    scale = 1.0 + square / 4.0
    beyond = 0.5 - 0.375 * gaps / scale.sqrt() * (1.0 - square / (12.0 * scale))
    return beyond.clamp(min=0.0).sum(1).clamp(max=1.0)


def _stretch(outputs: Tensor, error: float, observed: float) -> float:
    """The factor on the error at which the expected number of disagreements is the observed one, by bisection."""
    plain = float(chance_of_another_class(outputs, error).sum())
    if not observed and plain < 1e-6:
        return 1.0
    plain = max(plain, 1e-6)
    # A handful of observations says little: what the error itself predicts counts as two more.
    observed = plain * (observed + _PRIOR) / (plain + _PRIOR)
    low, high = 1e-3, 1e3
    for _ in range(40):
        middle = sqrt(low * high)
        expected = float(chance_of_another_class(outputs, middle * error).sum())
        low, high = (middle, high) if expected < observed else (low, middle)
    return sqrt(low * high)


class Guarded(nn.Module):
    """The student's outputs, and the teacher's for samples on which the student is likely to be wrong.

    The teacher also answers for samples that are not finite.

    Attributes:
        student: the explicit network.
        teacher: the teacher that was given, not a copy.
        threshold: the teacher answers where `risk` exceeds it.
        last_share: share of the samples of the last call for which the teacher answered.
    """

    def __init__(
        self, student: nn.Module, teacher: nn.Module, estimate: ErrorEstimate, threshold: float
    ) -> None:
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


def guarded(
    distilled: Any,
    teacher: nn.Module,
    *,
    threshold: float | None = None,
    max_fallback_share: float | None = None,
) -> Guarded:
    """Let the teacher answer for the samples on which the distilled network is likely to be wrong.

    Args:
        distilled: result of `distill`.
        teacher: the teacher.
        threshold: the teacher answers where the estimated chance of another class (for a single output the estimated
            error in standard deviations of the teacher's outputs) is above it.
        max_fallback_share: instead of a threshold, the share of samples for which the teacher answers, on samples like
            those of the distillation; 0.05 if neither is given.
    """
    estimate = getattr(distilled, "error_estimate", None)
    if not isinstance(estimate, ErrorEstimate):
        raise InputError(f"guarded takes what distill returned, not {type(distilled).__name__}.")
    if threshold is not None and max_fallback_share is not None:
        raise InputError("guarded takes threshold= or max_fallback_share=, not both.")
    if threshold is None:
        share = _SHARE if max_fallback_share is None else float(max_fallback_share)
        if not 0.0 <= share <= 1.0:
            raise InputError(f"max_fallback_share must be between 0 and 1; got {max_fallback_share!r}.")
        threshold = estimate.threshold(share)
    elif not threshold >= 0.0:
        raise InputError(f"threshold must be 0 or more; got {threshold!r}.")
    return Guarded(distilled.network, teacher, estimate, float(threshold))
