"""Tasks through one process or several: each gives its rows and its time, or says why it failed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.experiments.base import Experiment, Row, Spec, Task

# Read by the numerical libraries when they are loaded: processes that share the cores take one thread each.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Done:
    """A task that ended well."""

    task: Task
    rows: list[Row]
    seconds: float


@dataclass(frozen=True)
class _Failed:
    """Why a task did not: as text, since not every exception finds its way out of another process."""

    task: Task
    kind: type[Exception]
    problem: str
    remedy: str | None = None


def run_tasks(
    experiment: Experiment[Any], spec: Spec, tasks: Sequence[Task], data_dir: Path | None, *, jobs: int
) -> Iterator[Done]:
    """The tasks as they end: in this process if `jobs` is 1, else in so many spawned ones of one thread each.

    Sums come out in another order with another number of threads, so the last digits of rows may depend on `jobs`.

    Raises:
        InputError, ConvergenceError: what a task raised, with its name.
        RuntimeError: any other error of a task, with its traceback.
    """
    if jobs == 1:
        for task in tasks:
            yield _raised(_attempt(experiment, spec, task, data_dir))
    elif tasks:
        yield from _run_in_processes(experiment, spec, tasks, data_dir, min(jobs, len(tasks)))


def _attempt(experiment: Experiment[Any], spec: Spec, task: Task, data_dir: Path | None) -> Done | _Failed:
    start = time.perf_counter()
    try:
        return Done(task, experiment.run(spec, task, data_dir), time.perf_counter() - start)
    except ConvergenceError as error:
        return _Failed(task, ConvergenceError, str(error).removesuffix(error.remedy).strip(), error.remedy)
    except InputError as error:
        return _Failed(task, InputError, str(error))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            return _Failed(task, RuntimeError, traceback.format_exc())
        return _Failed(task, InputError, "PyTorch is needed. Install it with: pip install 'notsodeep[torch]'")
    except Exception:
        return _Failed(task, RuntimeError, traceback.format_exc())


def _raised(result: Done | _Failed) -> Done:
    if isinstance(result, Done):
        return result
    problem = f"Task {result.task.key!r}: {result.problem}"
    raise result.kind(problem) if result.remedy is None else result.kind(problem, result.remedy)


def _run_in_processes(
    experiment: Experiment[Any], spec: Spec, tasks: Sequence[Task], data_dir: Path | None, jobs: int
) -> Iterator[Done]:
    with _pool(jobs) as pool:
        waiting = [pool.submit(_attempt, experiment, spec, task, data_dir) for task in tasks]
        try:
            for future in as_completed(list(waiting)):
                waiting.remove(future)
                yield _raised(future.result())
        except KeyboardInterrupt:
            yield from _ended_well(waiting)
            raise
        except BrokenProcessPool:
            raise InputError(
                f"One of the {jobs} processes was ended by the system, most likely for want of memory. What was "
                "finished is kept: run the same command again with fewer --jobs."
            ) from None


def _ended_well(futures: Sequence[Future[Done | _Failed]]) -> Iterator[Done]:
    for future in futures:
        if future.done() and not future.cancelled() and future.exception() is None:
            result = future.result()
            if isinstance(result, Done):
                yield result


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, at once if it is left by an error, and with this process if it is killed."""
    context = multiprocessing.get_context("spawn")
    lifeline, held = context.Pipe(duplex=False)
    with _environment(_ONE_THREAD):
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(lifeline,))
        try:
            yield pool
            pool.shutdown()
        finally:
            held.close()
            # None after an orderly end.
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(cancel_futures=True)
            lifeline.close()


def _start_worker(lifeline: Connection) -> None:
    """Leave Ctrl-C to the process that started this one, and end when that lets go of the line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        # Nothing is ever sent: the line becomes readable when its other end is closed, by hand or by the system.
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables for the processes started inside; this process has read its own long ago."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


__all__ = ["Done", "run_tasks"]
