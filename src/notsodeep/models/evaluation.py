"""All tiles of a kernel matrix through the program of a model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import Model, Samples
from notsodeep.pairs.compiled_tiles import mirror_lower, move_rows_and_columns, put_tile
from notsodeep.pairs.tiles import TILE, announce_compilation, for_each_tile
from notsodeep.progress import Report, silent
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, IntArray


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
    left, order = _sorted(model, left)
    right, other = (None, order) if right is None else _sorted(model, right)
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
    if order is not None or other is not None:
        for output in outputs:
            _restore(output, order, other)
    return outputs, info


def _sorted(model: Model, samples: Samples) -> tuple[Samples, IntArray | None]:
    """The samples in the order that suits the model's tiles, and that order; None if any order will do."""
    wanted = getattr(model, "tile_order", None)
    order = None if wanted is None else wanted(samples)
    if order is None:
        return samples, None
    squares = None if samples.squares is None else samples.squares[order]
    return replace(samples, values=samples.values[order], squares=squares), order


def _restore(matrix: Array, rows: IntArray | None, columns: IntArray | None) -> None:
    """Bring a matrix whose rows and columns were sorted into the order of the samples, in place."""
    sources = [
        np.arange(count) if order is None else np.argsort(order)
        for order, count in zip((rows, columns), matrix.shape, strict=True)
    ]
    buffer, moved = np.empty(matrix.shape[1]), np.zeros(len(matrix), dtype=np.bool_)
    move_rows_and_columns(matrix, sources[0], sources[1], buffer, moved)


__all__ = ["evaluate_kernels"]


@cache
def _announce_once() -> bool:
    return announce_compilation()
