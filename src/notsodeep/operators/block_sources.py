"""Where an operator's blocks come from: a store, or the samples themselves; as many of them kept as memory allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from notsodeep.scale.blocks import TILE, Cell, Grid, kernel_block
from notsodeep.scale.kernel_jobs import Job

Array = NDArray[np.float64]


class Blocks(Protocol):
    """The lower half of a symmetric matrix, block by block."""

    @property
    def grid(self) -> Grid:
        """Which blocks there are."""

    def block(self, cell: Cell) -> NDArray[Any]:
        """The block of the matrix at this cell."""

    def diagonal(self) -> NDArray[Any]:
        """The diagonal of the matrix."""


class ComputedBlocks:
    """Blocks computed when they are asked for."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @property
    def grid(self) -> Grid:
        """Which blocks there are."""
        return self.job.grid

    def block(self, cell: Cell) -> NDArray[Any]:
        """The block of the matrix at this cell, in the precision of the job."""
        return self.job.compute(cell)[0][0]

    def diagonal(self) -> Array:
        """The diagonal, from tiles that are no larger than they need to be."""
        job = self.job
        parts = []
        for start in range(0, job.grid.rows, TILE):
            rows = slice(start, min(start + TILE, job.grid.rows))
            (tile,), _ = kernel_block(job.model, job.kernels, job.samples(rows), None)
            parts.append(tile.diagonal())
        return np.concatenate(parts)


class KeptBlocks:
    """Blocks of another source, kept in memory after their first use as long as there is room."""

    def __init__(self, source: Blocks, room: int) -> None:
        self.source, self.room = source, room
        self._kept: dict[Cell, NDArray[Any]] = {}

    @property
    def grid(self) -> Grid:
        """Which blocks there are."""
        return self.source.grid

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


def sweep(blocks: Blocks) -> Iterator[tuple[Cell, NDArray[Any]]]:
    """All blocks, the next one fetched while this one is used."""
    with ThreadPoolExecutor(1) as pool:
        yield from _ahead(pool, blocks, blocks.grid.cells())


def _ahead(
    pool: ThreadPoolExecutor, blocks: Blocks, cells: Iterable[Cell]
) -> Iterator[tuple[Cell, NDArray[Any]]]:
    waiting = None
    for cell in cells:
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
    # A strip of a float32 block is turned into float64 while it is in the cache.
    step = len(block) if block.dtype == np.float64 else max(_STRIP // block.shape[1], 1)
    for start in range(0, len(block), step):
        rows = slice(start, start + step)
        strip = block[rows].astype(np.float64, copy=False)
        result[rows] += strip @ right
        if below is not None:
            mirror += strip.T @ below[rows]


_STRIP = 2**17

__all__ = ["Blocks", "ComputedBlocks", "KeptBlocks", "add_products", "sweep"]
