"""The folder of one experiment at one specification: rows that survive whatever ends the run.

    rows.jsonl        one line for each finished task: its rows, and a checksum of the line
    spec.toml         the settings; their hash names the folder
    provenance.json   versions, commit, machine, times, sessions
    .lock             held while a run works here

A line is appended in one piece and forced to the disk before the task counts as done. A line that is cut, altered or
belongs to other settings or models is set aside and its task runs again: no row is ever used that was not written here
as it stands.
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
    """One finished task."""

    spec: str  # hash of the settings
    task: str  # its key
    parameters: dict[str, Any]  # of the task
    session: int  # number of the run that finished it, from 1
    seconds: float  # computing time
    rows: list[Row]  # its results
    models: str = ""  # hash of the models (`Experiment.fingerprint`); empty in files of earlier versions

    def encoded(self) -> bytes:
        """The line, led by a checksum of the rest of it."""
        try:
            return journal_line(asdict(self), ensure_ascii=False, allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The rows of task {self.task!r} cannot be written as JSON: {error}. Rows hold strings, booleans, "
                "finite numbers, None, and lists and dictionaries of them."
            ) from error

    @classmethod
    def decoded(cls, line: bytes) -> Record | None:
        """The record in a line without its newline; None if the line is not as it was written."""
        content = read_journal_line(line)
        try:
            return None if content is None else cls(**content)
        except TypeError:
            return None


def _plain(value: Any) -> Any:
    """NumPy's and torch's numbers and arrays as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


@dataclass(frozen=True)
class Reading:
    """What a rows file holds."""

    records: dict[str, Record]  # of the tasks asked for, by key
    unusable: (
        int  # lines that are damaged, repeated, of other settings or models, or of tasks that are no more
    )
    sound: bool  # whether the file is exactly the records, line by line


def read_rows(path: Path, spec_hash: str, tasks: Iterable[Task], models: str = "") -> Reading:
    """Read a rows file and check every line; a file that is not there has no records."""
    with explained_errors(path.parent):
        content = path.read_bytes() if path.exists() else b""
    wanted = {task.key: dict(task.parameters) for task in tasks}
    records: dict[str, Record] = {}
    unusable = 0
    for line in content.split(b"\n"):
        record = Record.decoded(line)
        if (
            record is not None
            and record.spec == spec_hash
            and record.models in ("", models)
            and record.task not in records
            and wanted.get(record.task) == record.parameters
        ):
            records[record.task] = record
        elif line:
            unusable += 1
    # Looked at as bytes: a last line without its newline is a sound record, but nothing may be appended to it.
    sound = unusable == 0 and content.count(b"\n") == len(records) and content[-1:] in (b"", b"\n")
    return Reading(records, unusable, sound)


def read_provenance(folder: Path) -> dict[str, Any]:
    """The provenance that the runs in a folder of results wrote; empty if there is none or it cannot be read."""
    try:
        content = json.loads((folder / PROVENANCE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


class Store:
    """The folder while a run holds it; made by `open_store`.

    Attributes:
        records: of the finished tasks, by key.
        notes: sentences on what was repaired or set aside.
    """

    def __init__(self, folder: Path, spec: Spec, tasks: Iterable[Task], models: str, fresh: bool) -> None:
        self.folder, self.spec_hash, self.models = folder, spec.hash(), models
        self.notes: list[str] = []
        remove_leftovers(folder, ROWS, SPEC, PROVENANCE)
        if fresh:
            self._put_aside()
        else:
            _refuse_other_spec(folder / SPEC, spec)
        replace_file(folder / SPEC, spec.to_toml().encode())
        self.records = self._read_and_repair(list(tasks))

    def append(self, task: Task, rows: list[Row], *, seconds: float, session: int) -> None:
        """Write a finished task: on the disk when this returns or is interrupted, else the file is as before."""
        parameters, seconds = dict(task.parameters), round(seconds, 3)
        record = Record(self.spec_hash, task.key, parameters, session, seconds, rows, self.models)
        line = record.encoded()
        # As a later run will read it: a tuple is a list by then.
        written = Record.decoded(line[:-1]) or record
        with explained_errors(self.folder):
            try:
                atomic_append(self.folder / ROWS, line)
            except KeyboardInterrupt:
                # The task has ended: it is kept, and then the run ends.
                atomic_append(self.folder / ROWS, line)
                self.records[task.key] = written
                raise
        self.records[task.key] = written

    def write_provenance(self, content: Mapping[str, Any]) -> None:
        """Write provenance.json anew: versions, commit, machine and times of the run."""
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        replace_file(self.folder / PROVENANCE, text.encode())

    def _put_aside(self) -> None:
        path = self.folder / ROWS
        if path.exists():
            aside = free_path(self.folder / f"{ROWS}.old-{timestamp()}")
            path.rename(aside)
            self.notes.append(f"The rows of the run before are kept as {aside.name}.")
        (self.folder / PROVENANCE).unlink(missing_ok=True)

    def _read_and_repair(self, tasks: list[Task]) -> dict[str, Record]:
        path = self.folder / ROWS
        reading = read_rows(path, self.spec_hash, tasks, self.models)
        if not reading.sound:
            aside = free_path(self.folder / f"{ROWS}.damaged-{timestamp()}")
            shutil.copyfile(path, aside)
            replace_file(path, b"".join(record.encoded() for record in reading.records.values()))
            self.notes.append(
                f"{ROWS} had {reading.unusable} lines that are cut, altered or of other settings or models. The file "
                f"as it was is kept as {aside.name}; {len(reading.records)} tasks are kept, the others run again."
            )
        return reading.records


@contextmanager
def open_store(
    folder: Path, spec: Spec, tasks: Iterable[Task], *, models: str = "", fresh: bool = False
) -> Iterator[Store]:
    """Hold the folder of a specification, made if need be.

    Args:
        folder: ends in the hash of the specification.
        spec: the settings.
        tasks: all tasks of the settings; rows of others are set aside.
        models: hash of the models of the experiment; rows of others are set aside.
        fresh: put the rows that are there aside and start anew.

    Raises:
        InputError: if another run holds the folder, if its spec.toml was changed, or if it cannot be written to.
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
    remedy = "Remove or restore it, or start anew (--fresh)."
    try:
        found = type(spec).from_toml(path.read_text(encoding="utf-8"), where=str(path))
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{error} The file was changed. {remedy}") from None
    if found != spec:
        raise InputError(
            f"{path} has other settings than those the folder is named after ({spec.hash()}): it was changed. {remedy}"
        )
