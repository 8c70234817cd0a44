"""The coordinate t of a solution table, (3.28), and the range of norms and distances that a table covers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.validation import Array

# d/(1-d) beyond 2^±END is taken up to the end.
END = 36
# log q is rounded outwards to multiples of this, so that data sets that are alike share a table.
LOG_STEP = 0.125
# Up to this log2 of d/(1 - d) the far end of r needs no place in the coordinate.
FARTHEST = 1
# And if it does not need one, as much as this is taken beyond what was seen.
FURTHER = 2


@dataclass(frozen=True)
class Range:
    """What a table covers.

    Attributes:
        rows: smallest and largest log q of the rows.
        columns: the same of the columns.
        near: log2 of the smallest d/(1 - d), where d = (R₊ - r)/(R₊ - R₋); -END or less stands for d = 0.
        far: log2 of the largest d/(1 - d); END or more stands for d = 1.
        both_ends: t takes both ends into account; without it (3.28) has its first term alone, which is quicker.
    """

    rows: tuple[float, float]
    columns: tuple[float, float]
    near: int
    far: int
    both_ends: bool = True

    @classmethod
    def of(cls, rows: Array, columns: Array, seen: tuple[float, float, float], known: Range | None) -> Range:
        """The range of these log q, of the distances seen and of a known range, rounded outwards.

        Seen are the smallest and the largest d and the smallest 1 - d.
        """
        smallest, largest, opposite = seen
        near = _exponent(smallest, 1.0 - smallest) - 1
        far = _exponent(largest, opposite) + 2
        # The next tiles will reach a little further: that costs a few orders, another table as much as this one.
        far = far + FURTHER if far + FURTHER <= FARTHEST else far
        if known is not None:
            near, far = min(near, known.near), max(far, known.far)
        both_ends = far > FARTHEST
        return cls(_rounded(rows), _rounded(columns), max(near, -END), min(far, END), both_ends)

    def covers(self, smallest: float, largest: float, opposite: float) -> bool:
        """Whether distances d of this range, 1 - d at least `opposite`, are within it."""
        below = self.near <= -END or smallest >= 2.0**self.near * (1.0 - smallest) * (1.0 - 1e-9)
        return below and (self.far >= END or largest <= 2.0**self.far * opposite * (1.0 + 1e-9))

    @property
    def floor(self) -> float:
        """The smallest d within it."""
        odds = 2.0**self.near if self.near > -END else 0.0
        return odds / (1.0 + odds) * (1.0 - 1e-9)

    def ends(self, epsilon: float) -> tuple[float, float]:
        """The range of t."""
        odds = np.array([2.0**self.near if self.near > -END else 0.0, 2.0 ** min(self.far, END)])
        near, far = odds / (1.0 + odds), 1.0 / (1.0 + odds)
        if self.far >= END:
            near[1], far[1] = 1.0, 0.0
        low, high = coordinate(near, far, epsilon, both_ends=self.both_ends)
        return float(low), float(high)


def _rounded(logs: Array) -> tuple[float, float]:
    low, high = float(logs.min()), float(logs.max())
    if high - low <= 1e-12:
        return low, low
    return float(np.floor(low / LOG_STEP) * LOG_STEP), float(np.ceil(high / LOG_STEP) * LOG_STEP)


def _exponent(part: float, rest: float) -> int:
    """log2 of part/rest, rounded down."""
    if part <= 0.0:
        return -END
    return END if rest <= 0.0 else int(np.floor(np.log2(part / rest)))


def coordinate(distance: Array, opposite: Array, epsilon: float, *, both_ends: bool = True) -> Array:
    """t of d and 1 - d, (3.28): arsinh(√d/ε), less the same of the opposite end or less arsinh(1/ε).

    An infinite ε stands for the limit of ε t: roots in the place of arsinh.
    """
    near = np.sqrt(distance)
    far = np.sqrt(opposite) if both_ends else np.ones(1)
    if np.isinf(epsilon):
        return np.asarray(near - far)
    return np.asarray(np.log((near + np.hypot(near, epsilon)) / (far + np.hypot(far, epsilon))))


def slope_of_coordinate(distance: Array, epsilon: float, *, both_ends: bool = True) -> Array:
    """The slope dt/dd of the coordinate t."""
    ends = (distance, np.maximum(1.0 - distance, 1e-30)) if both_ends else (distance,)
    return np.asarray(
        sum(0.5 / np.sqrt(part * (1.0 if np.isinf(epsilon) else part + epsilon**2)) for part in ends)
    )


def distance_at(t: Array, epsilon: float, *, both_ends: bool = True) -> tuple[Array, Array]:
    """d and 1 - d at a coordinate, by bisection of the half angle."""
    low, high = np.zeros_like(t), np.full_like(t, np.pi / 2)
    for _ in range(80):
        middle = 0.5 * (low + high)
        below = coordinate(np.sin(middle) ** 2, np.cos(middle) ** 2, epsilon, both_ends=both_ends) < t
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.sin(low) ** 2, np.cos(low) ** 2
