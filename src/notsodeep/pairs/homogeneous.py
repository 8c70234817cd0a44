"""Activations with one kink at zero: the whole pair equation is one function of one variable, fitted once.

With φ = m x + e |x| both F and the equation scale with s_i s_j, so that P(ρ(r)) and P'(ρ(r)) depend on r alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from notsodeep.validation import Array

DEGREES = (24, 30, 36, 44)
ACCEPTED = 1e-14


@dataclass(frozen=True)
class Branch:
    """One side of ρ = 0: polynomials in z = 2t - 1, and their measured error."""

    value: Array
    slope: Array
    error: float


@dataclass(frozen=True)
class HomogeneousFit:
    """Polynomials for P and P' as functions of r, with the range of r."""

    highest: float
    middle: float
    lowest: float
    upper: Branch
    lower: Branch

    @property
    def error(self) -> float:
        """Measured error of the fit, relative to P(1)."""
        return max(self.upper.error, self.lower.error)


@lru_cache(maxsize=64)
def fit(slopes: tuple[float, ...], feedback: float) -> HomogeneousFit | None:
    """The fit for ρ = feedback · P(ρ) + r, with the slopes of φ from the leftmost piece to the rightmost.

    None where the equation is too close to losing its solution, and for φ = 0, which has no scale to measure errors by.
    """
    if not any(slopes):
        return None
    linear = ((slopes[-1] + slopes[0]) / 2.0) ** 2
    bent = ((slopes[-1] - slopes[0]) / 2.0) ** 2 * 2.0 / np.pi
    middle = -feedback * bent
    branches = []
    for sign in (1.0, -1.0):
        for degree in DEGREES:
            branch = _branch(linear, bent, feedback, sign, degree)
            if branch.error <= ACCEPTED:
                break
        else:
            return None
        branches.append(branch)
    size = max(len(series) for branch in branches for series in (branch.value, branch.slope))
    upper, lower = (Branch(_padded(b.value, size), _padded(b.slope, size), b.error) for b in branches)
    highest = 1.0 - feedback * (linear + bent * np.pi / 2.0)
    lowest = -1.0 + feedback * (linear - bent * np.pi / 2.0)
    return HomogeneousFit(highest, middle, lowest, upper, lower)


def _padded(series: Array, size: int) -> Array:
    return np.concatenate([series, np.zeros(size - len(series))])


def _branch(linear: float, bent: float, feedback: float, sign: float, degree: int) -> Branch:
    """Interpolate at Chebyshev nodes in t, then measure the error of the polynomial actually used."""
    angles = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    nodes = np.cos(angles)
    exact = _at(linear, bent, feedback, sign, 0.5 * (nodes + 1.0))
    transform = (2.0 / (degree + 1)) * np.cos(np.outer(np.arange(degree + 1), angles))
    transform[0] *= 0.5
    series = [_monomials(transform @ column) for column in exact.T]
    probe = np.cos(np.linspace(0.0, np.pi, 3 * degree))
    truth = _at(linear, bent, feedback, sign, 0.5 * (probe + 1.0))
    tried = np.stack([np.polynomial.polynomial.polyval(probe, s) for s in series], axis=1)
    top = linear + bent * np.pi / 2.0
    return Branch(series[0], series[1], float(np.abs(tried - truth).max() / top))


def _monomials(coefficients: Array) -> Array:
    """The same polynomial in powers of z; rounding noise in high orders would grow by 2.4 per order, so it goes."""
    kept = np.flatnonzero(np.abs(coefficients) > 6e-16 * np.abs(coefficients).max())
    return np.asarray(chebyshev.cheb2poly(coefficients[: kept[-1] + 1]))


def _at(linear: float, bent: float, feedback: float, sign: float, t: Array) -> Array:
    """P and P' where the distance to the end of the range of r is t² of the distance from the end to the middle.

    With ρ = ± cos θ that distance is (1 - cos θ)(1 - feedback(linear ± bent π/2)) ± feedback · bent (sin θ - θ cos θ).
    """
    stiff = 1.0 - feedback * (linear + sign * bent * np.pi / 2.0)

    def distance(theta: Array) -> Array:
        return np.asarray(2.0 * np.sin(theta / 2.0) ** 2 * stiff + sign * feedback * bent * _lag(theta))

    goal = t * t * distance(np.array(np.pi / 2.0))
    low, high = np.zeros_like(t), np.full_like(t, np.pi / 2.0)
    for _ in range(48):
        middle = 0.5 * (low + high)
        below = distance(middle) < goal
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    theta = np.where(goal > 0.0, 0.5 * (low + high), 0.0)
    for _ in range(2):
        steep = np.sin(theta) * (stiff + sign * feedback * bent * theta)
        theta = theta - np.where(goal > 0.0, (distance(theta) - goal) / np.where(goal > 0.0, steep, 1.0), 0.0)
    even = np.sin(theta) + np.cos(theta) * (np.pi / 2.0 - theta)
    value = linear * sign * np.cos(theta) + bent * even
    return np.stack([value, linear + bent * sign * (np.pi / 2.0 - theta)], axis=1)


def _lag(theta: Array) -> Array:
    """sin θ - θ cos θ, by its series where the difference would cancel."""
    square = theta * theta
    series = 1.0 - square / 10.0 * (1.0 - square / 28.0 * (1.0 - square / 54.0 * (1.0 - square / 88.0)))
    return np.where(theta > 0.1, np.sin(theta) - theta * np.cos(theta), theta**3 / 3.0 * series)
