"""How often two networks agree, with intervals, and the time of a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, exp, log, sqrt
from time import thread_time
from typing import Any

import torch
from scipy.special import betainc, ndtr, ndtri
from torch import Tensor

from notsodeep.intervals import RISK, share_interval
from notsodeep.nets.measure import synchronised_time

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
    """A lower and an upper bound of the true agreement, each wrong with probability `risk`.

    For a share of rows they are exact (Clopper, Pearson). 1 - R² of a single output is a ratio of two means over rows,
    whose logarithm is nearly normal, with the variance of the delta method.
    """
    if target.shape[1] > 1:
        return share_interval(int((outputs.argmax(1) == target.argmax(1)).sum()), len(target), 2.0 * risk)
    ratio, deviation = _log_ratio(outputs, target)
    if not 0.0 < ratio < float("inf"):
        return 1.0 - ratio, 1.0 - ratio
    width = min(float(ndtri(1.0 - risk)) * deviation, 100.0)
    return 1.0 - ratio * exp(width), 1.0 - ratio * exp(-width)


def risk_of_claim(outputs: Tensor, target: Tensor, claimed: float) -> float:
    """The smallest risk at which the lower bound of `agreement_interval` reaches the claimed agreement."""
    if target.shape[1] > 1:
        same = int((outputs.argmax(1) == target.argmax(1)).sum())
        return float(betainc(same, len(target) - same + 1, claimed)) if same else 1.0
    ratio, deviation = _log_ratio(outputs, target)
    if not 0.0 < ratio < float("inf") or claimed >= 1.0:
        return float(1.0 - ratio < claimed)
    return float(ndtr(log(ratio / (1.0 - claimed)) / max(deviation, 1e-300)))


def _squares(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error of every row, and its squared distance from the mean target."""
    goal = target.detach().double()
    return (outputs.detach().double() - goal).square().sum(1), (goal - goal.mean(0)).square().sum(1)


def _log_ratio(outputs: Tensor, target: Tensor) -> tuple[float, float]:
    """1 - R², and the standard deviation of its logarithm."""
    squares, spreads = _squares(outputs, target)
    total = max(float(spreads.sum()), 1e-300)
    ratio = float(squares.sum()) / total
    deviation = float((squares - ratio * spreads).norm()) / total / max(ratio, 1e-300)
    return ratio, deviation


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
