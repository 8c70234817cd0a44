"""The density of the noise on each interval of its support, as a Chebyshev series on the real line itself."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.polynomial import chebyshev

from notsodeep.equivalents.resolvent import Noise, interpolated, solve_line, solve_on_axis
from notsodeep.equivalents.spectral_gaps import Point, SpectralGap, find_gaps, with_gaps
from notsodeep.errors import ConvergenceError
from notsodeep.linalg.chebyshev import chebyshev_coefficients, chebyshev_nodes, clenshaw
from notsodeep.validation import Array, IntArray

# Nodes of a panel, and panels to begin with.
_ORDER, _PANELS = 20, 4
# The last coefficients of a panel, relative to the largest value, and the smallest panel in θ.
_TAIL, _SMALLEST = 1e-11, 1e-9
# How far the integral may be from the mass, relative; the error itself is reported.
_WORST_MASS = 1e-7
# Points of a panel in the table that is inverted for quantiles.
_TABLE = 256


@dataclass(frozen=True, eq=False)
class Bulk:
    """One interval of the support of the noise, with its density.

    A variable θ in [0, π] takes the square roots at the edges away: √z = √low cos²(θ/2) + √high sin²(θ/2), or
    z = high sin²(θ/2) where the interval begins at 0 and the density is infinite there. Then
    h(θ) = density · dz/dθ is smooth, and Chebyshev series on a few panels give it to rounding; panels are
    halved where bulks almost touch or one is much narrower than the other.
    """

    low: float  # the lower edge, in units where τ0 = 1
    high: float  # the upper edge
    mass: float  # its share of the eigenvalues, exact
    breaks: Array  # the ends of the panels in θ, shape (P+1,)
    series: Array  # the Chebyshev coefficients of h on each panel, shape (P, M)
    error: float  # how far the integral of h is from the mass
    residual: float  # the largest residual of docs/theory.md (6.1), in the form of `resolvent`, at the nodes

    def position(self, theta: Array) -> Array:
        """The points z of the interval that belong to angles θ."""
        return _position(self.low, self.high, theta)

    def angle(self, z: Array) -> Array:
        """The angles θ of points z; 0 and π for points beyond the edges."""
        low, high = (0.0, self.high) if self.low == 0.0 else (np.sqrt(self.low), np.sqrt(self.high))
        place = z if self.low == 0.0 else np.sqrt(np.maximum(z, 0.0))
        return np.asarray(2.0 * np.arcsin(np.sqrt(np.clip((place - low) / (high - low), 0.0, 1.0))))

    def density(self, z: Array) -> Array:
        """The density at z; 0 outside and at soft edges."""
        theta = self.angle(z)
        rate = _rate(self.low, self.high, theta)
        panel, place = self._local(theta)
        weight = clenshaw(self.series.T, place, panel)
        inside = (z > self.low) & (z < self.high) & (rate > 0)
        return np.maximum(np.divide(weight, rate, out=np.zeros_like(theta), where=inside), 0.0)

    def below(self, z: Array) -> Array:
        """The mass below z."""
        return np.asarray(self.mass * np.clip(self._share(self.angle(z)), 0.0, 1.0))

    def quantile(self, share: Array) -> Array:
        """The points below which given shares of the mass lie."""
        steps = np.linspace(0.0, 1.0, _TABLE, endpoint=False)
        inner = self.breaks[:-1, None] + np.diff(self.breaks)[:, None] * steps
        theta = np.append(inner.ravel(), np.pi)
        return self.position(np.interp(share, np.maximum.accumulate(self._share(theta)), theta))

    def margins(self, n: int) -> tuple[float, float]:
        """How far from each edge the outermost of its eigenvalues is expected, of n in all: docs/theory.md (6.13)."""
        share = 0.5 / (n * self.mass)
        first, last = self.quantile(np.array([share, 1.0 - share]))
        return float(first - self.low), float(self.high - last)

    def _local(self, theta: Array) -> tuple[IntArray, Array]:
        """The panel of each θ and the place in it, from -1 to 1."""
        panel = np.clip(np.searchsorted(self.breaks, theta, side="right") - 1, 0, len(self.series) - 1)
        start, stop = self.breaks[panel], self.breaks[panel + 1]
        return panel, np.asarray(2.0 * (theta - start) / (stop - start) - 1.0)

    def _share(self, theta: Array) -> Array:
        """The integral of h from 0 to θ, relative to the whole."""
        integrals = chebyshev.chebint(self.series, lbnd=-1, axis=1) * np.diff(self.breaks)[:, None] / 2.0
        before = np.concatenate([[0.0], np.cumsum(integrals.sum(axis=1))])
        panel, place = self._local(theta)
        return np.asarray((before[panel] + clenshaw(integrals.T, place, panel)) / before[-1])


def _position(low: float, high: float, theta: Array) -> Array:
    if low == 0.0:
        return np.asarray(high * np.sin(theta / 2) ** 2)
    return np.asarray((np.sqrt(low) * np.cos(theta / 2) ** 2 + np.sqrt(high) * np.sin(theta / 2) ** 2) ** 2)


def _rate(low: float, high: float, theta: Array) -> Array:
    """The derivative dz/dθ."""
    if low == 0.0:
        return np.asarray(high * np.sin(theta) / 2)
    return np.asarray(np.sqrt(_position(low, high, theta)) * (np.sqrt(high) - np.sqrt(low)) * np.sin(theta))


def find_bulks(noise: Noise, rank: int) -> tuple[list[Bulk], list[SpectralGap]]:
    """The support of the noise with its density, and the gaps between, both in ascending order.

    Raises:
        ConvergenceError: where an edge, a solution or the mass of an interval is not reached.
    """
    gaps = find_gaps(noise, rank)
    while True:
        found = [_bulk(noise, interval) for interval in _intervals(gaps, noise.n, rank)]
        hidden = [one for one in found if isinstance(one, Point)]
        if not hidden:
            return [one for one in found if isinstance(one, Bulk)], gaps
        gaps = with_gaps(noise, hidden, rank, gaps)


def _intervals(gaps: list[SpectralGap], n: int, rank: int) -> list[tuple[float, float, float]]:
    """Edges and mass of what lies between gaps; the first one begins at 0 where no gap does."""
    if rank == 0:
        return []
    lows = [gap.high.z for gap in gaps if gap.high is not None]
    counts = [gap.above for gap in gaps]
    if counts[0] != rank:
        lows, counts = [0.0, *lows], [rank, *counts]
    highs = [gap.low.z for gap in gaps if gap.low is not None]
    masses = [(more - fewer) / n for more, fewer in pairwise(counts)]
    return list(zip(lows, highs, masses, strict=True))


def _panel_nodes(panels: Array) -> Array:
    """Chebyshev's points of each panel, ascending in it, all in one row."""
    place = chebyshev_nodes(_ORDER)[::-1]
    start, stop = panels[:, :1], panels[:, 1:]
    return np.asarray((start + (stop - start) * (place + 1.0) / 2.0).ravel())


