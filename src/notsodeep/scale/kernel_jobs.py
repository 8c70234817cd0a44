"""A computation as an object that can be sent to a worker: model, kernels, samples, grid of blocks, precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

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
from notsodeep.scale.blocks import Cell, Grid
from notsodeep.scale.sample_sources import SurveyedRows, anchors
from notsodeep.validation import Array, as_count

Storage = Literal["float32", "float64"]
STORAGES: tuple[str, ...] = get_args(Storage)

# Version of the description of a run. In format 1 two different models could have the same one.
FORMAT = 2
# Larger blocks gain nothing: the samples of a block are read and prepared in a few percent of its time.
LARGEST_BLOCK = 4096
# Tables of Mehler coefficients: up to 1024 terms for each sample where some pairs are nearly parallel, five copies
# while they are made.
_TABLE_BYTES = 40_000


@dataclass(frozen=True, eq=False)
class Job:
    """Kernel matrices of one set of samples: everything a block needs, wherever it is computed."""

    model: Model  # the model
    kernels: tuple[Kernel, ...]  # the kernels that are computed; all of them share one pass
    left: SurveyedRows  # samples of the rows
    right: SurveyedRows | None  # samples of the columns; None for the same
    anchors: Array  # squared norms that all blocks share
    grid: Grid  # how the matrices are cut into blocks
    storage: str  # the precision in which blocks are kept
    tolerance: float | None = None  # error that kernels of images may have; None for the least

    def samples(self, rows: slice) -> Samples:
        """These samples of the rows of the matrix."""
        return self._read(self.left, rows)

    def compute(self, cell: Cell) -> tuple[list[NDArray[Any]], KernelInfo]:
        """The block of every kernel at this cell, in the precision in which it is stored."""
        rows, columns = self.grid.slices(cell)
        others = None
        if not self.grid.symmetric or self.grid.mirrored(cell):
            others = self._read(self.right or self.left, columns)
        blocks, info = evaluate_kernels(
            self.model, self.kernels, self.samples(rows), others, tolerance=self.tolerance
        )
        return [block.astype(self.storage, copy=False) for block in blocks], info

    def _read(self, source: SurveyedRows, part: slice) -> Samples:
        return Samples(source.rows.read(part), source.squares[part], self.anchors)

    def describe(self, kernel: Kernel) -> dict[str, Any]:
        """Everything that decides the numbers of one kernel's store, as JSON would have it."""
        return {
            "format": FORMAT,
            "model": describe(self.model, math.sqrt(float(self.anchors.max()))),
            "kernel": str(kernel),
            "rows": self.left.fingerprint,
            "columns": None if self.right is None else self.right.fingerprint,
            "shape": [self.grid.rows, self.grid.columns],
            "storage": self.storage,
            "block": self.grid.block,
            **({} if self.tolerance is None else {"tolerance": self.tolerance}),
        }


def make_job(
    model: Model,
    kernels: tuple[Kernel, ...],
    left: SurveyedRows,
    right: SurveyedRows | None,
    *,
    block: int,
    storage: str,
    tolerance: float | None = None,
) -> Job:
    """The job for these samples with blocks of this size."""
    columns = right or left
    grid = Grid(left.count, columns.count, block, symmetric=right is None)
    return Job(model, kernels, left, right, anchors(left.squares, columns.squares), grid, storage, tolerance)


# --- size of a block --------------------------------------------------------------------------------------


def block_bytes(block: int, p: int, storage: str) -> int:
    """Memory that computing and storing one block takes."""
    item = np.dtype(storage).itemsize
    # Gram matrix, its rounded form, and the copy on its way to the disk; samples; tables.
    return block * block * (8 + 2 * item) + 2 * block * (8 * p + _TABLE_BYTES)


def fitting_block(budget: int, n: int, p: int, storage: str, workers: int = 1) -> int:
    """The largest block that fits into the budget; for several workers, small enough that each gets several."""
    limit = min(LARGEST_BLOCK, _up(n))
    while workers > 1 and limit > 2 * TILE and (n / limit) ** 2 < 8 * workers:
        limit -= TILE
    for block in range(limit, 0, -TILE):
        if block_bytes(block, p, storage) <= budget:
            return block
    least = block_bytes(min(TILE, _up(n)), p, storage)
    raise InputError(
        f"{in_words(max(budget, 0))} are left for blocks, and the smallest takes {in_words(least)}. Raise max_memory."
    )


def choose_block(wanted: int | None, budget: int, n: int, p: int, storage: str, workers: int = 1) -> int:
    """The block size that the user or a store asks for, if it fits into the budget; else the largest that does."""
    if wanted is None:
        return fitting_block(budget, n, p, storage, workers)
    block = as_count(wanted, "block")
    needed = block_bytes(block, p, storage)
    if needed > budget:
        raise InputError(
            f"Blocks of {block} × {block} take {in_words(needed)}, and {in_words(max(budget, 0))} are left for "
            "them. Raise max_memory, or use smaller blocks (in a new store: blocks are fixed when it is made)."
        )
    return block


def _up(n: int) -> int:
    """The next multiple of the size of a tile."""
    return -(-n // TILE) * TILE
