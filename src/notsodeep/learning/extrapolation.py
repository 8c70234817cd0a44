"""Beyond the number of labelled samples: squared error by theory, error rate by its trend.

The squared error at n > N follows from the spectrum of the pool, continued by power laws, (11.17); for the kernel also
from its trend within the pool, and between the two, (11.26), is where it was measured. The error rate of the kernel is
continued by its trend, straight and curved, and as a power of the squared error: the prediction is the middle one,
(11.28). A network has no trend, because its error has a peak where n is near the width: there the rate is continued by
adding noise to (or taking it from) the scores that the pool itself gives, and as a power of the squared error; the
prediction is between them, (11.22). How far the ways are apart says how sure the prediction is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from notsodeep.learning.rate_trend import RateTrend
from notsodeep.learning.sample_pool import Estimate, Pool
from notsodeep.learning.scores import NetworkNoise, Scores
from notsodeep.validation import Array

# Shares of the pool at which the trend of the error rate is read.
_SHARES = (8, 4, 2, 1)
# A change of the squared error by less than this factor says nothing about how accuracy follows it.
_CHANGE = 1.05
# The exponent of the error rate in the squared error where nothing is known, and its largest value.
_USUAL, _LARGEST = 1.0, 4.0


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
        """Squared error by theory, scaled so that it agrees with the pool at n = N."""
        curves, size = self.pool.curves, self.pool.size
        seen = self.pool.inside(size, self.ridge, self.width).mse
        return (
            curves.error(self.n, self.ridge, self.width) * seen / curves.error(size, self.ridge, self.width)
        )

    @cached_property
    def mse_by_power(self) -> float:
        """Squared error by a power of n fitted within the pool."""
        slope = _slope(np.log(self._sizes), np.log(self._errors))
        return float(self._errors[-1] * (self.n / self.pool.size) ** slope)

    @cached_property
    def rate(self) -> float:
        """The error rate at n: of the kernel the middle of three ways, of a network between two."""
        if self.width is None:
            return min(float(np.median(self._three_rates)), 1.0)
        first, second = self._two_rates
        return min(first if self._score_noise.missing >= 0.0 else float(np.sqrt(first * second)), 1.0)

    def band(self, others: float, deviations: float) -> tuple[float, float]:
        """The accuracies that many standard deviations away.

        Args:
            others: variance of the accuracy over training sets and networks.
            deviations: how many.
        """
        if self.width is None:
            factor = float(np.exp(deviations * np.sqrt(self._log_variance + others / self.rate**2)))
            return 1.0 - min(self.rate * factor, 1.0), 1.0 - self.rate / factor
        last = self._seen[-1]
        doubt = (self._two_rates[0] - self._rate_at(self.mse_by_theory)) / 2.0
        half = deviations * float(np.sqrt(last.samples_variance(last.figures) + others + doubt**2))
        return max(1.0 - self.rate - half, 0.0), min(1.0 - self.rate + half, 1.0)

    @property
    def _log_variance(self) -> float:
        """Of the logarithm of the kernel's rate: over pools and training sets, and because three ways differ."""
        return self.pool_variance + float(np.var(np.log(self._three_rates)))

    @property
    def pool_variance(self) -> float:
        """Variance of the logarithm of the kernel's rate over pools and their training sets, (11.28)."""
        shares = self._trend.weights / self._rates
        # By how much each sample moves the logarithm.
        moves = shares @ np.array([one.hits.mean(axis=0) for one in self._seen])
        sets = np.array([one.sets_variance(one.hits) / len(one.hits) for one in self._seen])
        return float(moves.var() / self.pool.size + shares**2 @ sets)

    @cached_property
    def _trend(self) -> RateTrend:
        return RateTrend(self._sizes, self._rates, self.n)

    @cached_property
    def _three_rates(self) -> tuple[float, float, float]:
        """Of the kernel."""
        return (*self._trend.continued, self._rate_at(self.mse))

    @cached_property
    def _two_rates(self) -> tuple[float, float]:
        """Of a network; the first is scaled so that it agrees with the pool at n = N."""
        at_pool = Extrapolation(self.pool, self.pool.size, self.ridge, self.width)._rate_by_scores
        return self._rate_by_scores * float(self._rates[-1]) / at_pool, self._rate_at(self.mse)

    @cached_property
    def _rate_by_scores(self) -> float:
        """The rate of the pool's own scores with the noise that belongs to n, less the bias that they do not reach."""
        noise = self._score_noise
        reached = (self.mse / (self.mse + noise.unreached)) ** self._exponent
        return float(max(noise.rate * reached, 0.5 / self.pool.size))

    def _rate_at(self, mse: float) -> float:
        """The error rate that belongs to a squared error, (11.18)."""
        return float(self._rates[-1] * (mse / self._errors[-1]) ** self._exponent)

    @cached_property
    def _sizes(self) -> Array:
        return np.array([max(self.pool.size // share, 2) for share in _SHARES], dtype=np.float64)

    @cached_property
    def _seen(self) -> list[Estimate]:
        """What the pool shows at each of them."""
        return [self.pool.inside(int(n), self.ridge, self.width) for n in self._sizes]

    @cached_property
    def _errors(self) -> Array:
        """Squared errors within the pool."""
        return np.array([one.mse for one in self._seen])

    @cached_property
    def _rates(self) -> Array:
        """Error rates within the pool; half an error is the least that it can show."""
        return np.maximum([1.0 - one.accuracy for one in self._seen], 0.5 / self.pool.size)

    @cached_property
    def _exponent(self) -> float:
        """With which power the error rate follows the squared error within the pool."""
        logs = np.log(self._errors)
        if np.ptp(logs) < np.log(_CHANGE):
            return _USUAL
        return float(np.clip(_slope(logs, np.log(self._rates)), 0.0, _LARGEST))

    @cached_property
    def _score_noise(self) -> _ScoreNoise:
        return _ScoreNoise.of(self)


@dataclass(frozen=True)
class _ScoreNoise:
    """The error rate of scores with the expected effective ridge and squared error, docs/theory.md (11.22).

    The kernel on the whole pool, with the ridge that gives the same κ, has the same mean predictor. Its left-out scores
    get the noise that is missing, or, where they have too much, the rate is continued to less.
    """

    rate: float
    missing: float  # variance of the noise that was added
    unreached: float  # squared bias that the pool does not reach, still to be taken off

    @classmethod
    def of(cls, ahead: Extrapolation) -> _ScoreNoise:
        pool, curves = ahead.pool, ahead.pool.curves
        log_kappa, _ = curves.point(ahead.n, ahead.ridge, ahead.width)
        reached = max(log_kappa, float(curves.log_kappa[0]))
        unreached = curves.at(reached)[1] - curves.at(log_kappa)[1]
        scores = pool.whole.held_out(pool.whole.ridge_with(float(np.exp(reached)))).mean
        residuals = scores - pool.labelled.targets
        seen = float(np.mean(residuals**2))
        shape = residuals.T @ residuals / seen / pool.size
        codes = pool.labelled.required_codes()
        missing = ahead.mse + unreached - seen
        noise = NetworkNoise(np.full(pool.size, abs(missing)), shape)
        plain = 1.0 - float(Scores(scores).hits(codes).mean())
        noisy = 1.0 - float(Scores(scores, noise).hits(codes).mean())
        rate = noisy if missing >= 0.0 else plain * plain / max(noisy, plain, 0.5 / pool.size)
        return cls(rate, missing, unreached)


def _slope(x: Array, y: Array) -> float:
    return float(np.polyfit(x, y, 1)[0])


__all__ = ["Extrapolation"]
