"""How often two networks agree, with intervals; the choice among candidates; the time of a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, exp, log, sqrt
from time import thread_time
from typing import Any, NamedTuple

import torch
from scipy.special import ndtri
from torch import Tensor

from notsodeep.intervals import RISK, share_interval
from notsodeep.nets.measure import synchronised_time

# A faster candidate whose expected error is at most so many times as large makes a test superfluous.
_NEARLY = 1.25
# Every network is timed in so many rounds, each of at least so many seconds and at most so many calls.
_ROUNDS, _ROUND_SECONDS, _MOST_CALLS = 7, 2e-3, 100


def agreement(outputs: Tensor, target: Tensor) -> float:
    """Share of rows with the same class; for a single output the share of variance explained, R²."""
    if target.shape[1] == 1:
        return 1.0 - relative_error(outputs, target) ** 2
    return float((outputs.argmax(1) == target.argmax(1)).double().mean())


def relative_error(outputs: Tensor, target: Tensor) -> float:
    """Root mean square difference of the outputs, divided by the standard deviation of the target."""
    squares, spreads = _squares(outputs, target)
    return sqrt(float(squares.sum()) / max(float(spreads.sum()), 1e-300))


def agreement_interval(outputs: Tensor, target: Tensor, risk: float = RISK) -> tuple[float, float]:
    """The interval that contains the true agreement, except with probability `risk`, half of it on each side.

    Of a share of rows it is exact (Clopper and Pearson). 1 - R² of a single output is a ratio of two means over rows,
    whose logarithm is nearly normal, with the variance of the delta method.
    """
    if target.shape[1] > 1:
        return share_interval(int((outputs.argmax(1) == target.argmax(1)).sum()), len(target), risk)
    squares, spreads = _squares(outputs, target)
    total = max(float(spreads.sum()), 1e-300)
    ratio = float(squares.sum()) / total
    if not 0.0 < ratio < float("inf"):
        return 1.0 - ratio, 1.0 - ratio
    deviation = float((squares - ratio * spreads).norm()) / total / ratio
    width = min(float(ndtri(1.0 - 0.5 * risk)) * deviation, 100.0)
    return 1.0 - ratio * exp(width), 1.0 - ratio * exp(-width)


def lower_bound(outputs: Tensor, target: Tensor, risk: float = RISK) -> float:
    """The bound that the true agreement exceeds, except with probability `risk`."""
    return agreement_interval(outputs, target, 2.0 * risk)[0]


def _squares(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error of every row, and its squared distance from the mean target."""
    goal = target.detach().double()
    return (outputs.detach().double() - goal).square().sum(1), (goal - goal.mean(0)).square().sum(1)


def rows_for_certainty(target_agreement: float) -> int | None:
    """Number of test rows that certify this agreement if all of them agree; None if no number does."""
    return ceil(log(RISK) / log(target_agreement)) if target_agreement < 1.0 else None


class Ranking(NamedTuple):
    """What the choice among candidates depends on.

    Attributes:
        seconds: measured time.
        expected_error: estimated on validation rows.
        lower: lower bound of the agreement on test rows, `lower_bound`.
    """

    seconds: float
    expected_error: float
    lower: float


def choose(candidates: Sequence[Ranking], target_agreement: float) -> tuple[int, bool]:
    """The index of the fastest candidate that certainly reaches the target, and True; docs/theory.md (12.5).

    The fastest of many candidates that pass a test on the same rows would often be a lucky one. Candidates are
    therefore tested in an order that does not depend on the test rows, the most faithful on validation rows first;
    the first failure ends the tests. An unfaithful candidate is chosen only if the first unfaithful one in this order
    passes: the risk is that of a single test. Candidates that a faster one nearly equals in faithfulness are left out,
    since each further test is a chance to fail. If the first test fails, the most faithful candidate is returned, with
    False.
    """
    kept: list[int] = []
    for index in sorted(range(len(candidates)), key=lambda index: candidates[index].seconds):
        limit = _NEARLY * candidates[index].expected_error
        if all(candidates[other].expected_error > limit for other in kept):
            kept.append(index)
    kept.sort(key=lambda index: candidates[index].expected_error)
    best, certain = kept[0], False
    for index in kept:
        if not candidates[index].lower >= target_agreement:
            break
        best, certain = index, True
    return best, certain


@torch.no_grad()
def seconds_per_call(modules: Mapping[str, Callable[[Tensor], Any]], X: Tensor) -> dict[str, float]:
    """Time of a forward pass of each module on X: the least over rounds in which all modules take turns.

    On a CPU it is processor time of the calling thread, which other programs do not lengthen.
    """

    def clock() -> float:
        return thread_time() if X.device.type == "cpu" else synchronised_time(X.device)

    def elapsed(module: Callable[[Tensor], Any], calls: int) -> float:
        start = clock()
        for _ in range(calls):
            module(X)
        return (clock() - start) / calls

    for module in modules.values():
        module(X)
    first = {name: elapsed(module, 1) for name, module in modules.items()}
    calls = {
        name: max(1, min(_MOST_CALLS, ceil(_ROUND_SECONDS / max(time, 1e-9)))) for name, time in first.items()
    }
    times: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(_ROUNDS):
        for name, module in modules.items():
            times[name].append(elapsed(module, calls[name]))
    return {name: min(values) for name, values in times.items()}


__all__ = [
    "RISK",
    "Ranking",
    "agreement",
    "agreement_interval",
    "choose",
    "lower_bound",
    "relative_error",
    "rows_for_certainty",
    "seconds_per_call",
    "share_interval",
]
