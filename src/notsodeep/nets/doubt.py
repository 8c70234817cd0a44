"""Where a student is likely to differ from its teacher: an estimate for each row, and whether it can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

# The bins of a calibration: from where on a doubt is counted to them.
_BINS = (0.0, 0.01, 0.05, 0.2)
# Disagreements that the errors of the outputs, taken at their word, count for beside those observed.
_PRIOR = 2.0


@dataclass(frozen=True)
class Doubt:
    """An estimate, for each row, of the chance that the teacher chooses another class; docs/theory.md (12.3).

    Attributes:
        error: the size of an output's error, stretched so that as many rows are expected to differ as did.
        seen: the doubts on the rows that it was found from, in ascending order.
    """

    error: float
    seen: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, outputs: Tensor, wanted: Tensor) -> Doubt:
        """The estimate, from outputs of a student on rows it was not fitted to and what the teacher says of them."""
        size = float((outputs.double() - wanted.double()).square().mean().sqrt().clamp(min=1e-300))
        observed = float((outputs.argmax(1) != wanted.argmax(1)).sum())
        error = size * _stretch(outputs, size, observed)
        return cls(error, chances(outputs, error).sort().values)

    def level(self, share: float) -> float:
        """The doubt that this share of the rows exceeds."""
        if share >= 1.0:
            return -1.0
        return float(self.seen[max(0, round((1.0 - share) * len(self.seen)) - 1)])

    @torch.no_grad()
    def disagreement(self, outputs: Tensor) -> Tensor:
        """The chance, for each row of outputs, that the teacher chooses another class."""
        return chances(outputs, self.error)


def chances(outputs: Tensor, error: float) -> Tensor:
    """The chance, for each row, that another output is the largest when all have independent errors of this size.

    The two largest change places with the chance that an error of size √2 is larger than their difference, and so on
    for the others; the sum of these is a bound that is nearly met. Errors have Student's distribution with four degrees
    of freedom: the same student is wrong by more on some rows than on others.
    """
    ordered = outputs.double().sort(dim=1, descending=True).values
    gaps = (ordered[:, :1] - ordered[:, 1:]) / (sqrt(2.0) * error)
    square = gaps.square()
    scale = 1.0 + square / 4.0
    beyond = 0.5 - 0.375 * gaps / scale.sqrt() * (1.0 - square / (12.0 * scale))
    return beyond.clamp(min=0.0).sum(1).clamp(max=1.0)


def _stretch(outputs: Tensor, error: float, observed: float) -> float:
    """The factor on the error at which as many disagreements are expected as were observed, by bisection in logs.

    A handful of them says little: what the error itself leads to expect counts as two observations more.
    """
    plain = float(chances(outputs, error).sum())
    if not observed and plain < 1e-6:
        return 1.0
    plain = max(plain, 1e-6)
    observed = plain * (observed + _PRIOR) / (plain + _PRIOR)
    low, high = 1e-3, 1e3
    for _ in range(40):
        middle = sqrt(low * high)
        expected = float(chances(outputs, middle * error).sum())
        low, high = (middle, high) if expected < observed else (low, middle)
    return sqrt(low * high)


class Calibration(NamedTuple):
    """Rows of similar doubt: the share that was expected to differ from the teacher, and the share that did.

    Attributes:
        least: the smallest doubt that belongs to them.
        rows: their number.
        expected: the mean of their doubts.
        observed: the share of them on which the teacher has another class.
    """

    least: float
    rows: int
    expected: float
    observed: float


def calibration_of(doubts: Tensor, differs: Tensor, bins: Sequence[float] = _BINS) -> tuple[Calibration, ...]:
    """Doubts beside what happened, in bins of doubt; bins without rows are left out."""
    found = []
    for least, below in zip(bins, (*bins[1:], float("inf")), strict=True):
        inside = (doubts >= least) & (doubts < below)
        if rows := int(inside.sum()):
            means = (float(one[inside].double().mean()) for one in (doubts, differs))
            found.append(Calibration(least, rows, *means))
    return tuple(found)


__all__ = ["Calibration", "Doubt", "calibration_of", "chances"]
