"""Tasks through one process or several: each gives its rows and its time, or says why it failed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, cast

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import EXTRA_OF, missing
from notsodeep.papers.experiment import Experiment, Row, Task
from notsodeep.papers.experiment_settings import Spec

# Read by the numerical libraries when they are loaded: processes that share the cores take one thread each.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Done:
    """The results of a finished task."""

    task: Task
    rows: list[Row]
    seconds: float


@dataclass(frozen=True)
class _Failed:
    """Why a task failed, as text: not every exception can be sent from one process to another."""

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
        if error.name not in EXTRA_OF:
            return _Failed(task, RuntimeError, traceback.format_exc())
        return _Failed(task, InputError, str(missing(error.name, "The experiment")))
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
    with _interrupt_event() as interrupted, _lines_to_workers(experiment, spec, data_dir, jobs) as idle:
        waiting, busy = deque(tasks), set[Connection]()
        while waiting or busy:
            try:
                while waiting and idle:
                    idle[-1].send(waiting.popleft())
                    busy.add(idle.pop())
                results = [(line, line.recv()) for line in _ready(busy)]
            except (EOFError, OSError):
                raise InputError(
                    f"One of the {jobs} processes was ended by the system, most likely for want of memory. What was "
                    "finished is kept: run the same command again with fewer --jobs."
                ) from None
            for line, _ in results:
                busy.remove(line)
                idle.append(line)
            # What ended well is not lost to a failure that came with it.
            for _, result in sorted(results, key=lambda pair: isinstance(pair[1], _Failed)):
                yield _raised(result)
            if interrupted.is_set():
                raise KeyboardInterrupt


def _ready(lines: Iterable[Connection]) -> list[Connection]:
    """Those with something to read, after a while maybe none: time to look for Ctrl-C."""
    return cast("list[Connection]", wait(list(lines), timeout=0.2))


@contextmanager
def _interrupt_event() -> Iterator[threading.Event]:
    """Ctrl-C sets an event instead of raising an exception.

    The exception can fall anywhere, into a destructor too, where Python drops it: then nobody would end the workers.
    """
    noted = threading.Event()
    with _interrupts(lambda *_: noted.set()):
        yield noted


@contextmanager
def _interrupts(handler: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    """Ctrl-C goes to this handler. Only the main thread can say so; in others it goes where it went."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _lines_to_workers(
    experiment: Experiment[Any], spec: Spec, data_dir: Path | None, jobs: int
) -> Iterator[list[Connection]]:
    """A line to each of so many processes: tasks go in, results come out. They end with the block, at once."""
    context = multiprocessing.get_context("spawn")
    lines: list[Connection] = []
    processes: list[SpawnProcess] = []
    try:
        # Ctrl-C is for this process alone: what is ignored here when they are started, they ignore for good.
        with _environment(_ONE_THREAD), _interrupts(signal.SIG_IGN):
            for _ in range(jobs):
                ours, theirs = context.Pipe()
                lines.append(ours)
                processes.append(
                    context.Process(target=_work, args=(theirs, experiment, spec, data_dir), daemon=True)
                )
                processes[-1].start()
                theirs.close()
        yield list(lines)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for line in lines:
            line.close()


def _work(line: Connection, experiment: Experiment[Any], spec: Spec, data_dir: Path | None) -> None:
    """One task after the other, until the process at the other end is gone."""
    # Windows hands down no ignored signals.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            line.send(_attempt(experiment, spec, line.recv(), data_dir))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
