"""How a layer mixes positions: the average over the taps of a filter, or the propagation along a graph.

The covariance of pre-activations of two samples is a field over pairs of positions, M(s, s').  A layer whose weights
are shared over positions maps it to another such field, docs/theory.md (10.1): a convolution to

    (𝒜M)(s, s') = (1/q) Σ_δ M(s + δ, s' + δ)     over the q taps of the filter,

a graph with propagation matrix S to S M Sᵀ.  A convolution maps the diagonal s = s' into itself, so that a readout
with weights of its own for each position needs the diagonal alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from notsodeep.validation import Array

PADDINGS = ("zeros", "circular")


@dataclass(frozen=True)
class Convolution:
    """The average over the taps of a filter with an odd number of taps along each axis.

    With such a filter 𝒜 is its own adjoint, for zero and for circular padding.

    Attributes:
        positions: number of positions along each axis of a sample: (length,) or (height, width).
        filter_size: number of taps along each axis.
        padding: what stands beyond the border: "zeros", or "circular" for the opposite side.
    """

    positions: tuple[int, ...]
    filter_size: int
    padding: str

    @property
    def taps(self) -> int:
        """Number of taps of the filter."""
        return int(self.filter_size ** len(self.positions))

    @property
    def count(self) -> int:
        """Number of positions."""
        return prod(self.positions)

    def diagonal(self, field: Array) -> Array:
        """𝒜 of fields over the diagonal s = s': (positions, others), others being left alone."""
        result = field.reshape(*self.positions, -1)
        for axis in range(len(self.positions)):
            result = self._summed(result, (axis,))
        return np.asarray(result.reshape(field.shape) * (1.0 / self.taps))

    def pairs(self, field: Array) -> Array:
        """𝒜 of fields over all pairs of positions: (positions, positions, others), others being left alone."""
        axes = len(self.positions)
        result = field.reshape(*self.positions, *self.positions, -1)
        for axis in range(axes):
            result = self._summed(result, (axis, axis + axes))
        return np.asarray(result.reshape(field.shape) * (1.0 / self.taps))

    def _summed(self, field: Array, axes: tuple[int, ...]) -> Array:
        """The sum over shifts along these axes, all of them shifted together."""
        result = field.copy()
        for shift in range(1, self.filter_size // 2 + 1):
            if self.padding == "circular":
                for step in (shift, -shift):
                    result += np.roll(field, (step,) * len(axes), axes)
            else:
                first, last = _without(field.ndim, axes, shift)
                result[first] += field[last]
                result[last] += field[first]
        return result


def _without(ndim: int, axes: tuple[int, ...], shift: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """What is left along these axes without the last `shift` places, and without the first."""
    return (
        tuple(slice(None, -shift) if axis in axes else slice(None) for axis in range(ndim)),
        tuple(slice(shift, None) if axis in axes else slice(None) for axis in range(ndim)),
    )


@dataclass(frozen=True, eq=False)
class Propagation:
    """The propagation along a graph: M becomes S M Sᵀ.

    Attributes:
        matrix: S, nodes by nodes.
    """

    matrix: Array

    def pairs(self, field: Array) -> Array:
        """S M Sᵀ."""
        return np.asarray(self.matrix @ field @ self.matrix.T)


__all__ = ["PADDINGS", "Convolution", "Propagation"]
