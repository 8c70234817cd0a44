"""A function of one variable as a piecewise polynomial, made only from its values, or the place where it is not smooth.

The line is cut into panels.  On a panel the function must be a polynomial of degree 15 to 13 digits, or the panel is
halved.  Three checks keep a feature of the function from hiding:

- besides the panel itself, windows across its two edges are fitted: a kink on an edge of the panels, or
  closer to it than the outermost node, is well inside one of these windows;
- a panel that fits is called at many more points, one at random in each of the intervals into which `probe_positions`
  cuts it: a bump between the nodes is found if it is wider than these intervals;
- halving a panel divides the misfit of a smooth function by thousands, that of a kink by two.  A kink so small that
  some panel fits in spite of it is known by the slow fall of the misfit on the way there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebval, chebvander
from numpy.typing import NDArray

from notsodeep.gaussian import quadrature
from notsodeep.linalg.chebyshev import chebyshev_nodes, clenshaw
from notsodeep.validation import Array

Function = Callable[[Array], Array]

DEGREE = quadrature.NODES - 1
# Largest misfit of a polynomial, relative to the values of the function on its panel.
RESOLVED = 1e-13
EPS = float(np.finfo(np.float64).eps)
# Rounding errors of this size, relative to the values at ±x and nearer to zero, are no feature: 1 + erf(x) far below
# zero is a small difference of large numbers.
ROUNDING = 16.0 * EPS
# Panels shorter than this, relative to their position, mean that the function is not smooth there.
NARROWEST = 2.0**-31
# Number of panels beyond which the function is not resolved.
MOST = 20_000
# How far the windows across an edge reach to its two sides, in lengths of the panel; no simple fractions.
OUTSIDE, INSIDE = 0.31416, 0.57721
# Distance of the points at which a panel is probed: PROBES · max(|x|, CORE).
PROBES = 1e-4
CORE = 0.1
SEED = 20240229
# Points probed at once: few enough to stay in the cache.
BATCH = 8192
# A panel that fits after STEPS halvings or more must have seen its misfit fall by FALL in one of the last STEPS.  A
# halving of the panel around a kink divides the misfit by 2 on average and by 7 at most, around a jump of the second
# derivative by 4 and 12, of the third by 8 and 28; the bounds depend on where in the panel it stands.
STEPS = 4
FALL = 32.0


class NotSmoothError(Exception):
    """The function is not smooth near `position`."""

    def __init__(self, position: float) -> None:
        super().__init__(f"not smooth near {position:g}")
        self.position = position


class TooLongError(Exception):
    """The function has more features than `MOST` panels resolve."""


@dataclass(frozen=True)
class Panels:
    """A piecewise polynomial: edges (n + 1) and the Chebyshev coefficients (n × 16) between them."""

    edges: Array
    coefficients: Array

    def derivative(self, x: Array, order: int) -> Array:
        """The derivative of the given order of the polynomial around each x."""
        panel = np.clip(np.searchsorted(self.edges, x) - 1, 0, len(self.edges) - 2)
        left, right = self.edges[panel], self.edges[panel + 1]
        table = np.asarray(chebder(self.coefficients, m=order, axis=1), np.float64)
        value = clenshaw(table.T, (2.0 * x - left - right) / (right - left), panel)
        return np.asarray(value * (2.0 / (right - left)) ** order)

    def nodes(self) -> Array:
        """Points dense enough to see everything that the polynomials do."""
        local = np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
        return np.asarray(
            (self.edges[:-1, None] + np.diff(self.edges)[:, None] * (1.0 + local) / 2.0).ravel()
        )


def resolve(function: Function, kinks: tuple[float, ...], limit: float) -> Panels:
    """Resolve a function on [-limit, limit] by a piecewise polynomial whose panels end at the kinks.

    Args:
        function: takes and returns arrays of one shape.
        kinks: where panels end, and no window reaches across.
        limit: the end of the interval.

    Raises:
        NotSmoothError: if the function is not smooth between the kinks.
        TooLongError: if it takes too many panels.
    """
    return _Resolution(function, kinks, limit).run()


class _Resolution:
    """The loop of `resolve`: all panels of one generation at once."""

    def __init__(self, function: Function, kinks: tuple[float, ...], limit: float) -> None:
        self.function = function
        inner = np.array([kink for kink in kinks if abs(kink) < limit])
        self.ends = np.unique(np.concatenate([[-limit], inner, [limit]]))
        graded = quadrature.graded_edges(1.0, np.inf, limit)
        # Edges at odd numbers, so that a kink at a round number is seen by the first panel already.
        odd = graded[np.abs(graded) < limit] * 0.9134 + 0.0871
        # None close to a kink: derivatives of the polynomial on a narrow panel have few digits.
        apart = np.abs(odd[:, None] - self.ends).min(axis=1)
        self.start = np.union1d(odd[apart > 0.05 * np.maximum(1.0, np.abs(odd))], self.ends)
        self.random = np.random.default_rng(SEED)
        self.sizes = self._running_size()

    def run(self) -> Panels:
        """Halve panels until each is a polynomial."""
        left, right = self.start[:-1], self.start[1:]
        # Misfits of the panels that this one was a part of, the oldest first; infinite where there were none.
        past = np.full((len(left), STEPS), np.inf)
        done: list[tuple[Array, Array, Array]] = []
        while len(left):
            series, excess = self._fit(left, right)
            fits = excess <= 1.0
            excess[fits] = np.maximum(excess[fits], self._probe(left[fits], right[fits], series[fits]))
            fits = excess <= 1.0
            slow = fits & np.all(past <= FALL * np.column_stack([past[:, 1:], excess]), axis=1)
            if slow.any():
                self._refuse(left[slow], right[slow])
            done.append((left[fits], right[fits], series[fits]))
            left, right, excess, past = left[~fits], right[~fits], excess[~fits], past[~fits]
            centre, half = (left + right) / 2.0, (right - left) / 2.0
            narrow = half < NARROWEST * np.maximum(1.0, np.abs(centre))
            if narrow.any():
                self._refuse(left[narrow], right[narrow])
            if 2 * len(left) + sum(len(part[0]) for part in done) > MOST:
                raise TooLongError
            left, right = np.concatenate([left, centre]), np.concatenate([centre, right])
            past = np.tile(np.column_stack([past[:, 1:], excess]), (2, 1))
        lefts, rights, tables = (np.concatenate(parts) for parts in zip(*done, strict=True))
        order = np.argsort(lefts)
        return Panels(np.append(lefts[order], rights.max()), tables[order])

    def _fit(self, left: Array, right: Array) -> tuple[Array, Array]:
        """Chebyshev coefficients on each panel; the worst misfit on it and across its edges, over what is allowed."""
        length = right - left
        below = self.ends[np.searchsorted(self.ends, left, side="right") - 1]
        above = self.ends[np.searchsorted(self.ends, right)]
        windows = (
            (left, right),
            (np.maximum(left - OUTSIDE * length, below), left + INSIDE * length),
            (right - INSIDE * length, np.minimum(right + OUTSIDE * length, above)),
        )
        fitted = self._fit_windows(
            np.concatenate([window[0] for window in windows]),
            np.concatenate([window[1] for window in windows]),
        )
        return fitted[0][: len(left)], fitted[1].reshape(3, -1).max(axis=0)

    def _fit_windows(self, left: Array, right: Array) -> tuple[Array, Array]:
        centre, half = (left + right)[:, None] / 2.0, (right - left)[:, None] / 2.0
        nodes, transform = _interpolation()
        probe = np.cos(np.pi * np.arange(1, DEGREE + 1) / (DEGREE + 1))
        samples, probed = self.function(centre + half * nodes), self.function(centre + half * probe)
        series = samples @ transform.T
        fitted = chebval(probe, series.T)
        misfit = np.maximum(np.abs(fitted - probed).max(axis=1), np.abs(series[:, -2:]).max(axis=1))
        return series, misfit / self._allowed(left, right, samples)

    def _allowed(self, left: Array, right: Array, samples: Array) -> Array:
        """The misfit that counts as none, from the values at the Chebyshev nodes of each window."""
        half, far = (right - left) / 2.0, np.maximum(np.abs(left), np.abs(right))
        size = np.maximum(np.abs(samples).max(axis=1), 1e-3 * half)
        # Rounding of x itself moves the value by slope · eps · |x|: not a lack of smoothness.
        steepest = np.abs(np.diff(samples)).max(axis=1) / half
        return np.asarray(RESOLVED * size + 16.0 * EPS * far * steepest + ROUNDING * self._size_within(far))

    def _probe(self, left: Array, right: Array, series: Array) -> Array:
        """The worst misfit of these panels at many points, over what is allowed."""
        worst = np.zeros(len(left))
        if not len(left):
            return worst
        for x, panel in probe_positions(left, right, self.random):
            local = (2.0 * x - left[panel] - right[panel]) / (right - left)[panel]
            misfit = np.abs(clenshaw(series.T, local, panel) - self.function(x))
            # The panels of a batch follow one another, each a run of its points.
            runs = np.flatnonzero(np.diff(panel, prepend=-1))
            np.maximum.at(worst, panel[runs], np.maximum.reduceat(misfit, runs))
        nodes, _ = _interpolation()
        return worst / self._allowed(left, right, np.asarray(chebval(nodes, series.T), np.float64))

    def _running_size(self) -> tuple[Array, Array]:
        """Distances from zero in ascending order, and the largest value seen up to each of them."""
        places = np.concatenate([self.start, (self.start[1:] + self.start[:-1]) / 2.0])
        sizes = np.abs(self.function(places))
        order = np.argsort(np.abs(places))
        return np.abs(places)[order], np.maximum.accumulate(sizes[order])

    def _size_within(self, distance: Array) -> Array:
        """The largest value of the function seen between -distance and distance."""
        places, sizes = self.sizes
        return np.asarray(sizes[np.clip(np.searchsorted(places, distance, side="right") - 1, 0, None)])

    def _refuse(self, left: Array, right: Array) -> None:
        """Raise for the first of these panels, with the number of fewest digits in it."""
        first = int(np.argmin(left))
        centre = float(left[first] + right[first]) / 2.0
        rounded = (round(centre, digits) for digits in range(16))
        raise NotSmoothError(next((x for x in rounded if left[first] <= x <= right[first]), centre))


def probe_positions(
    left: Array, right: Array, random: np.random.Generator
) -> Iterator[tuple[Array, NDArray[np.intp]]]:
    """Points in the panels, one at random in each of many short intervals, and the panel of each, batch by batch.

    The intervals are PROBES · max(|x|, CORE) long or shorter: as dense, relative to the standard deviation, for every
    Gaussian variable whose mass lies beyond CORE.
    """
    low, high = _counted(left), _counted(right)
    counts = np.ceil(high - low).astype(np.intp)
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]), BATCH):
        place = np.arange(start, min(start + BATCH, int(ends[-1])))
        panel = np.searchsorted(ends, place, side="right")
        share = (place - (ends - counts)[panel] + random.random(len(place))) / counts[panel]
        yield _uncounted(low[panel] + share * (high - low)[panel]), panel


def _counted(x: Array) -> Array:
    """How many intervals lie between 0 and x, with the sign of x."""
    size = np.abs(x) / CORE
    return np.asarray(np.sign(x) / PROBES * np.where(size < 1.0, size, 1.0 + np.log(np.maximum(size, 1.0))))


def _uncounted(count: Array) -> Array:
    """The x with that many intervals between 0 and x: the inverse of `_counted`."""
    size = np.abs(count) * PROBES
    return np.asarray(np.sign(count) * CORE * np.where(size < 1.0, size, np.exp(np.maximum(size, 1.0) - 1.0)))


@lru_cache(maxsize=1)
def _interpolation() -> tuple[Array, Array]:
    """Chebyshev nodes on [-1, 1] and the matrix from values there to coefficients."""
    nodes = chebyshev_nodes(DEGREE + 1)
    return nodes, np.asarray(np.linalg.inv(chebvander(nodes, DEGREE)), np.float64)
