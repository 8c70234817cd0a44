"""All tiles of a kernel matrix through the program of a model."""

from __future__ import annotations

import numpy as np

from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import Program
from notsodeep.pairs.tiles import for_each_tile
from notsodeep.progress import Report, silent
from notsodeep.results import KernelInfo
from notsodeep.validation import Array


def fill_kernels(
    program: Program, kernels: tuple[Kernel, ...], *, symmetric: bool, report: Report = silent
) -> tuple[list[Array], KernelInfo]:
    """The wanted kernels as whole matrices, the first in place of what the program starts from, and their evidence."""
    start = program.start()
    outputs = [start, *(np.empty_like(start) for _ in kernels[1:])]

    def work(rows: slice, columns: slice) -> KernelInfo:
        diagonal = symmetric and rows == columns
        entries = start[rows, columns].copy()
        if diagonal:
            # A matrix product need not be symmetric to the last bit.
            entries = np.tril(entries) + np.tril(entries, -1).T
        tile = program.tile(entries, rows, columns, diagonal=diagonal)
        for output, name in zip(outputs, kernels, strict=True):
            part = tile.kernel(name)
            output[rows, columns] = part
            if symmetric and not diagonal:
                output[columns, rows] = part.T
        return tile.info

    info = for_each_tile(work, *start.shape, symmetric=symmetric, report=report)
    return outputs, info


__all__ = ["fill_kernels"]
