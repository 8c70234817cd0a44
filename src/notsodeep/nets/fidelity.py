"""How faithful a student is to its teacher, on rows it was not fitted to, and where it is likely to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from scipy.special import ndtr
from torch import Tensor, nn

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.nets.measure import synchronised_time

# Two-sided 95 % of a normal distribution.
_NORMAL = 1.959963984540054
_ROUNDS = 7


@dataclass(frozen=True, repr=False)
class Fidelity(Shown):
    """How close a student's outputs are to the teacher's on rows that neither fit nor choice has seen.

    Attributes:
        rows: number of these rows.
        agreement: share of rows with the same class; None for a single output.
        interval: 95 % interval of the agreement (Wilson); None for a single output.
        relative_error: root mean square difference of the outputs over that of the teacher's outputs around their mean.
        milliseconds: time of 1000 rows, student.
        teacher_milliseconds: the same of the teacher.
    """

    rows: int
    agreement: float | None
    interval: tuple[float, float] | None
    relative_error: float
    milliseconds: float
    teacher_milliseconds: float

    @property
    def speed(self) -> float:
        """How many times as fast as the teacher the student is, forward."""
        return self.teacher_milliseconds / self.milliseconds

    @property
    def score(self) -> float:
        """What `until` is compared with: the agreement, or for a single output the share of variance explained."""
        return 1.0 - self.relative_error**2 if self.agreement is None else self.agreement

    def __str__(self) -> str:
        same = ""
        if self.agreement is not None and self.interval is not None:
            low, high = self.interval
            same = f"same class on {self.agreement:.2%} ({low:.2%} to {high:.2%}), "
        return (
            f"{same}outputs off by {self.relative_error:.2%} on {self.rows} rows it has not seen; {self.speed:.1f} "
            f"times as fast ({self.milliseconds:.3g} ms for 1000 rows, teacher {self.teacher_milliseconds:.3g})"
        )

    def _facts(self) -> Mapping[str, Any]:
        return {
            "agreement": self.agreement,
            "interval": self.interval,
            "relative_error": self.relative_error,
            "speed": self.speed,
            "rows": self.rows,
        }


def agreement_of(outputs: Tensor, wanted: Tensor) -> float | None:
    """Share of rows with the same largest output; None for a single output."""
    if wanted.shape[1] == 1:
        return None
    return float((outputs.argmax(1) == wanted.argmax(1)).double().mean())


def relative_error(outputs: Tensor, wanted: Tensor) -> float:
    """Root mean square difference over the spread of what is wanted."""
    goal, found = wanted.detach().double(), outputs.detach().double()
    spread = (goal - goal.mean(0)).norm()
    return float((found - goal).norm() / spread.clamp(min=1e-300))


def wilson(share: float, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), which is sound near 0 and 1 too."""
    square = _NORMAL**2
    centre = (share + square / (2 * rows)) / (1 + square / rows)
    half = _NORMAL / (1 + square / rows) * sqrt(share * (1 - share) / rows + square / (4 * rows * rows))
    return max(0.0, centre - half), min(1.0, centre + half)


