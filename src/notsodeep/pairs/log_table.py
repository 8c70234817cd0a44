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
# Variances are floored here; a position without any signal is dealt with by itself.
SMALLEST = 1e-200


class LogTable:
    """The segments of log q in which the variances of a data set lie.

    Args:
        variances: positive numbers, flat; segments go from the largest downwards, so that no node is larger than what
            occurs.

    Attributes:
        numbers: the segments that have members.
        nodes: the variances at their nodes, (segments, NODES).
    """

    def __init__(self, variances: Array) -> None:
        self.smallest = max(float(variances.min()), SMALLEST)
        self.top = float(np.log(max(float(variances.max()), SMALLEST)))
        number, _ = self._segment(variances)
        self.numbers = np.flatnonzero(np.bincount(number.reshape(-1)))
        self.nodes = np.exp(
            self.top - SEGMENT * (self.numbers[:, None] + 0.5 * (1.0 + chebyshev_nodes(NODES)))
        )

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


@njit(**OPTIONS)
def interpolated(coefficients, count, place, result):  # type: ignore[no-untyped-def]
    """The first `count` functions of a segment, (NODES, functions), at one place."""
    for k in range(count):
        result[k] = coefficients[0, k]
    before, now = 1.0, place
    for node in range(1, NODES):
        row = coefficients[node]
        for k in range(count):
            result[k] += now * row[k]
        before, now = now, 2.0 * place * now - before


@njit(**OPTIONS)
def _interpolate(coefficients, segment, place, values):  # type: ignore[no-untyped-def]
    for i in range(len(place)):
        interpolated(coefficients[segment[i]], values.shape[1], place[i], values[i])


__all__ = ["NODES", "SMALLEST", "LogTable", "interpolated"]
