"""All tiles of a kernel matrix through the program of a model."""

from __future__ import annotations

from functools import cache

import numpy as np

from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import Model, Samples
from notsodeep.models.tile_moves import mirror_lower, put_tile
from notsodeep.models.tiling import TILE, announce_compilation, for_each_tile
from notsodeep.progress import Report, silent
from notsodeep.results import KernelInfo
from notsodeep.validation import Array


def evaluate_kernels(
    model: Model,
    kernels: tuple[Kernel, ...],
    left: Samples,
    right: Samples | None = None,
    report: Report = silent,
) -> tuple[list[Array], KernelInfo]:
    """Kernels of the samples `left` with the samples `right` as whole matrices, and how they were obtained.

    Args:
        model: any model.
        kernels: the kernels that are wanted.
        left: samples of the rows.
        right: samples of the columns; None for the symmetric kernels of `left` with itself.
        report: called for each tile.
    """
    _announce_once()
    symmetric = right is None
    program = model.prepare(left, right, kernels)
    start = program.start()
    # The first kernel takes the place of what the program starts from.
    outputs = [start, *(np.empty_like(start) for _ in kernels[1:])]

    def work(rows: slice, columns: slice) -> KernelInfo:
        diagonal = symmetric and rows == columns
        entries = start[rows, columns].copy()
        if diagonal:
            # A matrix product need not be symmetric to the last bit.
            mirror_lower(entries)
        tile = program.tile(entries, rows, columns, diagonal=diagonal)
        for output, name in zip(outputs, kernels, strict=True):
            put_tile(tile.kernel(name), output, rows.start, columns.start, symmetric and not diagonal)
        return tile.info

    # Pairs of images take a thousand times as long as pairs of rows: their programs ask for small tiles.
    side = getattr(program, "tile_side", TILE)
    info = for_each_tile(work, *start.shape, symmetric=symmetric, report=report, side=side)
    return outputs, info


__all__ = ["evaluate_kernels"]


@cache
def _announce_once() -> bool:
    return announce_compilation()
