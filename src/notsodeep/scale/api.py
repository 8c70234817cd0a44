"""The exact kernels at any size: in memory, on disk, on a cluster. Same signature, same numbers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep import kernels
from notsodeep.errors import InputError
from notsodeep.kernels.api import CONJUGATE, TANGENT, Model, check_model, tangent_reading
from notsodeep.memory import budget, in_words
from notsodeep.progress import Report, reported
from notsodeep.scale.cluster import Workers, connected, run_on_cluster, sent_bytes, workers_of
from notsodeep.scale.drivers import InMemory, OnDisk, run_here
from notsodeep.scale.jobs import STORAGES, Job, check_block, description, fitting_block, make_job
from notsodeep.scale.rows import Rows, is_elsewhere, rows_of, survey
from notsodeep.scale.store import block_of, open_store
from notsodeep.scale.stored import StoredKernel
from notsodeep.validation import one_of


@dataclass(frozen=True)
class Means:
    """How a kernel is computed and where it goes; what it is does not depend on it.

    Attributes:
        out: a folder for the kernel, or None for memory.
        client: None, a `distributed.Client`, an address, "threads" or a number of processes.
        max_memory: what the process, or with a client each worker, may hold.
        storage: the precision that is kept.
        block: rows and columns of a block; chosen by memory if not given.
        progress: True for a bar on stderr, or a function that is told of each block.
    """

    out: str | Path | None = None
    client: Any = None
    max_memory: str | int | None = None
    storage: str = "float64"
    block: int | None = None
    progress: bool | Report = False

    def are_plain(self, X: Any, Y: Any) -> bool:
        """Whether the functions of memory do it all."""
        special = (self.out, self.client, self.max_memory, self.block)
        return all(value is None for value in special) and not (
            self.storage != "float64" or is_elsewhere(X) or is_elsewhere(Y)
        )


def conjugate_kernel(
    model: Model,
    X: Any,
    Y: Any = None,
    of: str = "features",
    *,
    depth: int | None = None,
    return_info: bool = False,
    out: str | Path | None = None,
    client: Any = None,
    max_memory: str | int | None = None,
    storage: str = "float64",
    block: int | None = None,
    progress: bool | Report = False,
) -> Any:
    """The conjugate kernel of an infinitely wide network, docs/theory.md (3.3) and (3.11).

    Args:
        model: a DEQ (infinite depth unless `depth` is given) or an Explicit network.
        X: samples in rows (n, p): an array, an np.memmap, a zarr array or a dask array.
        Y: other samples (k, p) for the rectangular kernel; X itself if not given.
        of: "features" is ⟨z_i, z_j⟩; "preactivations" is Λ, what enters the activation.
        depth: cut the DEQ after this many layers whose weights are not tied, (3.12).
        return_info: also return the evidence: iterations, residual and error bound.
        out: a folder (G.zarr) that the kernel is written to, block by block, the lower half only. A run that was
            interrupted goes on where it stopped when it is called again.
        client: who computes: None is this process; "threads"; a number of processes on this machine; the address of
            a `distributed` scheduler; a `distributed.Client`.
        max_memory: what the process (with a client: each worker) may hold in all, "4GB"; if not given, blocks take
            half of what is free.
        storage: "float64" or "float32", the precision kept; blocks are always computed in float64.
        block: rows and columns of a block; chosen by memory if not given.
        progress: True for a bar on stderr, or a function (see `notsodeep.progress`) that is told of each block, or of
            each tile where the whole kernel is computed in memory.

    Returns:
        The kernel (n, n) or (n, k) as an array, or as a `StoredKernel` where `out` is given; and a `KernelInfo` if
        asked for.
    """
    means = Means(out, client, max_memory, storage, block, progress)
    if means.are_plain(X, Y):
        return kernels.conjugate_kernel(
            model, X, Y, of, depth=depth, return_info=return_info, progress=progress
        )
    kernel, info = compute(model, X, Y, one_of(of, CONJUGATE, "of"), depth, means)
    return (kernel, info) if return_info else kernel


def tangent_kernel(
    model: Model,
    X: Any,
    Y: Any = None,
    of: str = "network",
    *,
    depth: int | None = None,
    return_info: bool = False,
    out: str | Path | None = None,
    client: Any = None,
    max_memory: str | int | None = None,
    storage: str = "float64",
    block: int | None = None,
    progress: bool | Report = False,
) -> Any:
    """The neural tangent kernel of an infinitely wide network, docs/theory.md (3.8) to (3.12).

    Args:
        model: a DEQ (infinite depth unless `depth` is given) or an Explicit network.
        X: samples in rows (n, p): an array, an np.memmap, a zarr array or a dask array.
        Y: other samples (k, p) for the rectangular kernel; X itself if not given.
        of: "network" is the NTK of f = ⟨a, z⟩ with all weights trained, the true one; "paper" is G/(1 - σ_a² D) as
            the papers define it; "preactivations" is Λ/(1 - σ_a² D).
        depth: cut the DEQ after this many layers whose weights are not tied.
        return_info: also return the evidence: iterations, residual and error bound.
        out: a folder for the kernel, see `conjugate_kernel`; so are the arguments that follow.
        client: who computes.
        max_memory: what the process may hold in all.
        storage: "float64" or "float32".
        block: rows and columns of a block.
        progress: True for a bar, or a function.

    Returns:
        The kernel (n, n) or (n, k) as an array, or as a `StoredKernel` where `out` is given; and a `KernelInfo` if
        asked for.
    """
    means = Means(out, client, max_memory, storage, block, progress)
    if means.are_plain(X, Y):
        return kernels.tangent_kernel(
            model, X, Y, of, depth=depth, return_info=return_info, progress=progress
        )
    kernel, info = compute(model, X, Y, tangent_reading(one_of(of, TANGENT, "of")), depth, means)
    return (kernel, info) if return_info else kernel


def compute(model: Model, X: Any, Y: Any, reading: str, depth: int | None, means: Means) -> tuple[Any, Any]:
    """The kernel and its evidence, by the given means."""
    check_model(model, depth)
    one_of(means.storage, STORAGES, "storage")
    path = None if means.out is None else Path(means.out)
    with ExitStack() as stack:
        sent = means.client is not None
        left = stack.enter_context(rows_of(X, out=path, sent=sent))
        right = None if Y is None else stack.enter_context(rows_of(Y, "Y", out=path, sent=sent))
        _check_features(left, right)
        client = None if means.client is None else stack.enter_context(connected(means.client))
        job, described = _job(model, reading, depth, (left, right), means, path, client)
        report = stack.enter_context(reported(means.progress, "kernel"))
        if path is None:
            target = InMemory(job.grid, job.storage)
            _run(job, target, client, report)
            return target.matrix, target.info
        with open_store(path, described) as store:
            _run(job, OnDisk(store), client, report)
        # What the run has found sound or written itself is not read once more to be verified.
        kernel = StoredKernel(path, store.repaired, store.finished)
        return kernel, kernel.info


def _run(job: Job, target: InMemory | OnDisk, client: Any, report: Report) -> None:
    if client is None:
        run_here(job, target, report)
    else:
        run_on_cluster(job, target, client, report)


def _job(
    model: Model,
    reading: str,
    depth: int | None,
    sides: tuple[Rows, Rows | None],
    means: Means,
    path: Path | None,
    client: Any,
) -> tuple[Job, dict[str, Any]]:
    """The job, its blocks as large as memory allows (or as the store has them), and its description."""
    left, right = sides
    surveys = survey(left), None if right is None else survey(right, "Y")
    n, p = left.shape
    columns = n if right is None else right.shape[0]
    workers = _workers(sides, means, client)
    spare = workers.budget
    if path is None:
        here = _beside_output(n, columns, means)
        spare = here if client is None else spare
    wanted = means.block if means.block is not None else None if path is None else block_of(path)
    if wanted is None:
        block = fitting_block(spare, max(n, columns), p, means.storage, workers.count)
    else:
        block = check_block(wanted, spare, p, means.storage)
    job = make_job(model, reading, depth, sides, surveys, block, means.storage)
    fingerprints = surveys[0].fingerprint, None if surveys[1] is None else surveys[1].fingerprint
    return job, description(job, fingerprints)


def _workers(sides: tuple[Rows, Rows | None], means: Means, client: Any) -> Workers:
    if client is None:
        return Workers(1, budget(means.max_memory))
    return workers_of(client, sent_bytes([side for side in sides if side is not None]), means.max_memory)


def _beside_output(n: int, columns: int, means: Means) -> int:
    """What is left for blocks beside the whole matrix."""
    spare, size = budget(means.max_memory), n * columns * np.dtype(means.storage).itemsize
    if size > spare:
        raise InputError(
            f"The {n} × {columns} kernel takes {in_words(size)}, and {in_words(max(spare, 0))} are free for it. Give "
            "a folder, out='G.zarr': then it goes to the disk, and n × n is never held."
        )
    return spare - size


def _check_features(left: Rows, right: Rows | None) -> None:
    if right is not None and right.shape[1] != left.shape[1]:
        raise InputError(f"Y has {right.shape[1]} features and X has {left.shape[1]}; they must be the same.")


__all__ = ["Means", "compute", "conjugate_kernel", "tangent_kernel"]
