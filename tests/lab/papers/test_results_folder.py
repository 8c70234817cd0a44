"""The results folder: rows come back as written, damage is detected, and write errors lose nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_experiment import Toy, ToySpec, rows_of

from notsodeep.errors import InputError
from notsodeep.files import LOCK
from notsodeep_lab.papers.experiment import Task
from notsodeep_lab.papers.results_folder import (
    PROVENANCE,
    ROWS,
    SPEC,
    Record,
    Store,
    open_store,
    read_provenance,
    read_rows,
)

SETTINGS = ToySpec(sizes=(1, 2, 3), seeds=1)
TASKS = list(Toy().tasks(SETTINGS))
ROWS_OF = {task.key: rows_of(SETTINGS, int(str(task.parameters["size"])), 0) for task in TASKS}

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
rows = st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=3)


def fill(store: Store, tasks: list[Task]) -> None:
    for task in tasks:
        store.append(task, ROWS_OF[task.key], seconds=0.5, session=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all three tasks finished."""
    place = tmp_path / "toy" / SETTINGS.hash()
    with open_store(place, SETTINGS, TASKS) as store:
        fill(store, TASKS)
    return place


def assert_complete(folder: Path) -> None:
    """The folder holds all rows and needs no repair."""
    with open_store(folder, SETTINGS, TASKS) as store:
        assert {key: record.rows for key, record in store.records.items()} == ROWS_OF
        assert store.notes == []


# --- lines -------------------------------------------------------------------------------------------
@given(rows, st.text(), st.integers(1, 9))
def test_a_line_is_read_back_as_it_was_written(content: list[dict[str, Any]], key: str, session: int) -> None:
    record = Record("0123456789ab", key, {"n": 1, "name": key}, session, 0.25, content)
    line = record.encoded()
    assert line.count(b"\n") == 1
    assert Record.decoded(line[:-1]) == record
    assert json.loads(line)["rows"] == content


@given(st.data())
def test_an_altered_line_is_rejected(data: st.DataObject) -> None:
    record = Record("0123456789ab", "size=1", {"size": 1}, 1, 0.25, [{"mean": 0.123, "name": "ü"}])
    line = record.encoded()[:-1]
    place = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    assert Record.decoded(line[:place] + bytes([other]) + line[place + 1 :]) is None
    assert Record.decoded(line[:place]) is None
    assert Record.decoded(line + bytes([other])) is None


def test_numpy_values_become_json() -> None:
    content = [{"a": np.float64(0.1), "b": np.int64(3), "c": np.arange(3), "d": np.bool_(True), "e": (1, 2)}]
    back = Record.decoded(Record("", "", {}, 1, 0.0, content).encoded()[:-1])
    assert back is not None
    assert back.rows == [{"a": 0.1, "b": 3, "c": [0, 1, 2], "d": True, "e": [1, 2]}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.array([1.0, np.nan]), object(), {1, 2}])
def test_values_that_are_not_json_are_refused_with_the_task(value: Any) -> None:
    with pytest.raises(InputError, match="size=1"):
        Record("", "size=1", {}, 1, 0.0, [{"x": value}]).encoded()


# --- settings ----------------------------------------------------------------------------------------
def test_missing_settings_are_written_again_and_leftovers_of_a_killed_run_removed(folder: Path) -> None:
    (folder / SPEC).unlink()
    for ending in ("toml", "json", "jsonl"):
        (folder / f".abc123.{ending}").write_text("half")
    assert_complete(folder)
    assert ToySpec.from_toml((folder / SPEC).read_text()) == SETTINGS
    assert {path.name for path in folder.iterdir()} == {ROWS, SPEC, LOCK}


@pytest.mark.parametrize("change", ["seeds = 1→seeds = 2", "[settings]→[setting]", "version = 1→\xff"])
def test_changed_settings_are_refused_unless_fresh(folder: Path, change: str) -> None:
    before, after = (part.encode("latin-1") for part in change.split("→"))
    content = (folder / SPEC).read_bytes()
    assert before in content
    (folder / SPEC).write_bytes(content.replace(before, after))
    lines = (folder / ROWS).read_bytes()
    with pytest.raises(InputError, match="--fresh"), open_store(folder, SETTINGS, TASKS):
        pass
    assert (folder / ROWS).read_bytes() == lines
    with open_store(folder, SETTINGS, TASKS, fresh=True) as store:
        assert store.records == {}
        assert "kept as" in store.notes[0]
    assert ToySpec.from_toml((folder / SPEC).read_text()) == SETTINGS
    assert [path.read_bytes() for path in folder.glob("rows*.old-*")] == [lines]


# --- damage ------------------------------------------------------------------------------------------
def repaired(folder: Path) -> tuple[set[str], list[str]]:
    """Open a damaged folder and compute the missing tasks: tasks that were kept, and notes."""
    before = (folder / ROWS).read_bytes()
    with open_store(folder, SETTINGS, TASKS) as store:
        kept, notes = set(store.records), list(store.notes)
        assert all(store.records[key].rows == ROWS_OF[key] for key in kept)
        fill(store, [task for task in TASKS if task.key not in kept])
    assert_complete(folder)
    aside = list(folder.glob("rows*.damaged-*"))
    assert [path.read_bytes() for path in aside] == ([before] if notes else [])
    return kept, notes