def milliseconds(modules: Mapping[str, nn.Module], X: Tensor, rounds: int = _ROUNDS) -> dict[str, float]:
    """Time of 1000 rows of each module: medians of passes in turn, so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {name: [] for name in modules}
    with torch.no_grad():
        for round_ in range(rounds + 1):
            for name, module in modules.items():
                start = synchronised_time(X.device)
                module(X)
                if round_:  # the first one warms up
                    times[name].append(synchronised_time(X.device) - start)
    return {name: 1e6 * median(found) / len(X) for name, found in times.items()}


# --- where a student is likely to be wrong ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Doubt:
    """An estimate, for each row, of how far the student's outputs are from the teacher's.

    The squared error of an output is modelled as `floor` + `slope` · leverage, where the leverage fᵀ M f of a row's
    features tells how unlike the rows of the fit they are; docs/theory.md (12.3).

    Attributes:
        metric: M, the inverse second moment of the features of the fit; None where there are too many features.
        floor, slope: found on rows that the student was not fitted to.
        unit: by how much the estimate is stretched so that the share of disagreement it expects is the one observed.
        seen: the doubts on the rows that it was found from.
    """

    metric: Tensor | None
    floor: float
    slope: float
    unit: float = 1.0
    seen: Tensor | None = None

    def level(self, share: float) -> float:
        """The doubt that this share of the rows exceeds."""
        if self.seen is None or not len(self.seen):
            raise InputError("This estimate of doubt has no rows to take a share of.")
        if share >= 1.0:
            return -1.0
        return float(torch.quantile(self.seen.double(), 1.0 - share))

    def errors(self, features: Tensor) -> Tensor:
        """The expected size of the error of an output, for each row."""
        square = torch.full((len(features),), self.floor, dtype=torch.float64, device=features.device)
        if self.metric is not None and self.slope > 0.0:
            square += self.slope * leverages(features, self.metric)
        return self.unit * square.sqrt()

    def disagreement(self, features: Tensor, outputs: Tensor) -> Tensor:
        """The chance, for each row, that the teacher chooses another class; of a single output the expected error.

        Errors of the outputs are taken as independent and normal: the two largest change places with probability
        Φ(-(difference)/(√2 error)), and so on for the others; the sum of these is a bound that is nearly met.
        """
        errors = self.errors(features)
        if outputs.shape[1] == 1:
            return errors
        ordered = outputs.double().sort(dim=1, descending=True).values
        gaps = ordered[:, :1] - ordered[:, 1:]
        chances = ndtr((-gaps / (sqrt(2.0) * errors.clamp(min=1e-300)[:, None])).cpu().numpy())
        return torch.from_numpy(np.minimum(chances.sum(axis=1), 1.0)).to(outputs.device)


def leverages(features: Tensor, metric: Tensor) -> Tensor:
    """Fᵀ M f of every row."""
    values = features.double()
    return ((values @ metric) * values).sum(1)


def doubt_of(
    features: Callable[[Tensor], Tensor],
    outputs: Callable[[Tensor], Tensor],
    X: Tensor,
    wanted: Tensor,
    metric: Tensor | None,
) -> Doubt:
    """The estimate fitted on rows that the student was not fitted to."""
    with torch.no_grad():
        inner = features(X)
        found = outputs(inner)
    squares = (found.double() - wanted.double()).square().mean(1)
    floor, slope = float(squares.mean()), 0.0
    heights = None if metric is None else leverages(inner, metric)
    if heights is None or not bool(torch.isfinite(heights).all()):
        # Too many features to say, or features that do not vary.
        metric = None
    else:
        columns = torch.stack([torch.ones_like(squares), heights], dim=1)
        floor, slope = (float(one) for one in nnls(columns.cpu().numpy(), squares.cpu().numpy())[0])
    plain = Doubt(metric, max(floor, 1e-300), slope)
    if wanted.shape[1] > 1:
        observed = float((found.argmax(1) != wanted.argmax(1)).double().sum()) + 0.5
        plain = replace(plain, unit=_stretch(plain, inner, found, observed))
    return replace(plain, seen=plain.disagreement(inner, found))


def _stretch(plain: Doubt, features: Tensor, outputs: Tensor, observed: float) -> float:
    """The factor on the errors at which as many disagreements are expected as were observed, by bisection in logs."""
    low, high = 1e-3, 1e3
    for _ in range(40):
        middle = sqrt(low * high)
        expected = float(replace(plain, unit=middle).disagreement(features, outputs).sum())
        low, high = (middle, high) if expected < observed else (low, middle)
    return sqrt(low * high)


__all__ = [
    "Doubt",
    "Fidelity",
    "agreement_of",
    "doubt_of",
    "leverages",
    "milliseconds",
    "relative_error",
    "wilson",
]
