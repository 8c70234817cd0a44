"""How faithful a student is to its teacher, on rows it was not fitted to, and how fast both are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from time import thread_time
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.display import Shown
from notsodeep.nets.measure import synchronised_time

# Two-sided 95 % of a normal distribution.
_NORMAL = 1.959963984540054
_ROUNDS = 5


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


def wilson(share: float, rows: int, normal: float = _NORMAL) -> tuple[float, float]:
    """The interval of a share (Wilson 1927), which is sound near 0 and 1 too; 95 % if `normal` is not given."""
    square = normal**2
    centre = (share + square / (2 * rows)) / (1 + square / rows)
    half = normal / (1 + square / rows) * sqrt(share * (1 - share) / rows + square / (4 * rows * rows))
    return max(0.0, centre - half), min(1.0, centre + half)


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
                start = clock(X.device)
                module(X)
                if round_:  # the first one warms up
                    times[name].append(clock(X.device) - start)
    return {name: 1e6 * min(found) / len(X) for name, found in times.items()}


__all__ = ["Fidelity", "agreement_of", "milliseconds", "relative_error", "wilson"]
