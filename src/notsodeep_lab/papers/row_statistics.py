"""Statistics of rows: means, fitted exponents, distances, gaps in accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from notsodeep_lab.papers.experiment import Row
from notsodeep_lab.plots.row_selection import chosen


def six_digits(values: ArrayLike) -> list[float]:
    """Round to six significant digits: more than a figure can show."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64).ravel()]


def values_of(rows: Iterable[Row], field: str) -> list[Any]:
    """Return the distinct values of a field in order of appearance."""
    return list(dict.fromkeys(row[field] for row in rows))


def mean(rows: Sequence[Row], field: str) -> float:
    """Return the mean of a field."""
    return float(np.mean([row[field] for row in rows]))


@dataclass(frozen=True)
class Exponent:
    """A power law: the slope of log y over log x by least squares, and its standard error (zero for two points)."""

    slope: float
    error: float

    def __str__(self) -> str:
        return f"{self.slope:.3f} ± {self.error:.3f}"


def exponent(rows: Sequence[Row], over: str, field: str = "relative") -> Exponent | None:
    """Fit `field` as a power of `over`; None with fewer than two distinct values of `over`."""
    x, y = (np.log([float(row[name]) for row in rows]) for name in (over, field))
    if len(np.unique(x)) < 2:
        return None
    line = stats.linregress(x, y)
    return Exponent(float(line.slope), float(line.stderr))


def kolmogorov(left: ArrayLike, right: ArrayLike) -> float:
    """Return the largest distance between two empirical distribution functions."""
    return float(stats.ks_2samp(left, right, method="asymp").statistic)


@dataclass(frozen=True)
class AccuracyGap:
    """The mean accuracy of the DEQ minus that of another model, with its standard error (zero for one seed)."""

    value: float
    error: float

    @property
    def negligible(self) -> bool:
        """Whether the gap is at most half a percentage point."""
        return abs(self.value) <= NEGLIGIBLE_GAP

    def __str__(self) -> str:
        return f"{100 * self.value:+.2f} ± {100 * self.error:.2f} points"


# Accuracies within half a percentage point count as equal.
NEGLIGIBLE_GAP = 0.005


def accuracy_gap(rows: Sequence[Row], model: str) -> AccuracyGap:
    """Return the mean accuracy of the model "deq" minus that of another one, over all seeds."""
    parts = [np.array([row["accuracy"] for row in chosen(rows, model=one)]) for one in ("deq", model)]
    value = float(parts[0].mean() - parts[1].mean())
    if min(len(part) for part in parts) < 2:
        return AccuracyGap(value, 0.0)
    return AccuracyGap(value, float(np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))))
