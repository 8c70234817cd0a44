"""Learning curves beyond the number of labelled samples, from the spectrum of the pool and from the trend within it.

Two ways continue a figure to n > N: a power of n fitted within the pool, and the spectrum, whose eigenvalues and errors
follow power laws, (11.17). The first promises too much near a floor, the second near a peak. The prediction is their
geometric mean, (11.26) and (11.28), and half their distance is part of the band. The squared error of a network has a
peak where n is near the width, so it has no trend: theory alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from notsodeep.learning.sample_pool import Pool, PoolEstimate
from notsodeep.validation import Array

# Fractions of the pool at which the trend is read.
_FRACTIONS = (8, 4, 2, 1)
# Standard deviation of the logarithm of an error, for each factor e beyond the pool, because curves turn.
_TURN = 0.1
# Squared errors of targets without noise may vanish.
_LEAST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """A regression on n > N samples, at one ridge and width, from a pool of N.

    Attributes:
        pool: the pool.
        n: number of training samples.
        ridge: λ.
        width: of a network; None for the kernel.
    """

    pool: Pool
    n: int
    ridge: float
    width: int | None

    @classmethod
    def best(cls, pool: Pool, n: int, width: int | None) -> Extrapolation:
        """With the ridge of least squared error: by theory for a network; for a kernel that of the pool.

        The best ridge of a kernel is the noise of the targets, whatever n; a network's grows where n nears its width.
        """
        if width is None:
            return cls(pool, n, pool.inside(pool.size, None, None).ridge, None)
        return cls(pool, n, pool.best_ridge(lambda ridge: pool.curves.error(n, ridge, width)), width)

    @property
    def mse(self) -> float:
        """The squared error at n."""
        first, second = np.sqrt(self.mse_in_two_ways)  # a product may underflow
        return float(first * second)

    @property
    def rate(self) -> float:
        """The error rate at n; NaN in a regression."""
        return np.nan if self.pool.labelled.codes is None else float(np.sqrt(np.prod(self.rate_in_two_ways)))

    @cached_property
    def mse_in_two_ways(self) -> tuple[float, float]:
        """By theory, scaled to agree with the pool at n = N, and for a kernel by a power of n, (11.26)."""
        curves, errors = self.pool.curves, np.maximum([one.mse for one in self._estimates], _LEAST)
        theory = [curves.error(n, self.ridge, self.width) for n in (self.n, self.pool.size)]
        by_theory = max(float(errors[-1]) * theory[0] / theory[1], _LEAST)
        return by_theory, max(self._by_trend(errors), _LEAST) if self.width is None else by_theory

    @cached_property
    def rate_in_two_ways(self) -> tuple[float, float]:
        """In proportion to the squared error, and by a power of n, (11.28)."""
        # Half an error is the least that a pool can show.
        rates = np.maximum([1.0 - one.accuracy for one in self._estimates], 0.5 / self.pool.size)
        by_error = float(rates[-1]) * self.mse / max(self.last.mse, _LEAST)
        return min(by_error, 1.0), min(self._by_trend(rates), 1.0)

    @property
    def last(self) -> PoolEstimate:
        """The estimate from the whole pool."""
        return self._estimates[-1]

    @property
    def log_variance(self) -> float:
        """Variance of the logarithm of the figure at n, because two ways differ and because curves turn, (11.23)."""
        first, second = self.mse_in_two_ways if self.pool.labelled.codes is None else self.rate_in_two_ways
        turn = _TURN * np.log(self.n / self.pool.size)
        return float((np.log(first / second) / 2.0) ** 2 + turn**2)

    def _by_trend(self, figures: Array) -> float:
        """The last figure, continued by the power of n that fits them."""
        slope = np.polyfit(np.log(self._sizes), np.log(figures), 1)[0]
        return float(figures[-1] * (self.n / self.pool.size) ** slope)

    @property
    def _sizes(self) -> list[int]:
        return [max(self.pool.size // part, 2) for part in _FRACTIONS]

    @cached_property
    def _estimates(self) -> list[PoolEstimate]:
        """Estimates from the pool at each of these sizes."""
        return [self.pool.inside(n, self.ridge, self.width) for n in self._sizes]
