"""What is to be computed, complete and small enough to send: model, kernel, samples, grid, precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.fingerprint import describe, digest
from notsodeep.kernels.api import Model
from notsodeep.kernels.programs import Samples
from notsodeep.memory import in_words
from notsodeep.results import KernelInfo
from notsodeep.scale.blocks import TILE, Cell, Grid, kernel_block
from notsodeep.scale.rows import Rows, Survey, anchors

Array = NDArray[np.float64]
Storage = Literal["float32", "float64"]
STORAGES: tuple[str, ...] = get_args(Storage)

# 1 told models apart by too little.
FORMAT = 2
# Larger blocks gain nothing: the samples of a block are read and prepared in a few percent of its time.
LARGEST_BLOCK = 4096
# Tables of Mehler coefficients: up to 1024 terms for each sample where some pairs are nearly parallel, five copies
# while they are made.
_TABLE_BYTES = 40_000


@dataclass(frozen=True, eq=False)
class Job:
    """One kernel matrix: everything a block needs, wherever it is computed."""

    model: Model
    reading: str
    depth: int | None
    left: Rows
    right: Rows | None
    left_squares: Array
    right_squares: Array
    anchors: Array
    grid: Grid
    storage: str

    def compute(self, cell: Cell) -> tuple[NDArray[Any], KernelInfo]:
        """One block, in the precision in which it is stored."""
        rows, columns = self.grid.slices(cell)
        left = Samples(self.left.read(rows), self.left_squares[rows])
        right = None
        if not (self.grid.symmetric and rows == columns):
            source = self.left if self.right is None else self.right
            right = Samples(source.read(columns), self.right_squares[columns])
        block, info = kernel_block(self.model, self.reading, self.depth, left, right, self.anchors)
        return block.astype(self.storage, copy=False), info


def make_job(
    model: Model,
    reading: str,
    depth: int | None,
    sides: tuple[Rows, Rows | None],
    surveys: tuple[Survey, Survey | None],
    block: int,
    storage: str,
) -> Job:
    """The job of these samples with blocks of that size."""
    left, right = sides
    first, second = surveys
    columns = left if right is None else right
    squares = (first.squares, first.squares if second is None else second.squares)
    grid = Grid(left.shape[0], columns.shape[0], block, symmetric=right is None)
    return Job(model, reading, depth, left, right, *squares, anchors(*squares), grid, storage)


# --- size of a block --------------------------------------------------------------------------------------


def block_bytes(block: int, p: int, storage: str) -> int:
    """Memory that computing and storing one block takes."""
    item = np.dtype(storage).itemsize
    # Gram matrix, its rounded form, and the copy on its way to the disk; samples; tables.
    return block * block * (8 + 2 * item) + 2 * block * (8 * p + _TABLE_BYTES)


def fitting_block(budget: int, n: int, p: int, storage: str, workers: int = 1) -> int:
    """The largest block for the budget; with workers small enough that each has several to do."""
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


def check_block(block: int, budget: int, p: int, storage: str) -> int:
    """A block size that the user or a store asks for."""
    if isinstance(block, bool) or not isinstance(block, int | np.integer) or block < 1:
        raise InputError(f"block must be a whole number from 1 on, got {block!r}.")
    needed = block_bytes(int(block), p, storage)
    if needed > budget:
        raise InputError(
            f"Blocks of {block} × {block} take {in_words(needed)}, and {in_words(max(budget, 0))} are left for "
            "them. Raise max_memory, or use smaller blocks (in a new store: blocks are fixed when it is made)."
        )
    return int(block)


def _up(n: int) -> int:
    return -(-n // TILE) * TILE


# --- what makes two runs the same -------------------------------------------------------------------------


def description(job: Job, fingerprints: tuple[str, str | None]) -> dict[str, Any]:
    """Everything that decides the numbers of a store, as JSON would have it."""
    largest = max(float(job.left_squares.max()), float(job.right_squares.max()))
    return {
        "format": FORMAT,
        "model": describe(job.model, math.sqrt(largest)),
        "kernel": job.reading,
        "depth": job.depth,
        "rows": fingerprints[0],
        "columns": fingerprints[1],
        "shape": [job.grid.rows, job.grid.columns],
        "storage": job.storage,
        "block": job.grid.block,
    }


def run_hash(described: dict[str, Any]) -> str:
    """The hash that names a run."""
    return digest(described)


__all__ = [
    "FORMAT",
    "STORAGES",
    "Job",
    "block_bytes",
    "check_block",
    "description",
    "fitting_block",
    "make_job",
    "run_hash",
]
