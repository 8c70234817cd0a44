"""How many nodes in t are provably enough for a solution table, docs/theory.md (3.36) to (3.38).

For fixed norms Mehler's series bounds F and F' on the whole complex unit disc of ρ by what they are at ρ = 1 and equal
norms, so that the pair equation is a contraction of that disc: its solution is analytic in the disc |r| ≤ √(g_i g_j),
whatever the activation, and there |F| ≤ √(S_i S_j) and |F'| ≤ √(E1_i E1_j).  A Bernstein ellipse in t that this disc
contains bounds the interpolation error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.pairs.table_range import END, Range
from notsodeep.validation import Array

# Points of an ellipse that are looked at, and how far within the disc they must be, relative to the ends of the range.
POINTS, WITHIN = 2000, 0.05
LARGEST, MOST_ORDERS = 64.0, 400


@dataclass(frozen=True)
class Ellipse:
    """A Bernstein ellipse in which the solution is analytic and bounded by one, by the sum of its half axes."""

    size: float

    def error(self, count: int) -> float:
        """Bound of the interpolation error with this many Chebyshev nodes."""
        return float(4.0 * self.size ** (1.0 - count) / (self.size - 1.0))

    def slope_error(self, count: int) -> float:
        """Bound of the error of the interpolant's derivative on [-1, 1]: the sum of 4 k² size^-k from `count` on."""
        k = np.arange(count, count + 4 * MOST_ORDERS)
        rest = float(np.sum(k**2 * self.size ** (-k.astype(np.float64))))
        # What follows falls at least by the factor of the last two terms.
        last = float(k[-1] ** 2 * self.size ** float(-k[-1]))
        rate = (1.0 + 1.0 / k[-1]) ** 2 / self.size
        return 4.0 * (rest + last * rate / (1.0 - rate)) if rate < 1.0 else np.inf

    def orders(self, aim: float, rise: float = 0.0) -> int | None:
        """How many nodes leave less than `aim`, and `rise` times the derivative less than `aim` too; None if many."""
        for count in range(4, MOST_ORDERS, 2):
            if self.error(count) <= aim and (rise == 0.0 or rise * self.slope_error(count) <= aim):
                return count
        return None


def ellipse_of(start: float, stop: float, epsilon: float, *, both_ends: bool = True) -> Ellipse | None:
    """The largest ellipse around a range of t whose image is within |1 - 2d| < 1; None if there is none."""
    ends = _sizes(np.array([start, stop], dtype=np.complex128), epsilon, both_ends=both_ends)
    if not ends.max() < 1.0:
        return None
    limit = 1.0 - WITHIN * (1.0 - float(ends.max()))
    low, high = 1.0, LARGEST
    for _ in range(30):
        middle = 0.5 * (low + high)
        largest = _sizes(_boundary(start, stop, middle), epsilon, both_ends=both_ends).max()
        low, high = (middle, high) if largest <= limit else (low, middle)
    # The proof needs no more than a smaller one.
    return Ellipse(low) if low > 1.01 else None


def ellipse_of_range(extent: Range, start: float, stop: float, epsilon: float) -> Ellipse | None:
    """That of a table; None if it reaches parallel rows, where the disc ends."""
    if extent.near <= -END or extent.far >= END:
        return None
    return ellipse_of(start, stop, epsilon, both_ends=extent.both_ends)


def _boundary(start: float, stop: float, size: float) -> Array:
    turn = np.exp(2j * np.pi * np.arange(POINTS) / POINTS)
    return np.asarray(0.5 * (start + stop) + 0.25 * (stop - start) * (size * turn + 1.0 / (size * turn)))


def _sizes(t: Array, epsilon: float, *, both_ends: bool) -> Array:
    """|1 - 2d| at complex coordinates t, (3.28) solved for d; infinite where d is not an analytic function of t."""
    if np.isinf(epsilon):
        # t = √d - 1, or √d - √(1-d), for which (1 - 2d)² = 2t² - t⁴.
        sizes = np.abs(2.0 * t**2 - t**4) ** 0.5 if both_ends else np.abs(1.0 - 2.0 * (1.0 + t) ** 2)
        inside = np.abs(t) < 1.4 if both_ends else t.real > -1.0
    elif not both_ends:
        root = epsilon * np.sinh(t + np.arcsinh(1.0 / epsilon))
        sizes, inside = np.abs(1.0 - 2.0 * root**2), (root.real > 0.0) & (np.abs(t.imag) < 0.5 * np.pi)
    else:
        # With C = ε² cosh t: √(d (1-d)) = (ε² + ε⁴ - C²)/(2C).
        square = epsilon**2
        cosh = square * np.cosh(t)
        sizes = np.abs(1.0 - ((square + square**2 - cosh**2) / cosh) ** 2) ** 0.5
        inside = (cosh.real > 0.0) & (np.abs(cosh) < 1.0 + square) & (np.abs(t.imag) < 0.5 * np.pi)
    return np.where(inside, sizes, np.inf)
