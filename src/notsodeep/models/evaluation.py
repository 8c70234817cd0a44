"""All tiles of a kernel matrix through the program of a model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from inspect import signature
from typing import Any

import numpy as np

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import Model, Samples
from notsodeep.models.spot_check import RECOMPUTED, SpotCheck
from notsodeep.models.tiling import TILE, announce_compilation, for_each_tile, mirror_lower, put_tile
from notsodeep.progress import Report, silent
from notsodeep.results import KernelInfo
from notsodeep.validation import Array


def evaluate_kernels(
    model: Model,
    kernels: tuple[Kernel, ...],
    left: Samples,
    right: Samples | None = None,
    report: Report = silent,
    tolerance: float | None = None,
) -> tuple[list[Array], KernelInfo]:
    """Kernels of the samples `left` with the samples `right` as whole matrices, and how they were obtained.

    Args:
        model: any model.
        kernels: the kernels to compute.
        left: samples of the rows.
        right: samples of the columns; None for the symmetric kernels of `left` with itself.
        report: called for each tile.
        tolerance: error that models of images may leave; None for the least.
    """
    _announce_once()
    outputs, info, reason = _filled(model, kernels, left, right, report, tolerance)
    if not reason:
        return outputs, info
    outputs, again, reason = _filled(model, kernels, left, right, report, tolerance, careful=True)
    if not all(np.isfinite(output).all() for output in outputs):
        raise ConvergenceError(
            f"Entries of the kernel of {model} are not finite.",
            "Scale the samples (X / np.linalg.norm(X, axis=1).max()), or lower sigma_a2.",
        )
    if reason:
        warnings.warn(
            f"A spot check does not confirm the kernel of {model}: {reason}. Its error bound was raised.",
            stacklevel=4,
        )
        again = replace(again, error_bound=max(again.error_bound, 2.0 * again.largest_difference))
    return outputs, replace(again, recomputed=True)


def _filled(
    model: Model,
    kernels: tuple[Kernel, ...],
    left: Samples,
    right: Samples | None,
    report: Report,
    tolerance: float | None,
    *,
    careful: bool = False,
) -> tuple[list[Array], KernelInfo, str]:
    """The kernels of all tiles, how they were obtained, and what a spot check has against them."""
    symmetric = right is None
    program = _program(model, left, right, kernels, tolerance)
    if careful and hasattr(program, "integrate_all_pairs"):
        program.integrate_all_pairs()
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
        info: KernelInfo = tile.info
        return info

    # Pairs of images take a thousand times as long as pairs of rows: their programs ask for small tiles.
    side = getattr(program, "tile_side", TILE)
    info = for_each_tile(work, *start.shape, symmetric=symmetric, report=report, side=side)
    if not all(np.isfinite(output.sum()) for output in outputs):
        return outputs, info, "entries are not finite"
    return outputs, *_confirmed(getattr(program, "checks", ()), info, start.size)


def _program(
    model: Model, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...], tolerance: float | None
) -> Any:
    """The program of a model; only models of images have a tolerance."""
    if tolerance is None:
        return model.prepare(left, right, kernels)
    if "tolerance" not in signature(model.prepare).parameters:
        raise InputError(
            f"{model} has no tolerance: its kernels are computed to full accuracy. Leave `tolerance` out; it is for "
            "ConvDEQ and ConvExplicit."
        )
    return model.prepare(left, right, kernels, tolerance=tolerance)  # type: ignore[call-arg]


def _confirmed(checks: Sequence[SpotCheck], info: KernelInfo, entries: int) -> tuple[KernelInfo, str]:
    """The evidence with what a recomputation of a few pairs finds, and the reason to doubt the kernel, if any."""
    pairs = next(number for most, number in RECOMPUTED if entries <= most)
    count = -(-pairs // max(len(checks), 1))
    checked, largest, reason = 0, 0.0, ""
    for check in checks:
        differences, unexplained = check.differences(count, info.error_bound)
        checked += int(np.isfinite(differences).sum())
        largest = max(largest, float(np.nan_to_num(differences).max(initial=0.0)))
        if unexplained:
            reason = f"a difference of {largest:.1e}, the bound is {info.error_bound:.1e}"
    return replace(info, checked_pairs=checked, largest_difference=largest), reason


__all__ = ["evaluate_kernels"]


@cache
def _announce_once() -> bool:
    return announce_compilation()
