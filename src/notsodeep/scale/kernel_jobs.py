"""A kernel computation as an object that can be sent to a worker: model, samples, grid of blocks, precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.fingerprint import describe
from notsodeep.kernel_names import Kernel
from notsodeep.memory import in_words
from notsodeep.models.evaluation import evaluate_kernels
from notsodeep.models.protocol import Model, Samples
from notsodeep.models.tiling import TILE
from notsodeep.results import KernelInfo
from notsodeep.scale.sample_sources import SurveyedRows, anchors
from notsodeep.validation import Array, as_count

# The place of a block: its row and its column in the grid of blocks.
Cell = tuple[int, int]
STORAGES = ("float32", "float64")
# Version of the description of a run.
FORMAT = 3
# Larger blocks gain nothing: the samples of a block are read and prepared in a few percent of its time.
LARGEST_BLOCK = 4096
# Tables of Mehler coefficients: up to 1024 terms for each sample where some pairs are nearly parallel, five copies
# while they are computed.
_TABLE_BYTES = 40_000


@dataclass(frozen=True)
class Grid:
    """The division of an n × m matrix into blocks; of a symmetric one only those on and below the diagonal."""

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
        """Iterate over the blocks to compute, row after row, so that the samples of a row are read once."""
        for i in range(self.height):
            for j in range(i + 1 if self.symmetric else self.width):
                yield i, j

    def slices(self, cell: Cell) -> tuple[slice, slice]:
        """The rows and the columns of the matrix that a block covers."""
        (i, j), size = cell, self.block
        rows = slice(i * size, min((i + 1) * size, self.rows))
        return rows, slice(j * size, min((j + 1) * size, self.columns))

    def mirrored(self, cell: Cell) -> bool:
        """Whether a block also gives its mirror image."""
        return self.symmetric and cell[0] != cell[1]


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that computing a block needs, in this process or on a worker."""

    model: Model
    kernels: tuple[Kernel, ...]  # all of them share one pass
    left: SurveyedRows  # samples of the rows
    right: SurveyedRows | None  # samples of the columns; None for the same
    block: int  # rows and columns of a block
    storage: str  # precision in which blocks are stored
    tolerance: float | None = None  # error that kernels of images may have; None for the smallest possible

    @cached_property
    def grid(self) -> Grid:
        """The blocks of the matrix."""
        return Grid(
            self.left.count, (self.right or self.left).count, self.block, symmetric=self.right is None
        )

    @cached_property
    def anchors(self) -> Array:
        """Squared norms that all blocks share."""
        return anchors(self.left.squares, (self.right or self.left).squares)

    def compute(self, cell: Cell) -> tuple[list[NDArray[Any]], KernelInfo]:
        """Compute the block of every kernel at this cell, in the precision of `storage`."""
        rows, columns = self.grid.slices(cell)
        others = None
        if not self.grid.symmetric or self.grid.mirrored(cell):
            others = self._read(self.right or self.left, columns)
        blocks, info = evaluate_kernels(
            self.model, self.kernels, self._read(self.left, rows), others, tolerance=self.tolerance
        )
        return [block.astype(self.storage, copy=False) for block in blocks], info

    def _read(self, source: SurveyedRows, part: slice) -> Samples:
        return Samples(source.rows.read(part), source.squares[part], self.anchors)

    def describe(self, kernel: Kernel) -> dict[str, Any]:
        """Describe everything that determines the numbers of one kernel's store, as JSON values."""
        return {
            "format": FORMAT,
            "model": describe(self.model, math.sqrt(float(self.anchors.max()))),
            "kernel": str(kernel),
            "rows": self.left.fingerprint,
            "columns": None if self.right is None else self.right.fingerprint,
            "shape": [self.grid.rows, self.grid.columns],
            "storage": self.storage,
            "block": self.grid.block,
            "tolerance": self.tolerance,
        }


# --- size of a block --------------------------------------------------------------------------------------


def block_bytes(block: int, p: int, storage: str) -> int:
    """Estimate the memory for computing and storing one block."""
    item = np.dtype(storage).itemsize
    # Gram matrix, its rounded form, and the copy on its way to the disk; samples; tables.
    return block * block * (8 + 2 * item) + 2 * block * (8 * p + _TABLE_BYTES)


def choose_block(given: int | None, budget: int, n: int, p: int, storage: str, workers: int = 1) -> int:
    """Check that a given block size fits into the budget, or find the largest that gives workers several blocks."""
    if given is not None:
        block = as_count(given, "block")
        needed = block_bytes(block, p, storage)
        if needed > budget:
            raise InputError(
                f"Blocks of {block} × {block} take {in_words(needed)}; {in_words(max(budget, 0))} is left for them. "
                "Raise max_memory, or use smaller blocks (in a new folder: a store keeps its block size)."
            )
        return block
    limit = min(LARGEST_BLOCK, -(-n // TILE) * TILE)
    while workers > 1 and limit > 2 * TILE and (n / limit) ** 2 < 8 * workers:
        limit -= TILE
    for block in range(limit, 0, -TILE):
        if block_bytes(block, p, storage) <= budget:
            return block
    least = block_bytes(TILE, p, storage)
    raise InputError(
        f"{in_words(max(budget, 0))} is left for blocks; the smallest takes {in_words(least)}. Raise max_memory."
    )
