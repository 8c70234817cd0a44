"""Run tasks in this process or in several, and return the rows and the time of each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import EXTRA_OF, missing
from notsodeep_lab.papers.experiment import Experiment, Row, Task
from notsodeep_lab.papers.experiment_settings import Spec

# Numerical libraries read these when they are loaded: processes that share the cores use one thread each.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Done:
    """The results of a finished task."""

    task: Task
    rows: list[Row]
    seconds: float


def run_tasks(
    experiment: Experiment[Any], spec: Spec, tasks: Sequence[Task], data_dir: Path | None, *, jobs: int
) -> Iterator[Done]:
    """Run tasks and yield their results as they finish: here if `jobs` is 1, else in `jobs` single-threaded processes.

    The last digits of rows may depend on `jobs`, because the number of threads changes the order of sums.

    Raises:
        InputError, ConvergenceError: if a task raises one; the message names the task.
        RuntimeError: for any other error of a task, with its traceback.
    """
    if jobs == 1:
        for task in tasks:
            yield _run_task(experiment, spec, task, data_dir)
    elif tasks:
        yield from _run_in_processes(experiment, spec, tasks, data_dir, min(jobs, len(tasks)))


def _run_task(experiment: Experiment[Any], spec: Spec, task: Task, data_dir: Path | None) -> Done:
    """Run one task; its errors name the task and can be pickled."""
    start, name = time.perf_counter(), f"Task {task.key!r}:"
    try:
        return Done(task, experiment.run(spec, task, data_dir), time.perf_counter() - start)
    except ConvergenceError as error:
        raise ConvergenceError(f"{name} {error.args[0]}", error.remedy) from None
    except InputError as error:
        raise InputError(f"{name} {error}") from None
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRA_OF:
            raise InputError(f"{name} {missing(error.name, 'The experiment')}") from None
        raise RuntimeError(f"{name} {traceback.format_exc()}") from None


def _run_in_processes(
    experiment: Experiment[Any], spec: Spec, tasks: Sequence[Task], data_dir: Path | None, jobs: int
) -> Iterator[Done]:
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, context, _prepare_worker, (theirs,))
    with _interrupt_event() as interrupted, ExitStack() as stack:
        stack.callback(pool.shutdown, cancel_futures=True)
        # Callbacks run in reverse order: workers exit when the pipe closes, so that the shutdown does not wait.
        stack.callback(ours.close)
        # Workers start when tasks are submitted, and inherit that Ctrl-C is ignored: it is for this process alone.
        with _environment(_ONE_THREAD), _interrupts(signal.SIG_IGN):
            pending = {pool.submit(_run_task, experiment, spec, task, data_dir) for task in tasks}
        while pending:
            ended, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            try:
                # Successful tasks first, so that a failure does not lose them.
                for future in sorted(ended, key=lambda future: future.exception() is not None):
                    yield future.result()
            except BrokenProcessPool:
                raise InputError(
                    f"One of the {jobs} processes was killed by the system, most likely for lack of memory. Finished "
                    "tasks are kept: run the same command again with fewer --jobs."
                ) from None
            if interrupted.is_set():
                raise KeyboardInterrupt


def _prepare_worker(line: Connection) -> None:
    """Make a worker exit when its parent closes the pipe or dies."""
    # On Windows, ignored signals are not inherited.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        line.poll(None)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def _interrupt_event() -> Iterator[threading.Event]:
    """Set an event on Ctrl-C instead of raising an exception.

    An exception raised inside a destructor is dropped by Python, and the workers would continue.
    """
    noted = threading.Event()
    with _interrupts(lambda *_: noted.set()):
        yield noted


@contextmanager
def _interrupts(handler: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    """Handle Ctrl-C with this handler, in the main thread; other threads cannot set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started inside the block."""
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
