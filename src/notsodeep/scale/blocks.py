"""One block of a kernel: a plain function of arrays, and the grid that says which blocks there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from notsodeep.kernel_names import Kernel
from notsodeep.models.evaluation import fill_kernels
from notsodeep.models.protocol import Model, Samples
from notsodeep.pairs.tiles import TILE
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

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
    model: Model, kernels: tuple[Kernel, ...], left: Samples, right: Samples | None
) -> tuple[list[Array], KernelInfo]:
    """The kernels of the samples `left` with the samples `right`, or with themselves, and their evidence.

    Args:
        model: any model.
        kernels: which of its kernels.
        left: samples, their squared norms and the anchors that all blocks share.
        right: the same for the columns; None for a block on the diagonal.
    """
    return fill_kernels(model.prepare(left, right, kernels), kernels, symmetric=right is None)


__all__ = ["TILE", "Cell", "Grid", "kernel_block"]
