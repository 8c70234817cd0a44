"""Learning curves from labelled samples: within their number in closed form, beyond it by theory, with a band."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.learning.curve import LearningCurve
from notsodeep.learning.extrapolation import Extrapolation
from notsodeep.learning.sample_pool import Pool
from notsodeep.models import Model
from notsodeep.validation import IntArray, frozen

# Half of the width of a band of 90 %, in standard deviations.
_NINETY = 1.645


@dataclass(frozen=True)
class _Point:
    """One n: accuracy, squared error, the band of the first (regression: of the second), and the ridge."""

    accuracy: float
    mse: float
    band: tuple[float, float]
    ridge: float


def sample_curve(
    pool: Pool, n: IntArray, ridge: float | None, width: int | None, *, kernel: str, model: Model
) -> LearningCurve:
    """The curve from a pool; with ridge None, each n has the ridge of least squared error."""
    points = [
        _within(pool, int(size), ridge, width)
        if size <= pool.size
        else _beyond(pool, int(size), ridge, width)
        for size in n
    ]
    return LearningCurve(
        n=frozen(n),
        accuracy=frozen(np.array([point.accuracy for point in points])),
        mse=frozen(np.array([point.mse for point in points])),
        interval=frozen(np.array([point.band for point in points])),
        ridge=frozen(np.array([point.ridge for point in points])),
        extrapolated=frozen(n > pool.size),
        width=width,
        kernel=kernel,
        model=str(model),
        source=f"{pool.size} labelled samples",
    )


def _within(pool: Pool, n: int, ridge: float | None, width: int | None) -> _Point:
    """Left-out samples; the band is about one training set (and one network) and about the choice of the pool."""
    found = pool.inside(n, ridge, width)
    sets = pool.sets_variance(n, found.ridge, width)
    variance = (
        found.samples_variance(found.figures) + sets * (1.0 + 1.0 / len(found.hits)) + found.networks_variance
    )
    half = _NINETY * float(np.sqrt(variance))
    if pool.labelled.codes is None:
        return _Point(np.nan, found.mse, (max(found.mse - half, 0.0), found.mse + half), found.ridge)
    band = max(found.accuracy - half, 0.0), min(found.accuracy + half, 1.0)
    return _Point(found.accuracy, found.mse, band, found.ridge)


def _beyond(pool: Pool, n: int, ridge: float | None, width: int | None) -> _Point:
    """Continued beyond the pool; the band also has half the distance between two ways to do that."""
    ahead = Extrapolation.best(pool, n, width) if ridge is None else Extrapolation(pool, n, ridge, width)
    last = pool.inside(pool.size, ahead.ridge, width)
    others = pool.sets_variance(n, ahead.ridge, width) + last.networks_variance
    if pool.labelled.codes is not None:
        return _Point(1.0 - ahead.rate, ahead.mse, ahead.band(others, _NINETY), ahead.ridge)
    doubt = (ahead.mse_by_theory - ahead.mse_by_power) / 2.0
    variance = last.samples_variance(last.figures) * (ahead.mse / last.mse) ** 2 + others + doubt**2
    half = _NINETY * float(np.sqrt(variance))
    return _Point(np.nan, ahead.mse, (max(ahead.mse - half, 0.0), ahead.mse + half), ahead.ridge)


__all__ = ["sample_curve"]
