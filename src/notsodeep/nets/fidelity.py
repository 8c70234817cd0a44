"""How faithful a student is to its teacher, on rows it was not fitted to, and how fast both are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, sqrt
from time import thread_time
from typing import Any

import torch
from scipy.special import betaincinv, ndtri
from torch import Tensor, nn

from notsodeep.display import Shown
from notsodeep.nets.measure import synchronised_time

# The chance that an interval, or a bound, does not hold what it is of.
RISK = 0.05
_ROUNDS = 5


@dataclass(frozen=True, repr=False)
class Fidelity(Shown):
    """How close a student's outputs are to the teacher's on rows that neither fit nor choice has seen.

    Attributes:
        rows: number of these rows.
        agreement: share of rows with the same class; None for a single output.
        interval: 95 % interval of the agreement (Clopper and Pearson); None for a single output.
        relative_error: root mean square difference of the outputs over that of the teacher's outputs around their mean.
        error_interval: 95 % interval of the relative error.
        milliseconds: time of 1000 rows, student.
        teacher_milliseconds: the same of the teacher.
    """

    rows: int
    agreement: float | None
    interval: tuple[float, float] | None
    relative_error: float
    error_interval: tuple[float, float]
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
            f"{same}outputs off by {self.relative_error:.2%} ({self.error_interval[0]:.2%} to "
            f"{self.error_interval[1]:.2%}) on {self.rows} rows it has not seen; {self.speed:.1f} "
            f"times as fast ({self.milliseconds:.3g} ms for 1000 rows, teacher {self.teacher_milliseconds:.3g})"
        )

    def _facts(self) -> Mapping[str, Any]:
        return {
            "agreement": self.agreement,
            "interval": self.interval,
            "relative_error": self.relative_error,
            "error_interval": self.error_interval,
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


def error_interval(outputs: Tensor, wanted: Tensor, risk: float = RISK) -> tuple[float, float]:
    """The interval of the relative error, of both sides together wrong with the chance `risk`.

    Its square is a ratio of two means over rows, whose logarithm is nearly normal; the variance is that of the delta
    method.
    """
    goal, found = wanted.detach().double(), outputs.detach().double()
    squares, spreads = (found - goal).square().sum(1), (goal - goal.mean(0)).square().sum(1)
    total = float(spreads.sum())
    ratio = float(squares.sum()) / max(total, 1e-300)
    if not 0.0 < ratio < float("inf"):
        return sqrt(ratio), sqrt(ratio)
    deviation = float((squares - ratio * spreads).norm()) / max(total, 1e-300) / ratio
    half = min(float(ndtri(1.0 - 0.5 * risk)) * deviation, 100.0)
    return sqrt(ratio * exp(-half)), sqrt(ratio * exp(half))


def share_interval(successes: int, rows: int, risk: float = RISK) -> tuple[float, float]:
    """The interval of a share, wrong with at most the chance `risk`, half of it on each side (Clopper, Pearson)."""
    low = float(betaincinv(successes, rows - successes + 1, 0.5 * risk)) if successes else 0.0
    high = float(betaincinv(successes + 1, rows - successes, 1.0 - 0.5 * risk)) if successes < rows else 1.0
    return low, high


def score_bound(outputs: Tensor, wanted: Tensor, risk: float = RISK) -> float:
    """What the share of rows with the same class is at least, but for the chance `risk`.

    For a single output it is the share of variance explained.
    """
    if wanted.shape[1] == 1:
        return 1.0 - error_interval(outputs, wanted, 2.0 * risk)[1] ** 2
    same = int((outputs.argmax(1) == wanted.argmax(1)).sum())
    return share_interval(same, len(wanted), 2.0 * risk)[0]


def _thread_time(device: torch.device) -> float:
    return thread_time()


def milliseconds(
    modules: Mapping[str, nn.Module],
    X: Tensor,
    rounds: int = _ROUNDS,
    clock: Callable[[torch.device], float] | None = None,
) -> dict[str, float]:
    """Time of 1000 rows of each module: the quickest of several passes in turn, which other work disturbed least.

    Args:
        modules: by name.
        X: the rows of a pass.
        rounds: passes of each module; a first one more is not counted.
        clock: seconds, when the device has finished; on a CPU the processor time of the calling thread if not given,
            which other programs do not lengthen.
    """
    clock = clock or (_thread_time if X.device.type == "cpu" else synchronised_time)
    times: dict[str, list[float]] = {name: [] for name in modules}
    with torch.no_grad():
        for round_ in range(rounds + 1):
            for name, module in modules.items():
                # A copy: a module may work in place.
                rows = X.clone()
                start = clock(X.device)
                module(rows)
                if round_:  # the first one warms up
                    times[name].append(clock(X.device) - start)
    return {name: 1e6 * min(found) / len(X) for name, found in times.items()}


__all__ = [
    "RISK",
    "Fidelity",
    "agreement_of",
    "error_interval",
    "milliseconds",
    "relative_error",
    "score_bound",
    "share_interval",
]
