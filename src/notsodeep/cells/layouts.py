"""How second moments of pairs are laid out in arrays, and what filters and graph maps do to them.

All arrays have the form (stack, rows, columns), as `duals.Dual` takes them, and coefficients of samples (stack, rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from notsodeep.cells.expressions import Conv, Graph, Node
from notsodeep.validation import Array


@dataclass(frozen=True)
class Layout:
    """The meaning of the axes of arrays of second moments.

    Attributes:
        kind: "rows" (1, n, m); "graph" (1, nodes, nodes); "stacked" (positions, n, m), both samples at one position;
            "paired" (1, n · positions, m · positions); "own" (positions · n, 1, 1), each sample with itself.
        positions: number of positions along each axis of an image; () for rows and graphs.
    """

    kind: str
    positions: tuple[int, ...] = ()

    def gram(self, left: Array, right: Array) -> Array:
        """Return the inner products of two sets of samples: rows (n, p), or images (n, channels, *positions)."""
        if self.kind == "own":
            return np.asarray(np.einsum("nc...,nc...->...n", left, right)).reshape(-1, 1, 1)
        if self.kind == "stacked":
            one, two = (np.moveaxis(part.reshape(*part.shape[:2], -1), 2, 0) for part in (left, right))
            return np.asarray(one @ two.swapaxes(-1, -2))
        if self.kind == "paired":
            one, two = (
                np.moveaxis(part.reshape(*part.shape[:2], -1), 1, 2).reshape(-1, part.shape[1])
                for part in (left, right)
            )
            return np.asarray(one @ two.T)[None]
        return np.asarray(left @ right.T)[None]

    def mixed(self, node: Node, array: Array) -> Array:
        """Return what the weights of a node do to second moments, but for their variance."""
        if isinstance(node, Graph):
            return np.asarray(node.matrix @ array @ node.matrix.T)
        if not isinstance(node, Conv) or node.filter_size == 1:
            return array
        sizes = self.positions
        if self.kind == "paired":
            rows, columns = (length // prod(sizes) for length in array.shape[1:])
            form = (rows, *sizes, columns, *sizes)
            axes: list[tuple[int, ...]] = [(1 + k, 2 + len(sizes) + k) for k in range(len(sizes))]
        else:
            form = (*sizes, array.size // prod(sizes))
            axes = [(k,) for k in range(len(sizes))]
        field = array.reshape(form)
        for moved in axes:
            field = _shift_sum(field, moved, node.filter_size // 2, node.padding == "circular")
        return np.asarray(field.reshape(array.shape) / node.filter_size ** len(sizes))

    def diagonal(self, array: Array) -> Array:
        """Return the entries of samples with themselves, (stack, rows)."""
        if self.kind == "own":
            return array[:, :, 0]
        return np.diagonal(array, axis1=1, axis2=2).copy()


def _shift_sum(field: Array, axes: tuple[int, ...], radius: int, circular: bool) -> Array:
    """The sum over shifts by -radius … radius, the same along all of these axes."""
    if circular:
        return np.asarray(
            sum(np.roll(field, (shift,) * len(axes), axes) for shift in range(-radius, radius + 1))
        )
    total, length = field.copy(), field.shape[axes[0]]
    for shift, sign in product(range(1, min(radius, length - 1) + 1), (1, -1)):
        to, seen = [slice(None)] * field.ndim, [slice(None)] * field.ndim
        for axis in axes:
            to[axis], seen[axis] = (slice(shift, None), slice(None, -shift))[::sign]
        total[tuple(to)] += field[tuple(seen)]
    return total


__all__ = ["Layout"]
