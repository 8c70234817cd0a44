"""Where computed blocks go: into arrays in memory, or into stores on disk."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.results import KernelInfo
from notsodeep.scale.blocks import Cell, Grid
from notsodeep.scale.store import Entry, KernelStore


class InMemory:
    """Whole matrices as arrays, one for each kernel."""

    def __init__(self, grid: Grid, storage: str, kernels: int) -> None:
        self.grid = grid
        self.matrices = [np.empty((grid.rows, grid.columns), storage) for _ in range(kernels)]
        self._evidence: dict[Cell, KernelInfo] = {}

    @property
    def info(self) -> KernelInfo:
        """The evidence of all blocks together."""
        return reduce(KernelInfo.merge, self._evidence.values())

    def missing(self) -> list[Cell]:
        """The blocks still to compute."""
        return [cell for cell in self.grid.cells() if cell not in self._evidence]

    def record(self, cell: Cell, blocks: list[NDArray[Any]], info: KernelInfo) -> None:
        """Copy the block of every kernel at this cell, and its mirror image, into the matrices."""
        rows, columns = self.grid.slices(cell)
        for matrix, block in zip(self.matrices, blocks, strict=True):
            matrix[rows, columns] = block
            if self.grid.mirrored(cell):
                matrix[columns, rows] = block.T
        self._evidence[cell] = info

    # A block that was computed here and one that a worker has sent are treated alike.
    put = record


class OnDisk:
    """One store for each kernel, see `scale.store`."""

    def __init__(self, stores: list[KernelStore]) -> None:
        self.stores = stores

    @property
    def grid(self) -> Grid:
        """The blocks of each of the matrices."""
        return self.stores[0].grid

    def missing(self) -> list[Cell]:
        """The blocks that are not yet in every store."""
        finished = set.intersection(*(set(store.finished) for store in self.stores))
        return [cell for cell in self.grid.cells() if cell not in finished]

    def put(self, cell: Cell, blocks: list[NDArray[Any]], info: KernelInfo) -> None:
        """Write the block of every kernel at this cell."""
        written = [store.write(cell, block) for store, block in zip(self.stores, blocks, strict=True)]
        self.record(cell, written, info)

    def record(self, cell: Cell, checksums: list[str], info: KernelInfo) -> None:
        """Note in the journals that the blocks of a cell are on the disk."""
        for store, checksum in zip(self.stores, checksums, strict=True):
            store.record(Entry(cell, checksum, info))


Target = InMemory | OnDisk
