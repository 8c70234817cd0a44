"""Kernels of any size: small ones in memory in one piece, others block by block, on disk or on a cluster.

A dask cluster is threads, processes of this machine, or any `distributed` scheduler. The samples go to its workers
once, as a path where there is one, and a task is the number of a block. A worker writes its block to the store itself
and sends back a checksum, so that the network carries the samples and nothing of size n²; blocks are sent only if the
matrix is to be in memory. The journal is written by this process alone: a block that two workers have computed, because
the first was presumed dead, is recorded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.kernel_names import Kernel
from notsodeep.memory import as_bytes, available_bytes, budget, in_words
from notsodeep.models.evaluation import evaluate_kernels
from notsodeep.models.protocol import Model, Samples
from notsodeep.progress import Report, reported
from notsodeep.results import KernelInfo
from notsodeep.scale.kernel_jobs import STORAGES, Cell, Job, choose_block
from notsodeep.scale.sample_sources import ArrayRows, SurveyedRows, is_out_of_core, rows_of, survey
from notsodeep.scale.store import BlockArray, InMemory, OnDisk, Target, block_of, open_store
from notsodeep.scale.stored import StoredKernel
from notsodeep.validation import one_of

# How often samples that were lost with all workers are sent again before a block is finished.
_ROUNDS = 3
_SECONDS_FOR_A_WORKER = 60
# Fraction of a worker's memory that is used: dask pauses a worker at 80 %.
_WORKER_SHARE = 0.6
# Bytes that a worker holds before any block: the interpreter, the libraries, compiled code.
_WORKER_BASE = 300 * 1000**2


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
    progress: bool | Report = True
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
        if not options.in_memory(X, Y):
            return _by_blocks(model, X, Y, kernels, options, report)
        left = model.check_samples(X)
        right = None if Y is None else model.check_samples(Y, "Y")
        _check_same_shape(left.shape, None if right is None else right.shape)
        sides = Samples(left), None if right is None else Samples(right)
        return evaluate_kernels(model, kernels, *sides, report, options.tolerance)


def _by_blocks(
    model: Model, X: Any, Y: Any, kernels: tuple[Kernel, ...], options: ComputeOptions, report: Report
) -> tuple[list[Any], KernelInfo]:
    one_of(options.storage, STORAGES, "storage")
    paths: list[Path] = []
    if options.out is not None:
        # Several kernels have folders with their names inside of `out`.
        out = Path(options.out)
        paths = [out] if len(kernels) == 1 else [out / f"{kernel}.zarr" for kernel in kernels]
    with ExitStack() as stack:
        store, sent = paths[0] if paths else None, options.client is not None
        left = stack.enter_context(rows_of(X, out=store, sent=sent))
        right = None if Y is None else stack.enter_context(rows_of(Y, "Y", out=store, sent=sent))
        model.check_samples(left.read(slice(0, 1)))
        _check_same_shape(left.shape, None if right is None else right.shape)
        client = None if options.client is None else stack.enter_context(connected(options.client))
        samples = survey(left, model), None if right is None else survey(right, model, "Y")
        block = _block_size(*samples, len(kernels), options, store, client)
        job = Job(model, kernels, *samples, block, options.storage, options.tolerance)
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


def _block_size(
    left: SurveyedRows,
    right: SurveyedRows | None,
    kernels: int,
    options: ComputeOptions,
    store: Path | None,
    client: Any,
) -> int:
    """Choose blocks as large as memory allows, or as the store has them."""
    columns = (right or left).count
    free, workers = 0, 1
    if store is None or client is None:
        free = budget(options.max_memory)
    if store is None:
        size = kernels * left.count * columns * np.dtype(options.storage).itemsize
        if size > free:
            raise InputError(
                f"The {left.count} × {columns} kernel takes {in_words(size)}; {in_words(max(free, 0))} is free. Give "
                "a folder, out='G.zarr', to keep it on disk."
            )
        free -= size
    if client is not None:
        # Samples in memory are sent to every worker, of those in files only the path.
        sources = [one.rows for one in (left, right) if one is not None]
        sent = sum(int(rows.array.nbytes) for rows in sources if isinstance(rows, ArrayRows))
        workers, free = _tasks_and_memory(client, sent, options.max_memory)
    given = options.block
    if given is None and store is not None:
        given = block_of(store)
    return choose_block(given, free // kernels, max(left.count, columns), left.size, options.storage, workers)


def _check_same_shape(left: tuple[int, ...], right: tuple[int, ...] | None) -> None:
    if right is None or left[1:] == right[1:]:
        return
    if len(left) == len(right) == 2:
        raise InputError(f"Y has {right[1]} features and X has {left[1]}; they must be the same.")
    raise InputError(
        f"A sample of Y has the shape {right[1:]} and one of X {left[1:]}; they must be the same."
    )


# --- on a cluster -----------------------------------------------------------------------------------------


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Connect a `distributed.Client` during a with statement; a cluster started for it is stopped at the end.

    Args:
        client: a client, which is left open; the address of a scheduler; "threads"; or a number of processes.
    """
    distributed = needed("distributed", "A cluster (client=…)")
    processes = client if isinstance(client, int) and not isinstance(client, bool) else 0
    if isinstance(client, distributed.Client):
        yield client
    elif client == "threads" or processes > 0:
        threads = {"processes": False, "n_workers": 1}
        local = {"n_workers": processes, "threads_per_worker": 1} if processes else threads
        with (
            distributed.LocalCluster(dashboard_address=None, **local) as cluster,
            cluster.get_client() as connection,
        ):
            yield connection
    elif isinstance(client, str) and "://" in client:
        try:
            connection = distributed.Client(client, timeout=10, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise InputError(
                f"No scheduler answers at {client}: {error}. Start one (dask scheduler), or check the address."
            ) from error
        with connection:
            yield connection
    else:
        raise InputError(
            f"client = {client!r} is not valid. Give a distributed.Client, the address of a scheduler "
            "('tcp://host:8786'), 'threads', or a number of processes on this machine."
        )


def _tasks_and_memory(client: Any, job_bytes: int, max_memory: str | int | None) -> tuple[int, int]:
    """Return the number of tasks that run at once, and the bytes for each beside `job_bytes` of samples per worker."""
    try:
        client.wait_for_workers(1, timeout=_SECONDS_FOR_A_WORKER)
        known = list(client.scheduler_info(n_workers=-1)["workers"].values())
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"The scheduler has no workers, or does not answer ({type(error).__name__}). Start workers: "
            "dask worker <address>."
        ) from error
    shares = []
    for worker in known:
        limits = [int(_WORKER_SHARE * worker["memory_limit"])] if worker["memory_limit"] else []
        if max_memory is not None:
            limits.append(as_bytes(max_memory))
        limit = min(limits) if limits else available_bytes() // (2 * len(known))
        shares.append((limit - _WORKER_BASE - job_bytes) // int(worker["nthreads"]))
    return sum(worker["nthreads"] for worker in known), min(shares)


def run_on_cluster(job: Job, target: Target, client: Any, report: Report) -> None:
    """Compute the missing blocks on the workers.

    Raises:
        InputError: if the scheduler is gone, or a block ends every worker that tries it; finished blocks are kept.
    """
    rounds = 0
    while target.missing():
        before = len(target.missing())
        _one_round(job, target, client, report)
        rounds = 0 if len(target.missing()) < before else rounds + 1
        if rounds == _ROUNDS:
            raise InputError(
                f"The workers lost their samples {_ROUNDS} times without finishing a block: they end as soon as they "
                f"start. See their logs. {_kept(target)}"
            )
    report(target.grid.count, target.grid.count, lambda: "")


def _one_round(job: Job, target: Target, client: Any, report: Report) -> None:
    """Send the samples, submit every missing block, store the results; cancelled blocks are left for the next round."""
    distributed = needed("distributed", "A cluster (client=…)")
    where = None
    if isinstance(target, OnDisk):
        where = [(str(store.path.absolute()), store.run) for store in target.stores]
    todo, total = target.missing(), target.grid.count
    futures: dict[Any, Cell] = {}
    try:
        client.wait_for_workers(1, timeout=_SECONDS_FOR_A_WORKER)
        # On every worker: the death of one loses nothing.
        shared = client.scatter(job, broadcast=True, hash=False)
        futures = {client.submit(_task, shared, where, cell, pure=False): cell for cell in todo}
        for number, future in enumerate(distributed.as_completed(futures, loop=client.loop)):
            cell = futures[future]
            report(total - len(todo) + number, total, lambda cell=cell: f"block {cell}")  # type: ignore[misc]
            try:
                outcome = future.result()
            except CancelledError:
                _refuse_dead(client, target)
                continue
            except distributed.scheduler.KilledWorker as error:
                raise InputError(
                    f"Block {cell} ended several workers one after the other: most likely their memory is too small. "
                    f"Give them more, or lower max_memory. {_kept(target)}"
                ) from error
            if isinstance(outcome, Exception):
                raise outcome
            target.record(cell, *outcome)
            future.release()
    except (OSError, TimeoutError) as error:
        _refuse_dead(client, target, error)
        raise InputError(
            f"The cluster does not answer, or has no workers left ({type(error).__name__}: {error}). {_kept(target)}"
        ) from error
    finally:
        if futures and client.status == "running":
            client.cancel(list(futures))


def _task(
    job: Job, where: list[tuple[str, str]] | None, cell: Cell
) -> tuple[list[Any], KernelInfo] | Exception:
    """On a worker: one block of every kernel, or its checksum if there are stores, to which it is then written.

    Our own errors are returned: raised, each would appear in the log of the worker as well.
    """
    try:
        arrays = None if where is None else [BlockArray(Path(path), run) for path, run in where]
        blocks, info = job.compute(cell)
        if arrays is None:
            return blocks, info
        return [array.write(cell, block) for array, block in zip(arrays, blocks, strict=True)], info
    except (ConvergenceError, InputError) as error:
        return error


def _refuse_dead(client: Any, target: Target, error: BaseException | None = None) -> None:
    """Raise an InputError if the scheduler is gone."""
    if client.status == "running":
        return
    address = getattr(client.scheduler, "address", "its address") if client.scheduler else "its address"
    raise InputError(f"The scheduler at {address} is gone. {_kept(target)}") from error


def _kept(target: Target) -> str:
    """The sentence of an error that says how many blocks are finished, and where they are."""
    total = target.grid.count
    done = total - len(target.missing())
    if isinstance(target, OnDisk):
        where = " and ".join(str(store.path) for store in target.stores)
        return f"{done} of {total} blocks are finished and kept in {where}; the same call continues there."
    return f"{done} of {total} blocks were finished; with out='G.zarr' they would have been kept."
