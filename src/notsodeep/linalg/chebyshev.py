"""Chebyshev interpolation, also of functions of a positive number in its logarithm.

Functions of a norm or of a variance are analytic in its logarithm, so that a few nodes in an interval of log s serve
thousands of samples to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.fft import dct

from notsodeep.validation import Array, IntArray


def chebyshev_nodes(count: int) -> Array:
    """Zeros of T_count, from 1 downwards."""
    return np.asarray(np.cos(np.pi * (np.arange(count) + 0.5) / count))


def chebyshev_coefficients(values: Array, axis: int = 0) -> Array:
    """Coefficients of the interpolant through values at `chebyshev_nodes` along an axis."""
    count = values.shape[axis]
    moved = np.moveaxis(dct(values, axis=axis) / count, axis, 0)
    moved[0] *= 0.5
    return np.moveaxis(moved, 0, axis)


def chebyshev_basis(points: Array, count: int) -> Array:
    """T_0 … T_{count-1} at points of [-1, 1], shape (points, count); points beyond count as the ends."""
    return np.asarray(np.cos(np.arccos(np.clip(points, -1.0, 1.0))[:, None] * np.arange(count)))


def clenshaw(series: Array, points: Array, panel: IntArray | None = None) -> Array:
    """Σ_k series[k] T_k(points) by Clenshaw's recursion.

    Args:
        series: coefficients, orders first; what follows has the shape of the points, or is one number for all.
        points: in [-1, 1].
        panel: for series of shape (orders, panels), the panel of each point.
    """
    later, latest = np.zeros_like(points), np.zeros_like(points)
    for k in range(len(series) - 1, 0, -1):
        coefficient = series[k] if panel is None else series[k][panel]
        later, latest = coefficient + 2.0 * points * later - latest, later
    first = series[0] if panel is None else series[0][panel]
    return np.asarray(first + points * later - latest)


@dataclass(frozen=True)
class LogInterval:
    """An interval of positive numbers, seen through the logarithm and mapped to [-1, 1]."""

    low: float  # the logarithm of its lower end
    high: float  # the logarithm of its upper end

    @classmethod
    def of(cls, numbers: Array) -> LogInterval:
        """The interval that holds all of these positive numbers."""
        return cls(float(np.log(numbers.min())), float(np.log(numbers.max())))

    def place(self, numbers: Array) -> Array:
        """Where in [-1, 1] they are; what is outside counts as the nearer end."""
        if self.high == self.low:
            return np.zeros_like(numbers)
        return np.clip((2.0 * np.log(numbers) - self.high - self.low) / (self.high - self.low), -1.0, 1.0)

    def nodes(self, count: int) -> Array:
        """The numbers at the Chebyshev nodes, in descending order."""
        middle, half = (self.high + self.low) / 2.0, (self.high - self.low) / 2.0
        return np.asarray(np.exp(middle + half * chebyshev_nodes(count)))
