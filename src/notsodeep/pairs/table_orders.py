"""How many orders a Chebyshev series needs, and what the orders left out are worth, judged by its coefficients."""

from __future__ import annotations

import numpy as np

from notsodeep.validation import Array

# Interpolation error aimed at, relative to √(S_i S_j) and √(E1_i E1_j).
AIM = 5e-12


def sizes_along(coefficients: Array, axis: int) -> Array:
    """Largest coefficient of each order along an axis."""
    moved = np.moveaxis(np.abs(coefficients), axis, 0)
    return np.asarray(moved.reshape(len(moved), -1).max(axis=1))


def orders_needed(sizes: Array) -> int | None:
    """How many coefficients leave less than AIM; None if they have not died out."""
    rest = np.cumsum(sizes[::-1])[::-1]
    count = int(np.argmax(rest < AIM)) if np.any(rest < AIM) else len(sizes)
    return None if count > len(sizes) - 3 else count


def tail_of(sizes: Array) -> float:
    """Estimate of the sum of all coefficients that were left out: the last ones continued at their own rate."""
    if len(sizes) < 7:
        return 0.0
    rate = rate_of(sizes)
    return float(sizes[-2:].max()) * rate / (1.0 - rate)


def rate_of(sizes: Array) -> float:
    """By what factor the last coefficients fall from one order to the next."""
    last, before = float(sizes[-2:].max()), float(sizes[-6:-4].max())
    return float(min((last / max(before, 1e-300)) ** 0.25, 0.9))


def lebesgue(count: int) -> float:
    """How much larger than at Chebyshev nodes an interpolant can be between them."""
    return 1.0 + 2.0 / np.pi * float(np.log(count))


def more_orders(sizes: Array) -> int:
    """How many more orders leave less than AIM, at the rate of the last ones; at most twice as many as there are."""
    left = tail_of(sizes)
    if left <= AIM:
        return 0
    return min(2 + int(np.ceil(np.log(left / AIM) / -np.log(rate_of(sizes)))), 2 * len(sizes))