def _bulk(noise: Noise, interval: tuple[float, float, float]) -> Bulk | Point:
    """Halve panels until the series on each of them has converged, or a point shows that there is a gap.

    A gap that the first look at the line did not see cannot hide: at its edges the density is not smooth, so panels
    are halved there until a node falls into it.
    """
    low, high, _ = interval
    panels = sliding_window_view(np.linspace(0.0, np.pi, _PANELS + 1), 2)
    solution = solve_line(noise, _position(low, high, _panel_nodes(panels)))
    # Solutions known so far, in ascending θ, from which guesses are interpolated.
    known_theta, known_g = _panel_nodes(panels), solution.g
    done: list[Array] = []
    largest, residual = 0.0, 0.0
    while not solution.outside.any():
        residual = max(residual, solution.residual)
        # docs/theory.md (6.2) and (6.3): density = Im m/π.
        density = solution.g.imag @ noise.sizes / (noise.n * np.pi)
        weight = density * _rate(low, high, _panel_nodes(panels))
        largest = max(largest, float(weight.max()))
        # The nodes of a panel ascend, those of the transform descend.
        series = chebyshev_coefficients(weight.reshape(len(panels), _ORDER)[:, ::-1], axis=1)
        ready = np.abs(series[:, -3:]).max(axis=1) <= _TAIL * largest
        ready |= panels[:, 1] - panels[:, 0] <= _SMALLEST
        done.append(np.concatenate([panels, series], axis=1)[ready])
        if ready.all():
            return _checked(interval, np.concatenate(done), residual)
        start, stop = panels[~ready].T
        middle = (start + stop) / 2.0
        panels = np.stack([start, middle, middle, stop], axis=1).reshape(-1, 2)
        theta = _panel_nodes(panels)
        guess = interpolated(theta, known_theta, known_g)
        solution = solve_on_axis(noise, _position(low, high, theta), guess)
        known_theta, known_g = np.append(known_theta, theta), np.concatenate([known_g, solution.g])
        order = np.argsort(known_theta)
        known_theta, known_g = known_theta[order], known_g[order]
    first = int(np.argmax(solution.outside))
    return Point(float(_position(low, high, _panel_nodes(panels))[first]), np.asarray(solution.g.real[first]))


def _checked(interval: tuple[float, float, float], panels: Array, residual: float) -> Bulk:
    """The bulk, if its density has the mass that the equation counts."""
    low, high, mass = interval
    panels = panels[np.argsort(panels[:, 0])]
    breaks, series = np.append(panels[:, 0], np.pi), panels[:, 2:]
    widths = np.diff(breaks)[:, None]
    integral = float((chebyshev.chebint(series, lbnd=-1, axis=1) * widths / 2.0).sum())
    if abs(integral - mass) > _WORST_MASS * mass:
        raise ConvergenceError(
            f"The density between {low:.6g} and {high:.6g} (in units of τ0²) integrates to {integral:.9g} "
            f"where the equation counts {mass:.9g}.",
            "Two bulks may be about to touch there: change n or a covariance slightly, and report the case.",
        )
    return Bulk(low, high, mass, breaks, series, abs(integral - mass), residual)
