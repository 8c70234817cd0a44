"""Blocks from the workers of a dask cluster: threads, processes of this machine, or any `distributed` scheduler.

The samples go to the workers once, as a path where there is one, and a task is the number of a block. A worker writes
its block to the store itself and sends back a checksum, so that the network carries the samples and nothing of size n²;
only where the matrix is wanted in memory do the blocks travel. The journal is written by this process alone: a block
that two workers have computed, because the first was taken for dead, is noted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.memory import as_bytes, available_bytes
from notsodeep.progress import Report
from notsodeep.results import KernelInfo
from notsodeep.scale.blocks import Cell
from notsodeep.scale.drivers import OnDisk, Target
from notsodeep.scale.jobs import Job
from notsodeep.scale.rows import ArrayRows
from notsodeep.scale.store import BlockArray, Entry

# Samples that were lost with all workers that held them are sent again so many times without a block in between.
_ROUNDS = 3
_SECONDS_FOR_A_WORKER = 60
# Part of a worker's memory that is used: dask pauses a worker at 80 %.
_WORKER_SHARE = 0.6
# What a worker holds before any block: the interpreter, the libraries, compiled code.
_WORKER_BASE = 300 * 1000**2


@dataclass(frozen=True)
class Outcome:
    """What a task sends back: a checksum, a block, or the error that ended it, in its parts."""

    info: KernelInfo | None = None
    checksum: str | None = None
    block: NDArray[Any] | None = None
    problem: str | None = None
    remedy: str | None = None


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """A `distributed.Client` from one, from the address of a scheduler, from "threads" or from a number of processes.

    What was started here is ended here.
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
            f"client = {client!r} is none of: a distributed.Client, the address of a scheduler ('tcp://host:8786'), "
            "'threads', or a number of processes on this machine."
        )
    if local is not None:
        with (
            distributed.LocalCluster(dashboard_address=None, **local) as cluster,
            cluster.get_client() as made,
        ):
            yield made
        return
    try:
        made = distributed.Client(client, timeout=10, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"No scheduler answers at {client}: {error}. Start one (dask scheduler), or check the address."
        ) from error
    with made:
        yield made


@dataclass(frozen=True)
class Workers:
    """How many tasks a cluster runs at once, and bytes for each."""

    count: int
    budget: int


def workers_of(client: Any, job_bytes: int, max_memory: str | int | None) -> Workers:
    """What the cluster offers; `job_bytes` are the samples that every worker will hold."""
    try:
        client.wait_for_workers(1, timeout=_SECONDS_FOR_A_WORKER)
        known = list(client.scheduler_info(n_workers=-1)["workers"].values())
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"The scheduler has no workers, or is gone ({type(error).__name__}). Start some: dask worker <address>."
        ) from error
    count = sum(worker["nthreads"] for worker in known)
    return Workers(count, min(_per_task(worker, len(known), job_bytes, max_memory) for worker in known))


def _per_task(worker: Any, workers: int, job_bytes: int, max_memory: str | int | None) -> int:
    """Bytes for one task of a worker: within its own limit and the user's, less what it holds anyway."""
    limits = [int(_WORKER_SHARE * worker["memory_limit"])] if worker["memory_limit"] else []
    if max_memory is not None:
        limits.append(as_bytes(max_memory))
    limit = min(limits) if limits else available_bytes() // (2 * workers)
    return (limit - _WORKER_BASE - job_bytes) // int(worker["nthreads"])


def sent_bytes(job_rows: list[Any]) -> int:
    """Bytes of samples that travel with a job; those in files are sent as paths."""
    return sum(int(rows.array.nbytes) for rows in job_rows if isinstance(rows, ArrayRows))


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
    """Send the samples, submit every missing block, take what comes back; what is cancelled is left for the next."""
    distributed = needed("distributed", "A cluster (client=…)")
    store = target.store if isinstance(target, OnDisk) else None
    where = None if store is None else (str(store.path.absolute()), store.run)
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
            _take(outcome, cell, target)
            future.release()
    except (OSError, TimeoutError) as error:
        _refuse_dead(client, target, error)
        raise InputError(
            f"The cluster does not answer, or has no workers left ({type(error).__name__}: {error}). {_kept(target)}"
        ) from error
    finally:
        if futures and client.status == "running":
            client.cancel(list(futures))


def _take(outcome: Outcome, cell: Cell, target: Target) -> None:
    if outcome.problem is not None:
        if outcome.remedy is not None:
            raise ConvergenceError(outcome.problem.removesuffix(outcome.remedy).rstrip(), outcome.remedy)
        raise InputError(outcome.problem)
    if outcome.info is None:
        raise RuntimeError(f"The task of block {cell} sent back neither a result nor an error.")
    if isinstance(target, OnDisk) and outcome.checksum is not None:
        target.store.record(Entry(cell, outcome.checksum, outcome.info))
    elif outcome.block is not None:
        target.put(cell, outcome.block, outcome.info)


def _task(job: Job, where: tuple[str, str] | None, cell: Cell) -> Outcome:
    """On a worker: one block, written to the store if there is one, else sent back."""
    try:
        array = None if where is None else BlockArray(Path(where[0]), where[1])
        block, info = job.compute(cell)
        if array is None:
            return Outcome(info, block=block)
        return Outcome(info, checksum=array.write(cell, block))
    except ConvergenceError as error:
        return Outcome(problem=str(error), remedy=error.remedy)
    except InputError as error:
        return Outcome(problem=str(error))


def _refuse_dead(client: Any, target: Target, error: BaseException | None = None) -> None:
    if client.status == "running":
        return
    address = getattr(client.scheduler, "address", "its address") if client.scheduler else "its address"
    raise InputError(f"The scheduler at {address} is gone. {_kept(target)}") from error


def _kept(target: Target) -> str:
    total = target.grid.count
    done = total - len(target.missing())
    if isinstance(target, OnDisk):
        return f"{done} of {total} blocks are finished and kept in {target.store.path}; the same call goes on there."
    return f"{done} of {total} blocks were finished; with out='G.zarr' they would have been kept."


__all__ = ["Workers", "connected", "run_on_cluster", "sent_bytes", "workers_of"]
