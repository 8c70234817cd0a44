"""Kernels of any size: in memory in one piece, otherwise block by block, on disk or on a cluster. The same numbers."""

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
from notsodeep.models.evaluation import fill_kernels
from notsodeep.models.protocol import Model, Samples
from notsodeep.progress import Report, reported
from notsodeep.results import KernelInfo
from notsodeep.scale.cluster import Workers, connected, run_on_cluster, sent_bytes, workers_of
from notsodeep.scale.drivers import InMemory, OnDisk, run_here
from notsodeep.scale.kernel_jobs import STORAGES, Job, check_block, description, fitting_block, make_job
from notsodeep.scale.sample_sources import Rows, is_elsewhere, rows_of, sample_size, survey
from notsodeep.scale.store import block_of, open_store
from notsodeep.scale.stored import StoredKernel
from notsodeep.validation import one_of


@dataclass(frozen=True)
class ComputeOptions:
    """How kernels are computed and where they go; what they are does not depend on it.

    Attributes:
        out: a folder for the kernel, or None for memory.
        client: None, a `distributed.Client`, an address, "threads" or a number of processes.
        max_memory: what the process, or with a client each worker, may hold.
        storage: the precision that is kept.
        block: rows and columns of a block; chosen by memory if not given.
        progress: True for a bar on stderr, or a function that is told of each block or tile.
    """

    out: str | Path | None = None
    client: Any = None
    max_memory: str | int | None = None
    storage: str = "float64"
    block: int | None = None
    progress: bool | Report = False

    def in_memory(self, X: Any, Y: Any) -> bool:
        """Whether one pass over arrays in memory does it all."""
        special = (self.out, self.client, self.max_memory, self.block)
        return all(value is None for value in special) and not (
            self.storage != "float64" or is_elsewhere(X) or is_elsewhere(Y)
        )


def compute_kernels(
    model: Model, X: Any, Y: Any, kernels: tuple[Kernel, ...], options: ComputeOptions
) -> tuple[list[Any], KernelInfo]:
    """The kernels, each an array or a `StoredKernel`, and their evidence.

    Arrays in memory go through in one piece; everything else block by block.
    """
    with reported(options.progress, "kernel") as report:
        if options.in_memory(X, Y):
            return _whole(model, X, Y, kernels, report)
        return _by_blocks(model, X, Y, kernels, options, report)


def _whole(
    model: Model, X: Any, Y: Any, kernels: tuple[Kernel, ...], report: Report
) -> tuple[list[Any], KernelInfo]:
    left = model.check_samples(X)
    right = None if Y is None else model.check_samples(Y, "Y")
    _check_same_shape(left.shape, None if right is None else right.shape)
    sides = Samples(left), None if right is None else Samples(right)
    return fill_kernels(model.prepare(*sides, kernels), kernels, symmetric=right is None, report=report)


def _by_blocks(
    model: Model, X: Any, Y: Any, kernels: tuple[Kernel, ...], options: ComputeOptions, report: Report
) -> tuple[list[Any], KernelInfo]:
    one_of(options.storage, STORAGES, "storage")
    paths = _paths(options.out, kernels)
    with ExitStack() as stack:
        store, sent = None if paths is None else paths[0], options.client is not None
        left = stack.enter_context(rows_of(X, out=store, sent=sent))
        right = None if Y is None else stack.enter_context(rows_of(Y, "Y", out=store, sent=sent))
        model.check_samples(left.read(slice(0, 1)))
        _check_same_shape(left.shape, None if right is None else right.shape)
        client = None if options.client is None else stack.enter_context(connected(options.client))
        job, fingerprints = _job(model, kernels, (left, right), options, paths, client)
        if paths is None:
            target = InMemory(job.grid, job.storage, len(kernels))
            _run(job, target, client, report)
            return list(target.matrices), target.info
        with ExitStack() as opened:
            stores = [
                opened.enter_context(open_store(path, description(job, kernel, fingerprints)))
                for path, kernel in zip(paths, kernels, strict=True)
            ]
            _run(job, OnDisk(stores), client, report)
        # What the run has found sound or written itself is not read once more to be verified.
        found = [StoredKernel(store.path, store.repaired, store.finished) for store in stores]
        return list(found), reduce(KernelInfo.merge, (kernel.info for kernel in found))


def _paths(out: str | Path | None, kernels: tuple[Kernel, ...]) -> list[Path] | None:
    """The folder of each kernel: `out` itself for one kernel, folders of their names inside of it for several."""
    if out is None:
        return None
    return [Path(out)] if len(kernels) == 1 else [Path(out) / f"{kernel}.zarr" for kernel in kernels]


def _run(job: Job, target: InMemory | OnDisk, client: Any, report: Report) -> None:
    if client is None:
        run_here(job, target, report)
    else:
        run_on_cluster(job, target, client, report)


def _job(
    model: Model,
    kernels: tuple[Kernel, ...],
    sides: tuple[Rows, Rows | None],
    options: ComputeOptions,
    paths: list[Path] | None,
    client: Any,
) -> tuple[Job, tuple[str, str | None]]:
    """The job, its blocks as large as memory allows (or as the store has them), and the hashes of the samples."""
    left, right = sides
    surveys = survey(left, model), None if right is None else survey(right, model, "Y")
    n, p = left.shape[0], sample_size(left)
    columns = n if right is None else right.shape[0]
    workers = _workers(sides, options, client)
    spare = workers.budget // len(kernels)
    if paths is None:
        here = _beside_output(n, columns, len(kernels), options)
        spare = here if client is None else spare
    wanted = options.block
    if wanted is None and paths is not None:
        wanted = block_of(paths[0])
    if wanted is None:
        block = fitting_block(spare, max(n, columns), p, options.storage, workers.count)
    else:
        block = check_block(wanted, spare, p, options.storage)
    job = make_job(model, kernels, sides, surveys, block, options.storage)
    return job, (surveys[0].fingerprint, None if surveys[1] is None else surveys[1].fingerprint)


def _workers(sides: tuple[Rows, Rows | None], options: ComputeOptions, client: Any) -> Workers:
    if client is None:
        return Workers(1, budget(options.max_memory))
    return workers_of(client, sent_bytes([side for side in sides if side is not None]), options.max_memory)


def _beside_output(n: int, columns: int, kernels: int, options: ComputeOptions) -> int:
    """What is left for blocks beside the whole matrices."""
    spare, size = budget(options.max_memory), kernels * n * columns * np.dtype(options.storage).itemsize
    if size > spare:
        raise InputError(
            f"The {n} × {columns} kernel takes {in_words(size)}, and {in_words(max(spare, 0))} are free for it. Give "
            "a folder, out='G.zarr': then it goes to the disk, and n × n is never held."
        )
    return (spare - size) // kernels


def _check_same_shape(left: tuple[int, ...], right: tuple[int, ...] | None) -> None:
    if right is None or left[1:] == right[1:]:
        return
    if len(left) == len(right) == 2:
        raise InputError(f"Y has {right[1]} features and X has {left[1]}; they must be the same.")
    raise InputError(
        f"A sample of Y has the shape {right[1:]} and one of X {left[1:]}; they must be the same."
    )


__all__ = ["ComputeOptions", "compute_kernels"]
