"""Learning curves beyond the number of labelled samples: squared error by theory, error rate by its trend.

The squared error at n > N follows from the spectrum of the pool, continued by power laws, (11.17); for the kernel it is
the geometric mean of this and of a power of n fitted within the pool, (11.26). The error rate of the kernel is
continued by its trend, straight and curved, and as a power of the squared error: the prediction is the median of the
three, (11.28). The error of a network has a peak where n is near the width, so it has no trend: its rate is continued
as a power of the squared error alone. The distance between the extrapolations is part of the band.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from notsodeep.learning.sample_pool import Pool, PoolEstimate
from notsodeep.validation import Array

# Fractions of the pool at which the trend of the error rate is read.
_FRACTIONS = (8, 4, 2, 1)
# A change of the squared error by less than this factor says nothing about the exponent of the error rate.
_CHANGE = 1.05
# The exponent of the error rate in the squared error where nothing is known, and its largest value.
_USUAL, _LARGEST = 1.0, 4.0
# Number of the largest n to which the straight continuation is fitted.
_LAST = 3


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
        """With the ridge of least squared error."""
        return cls(pool, n, pool.best_ridge(lambda ridge: pool.curves.error(n, ridge, width)), width)

    @cached_property
    def mse(self) -> float:
        """Squared error: by theory for a network; for the kernel the geometric mean with a power of n, (11.26)."""
        if self.width is not None:
            return self.mse_by_theory
        return float(np.sqrt(self.mse_by_theory * self.mse_by_power))

    @cached_property
    def mse_by_theory(self) -> float:
        """Squared error by theory, scaled to agree with the pool at n = N."""
        curves, size = self.pool.curves, self.pool.size
        at_pool = self.pool.inside(size, self.ridge, self.width).mse
        theory = [curves.error(n, self.ridge, self.width) for n in (self.n, size)]
        return theory[0] * at_pool / theory[1]

    @cached_property
    def mse_by_power(self) -> float:
        """Squared error by a power of n fitted within the pool."""
        slope = _slope(np.log(self._sizes), np.log(self._errors))
        return float(self._errors[-1] * (self.n / self.pool.size) ** slope)

    @cached_property
    def rate(self) -> float:
        """The error rate at n: of the kernel the median of three extrapolations."""
        return min(float(np.median(self.extrapolated_rates)) if self.width is None else self._by_error(), 1.0)

    @cached_property
    def extrapolated_rates(self) -> tuple[float, ...]:
        """Rates whose distance says how sure the prediction is.

        For the kernel by its trend, straight and curved, and by the squared error; for a network by the squared error
        with the exponent of the pool and with the usual one.
        """
        if self.width is None:
            return (*self._trend.continued, self._by_error())
        return self._by_error(), self._by_error(_USUAL)

    def band(self, others: float, deviations: float) -> tuple[float, float]:
        """The accuracies that many standard deviations away.

        Args:
            others: variance of the accuracy over training sets and networks.
            deviations: how many.
        """
        if self.width is None:
            log_variance = self.pool_variance + float(np.var(np.log(self.extrapolated_rates)))
            factor = float(np.exp(deviations * np.sqrt(log_variance + others / self.rate**2)))
            return 1.0 - min(self.rate * factor, 1.0), 1.0 - self.rate / factor
        last, (first, second) = self._estimates[-1], self.extrapolated_rates
        variance = last.samples_variance(last.figures) + others + ((first - second) / 2.0) ** 2
        half = deviations * float(np.sqrt(variance))
        return max(1.0 - self.rate - half, 0.0), min(1.0 - self.rate + half, 1.0)

    @property
    def pool_variance(self) -> float:
        """Variance of the logarithm of the kernel's rate over pools and their training sets, (11.28)."""
        shares = self._trend.weights / self._rates
        # By how much each sample moves the logarithm.
        moves = shares @ np.array([one.hits.mean(axis=0) for one in self._estimates])
        sets = np.array([one.sets_variance(one.hits) / len(one.hits) for one in self._estimates])
        return float(moves.var() / self.pool.size + shares**2 @ sets)

    def _by_error(self, exponent: float | None = None) -> float:
        """The error rate as a power of the squared error, (11.18), with the exponent seen within the pool."""
        power = self._exponent if exponent is None else exponent
        return float(self._rates[-1] * (self.mse / self._errors[-1]) ** power)

    @cached_property
    def _trend(self) -> RateTrend:
        return RateTrend(self._sizes, self._rates, self.n)

    @cached_property
    def _sizes(self) -> Array:
        return np.array([max(self.pool.size // part, 2) for part in _FRACTIONS], dtype=np.float64)

    @cached_property
    def _estimates(self) -> list[PoolEstimate]:
        """Estimates from the pool at each of these sizes."""
        return [self.pool.inside(int(n), self.ridge, self.width) for n in self._sizes]

    @cached_property
    def _errors(self) -> Array:
        """Squared errors within the pool."""
        return np.array([one.mse for one in self._estimates])

    @cached_property
    def _rates(self) -> Array:
        """Error rates within the pool; half an error is the least that it can show."""
        return np.maximum([1.0 - one.accuracy for one in self._estimates], 0.5 / self.pool.size)

    @cached_property
    def _exponent(self) -> float:
        """The power of the squared error that the error rate follows within the pool."""
        logs = np.log(self._errors)
        if np.ptp(logs) < np.log(_CHANGE):
            return _USUAL
        return float(np.clip(_slope(logs, np.log(self._rates)), 0.0, _LARGEST))


@dataclass(frozen=True, eq=False)
class RateTrend:
    """log e against log n, continued to one larger n: straight by the last doublings, and curved by all, (11.28).

    A rate that falls ever more slowly, as where the classes overlap, bends: a straight line promises too much and a
    parabola mostly too little.

    Attributes:
        sizes: numbers of samples at which the rate is known, ascending.
        rates: the rates.
        n: the number of samples to extrapolate to.
    """

    sizes: Array
    rates: Array
    n: int

    @property
    def continued(self) -> tuple[float, float]:
        """The rate at n, straight and curved."""
        logs = np.log(self.rates)
        return float(np.exp(self._straight @ logs)), float(np.exp(self._curved @ logs))

    @cached_property
    def weights(self) -> Array:
        """The derivative of log e(n), half-way between both, in the logarithms of the rates; adds up to 1."""
        return np.asarray((self._straight + self._curved) / 2.0)

    @cached_property
    def _places(self) -> tuple[Array, float]:
        """Logarithms of the sizes and of n, relative to the largest size."""
        return np.log(self.sizes / self.sizes[-1]), float(np.log(self.n / self.sizes[-1]))

    @cached_property
    def _straight(self) -> Array:
        """Through the last rate, with the slope of the last few."""
        places, end = self._places
        centred = places[-_LAST:] - places[-_LAST:].mean()
        weights = np.zeros(len(places))
        weights[-_LAST:] = end * centred / (centred @ centred)
        weights[-1] += 1.0
        return weights

    @cached_property
    def _curved(self) -> Array:
        """Through the last rate along the parabola of all, up to its lowest point; straight if it bends downwards."""
        places, end = self._places
        second, first, _ = np.linalg.pinv(np.vander(places, 3))
        curvature, slope = second @ np.log(self.rates), first @ np.log(self.rates)
        if curvature <= 0.0:
            return self._straight
        reached = min(end, max(-slope / (2.0 * curvature), 0.0))
        weights = reached * first + reached**2 * second
        weights[-1] += 1.0
        return np.asarray(weights)


def _slope(x: Array, y: Array) -> float:
    return float(np.polyfit(x, y, 1)[0])
