"""Where an operator's blocks come from: a store, or the samples themselves; as many of them kept as memory allows."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.memory import RESERVE, budget, in_words
from notsodeep.models.evaluation import evaluate_kernels
from notsodeep.models.tiling import TILE
from notsodeep.scale.kernel_jobs import Cell, Grid, Job
from notsodeep.scale.stored import StoredKernel
from notsodeep.validation import Array

# Fraction of the memory for blocks that are kept from one sweep to the next; the rest is for vectors.
KEPT = 0.5
# Blocks in memory while a store is read: one in use, one being read, and its bytes as they come from the file.
_MOVING = 3
# Numbers in the strip of a float32 block that is converted at once: it stays in the cache.
_STRIP = 2**17


class Blocks(Protocol):
    """The lower half of a symmetric matrix, block by block."""

    @property
    def grid(self) -> Grid:
        """How the matrix is cut into blocks."""

    def block(self, cell: Cell) -> NDArray[Any]:
        """The block of the matrix at this cell."""

    def diagonal(self) -> NDArray[Any]:
        """The diagonal of the matrix."""


class ComputedBlocks:
    """Blocks that are computed when they are asked for."""

    def __init__(self, job: Job) -> None:
        self.job, self.grid = job, job.grid

    def block(self, cell: Cell) -> NDArray[Any]:
        """The block of the matrix at this cell, in the precision of the job."""
        return self.job.compute(cell)[0][0]

    def diagonal(self) -> Array:
        """The diagonal of the matrix, from its diagonal tiles alone."""
        job, parts = self.job, []
        for start in range(0, job.grid.rows, TILE):
            rows = slice(start, min(start + TILE, job.grid.rows))
            (tile,), _ = evaluate_kernels(job.model, job.kernels, job.samples(rows))
            parts.append(tile.diagonal())
        return np.concatenate(parts)


class KeptBlocks:
    """Blocks of another source, kept in memory after their first use as long as there is room.

    Args:
        source: where the blocks come from.
        room: bytes for blocks that are kept.
    """

    def __init__(self, source: Blocks, room: int) -> None:
        self.source, self.grid, self.room = source, source.grid, room
        self._kept: dict[Cell, NDArray[Any]] = {}

    def block(self, cell: Cell) -> NDArray[Any]:
        """The block of the matrix at this cell."""
        if cell in self._kept:
            return self._kept[cell]
        block = self.source.block(cell)
        if block.nbytes <= self.room:
            self.room -= block.nbytes
            self._kept[cell] = block
        return block

    def diagonal(self) -> NDArray[Any]:
        """The diagonal of the matrix."""
        return self.source.diagonal()


def stored_blocks(kernel: StoredKernel, max_memory: str | int | None) -> KeptBlocks:
    """The blocks of a kernel on disk, kept in memory beside those that are being read."""
    side, spare = min(kernel.grid.block, kernel.grid.rows), budget(max_memory)
    moving = _MOVING * side**2 * kernel.dtype.itemsize
    # Reading loads no further libraries: the reserve may be used.
    if moving > spare + RESERVE:
        raise InputError(
            f"Reading the blocks of {kernel.path} takes {in_words(moving)}, and {in_words(max(spare, 0))} are left. "
            "Raise max_memory."
        )
    return KeptBlocks(kernel, int(KEPT * (spare - moving)))


def sweep(blocks: Blocks) -> Iterator[tuple[Cell, NDArray[Any]]]:
    """All blocks with their cells; the next one is fetched while this one is used."""
    with ThreadPoolExecutor(1) as pool:
        waiting = None
        for cell in blocks.grid.cells():
            fetched = cell, pool.submit(blocks.block, cell)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = fetched
        if waiting is not None:
            yield waiting[0], waiting[1].result()


def add_products(
    block: NDArray[Any], right: Array, below: Array | None, result: Array, mirror: Array
) -> None:
    """result += B right, and mirror += Bᵀ below if that is given; products are in float64 whatever B is stored in."""
    step = len(block) if block.dtype == np.float64 else max(_STRIP // block.shape[1], 1)
    for start in range(0, len(block), step):
        rows = slice(start, start + step)
        strip = block[rows].astype(np.float64, copy=False)
        result[rows] += strip @ right
        if below is not None:
            mirror += strip.T @ below[rows]
