"""An error rate continued beyond the samples that show it, by its trend within them: docs/theory.md (11.28)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from notsodeep.validation import Array

# How many of the largest n the straight continuation is fitted to.
_LAST = 3


@dataclass(frozen=True, eq=False)
class RateTrend:
    """log e against log n, continued to one larger n: straight by the last doublings, and curved by all of them.

    A rate that falls ever more slowly, as where the classes overlap, bends: a straight line promises too much and a
    parabola mostly too little.

    Attributes:
        sizes: numbers of samples at which the rate was seen, ascending.
        rates: the rates.
        n: where it is wanted.
    """

    sizes: Array
    rates: Array
    n: int

    @property
    def continued(self) -> tuple[float, float]:
        """The rate at n, straight and curved."""
        straight, curved = (
            float(np.exp(weights @ np.log(self.rates))) for weights in (self._straight, self._curved)
        )
        return straight, curved

    @cached_property
    def weights(self) -> Array:
        """By how much log e(n), half-way between both, follows what was seen; they add up to 1."""
        return np.asarray((self._straight + self._curved) / 2.0)

    @cached_property
    def _places(self) -> tuple[Array, float]:
        """Logarithms of the sizes and of n, from the largest size on."""
        return np.log(self.sizes / self.sizes[-1]), float(np.log(self.n / self.sizes[-1]))

    @cached_property
    def _straight(self) -> Array:
        """Through the last rate, with the slope of the last few."""
        places, wanted = self._places
        centred = places[-_LAST:] - places[-_LAST:].mean()
        found = np.zeros(len(places))
        found[-_LAST:] = wanted * centred / (centred @ centred)
        found[-1] += 1.0
        return found

    @cached_property
    def _curved(self) -> Array:
        """Through the last rate along the parabola of all, up to its lowest point; straight if it bends downwards."""
        places, wanted = self._places
        second, first, _ = np.linalg.pinv(np.vander(places, 3))
        curvature, slope = second @ np.log(self.rates), first @ np.log(self.rates)
        if curvature <= 0.0:
            return self._straight
        reached = min(wanted, max(-slope / (2.0 * curvature), 0.0))
        found = reached * first + reached**2 * second
        found[-1] += 1.0
        return np.asarray(found)


__all__ = ["RateTrend"]
