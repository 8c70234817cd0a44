"""Where a student is likely to differ from its teacher: an estimate for each row, and whether it can be believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import torch
from scipy.optimize import nnls
from torch import Tensor

from notsodeep.errors import InputError

# The bins of a calibration: from where on a doubt is counted to them.
_BINS = (0.0, 0.01, 0.05, 0.2)
# Disagreements that the errors of the outputs, taken at their word, count for beside those observed.
_PRIOR = 2.0


@dataclass(frozen=True)
class Doubt:
    """An estimate, for each row, of how far the student's outputs are from the teacher's.

    The squared error of an output is modelled as `floor` + `slope` · leverage, where the leverage (f - f̄)ᵀ M (f - f̄)
    of a row's features tells how unlike the rows of the fit they are; docs/theory.md (12.3).

    Attributes:
        sketch: (S, s) with ||S f + s||² ≈ leverage: a random projection, so that a doubt costs little; None where there
            are too many features.
        floor, slope: found on rows that the student was not fitted to.
        unit: by how much the estimate is stretched so that the share of disagreement it expects is the one observed.
        seen: the doubts on the rows that it was found from, in ascending order.
    """

    sketch: tuple[Tensor, Tensor] | None
    floor: float
    slope: float
    unit: float = 1.0
    seen: Tensor | None = None

    def level(self, share: float) -> float:
        """The doubt that this share of the rows exceeds."""
        return level_of(self.seen, share)

    def answer(self, network: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        """The student's outputs, and the doubt of each row as in `disagreement`."""
        features = network.features(X)
        outputs = network.outputs(features)
        with torch.no_grad():
            return outputs, self.disagreement(features, outputs)

    def errors(self, features: Tensor) -> Tensor:
        """The expected size of the error of an output, for each row."""
        square = torch.full((len(features),), self.floor, dtype=torch.float64, device=features.device)
        if self.sketch is not None and self.slope > 0.0:
            square += self.slope * leverages(features, self.sketch)
        return self.unit * square.sqrt()

    def disagreement(self, features: Tensor, outputs: Tensor) -> Tensor:
        """The chance, for each row, that the teacher chooses another class; of a single output the expected error."""
        errors = self.errors(features)
        return errors if outputs.shape[1] == 1 else chances(outputs, errors)


def level_of(seen: Tensor | None, share: float) -> float:
    """The doubt that this share of the rows exceeds, of doubts in ascending order."""
    if seen is None or not len(seen):
        raise InputError("This estimate of doubt has no rows to take a share of.")
    if share >= 1.0:
        return -1.0
    return float(seen[max(0, round((1.0 - share) * len(seen)) - 1)])


def _beyond_normal(distances: Tensor) -> Tensor:
    """The chance that a standard normal number is larger."""
    found: Tensor = torch.special.ndtr(-distances)
    return found


def _beyond_heavy(distances: Tensor) -> Tensor:
    """The chance that a number of Student's distribution with four degrees of freedom is larger than one above zero."""
    square = distances.square()
    scale = 1.0 + square / 4.0
    return (0.5 - 0.375 * distances / scale.sqrt() * (1.0 - square / (12.0 * scale))).clamp(min=0.0)


def chances(outputs: Tensor, errors: Tensor, beyond: Callable[[Tensor], Tensor] = _beyond_normal) -> Tensor:
    """The chance, for each row, that another output is the largest when all have independent errors.

    The two largest change places with probability Φ(-(difference)/(√2 error)) for normal ones, and so on for the
    others; the sum of these is a bound that is nearly met.

    Args:
        outputs: of the rows.
        errors: the size of each row's errors.
        beyond: the chance that an error of size 1 is larger than a number.
    """
    ordered = outputs.double().sort(dim=1, descending=True).values
    gaps = ordered[:, :1] - ordered[:, 1:]
    return beyond(gaps / (sqrt(2.0) * errors.clamp(min=1e-300)[:, None])).sum(1).clamp(max=1.0)


def chances_of_rows(outputs: Tensor, wanted: Tensor) -> Tensor:
    """The chance of another class for each row, with one size of error for all rows: (12.3) without leverages.

    It is the error that was observed, stretched so that as many rows are expected to differ as did. Its tails are
    heavier than normal ones: the same student is wrong by more on some rows than on others.
    """
    found = outputs.double()
    size = (found - wanted.double()).square().mean().sqrt().clamp(min=1e-300)
    errors = size.expand(len(found))
    observed = float((outputs.argmax(1) != wanted.argmax(1)).sum())
    return chances(found, _stretch(found, errors, observed, _beyond_heavy) * errors, _beyond_heavy)


def leverages(features: Tensor, sketch: tuple[Tensor, Tensor]) -> Tensor:
    """||S f + s||² of every row."""
    root, offset = (part.to(features) for part in sketch)
    return torch.addmm(offset, features, root.mT).double().square().sum(1)


@torch.no_grad()
def doubt_of(
    features: Callable[[Tensor], Tensor],
    outputs: Callable[[Tensor], Tensor],
    rows: tuple[Tensor, Tensor],
    sketch: tuple[Tensor, Tensor] | None,
    batch: int = 1024,
) -> Doubt:
    """The estimate, from rows that the student was not fitted to.

    Args:
        features: of samples.
        outputs: of features.
        rows: samples and what the teacher says of them.
        sketch: of the features' second moment on the rows of the fit.
        batch: samples at a time.
    """
    X, wanted = rows
    parts, heights = [], []
    for part in torch.split(X, batch):
        inner = features(part)
        parts.append(outputs(inner).double())
        heights.append(parts[-1].new_zeros(len(part)) if sketch is None else leverages(inner, sketch))
    found, height = torch.cat(parts), torch.cat(heights)
    squares = (found - wanted.double()).square().mean(1)
    floor, slope = float(squares.mean()), 0.0
    if not bool(torch.isfinite(height).all()):
        # Features that do not vary.
        sketch, height = None, torch.zeros_like(height)
    if sketch is not None:
        columns = torch.stack([torch.ones_like(squares), height], dim=1)
        floor, slope = (float(one) for one in nnls(columns.cpu().numpy(), squares.cpu().numpy())[0])
    floor = max(floor, 1e-300)
    errors, unit = (floor + slope * height).sqrt(), 1.0
    if wanted.shape[1] > 1:
        observed = float((found.argmax(1) != wanted.argmax(1)).double().sum())
        unit = _stretch(found, errors, observed)
        seen = chances(found, unit * errors)
    else:
        seen = errors
    return Doubt(sketch, floor, slope, unit, seen.sort().values)


def _stretch(
    outputs: Tensor, errors: Tensor, observed: float, beyond: Callable[[Tensor], Tensor] = _beyond_normal
) -> float:
    """The factor on the errors at which as many disagreements are expected as were observed, by bisection in logs.

    A handful of them says little: what the errors themselves lead to expect counts as two observations more.
    """
    plain = float(chances(outputs, errors, beyond).sum())
    if not observed and plain < 1e-6:
        return 1.0
    plain = max(plain, 1e-6)
    observed = plain * (observed + _PRIOR) / (plain + _PRIOR)
    low, high = 1e-3, 1e3
    for _ in range(40):
        middle = sqrt(low * high)
        expected = float(chances(outputs, middle * errors, beyond).sum())
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


__all__ = [
    "Calibration",
    "Doubt",
    "calibration_of",
    "chances",
    "chances_of_rows",
    "doubt_of",
    "level_of",
    "leverages",
]
