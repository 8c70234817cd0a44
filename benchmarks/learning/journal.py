"""Tasks whose rows are appended to a journal in one piece, so that a table goes on where it was stopped."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row
from rich.console import Console
from rich.progress import track

from notsodeep.files import atomic_append

CONSOLE = Console(highlight=False, width=150)
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Part:
    """One table: what is to be measured, how, and the page that is made of it.

    Attributes:
        name: of the part and, after "learning-", of its journal.
        tasks: what is to be measured, each as the fields that name it.
        rows: measures one task.
        page: the Markdown of all rows that there are.
        beside: the name of another part whose rows the page also needs.
    """

    name: str
    tasks: Callable[[], list[Row]]
    rows: Callable[[Row], Iterator[Row]]
    page: Callable[[list[Row]], str]
    beside: str = ""

    def journal(self, folder: Path) -> Path:
        return journal_of(self.name, folder)

    def done(self, folder: Path) -> list[Row]:
        """All rows of finished tasks."""
        return read_rows(self.journal(folder))

    def shown(self, folder: Path) -> str:
        """The page of what is done; empty where nothing is."""
        found = self.done(folder)
        if not found:
            return ""
        left, number = len(self.open_tasks(folder)), len(self.tasks())
        note = f"\n{number - left} of {number} tasks have been measured.\n" if left else ""
        others = read_rows(journal_of(self.beside, folder)) if self.beside else []
        text = self.page(found + others)
        return text + note if text else ""

    def open_tasks(self, folder: Path) -> list[Row]:
        """The tasks that the journal has no row of."""
        finished = self.done(folder)
        return [task for task in self.tasks() if not any(matches(row, task) for row in finished)]

    def run(self, folder: Path, until: float = math.inf) -> None:
        """Measure what is open, up to a time of `time.monotonic`."""
        for task in track(self.open_tasks(folder), self.name, console=CONSOLE):
            if time.monotonic() > until:
                return
            lines = [json.dumps(task | row, allow_nan=False) + "\n" for row in self.rows(task)]
            atomic_append(self.journal(folder), "".join(lines).encode())


def journal_of(name: str, folder: Path) -> Path:
    return folder / f"learning-{name}.jsonl"


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def matches(row: Row, fields: Row) -> bool:
    """Whether a row has these values."""
    return all(row.get(key) == value for key, value in fields.items())


def chosen(rows: Sequence[Row], **fields: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if matches(row, fields)]


def gaps(rows: Sequence[Row]) -> Array:
    """|predicted - measured| accuracy, in points."""
    return np.array([100.0 * abs(row["predicted"] - row["measured"]) for row in rows])