@pytest.mark.slow
def test_a_file_cut_anywhere_is_repaired(folder: Path, tmp_path: Path) -> None:
    content = (folder / ROWS).read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    for cut in {*range(0, len(content), 97), *ends, *(end - 1 for end in ends)}:
        copy = tmp_path / f"cut-{cut}" / folder.name
        shutil.copytree(folder, copy)
        (copy / ROWS).write_bytes(content[:cut])
        kept, notes = repaired(copy)
        # A line that lacks nothing but its newline is complete.
        assert len(kept) == sum(end - 1 <= cut for end in ends)
        assert bool(notes) == (cut not in {0, *ends})


RUBBISH = {
    "zeros": bytes(5000),
    "blank lines": b"\n\n\n",
    "other JSON": b"[]\n{}\nnull\n",
    "the start of a line": b'{"sha256": "',
    "noise": np.random.default_rng(0).bytes(64) + b"\n",
}


@pytest.mark.parametrize("content", RUBBISH.values(), ids=list(RUBBISH))
def test_a_file_of_rubbish_is_set_aside(folder: Path, content: bytes) -> None:
    (folder / ROWS).write_bytes(content)
    kept, notes = repaired(folder)
    assert kept == set()
    assert notes


def test_of_several_lines_for_a_task_the_first_counts(folder: Path) -> None:
    late = Record(SETTINGS.hash(), TASKS[0].key, dict(TASKS[0].parameters), 2, 0.5, [{"mean": 0.0}])
    content = (folder / ROWS).read_bytes()
    (folder / ROWS).write_bytes(content + content + late.encoded())
    assert repaired(folder)[0] == set(ROWS_OF)


def test_rows_of_other_settings_or_tasks_are_not_used(folder: Path, tmp_path: Path) -> None:
    other = replace(SETTINGS, length=4)
    place = tmp_path / "toy" / other.hash()
    place.mkdir()
    shutil.copy(folder / ROWS, place / ROWS)
    with open_store(place, other, TASKS) as store:
        assert store.records == {}
        assert "other settings" in store.notes[0]
    changed = [replace(TASKS[0], parameters={"size": 1, "seed": 7}), TASKS[1]]
    with open_store(folder, SETTINGS, changed) as store:
        assert set(store.records) == {TASKS[1].key}


def test_reading_does_not_write(folder: Path) -> None:
    content = (folder / ROWS).read_bytes()[:-10]
    (folder / ROWS).write_bytes(content)
    reading = read_rows(folder / ROWS, SETTINGS.hash(), TASKS)
    assert (reading.sound, reading.unusable) == (False, 1)
    assert set(reading.records) == {task.key for task in TASKS[:2]}
    assert (folder / ROWS).read_bytes() == content


def test_unreadable_provenance_counts_as_none(folder: Path) -> None:
    for content in (b"", b"{", b"[1]", b"\xff"):
        (folder / PROVENANCE).write_bytes(content)
        assert read_provenance(folder) == {}


# --- locks and disks ---------------------------------------------------------------------------------
def test_a_folder_in_use_is_refused(folder: Path) -> None:
    with open_store(folder, SETTINGS, TASKS):
        for fresh in (False, True):
            with (
                pytest.raises(InputError, match=f"in use by process {os.getpid()}.*--out"),
                open_store(folder, SETTINGS, TASKS, fresh=fresh),
            ):
                pass
    assert_complete(folder)


class FullDisk:
    """os.write that accepts `room` more bytes and then fails as a full disk does."""

    def __init__(self, room: int) -> None:
        self.room, self.write = room, os.write

    def __call__(self, descriptor: int, content: Any) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.write(descriptor, bytes(content)[: self.room])
        self.room -= taken
        return taken


def test_a_repair_on_a_full_disk_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (folder / ROWS).read_bytes()[:-10]
    (folder / ROWS).write_bytes(content)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", FullDisk(500))
        with pytest.raises(InputError, match="No space left"), open_store(folder, SETTINGS, TASKS):
            pass
    assert (folder / ROWS).read_bytes() == content
    with open_store(folder, SETTINGS, TASKS) as store:
        assert set(store.records) == {task.key for task in TASKS[:2]}


def test_ctrl_c_while_writing_keeps_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / SETTINGS.hash()
    interrupts, flush = [KeyboardInterrupt], os.fsync

    def interrupted(descriptor: int) -> None:
        if interrupts:
            raise interrupts.pop()
        flush(descriptor)

    with open_store(place, SETTINGS, TASKS) as store:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                fill(store, TASKS[:1])
        assert set(store.records) == {TASKS[0].key}
        fill(store, TASKS[1:])
    assert_complete(place)
