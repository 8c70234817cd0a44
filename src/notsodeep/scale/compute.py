"""Kernels of any size: small ones in memory in one piece, others block by block, on disk or on a cluster."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.kernel_names import Kernel
from notsodeep.memory import budget, in_words
from notsodeep.models.evaluation import evaluate_kernels
from notsodeep.models.protocol import Model, Samples
from notsodeep.progress import Report, reported
from notsodeep.results import KernelInfo
from notsodeep.scale.cluster import connected, run_on_cluster, sent_bytes, tasks_and_memory
from notsodeep.scale.kernel_jobs import STORAGES, Job, choose_block, make_job
from notsodeep.scale.sample_sources import Rows, is_out_of_core, rows_of, survey
from notsodeep.scale.store import InMemory, OnDisk, Target, block_of, open_store
from notsodeep.scale.stored import StoredKernel
from notsodeep.validation import one_of


@dataclass(frozen=True)
class ComputeOptions:
    """How kernels are computed and where they are stored; only `tolerance` changes the numbers.

    The attributes are the arguments of `notsodeep.conjugate_kernel` with the same names.
    """

    out: str | Path | None = None
    client: Any = None
    max_memory: str | int | None = None
    storage: str = "float64"
    block: int | None = None
    progress: bool | Report = False
    tolerance: float | None = None

    def in_memory(self, X: Any, Y: Any) -> bool:
        """Whether the whole kernel is computed at once, from arrays in memory."""
        special = (self.out, self.client, self.max_memory, self.block)
        return all(value is None for value in special) and not (
            self.storage != "float64" or is_out_of_core(X) or is_out_of_core(Y)
        )


def compute_kernels(
    model: Model, X: Any, Y: Any, kernels: tuple[Kernel, ...], options: ComputeOptions
) -> tuple[list[Any], KernelInfo]:
    """Compute kernels, each an array or a `StoredKernel`, and their evidence.

    Arrays in memory are computed in one piece, everything else block by block.
    """
    with reported(options.progress, "kernel") as report:
        if options.in_memory(X, Y):
            return _whole(model, X, Y, kernels, options.tolerance, report)
        return _by_blocks(model, X, Y, kernels, options, report)


def _whole(
    model: Model, X: Any, Y: Any, kernels: tuple[Kernel, ...], tolerance: float | None, report: Report
) -> tuple[list[Any], KernelInfo]:
    left = model.check_samples(X)
    right = None if Y is None else model.check_samples(Y, "Y")
    _check_same_shape(left.shape, None if right is None else right.shape)
    sides = Samples(left), None if right is None else Samples(right)
    return evaluate_kernels(model, kernels, *sides, report, tolerance)


def _by_blocks(
    model: Model, X: Any, Y: Any, kernels: tuple[Kernel, ...], options: ComputeOptions, report: Report
) -> tuple[list[Any], KernelInfo]:
    one_of(options.storage, STORAGES, "storage")
    paths = _paths(options.out, kernels)
    with ExitStack() as stack:
        store, sent = paths[0] if paths else None, options.client is not None
        left = stack.enter_context(rows_of(X, out=store, sent=sent))
        right = None if Y is None else stack.enter_context(rows_of(Y, "Y", out=store, sent=sent))
        model.check_samples(left.read(slice(0, 1)))
        _check_same_shape(left.shape, None if right is None else right.shape)
        client = None if options.client is None else stack.enter_context(connected(options.client))
        job = _job(model, kernels, left, right, options, store, client)
        if not paths:
            target = InMemory(job.grid, job.storage, len(kernels))
            _run(job, target, client, report)
            return list(target.matrices), target.info
        with ExitStack() as opened:
            stores = [
                opened.enter_context(open_store(path, job.describe(kernel)))
                for path, kernel in zip(paths, kernels, strict=True)
            ]
            _run(job, OnDisk(stores), client, report)
        # Blocks that the run has verified or written itself are not verified once more when they are read.
        stored = [StoredKernel(store.path, store.repaired, store.finished) for store in stores]
        return list(stored), reduce(KernelInfo.merge, (kernel.info for kernel in stored))


def _paths(out: str | Path | None, kernels: tuple[Kernel, ...]) -> list[Path]:
    """The folder of each kernel: `out` itself for one kernel, folders with their names inside of it for several."""
    if out is None:
        return []
    return [Path(out)] if len(kernels) == 1 else [Path(out) / f"{kernel}.zarr" for kernel in kernels]


def _run(job: Job, target: Target, client: Any, report: Report) -> None:
    """Compute the missing blocks, on the workers of a client or with the threads of this process."""
    if client is not None:
        run_on_cluster(job, target, client, report)
        return
    todo, total = target.missing(), target.grid.count
    for number, cell in enumerate(todo):
        report(total - len(todo) + number, total, lambda cell=cell: f"block {cell}")  # type: ignore[misc]
        target.put(cell, *job.compute(cell))
    report(total, total, lambda: "")


def _job(
    model: Model,
    kernels: tuple[Kernel, ...],
    left: Rows,
    right: Rows | None,
    options: ComputeOptions,
    store: Path | None,
    client: Any,
) -> Job:
    """Construct the job, with blocks as large as memory allows, or as the store has them."""
    surveyed = survey(left, model), None if right is None else survey(right, model, "Y")
    n, p = left.shape[0], surveyed[0].size
    columns = n if right is None else right.shape[0]
    workers, spare = 1, budget(options.max_memory) if client is None else 0
    if client is not None:
        workers, spare = tasks_and_memory(client, sent_bytes(left, right), options.max_memory)
    if store is None:
        beside = _beside_output(n, columns, len(kernels), options)
        spare = beside if client is None else spare
    spare //= len(kernels)
    given = options.block
    if given is None and store is not None:
        given = block_of(store)
    block = choose_block(given, spare, max(n, columns), p, options.storage, workers)
    return make_job(
        model, kernels, *surveyed, block=block, storage=options.storage, tolerance=options.tolerance
    )


def _beside_output(n: int, columns: int, kernels: int, options: ComputeOptions) -> int:
    """Compute the bytes that are left for blocks beside the whole matrices."""
    spare, size = budget(options.max_memory), kernels * n * columns * np.dtype(options.storage).itemsize
    if size > spare:
        raise InputError(
            f"The {n} × {columns} kernel takes {in_words(size)}; {in_words(max(spare, 0))} is free. Give a folder, "
            "out='G.zarr', to keep it on disk."
        )
    return spare - size


def _check_same_shape(left: tuple[int, ...], right: tuple[int, ...] | None) -> None:
    if right is None or left[1:] == right[1:]:
        return
    if len(left) == len(right) == 2:
        raise InputError(f"Y has {right[1]} features and X has {left[1]}; they must be the same.")
    raise InputError(
        f"A sample of Y has the shape {right[1:]} and one of X {left[1:]}; they must be the same."
    )
