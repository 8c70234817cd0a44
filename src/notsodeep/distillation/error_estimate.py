"""On which samples a student is likely to differ from its teacher, docs/theory.md (12.3)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from notsodeep.distillation.linear_fit import LinearFit, fit_linear

# The root mean square error of the outputs counts for this number of observed disagreements.
_PRIOR = 2.0
# Entries of a sample up to which they help to predict the error of a single output.
_MOST_ENTRIES = 200


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimate, for each sample, of how wrong a student is.

    Attributes:
        error: size of an output's error, scaled so that the expected number of disagreements is the observed one.
        regression: for a single output, the logarithm of its relative error as a linear function of sample and output.
        seen: the estimates for the samples that it was made from, in ascending order.
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
        found = cls(size, regression, torch.zeros(1))
        return cls(size, regression, found.risk(X, outputs).sort().values)

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
    gaps = (ordered[:, :1] - ordered[:, 1:]) / (sqrt(2.0) * error)
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


__all__ = ["ErrorEstimate", "chance_of_another_class"]
