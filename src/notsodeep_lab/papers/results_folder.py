"""The results folder of one experiment with one set of settings.

    rows.jsonl        one line per finished task: its rows, and a checksum of the line
    spec.toml         the settings; their hash is the name of the folder
    provenance.json   versions, commit, machine, times, sessions
    .lock             held while a run uses the folder

A line is appended atomically and flushed to disk before its task counts as finished, so an interrupted run loses at
most the tasks in progress. Lines that are truncated, altered or from other settings or models are set aside, and their
tasks are repeated.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from notsodeep.errors import InputError
from notsodeep.files import (
    atomic_append,
    explained_errors,
    folder_lock,
    free_path,
    journal_line,
    read_journal_line,
    remove_leftovers,
    replace_file,
    timestamp,
)
from notsodeep_lab.papers.experiment import Row, Task
from notsodeep_lab.papers.experiment_settings import Spec

ROWS, SPEC, PROVENANCE = "rows.jsonl", "spec.toml", "provenance.json"


@dataclass(frozen=True)
class Record:
    """A finished task as one line of rows.jsonl."""

    spec: str  # hash of the settings
    task: str  # key of the task
    parameters: dict[str, Any]  # parameters of the task
    session: int  # number of the run that finished it, counted from 1
    seconds: float  # computing time
    rows: list[Row]  # results
    models: str = ""  # hash of the models (`Experiment.fingerprint`)

    def encoded(self) -> bytes:
        """Encode the record as a line that starts with a checksum of the rest."""
        try:
            return journal_line(asdict(self), ensure_ascii=False, allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The rows of task {self.task!r} cannot be written as JSON: {error}. Rows hold strings, booleans, "
                "finite numbers, None, and lists and dictionaries of them."
            ) from error

    @classmethod
    def decoded(cls, line: bytes) -> Record | None:
        """Decode a line without its newline; None if its checksum does not match."""
        content = read_journal_line(line)
        try:
            return None if content is None else cls(**content)
        except TypeError:
            return None


def _plain(value: Any) -> Any:
    """Convert numbers and arrays of NumPy and torch to plain Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


@dataclass(frozen=True)
class Reading:
    """The content of a rows file."""

    records: dict[str, Record]  # usable records by task key
    unusable: int  # lines that are damaged, duplicates, or of other settings, models or tasks
    sound: bool  # whether the file consists of the records alone, line by line


def read_rows(path: Path, spec_hash: str, tasks: Iterable[Task], models: str = "") -> Reading:
    """Read a rows file and check every line; a missing file has no records."""
    with explained_errors(path.parent):
        content = path.read_bytes() if path.exists() else b""
    known = {task.key: dict(task.parameters) for task in tasks}
    records: dict[str, Record] = {}
    unusable = 0
    for line in content.split(b"\n"):
        record = Record.decoded(line)
        if (
            record is not None
            and record.spec == spec_hash
            and record.models == models
            and record.task not in records
            and known.get(record.task) == record.parameters
        ):
            records[record.task] = record
        elif line:
            unusable += 1
    # A last line without its newline is a valid record, but nothing can be appended after it.
    sound = unusable == 0 and content.count(b"\n") == len(records) and content[-1:] in (b"", b"\n")
    return Reading(records, unusable, sound)


def read_provenance(folder: Path) -> dict[str, Any]:
    """Read the provenance in a results folder; empty if the file is missing or unreadable."""
    try:
        content = json.loads((folder / PROVENANCE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


class Store:
    """A results folder that is locked by a run; created by `open_store`.

    Attributes:
        records: the records of the finished tasks, by key.
        notes: messages about damaged or old rows that were set aside.
    """

    def __init__(self, folder: Path, spec: Spec, tasks: Iterable[Task], models: str, fresh: bool) -> None:
        self.folder, self.spec_hash, self.models = folder, spec.hash(), models
        self.notes: list[str] = []
        remove_leftovers(folder, ROWS, SPEC, PROVENANCE)
        if fresh:
            self._set_rows_aside()
        else:
            _refuse_other_spec(folder / SPEC, spec)
        replace_file(folder / SPEC, spec.to_toml().encode())
        self.records = self._read_and_repair(list(tasks))

    def append(self, task: Task, rows: list[Row], *, seconds: float, session: int) -> None:
        """Append a finished task; if this fails, the file is left as it was."""
        parameters, seconds = dict(task.parameters), round(seconds, 3)
        record = Record(self.spec_hash, task.key, parameters, session, seconds, rows, self.models)
        line = record.encoded()
        # As a later run will read it: tuples become lists.
        written = Record.decoded(line[:-1]) or record
        with explained_errors(self.folder):
            try:
                atomic_append(self.folder / ROWS, line)
            except KeyboardInterrupt:
                # The task is finished: keep it before stopping.
                atomic_append(self.folder / ROWS, line)
                self.records[task.key] = written
                raise
        self.records[task.key] = written

    def write_provenance(self, content: Mapping[str, Any]) -> None:
        """Replace provenance.json: versions, commit, machine and times of the run."""
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        replace_file(self.folder / PROVENANCE, text.encode())

    def _set_rows_aside(self) -> None:
        path = self.folder / ROWS
        if path.exists():
            aside = free_path(self.folder / f"{ROWS}.old-{timestamp()}")
            path.rename(aside)
            self.notes.append(f"The rows of the previous run are kept as {aside.name}.")
        (self.folder / PROVENANCE).unlink(missing_ok=True)

    def _read_and_repair(self, tasks: list[Task]) -> dict[str, Record]:
        path = self.folder / ROWS
        reading = read_rows(path, self.spec_hash, tasks, self.models)
        if not reading.sound:
            aside = free_path(self.folder / f"{ROWS}.damaged-{timestamp()}")
            shutil.copyfile(path, aside)
            replace_file(path, b"".join(record.encoded() for record in reading.records.values()))
            self.notes.append(
                f"{ROWS} had {reading.unusable} lines that are damaged or from other settings or models. The old "
                f"file is kept as {aside.name}; {len(reading.records)} tasks are reused, the others are repeated."
            )
        return reading.records


@contextmanager
def open_store(
    folder: Path, spec: Spec, tasks: Iterable[Task], *, models: str = "", fresh: bool = False
) -> Iterator[Store]:
    """Lock the results folder of a specification, and create it if necessary.

    Args:
        folder: the folder; its name is the hash of the specification.
        spec: the settings.
        tasks: all tasks of the settings; rows of other tasks are set aside.
        models: hash of the models of the experiment; rows of other models are set aside.
        fresh: set existing rows aside and start from scratch.

    Raises:
        InputError: if another run uses the folder, if its spec.toml was changed, or if it is not writable.
    """
    with explained_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):
        with explained_errors(folder):
            store = Store(folder, spec, tasks, models, fresh)
        yield store


def _refuse_other_spec(path: Path, spec: Spec) -> None:
    if not path.exists():
        return
    remedy = "Remove or restore the file, or start from scratch (--fresh)."
    try:
        stored = type(spec).from_toml(path.read_text(encoding="utf-8"), where=str(path))
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{error} The file has been changed. {remedy}") from None
    if stored != spec:
        raise InputError(
            f"{path} has been changed: its settings do not have the hash {spec.hash()} of its folder. {remedy}"
        )
