"""Run an experiment, or the part of it that is not finished yet, and return its rows in the order of its tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from notsodeep.errors import InputError
from notsodeep.progress import Report, silent
from notsodeep.validation import as_count, one_of
from notsodeep_lab.papers.data_files import DATA_VARIABLE, load
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Size, Task
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.provenance import new_session, now
from notsodeep_lab.papers.results_folder import (
    ROWS,
    SPEC,
    Record,
    Store,
    open_store,
    read_provenance,
    read_rows,
)
from notsodeep_lab.papers.workers import Done, run_tasks

# Reading a few rows shows that a data set is available and readable.
_PROBE_ROWS = 10


@dataclass(frozen=True)
class Outcome:
    """The result of a run, finished or not.

    Attributes:
        folder: the folder that holds the results.
        spec: the settings.
        rows: the rows of the finished tasks, in the order of the tasks.
        expectations: the paper's claims compared with our results; empty unless finished.
        finished: whether all tasks are finished.
        done: number of finished tasks.
        total: number of tasks.
        reused: number of tasks finished by an earlier run.
        notes: messages about damaged or old rows that were set aside.
    """

    folder: Path
    spec: Spec
    rows: list[Row]
    expectations: list[Expectation]
    finished: bool
    done: int
    total: int
    reused: int = 0
    notes: tuple[str, ...] = ()


def reproduce(
    experiment: Experiment[Any],
    size: Size = "quick",
    *,
    spec: Spec | None = None,
    root: str | Path = "results",
    data_dir: str | Path | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    resume: bool = True,
    report: Report = silent,
) -> Outcome:
    """Run the unfinished tasks of an experiment and store the results in `root`/name/hash of the settings.

    Ctrl-C stops the run and keeps the finished tasks (`finished` is False); the next call continues.

    Args:
        experiment: one of `papers.EXPERIMENTS`.
        size: "quick" (minutes) or "full" (the paper's setting, as far as two cores allow).
        spec: custom settings, instead of a size.
        root: the folder for all results.
        data_dir: the folder of the data sets, as for `data.load`.
        seeds: number of repetitions; the size's own if None.
        jobs: number of processes; 1 uses this process with all its threads, as timed experiments always do.
        resume: reuse existing rows; if False, they are set aside.
        report: progress callback, called with the tasks finished, their total and a message.

    Raises:
        InputError: if the folder is in use or not writable, if data are missing, or if a task rejects its input.
        ConvergenceError: if a task does not converge. Finished tasks are kept in either case.
    """
    settings = checked_spec(experiment, size, spec, seeds)
    as_count(jobs, "jobs")
    tasks = _unique(experiment, settings)
    folder = Path(root) / experiment.name / settings.hash()
    processes = 1 if experiment.timed else jobs
    data = None if data_dir is None else Path(data_dir)
    models = experiment.fingerprint(settings)
    known = read_rows(folder / ROWS, settings.hash(), tasks, models).records if resume else {}
    if len(known) < len(tasks):
        # Check the data before creating a folder.
        reason = absent_data(experiment, settings, data, fetch=True)
        if reason is not None:
            raise InputError(f"{experiment.name} cannot run: {reason}")
    with open_store(folder, settings, tasks, models=models, fresh=not resume) as store:
        todo = [task for task in tasks if task.key not in store.records]
        session = _SessionRecord(store, experiment, settings, processes, len(tasks))
        try:
            for done in _reported(experiment, settings, todo, data, processes, len(tasks), report):
                store.append(done.task, done.rows, seconds=done.seconds, session=session.number)
        except KeyboardInterrupt:
            pass
        finally:
            session.close()
        outcome = _outcome(experiment, settings, folder, tasks, store.records)
        return replace(outcome, reused=len(tasks) - len(todo), notes=tuple(store.notes))


def read_outcome(experiment: Experiment[Any], folder: str | Path) -> Outcome:
    """Read a results folder without changing it; damaged lines are skipped."""
    place = Path(folder)
    try:
        text = (place / SPEC).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place} is not a results folder: {error}.") from None
    spec = experiment.spec_type.from_toml(text, where=str(place / SPEC))
    tasks = _unique(experiment, spec)
    reading = read_rows(place / ROWS, spec.hash(), tasks, experiment.fingerprint(spec))
    return _outcome(experiment, spec, place, tasks, reading.records)


def checked_spec(
    experiment: Experiment[Any], size: str, spec: Spec | None = None, seeds: int | None = None
) -> Spec:
    """Return the settings of a size, or custom settings after checking that they belong to the experiment."""
    if spec is not None:
        if not issubclass(type(spec), experiment.spec_type):
            raise InputError(f"{experiment.name} takes a {experiment.spec_type.__name__}; got {spec!r}.")
        if seeds is not None:
            raise InputError("Custom settings include the number of seeds: give spec or seeds, not both.")
        return spec
    one_of(size, get_args(Size), "size")
    if seeds is not None:
        as_count(seeds, "seeds")
    settings: Spec = experiment.spec(cast(Size, size), seeds)
    return settings


def absent_data(experiment: Experiment[Any], spec: Spec, data_dir: Path | None, *, fetch: bool) -> str | None:
    """Say why data that the settings need are missing; None if all are available.

    Args:
        experiment: the experiment.
        spec: its settings.
        data_dir: the folder of the data sets, as for `data.load`.
        fetch: whether data may be downloaded from OpenML when no folder is given.
    """
    needed = experiment.data_needed(spec)
    if needed and data_dir is None and not os.environ.get(DATA_VARIABLE) and not fetch:
        return (
            f"it needs {', '.join(needed)}. Give their folder with --data-dir or {DATA_VARIABLE}, or run the "
            "experiment by its name to download them from OpenML."
        )
    for name in needed:
        try:
            load(name, n=_PROBE_ROWS, data_dir=data_dir)
        except InputError as error:
            return f"it needs {name}. {error}"
    return None


def _unique(experiment: Experiment[Any], spec: Spec) -> list[Task]:
    tasks = list(experiment.tasks(spec))
    if len({task.key for task in tasks}) < len(tasks):
        raise InputError(f"{experiment.name} has two tasks of the same key: a setting lists a value twice.")
    return tasks


def _outcome(
    experiment: Experiment[Any], spec: Spec, folder: Path, tasks: Sequence[Task], records: dict[str, Record]
) -> Outcome:
    rows = [row for task in tasks if task.key in records for row in records[task.key].rows]
    finished = len(records) == len(tasks)
    expectations = experiment.expectations(spec, rows) if finished else []
    return Outcome(folder, spec, rows, expectations, finished, len(records), len(tasks))


class _SessionRecord:
    """The record of this run in provenance.json, written when the run starts and when it ends."""

    def __init__(self, store: Store, experiment: Experiment[Any], spec: Spec, jobs: int, total: int) -> None:
        before = read_provenance(store.folder).get("sessions")
        self._sessions: list[dict[str, Any]] = [*before] if isinstance(before, list) else []
        self._store, self._total = store, total
        self._facts = {
            "experiment": experiment.name,
            "paper": experiment.paper,
            "spec": spec.hash(),
            "settings": spec.values(),
        }
        # A run without unfinished tasks leaves the record unchanged.
        self._idle = bool(before) and len(store.records) == total
        self.number = len(self._sessions) + 1
        if not self._idle:
            self._sessions.append(new_session(jobs))
            self._write()

    def close(self) -> None:
        if not self._idle:
            self._sessions[-1]["ended"] = now()
            self._write()

    def _write(self) -> None:
        records = self._store.records.values()
        self._store.write_provenance(
            {
                **self._facts,
                "finished": len(records) == self._total,
                "resumed": len({record.session for record in records}) > 1,
                "task_seconds": round(sum(record.seconds for record in records), 3),
                "sessions": self._sessions,
                "tasks": [{"task": r.task, "session": r.session, "seconds": r.seconds} for r in records],
            }
        )


def _reported(
    experiment: Experiment[Any],
    spec: Spec,
    todo: Sequence[Task],
    data_dir: Path | None,
    jobs: int,
    total: int,
    report: Report,
) -> Iterator[Done]:
    """Run tasks, reporting progress after each of them."""
    start, left = time.monotonic(), list(todo)

    def report_progress() -> None:
        running = ", ".join(task.key for task in left[:1]) + (f" and {jobs - 1} more" if jobs > 1 else "")
        rest = remaining(todo, left, time.monotonic() - start)
        report(total - len(left), total, lambda: f"{running}{rest}" if left else "")

    report_progress()
    for done in run_tasks(experiment, spec, todo, data_dir, jobs=jobs):
        yield done
        left.remove(done.task)
        report_progress()


def remaining(todo: Sequence[Task], left: Sequence[Task], seconds: float) -> str:
    """Estimate the remaining time as text; empty before the first task has finished."""
    ahead = sum(task.cost for task in left)
    behind = sum(task.cost for task in todo) - ahead
    if behind <= 0.0 or not left:
        return ""
    rest = seconds * ahead / behind
    return f", about {rest / 60:.0f} min left" if rest >= 90 else f", about {max(1.0, rest):.0f} s left"
