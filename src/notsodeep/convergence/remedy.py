"""Width and readout scale that would satisfy the condition, from bounds that hold for most random networks.

Norms of Gaussian matrices are bounded without asymptotics, docs/theory.md (8.31); features are represented by their
limit, λ_0 by mλ_*/2 as docs/theory.md (8.15) promises. Every ratio of the condition then grows with the width and with
a smaller readout, so that both thresholds are found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from notsodeep.convergence.condition import Start, best_delta, smallest_ratio
from notsodeep.convergence.population import PopulationGram

# Large enough to stand for infinity: an inequality that fails here fails at every width.
LARGEST_WIDTH = 10**40
# Chance that one of the norms exceeds its bound.
CHANCE = 0.01


@dataclass(frozen=True)
class ExpectedStart:
    """Bounds on a random network at initialisation, from the data and labels alone."""

    gram: PopulationGram  # the population Gram matrix
    dimension: int  # d
    sigma_w2: float  # σ_w²
    labels: float  # ||y||

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.gram.matrix)

    def start(self, width: int, readout_scale: float, *, label_factor: float = 1.0) -> Start:
        """Bounds that hold together with probability 1 - CHANCE, docs/theory.md (8.31)."""
        # Four norms share the chance; each exceeds its mean by t standard deviations with probability e^{-t²/2}.
        t = float(np.sqrt(2.0 * np.log(4.0 / CHANCE)))
        m, d = float(width), float(self.dimension)
        outputs = np.sqrt(np.trace(self.gram.matrix)) + t * np.sqrt(self.gram.largest)
        return Start(
            least=0.5 * m * max(self.gram.least.lower, 0.0),
            recurrent=float(np.sqrt(2.0 * self.sigma_w2) * (2.0 + t / np.sqrt(m))),
            inputs=float(np.sqrt(2.0 / d) * (np.sqrt(m) + np.sqrt(d) + t)),
            readout=float(readout_scale * (1.0 + t / np.sqrt(m))),
            data=float(np.sqrt(self.n * d)),
            residual=float(label_factor * self.labels + readout_scale * outputs),
        )

    def satisfied(self, width: int, readout_scale: float, *, label_factor: float = 1.0) -> bool:
        """Whether all three inequalities follow from the bounds, at the best δ."""
        start = self.start(width, readout_scale, label_factor=label_factor)
        return start.recurrent < 1.0 and smallest_ratio(start, best_delta(start)) > 1.0


@dataclass(frozen=True)
class Remedy:
    """Widths, readout scales and labels that would satisfy all inequalities; None where none does.

    Attributes:
        width: the smallest width with the given readout scale.
        readout_scale: the largest readout scale with the given width.
        smallest_width: the smallest width at all, with a readout that starts at zero.
        label_factor: factor on the labels with which the given width is enough, with a readout that starts at zero; 1
            or more where the labels are no obstacle.
        limit: left over right of docs/theory.md (8.19) for infinite width and δ → 0 with this readout scale, where
            λ_0 = mλ_*.
    """

    width: int | None
    readout_scale: float | None
    smallest_width: int | None
    label_factor: float | None
    limit: float


def find_remedy(expected: ExpectedStart, width: int, readout_scale: float) -> Remedy:
    """The thresholds of width, readout scale and labels for one expected."""
    return Remedy(
        width=smallest_width(expected, readout_scale),
        readout_scale=_largest(lambda s: expected.satisfied(width, s)),
        smallest_width=smallest_width(expected, 0.0),
        label_factor=_largest(lambda f: expected.satisfied(width, 0.0, label_factor=f)),
        limit=third_ratio_limit(expected, readout_scale),
    )


def smallest_width(expected: ExpectedStart, readout_scale: float) -> int | None:
    """The smallest width for which the bounds satisfy the condition, or None."""
    if not expected.satisfied(LARGEST_WIDTH, readout_scale):
        return None
    low, high = 0, LARGEST_WIDTH
    while high - low > 1:
        middle = (low + high) // 2
        if expected.satisfied(middle, readout_scale):
            high = middle
        else:
            low = middle
    return high


def third_ratio_limit(expected: ExpectedStart, readout_scale: float) -> float:
    """λ_* (1 - 2√2 σ_w)⁴/(8 n s²), docs/theory.md (8.24): what (8.19) tends to as m → ∞ and then δ → 0."""
    if readout_scale == 0:
        return float("inf")
    room = 1.0 - np.sqrt(8.0 * expected.sigma_w2)
    return float(expected.gram.least.upper * room**4 / (8.0 * expected.n * readout_scale**2))


def _largest(satisfied: Callable[[float], bool]) -> float | None:
    """The largest positive number that satisfies, to three figures and from below; None if none above 1e-9 does."""
    low, high = 1e-9, 1e9
    if not satisfied(low):
        return None
    while high > low * 1.001:
        middle = float(np.sqrt(low * high))
        if satisfied(middle):
            low = middle
        else:
            high = middle
    return low
