"""Blocks into memory or onto disk, computed by this process; `cluster` has the same for many processes."""

from __future__ import annotations

from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from notsodeep.progress import Report
from notsodeep.results import KernelInfo
from notsodeep.scale.blocks import Cell, Grid
from notsodeep.scale.jobs import Job
from notsodeep.scale.store import Entry, KernelStore


class Target(Protocol):
    """Where blocks go."""

    @property
    def grid(self) -> Grid:
        """Which blocks there are."""

    def missing(self) -> list[Cell]:
        """The blocks still to compute."""

    def put(self, cell: Cell, block: NDArray[Any], info: KernelInfo) -> None:
        """Take in a block."""


class InMemory:
    """The whole matrix as one array."""

    def __init__(self, grid: Grid, storage: str) -> None:
        self.grid = grid
        self.matrix = np.empty((grid.rows, grid.columns), storage)
        self._evidence: dict[Cell, KernelInfo] = {}

    @property
    def info(self) -> KernelInfo:
        """The evidence of all blocks together."""
        return reduce(KernelInfo.merge, self._evidence.values())

    def missing(self) -> list[Cell]:
        """The blocks still to compute."""
        return [cell for cell in self.grid.cells() if cell not in self._evidence]

    def put(self, cell: Cell, block: NDArray[Any], info: KernelInfo) -> None:
        """Take in a block, and its mirror image."""
        rows, columns = self.grid.slices(cell)
        self.matrix[rows, columns] = block
        if self.grid.mirrored(cell):
            self.matrix[columns, rows] = block.T
        self._evidence[cell] = info


class OnDisk:
    """A store, see `scale.store`."""

    def __init__(self, store: KernelStore) -> None:
        self.store = store

    @property
    def grid(self) -> Grid:
        """Which blocks there are."""
        return self.store.grid

    def missing(self) -> list[Cell]:
        """The blocks still to compute."""
        return self.store.missing()

    def put(self, cell: Cell, block: NDArray[Any], info: KernelInfo) -> None:
        """Write a block, then note it."""
        self.store.record(Entry(cell, self.store.write(cell, block), info))


def run_here(job: Job, target: Target, report: Report) -> None:
    """Compute the missing blocks in this process, with its threads, one block after the other."""
    todo, total = target.missing(), target.grid.count
    for number, cell in enumerate(todo):
        report(total - len(todo) + number, total, lambda cell=cell: f"block {cell}")  # type: ignore[misc]
        target.put(cell, *job.compute(cell))
    report(total, total, lambda: "")


__all__ = ["InMemory", "OnDisk", "Target", "run_here"]
