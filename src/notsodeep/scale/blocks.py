"""How a kernel matrix is cut into blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# The place of a block: its row and its column in the grid of blocks.
Cell = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """An n × m matrix cut into blocks; of a symmetric one only those on and below the diagonal."""

    rows: int  # n
    columns: int  # m
    block: int  # rows and columns of a block; those at the end are smaller
    symmetric: bool  # whether the upper half is the mirror image of the lower one

    @property
    def height(self) -> int:
        """Number of blocks from top to bottom."""
        return -(-self.rows // self.block)

    @property
    def width(self) -> int:
        """Number of blocks from left to right."""
        return -(-self.columns // self.block)

    @property
    def count(self) -> int:
        """Number of blocks to compute."""
        return self.height * (self.height + 1) // 2 if self.symmetric else self.height * self.width

    def cells(self) -> Iterator[Cell]:
        """The blocks to compute, row after row: the left samples of a row of blocks are read once."""
        for i in range(self.height):
            for j in range(i + 1 if self.symmetric else self.width):
                yield i, j

    def slices(self, cell: Cell) -> tuple[slice, slice]:
        """The rows and the columns of the matrix that a block covers."""
        (i, j), size = cell, self.block
        rows = slice(i * size, min((i + 1) * size, self.rows))
        return rows, slice(j * size, min((j + 1) * size, self.columns))

    def mirrored(self, cell: Cell) -> bool:
        """Whether a block stands for its mirror image as well."""
        return self.symmetric and cell[0] != cell[1]
