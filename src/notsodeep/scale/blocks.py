"""One block of a kernel: a plain function of arrays, and the grid that says which blocks there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.api import CONJUGATE, Model, evaluate
from notsodeep.kernels.programs import Samples, prepare
from notsodeep.kernels.tiles import TILE
from notsodeep.results import KernelInfo

Array = NDArray[np.float64]
Cell = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """An n × m matrix cut into blocks; of a symmetric one only those on and below the diagonal.

    Attributes:
        rows: n.
        columns: m.
        block: rows and columns of a block; the last ones are smaller.
        symmetric: whether the upper half is the mirror image of the lower one.
    """

    rows: int
    columns: int
    block: int
    symmetric: bool

    @property
    def height(self) -> int:
        """Blocks from top to bottom."""
        return -(-self.rows // self.block)

    @property
    def width(self) -> int:
        """Blocks from left to right."""
        return -(-self.columns // self.block)

    @property
    def count(self) -> int:
        """Blocks to compute."""
        return self.height * (self.height + 1) // 2 if self.symmetric else self.height * self.width

    def cells(self) -> Iterator[Cell]:
        """The blocks to compute, row after row: the left samples of a row of blocks are read once."""
        for i in range(self.height):
            for j in range(i + 1 if self.symmetric else self.width):
                yield i, j

    def row_slice(self, i: int) -> slice:
        """The rows of the blocks (i, ·)."""
        return slice(i * self.block, min((i + 1) * self.block, self.rows))

    def column_slice(self, j: int) -> slice:
        """The columns of the blocks (·, j)."""
        return slice(j * self.block, min((j + 1) * self.block, self.columns))

    def slices(self, cell: Cell) -> tuple[slice, slice]:
        """Rows and columns of a block."""
        return self.row_slice(cell[0]), self.column_slice(cell[1])

    def shape(self, cell: Cell) -> tuple[int, int]:
        """Rows and columns of a block, how many."""
        rows, columns = self.slices(cell)
        return rows.stop - rows.start, columns.stop - columns.start

    def mirrored(self, cell: Cell) -> bool:
        """Whether a block stands for its mirror image as well."""
        return self.symmetric and cell[0] != cell[1]


def kernel_block(
    model: Model, reading: str, depth: int | None, left: Samples, right: Samples | None, anchors: Array
) -> tuple[Array, KernelInfo]:
    """The kernel of the samples `left` with the samples `right`, or with themselves, and its evidence.

    Args:
        model: a DEQ or an Explicit network.
        reading: "features", "preactivations", "network", "tangent" or "paper".
        depth: cuts a DEQ; None is infinite depth.
        left: rows and their squared norms.
        right: the same for the columns; None for a block on the diagonal.
        anchors: squared norms that span those of all samples, so that blocks agree to rounding.
    """
    gram = left.rows @ (left if right is None else right).rows.T
    sides = _with_anchors(left, anchors), None if right is None else _with_anchors(right, anchors)
    program = prepare(model, *sides, depth, reading not in CONJUGATE)
    outputs, info = evaluate(program, gram, (reading,), symmetric=right is None)
    return outputs[0], info


def _with_anchors(samples: Samples, anchors: Array) -> Samples:
    # Only the variances of the anchors are used, never their rows.
    return Samples(samples.rows, np.concatenate([samples.squares, anchors]))


__all__ = ["TILE", "Cell", "Grid", "kernel_block"]
