"""Confidence intervals of shares and of paired differences: one rule for everything that is called certain."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri

from notsodeep.validation import Array

# The chance that a one-sided bound, or an interval with both of its ends, is wrong.
RISK = 0.05
# The largest difference of two shares that is looked at.
_LARGEST = 1.0 - 1e-9


def share_interval(successes: int, rows: int, risk: float = RISK) -> tuple[float, float]:
    """The exact interval of a binomial share (Clopper and Pearson), wrong with probability at most `risk`."""
    low = float(betaincinv(successes, rows - successes + 1, 0.5 * risk)) if successes else 0.0
    high = float(betaincinv(successes + 1, rows - successes, 1.0 - 0.5 * risk)) if successes < rows else 1.0
    return low, high


def mean_interval(values: Array, risk: float = RISK) -> tuple[float, float]:
    """The normal interval of the mean of independent values."""
    half = float(ndtri(1.0 - 0.5 * risk)) * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def paired_difference(first: Array, second: Array, risk: float = RISK) -> tuple[float, float]:
    """A lower and an upper bound of mean(first) - mean(second), each wrong with probability `risk`.

    Args:
        first: scores of the samples; 0 or 1 if the mean is a share.
        second: other scores of the same samples.
        risk: probability that the true difference is below the first bound, and that it is above the second.
    """
    if not np.isin(first, (0.0, 1.0)).all() or not np.isin(second, (0.0, 1.0)).all():
        return mean_interval(first - second, 2.0 * risk)
    lost, won, n = int(np.sum(first > second)), int(np.sum(first < second)), len(first)
    if first.all():
        return share_interval(lost, n, 2.0 * risk)
    quantile, observed = float(ndtri(1.0 - risk)), (lost - won) / n
    ends = [
        observed
        if abs(observed) == 1.0 and np.sign(end) == observed
        else brentq(lambda one, end=end: _score(one, lost, won, n) + np.sign(end) * quantile, observed, end)
        for end in (-_LARGEST, _LARGEST)
    ]
    return ends[0], ends[1]


def _score(difference: float, lost: int, won: int, n: int) -> float:
    """The score statistic of Tango (1998) for this difference of two paired shares; it falls with the difference."""
    spread = difference * (1.0 - difference)
    linear = (2.0 * n - lost + won) * difference - lost - won
    # The most likely share of samples on which only the second is right, given the difference.
    only_second = (np.sqrt(max(linear**2 + 8.0 * n * won * spread, 0.0)) - linear) / (4.0 * n)
    variance = n * (2.0 * only_second + spread)
    return float((lost - won - n * difference) / np.sqrt(max(variance, 1e-300)))


__all__ = ["RISK", "mean_interval", "paired_difference", "share_interval"]
