"""Blocks into memory or onto disk, computed by this process; `cluster` has the same for many processes."""

from __future__ import annotations

from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from notsodeep.progress import Report
from notsodeep.results import KernelInfo
from notsodeep.scale.blocks import Cell, Grid
from notsodeep.scale.kernel_jobs import Job
from notsodeep.scale.store import Entry, KernelStore


class Target(Protocol):
    """Where blocks go."""

    @property
    def grid(self) -> Grid:
        """Which blocks there are."""

    def missing(self) -> list[Cell]:
        """The blocks still to compute."""

    def put(self, cell: Cell, blocks: list[NDArray[Any]], info: KernelInfo) -> None:
        """Take in the block of every kernel at this cell."""


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

    def put(self, cell: Cell, blocks: list[NDArray[Any]], info: KernelInfo) -> None:
        """Take in the block of every kernel, and its mirror image."""
        rows, columns = self.grid.slices(cell)
        for matrix, block in zip(self.matrices, blocks, strict=True):
            matrix[rows, columns] = block
            if self.grid.mirrored(cell):
                matrix[columns, rows] = block.T
        self._evidence[cell] = info


class OnDisk:
    """One store for each kernel, see `scale.store`."""

    def __init__(self, stores: list[KernelStore]) -> None:
        self.stores = stores

    @property
    def grid(self) -> Grid:
        """The blocks of each of the matrices."""
        return self.stores[0].grid

    def missing(self) -> list[Cell]:
        """The blocks that some store still lacks."""
        lacking = [set(store.missing()) for store in self.stores]
        return [cell for cell in self.grid.cells() if any(cell in cells for cells in lacking)]

    def put(self, cell: Cell, blocks: list[NDArray[Any]], info: KernelInfo) -> None:
        """Write the block of every kernel."""
        self.record(
            cell, [store.write(cell, block) for store, block in zip(self.stores, blocks, strict=True)], info
        )

    def record(self, cell: Cell, checksums: list[str], info: KernelInfo) -> None:
        """Note that the blocks of a cell are on the disk."""
        for store, checksum in zip(self.stores, checksums, strict=True):
            store.record(Entry(cell, checksum, info))


def run_here(job: Job, target: Target, report: Report) -> None:
    """Compute the missing blocks in this process, with its threads, one block after the other."""
    todo, total = target.missing(), target.grid.count
    for number, cell in enumerate(todo):
        report(total - len(todo) + number, total, lambda cell=cell: f"block {cell}")  # type: ignore[misc]
        target.put(cell, *job.compute(cell))
    report(total, total, lambda: "")


__all__ = ["InMemory", "OnDisk", "Target", "run_here"]
