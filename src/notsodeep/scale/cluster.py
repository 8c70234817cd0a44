"""Blocks from the workers of a dask cluster: threads, processes of this machine, or any `distributed` scheduler.

The samples go to the workers once, as a path where there is one, and a task is the number of a block. A worker writes
its block to the store itself and sends back a checksum, so that the network carries the samples and nothing of size n²;
blocks are sent only if the matrix is to be in memory. The journal is written by this process alone: a block
that two workers have computed, because the first was presumed dead, is recorded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.memory import as_bytes, available_bytes
from notsodeep.progress import Report
from notsodeep.results import KernelInfo
from notsodeep.scale.kernel_jobs import Cell, Job
from notsodeep.scale.sample_sources import ArrayRows, Rows
from notsodeep.scale.store import BlockArray, OnDisk, Target

# How often samples that were lost with all workers are sent again before a block is finished.
_ROUNDS = 3
_SECONDS_FOR_A_WORKER = 60
# Fraction of a worker's memory that is used: dask pauses a worker at 80 %.
_WORKER_SHARE = 0.6
# Bytes that a worker holds before any block: the interpreter, the libraries, compiled code.
_WORKER_BASE = 300 * 1000**2


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Connect a `distributed.Client` during a with statement; a cluster started for it is stopped at the end.

    Args:
        client: a client, which is left open; the address of a scheduler; "threads"; or a number of processes.
    """
    distributed = needed("distributed", "A cluster (client=…)")
    if isinstance(client, distributed.Client):
        yield client
        return
    local: dict[str, Any] | None = None
    if client == "threads":
        local = {"processes": False, "n_workers": 1}
    elif isinstance(client, int) and not isinstance(client, bool) and client > 0:
        local = {"n_workers": client, "threads_per_worker": 1}
    elif not isinstance(client, str) or "://" not in client:
        raise InputError(
            f"client = {client!r} is not valid. Give a distributed.Client, the address of a scheduler "
            "('tcp://host:8786'), 'threads', or a number of processes on this machine."
        )
    if local is not None:
        with (
            distributed.LocalCluster(dashboard_address=None, **local) as cluster,
            cluster.get_client() as connection,
        ):
            yield connection
        return
    try:
        connection = distributed.Client(client, timeout=10, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"No scheduler answers at {client}: {error}. Start one (dask scheduler), or check the address."
        ) from error
    with connection:
        yield connection


def tasks_and_memory(client: Any, job_bytes: int, max_memory: str | int | None) -> tuple[int, int]:
    """Return the number of tasks that run at once, and the bytes for each beside `job_bytes` of samples per worker."""
    try:
        client.wait_for_workers(1, timeout=_SECONDS_FOR_A_WORKER)
        known = list(client.scheduler_info(n_workers=-1)["workers"].values())
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"The scheduler has no workers, or does not answer ({type(error).__name__}). Start workers: "
            "dask worker <address>."
        ) from error
    count = sum(worker["nthreads"] for worker in known)
    return count, min(_per_task(worker, len(known), job_bytes, max_memory) for worker in known)


def _per_task(worker: Any, workers: int, job_bytes: int, max_memory: str | int | None) -> int:
    """Bytes for one task of a worker: its limit or the user's, less what the worker holds in any case."""
    limits = [int(_WORKER_SHARE * worker["memory_limit"])] if worker["memory_limit"] else []
    if max_memory is not None:
        limits.append(as_bytes(max_memory))
    limit = min(limits) if limits else available_bytes() // (2 * workers)
    return (limit - _WORKER_BASE - job_bytes) // int(worker["nthreads"])


def sent_bytes(*sources: Rows | None) -> int:
    """Bytes of samples that are sent to every worker; of samples in files only the path is."""
    return sum(int(rows.array.nbytes) for rows in sources if isinstance(rows, ArrayRows))


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
