"""Functions of the variance at millions of positions: Chebyshev interpolation in log q over short segments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from notsodeep.linalg.chebyshev import chebyshev_coefficients, chebyshev_nodes
from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.validation import Array, IntArray

# Gaussian moments are analytic in log q in a strip of half-width π/2 whatever the activation, so that so many nodes on
# segments of this length leave about 18^-12 = 8e-16.
SEGMENT, NODES = 0.5 * float(np.log(2.0)), 12
LOG_STEP = 0.125
# Positions whose functions are computed together: so many numbers are a line of the cache.
BLOCK = 8
# Variances are floored here; a position without any signal is dealt with by itself.
SMALLEST = 1e-200


class LogTable:
    """The segments of log q in which the variances of a data set lie.

    Args:
        variances: positive numbers, flat; segments go from the largest downwards, its logarithm rounded up a little so
            that data sets that are alike share tables.

    Attributes:
        numbers: the segments that have members.
        nodes: the variances at their nodes, (segments, NODES).
    """

    def __init__(self, variances: Array) -> None:
        self.smallest = max(float(variances.min()), SMALLEST)
        top = float(np.log(max(float(variances.max()), SMALLEST)))
        self.top = float(np.ceil(top / LOG_STEP) * LOG_STEP)
        number, _ = self._segment(variances)
        self.numbers = np.flatnonzero(np.bincount(number.reshape(-1)))
        self.nodes = np.exp(
            self.top - SEGMENT * (self.numbers[:, None] + 0.5 * (1.0 + chebyshev_nodes(NODES)))
        )

    @property
    def bottom(self) -> float:
        """The logarithm of the smallest variance of a segment."""
        return self.top - SEGMENT * (float(self.numbers[-1]) + 1.0)

    def _segment(self, variances: Array) -> tuple[IntArray, Array]:
        """The segment of each variance, and its place from -1 to 1 there, from the top downwards.

        Variances below the smallest are those of positions without signal, of which nothing is needed.
        """
        down = (self.top - np.log(np.maximum(variances, self.smallest))) / SEGMENT
        number = np.maximum(np.floor(down), 0.0)
        return number.astype(np.intp), 2.0 * (down - number) - 1.0

    def place(self, variances: Array) -> tuple[IntArray, Array]:
        """For each variance which of `numbers` is its segment, and its place from -1 to 1 there."""
        number, place = self._segment(variances)
        return np.searchsorted(self.numbers, number), place

    def of(self, function: Callable[[Array], Array]) -> Array:
        """Coefficients (segments, NODES, functions) of a function that maps m variances to m rows."""
        return self.coefficients(np.asarray(function(self.nodes.reshape(-1))))

    def coefficients(self, values: Array) -> Array:
        """Coefficients (segments, NODES, functions) of functions with these values (nodes, functions)."""
        return np.ascontiguousarray(chebyshev_coefficients(values.reshape(*self.nodes.shape, -1), 1))

    def evaluate(self, coefficients: Array, variances: Array) -> Array:
        """The functions at these flat variances, (variances, functions)."""
        values = np.empty((len(variances), coefficients.shape[2]))
        _interpolate(coefficients, *self.place(variances), values)
        return values


def shortened(coefficients: Array, allowed: float) -> Array:
    """Fewer polynomials, where the others add less than is allowed to the sum of the products of all functions."""
    sizes = np.abs(coefficients)
    # Each product has two factors; numbers of polynomials that are added up three at a time.
    for count in range(4, coefficients.shape[1], 3):
        added = sizes[:, count:].sum(axis=1).max(axis=0) * sizes.max(axis=(0, 1))
        if 2.0 * float(added.sum()) <= allowed:
            return np.ascontiguousarray(coefficients[:, :count])
    return coefficients


@njit(**OPTIONS)
def _at(coefficients, count, place, result):  # type: ignore[no-untyped-def]
    """The first `count` functions of a segment, (polynomials, functions), at one place; the others are zero."""
    nodes = len(coefficients)
    for k in range(count, len(result)):
        result[k] = 0.0
    for k in range(count):
        result[k] = coefficients[0, k]
    before, now = 1.0, place
    for node in range(1, nodes - 2, 3):
        # Three polynomials at a time: what was summed up is read and written less often.
        after = 2.0 * place * now - before
        later = 2.0 * place * after - now
        one, two, three = coefficients[node], coefficients[node + 1], coefficients[node + 2]
        for k in range(count):
            result[k] += now * one[k] + after * two[k] + later * three[k]
        before, now = later, 2.0 * place * later - after
    for node in range(nodes - (nodes - 1) % 3, nodes):
        row = coefficients[node]
        for k in range(count):
            result[k] += now * row[k]
        before, now = now, 2.0 * place * now - before


@njit(**OPTIONS)
def interpolated_block(coefficients, lengths, segment, place, positions, block):  # type: ignore[no-untyped-def]
    """The functions at the first few positions, (positions, functions), zero where there is none; how many it took.

    Of each segment the first `lengths` functions count.
    """
    count = min(len(positions), len(block))
    for s in range(count):
        position = positions[s]
        if position >= 0:
            number = segment[position]
            _at(coefficients[number], lengths[number], place[position], block[s])
        else:
            for k in range(block.shape[1]):
                block[s, k] = 0.0
    return count


@njit(**OPTIONS)
def _interpolate(coefficients, segment, place, values):  # type: ignore[no-untyped-def]
    for i in range(len(place)):
        _at(coefficients[segment[i]], values.shape[1], place[i], values[i])


__all__ = ["BLOCK", "SMALLEST", "LogTable", "interpolated_block", "shortened"]
