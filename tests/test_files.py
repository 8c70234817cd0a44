"""Files and locks, and how they fare on a system without the ways of Unix."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from notsodeep import files
from notsodeep.errors import InputError
from notsodeep.files import LOCK, atomic_append, atomic_write, explained_errors, folder_lock, remove_folder

# A Python that has none of what Windows lacks, and locks as Windows has them. `multiprocessing` and `subprocess` ask
# for some of it when imported.
WITHOUT_UNIX = """
import fcntl, multiprocessing.spawn, os, subprocess, sys, types

class Locks(types.ModuleType):
    LK_NBLCK = 2

    def locking(self, descriptor, mode, size, flock=fcntl.flock, how=fcntl.LOCK_EX | fcntl.LOCK_NB):
        if mode != self.LK_NBLCK or size < 1:
            raise ValueError(f"mode {mode}, size {size}")
        try:
            flock(descriptor, how)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

sys.modules["msvcrt"] = Locks("msvcrt")
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("fork", "sched_getaffinity", "getuid", "geteuid", "fchmod", "O_DIRECTORY", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
"""


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_UNIX + code],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_is_locked_without_fcntl(tmp_path):
    code = """
from pathlib import Path
from notsodeep.errors import InputError
from notsodeep.files import folder_lock
for turn in range(2):
    with folder_lock(Path(".")):
        try:
            with folder_lock(Path(".")):
                print("locked twice")
        except InputError as error:
            print(error)
"""
    first, second = run(code, tmp_path).splitlines()
    assert "in use by process" in first
    assert "in use by process" in second


# --- here ---------------------------------------------------------------------------------------------


def hold(folder: Path, held: object, done: object) -> None:
    with folder_lock(folder):
        held.set()
        done.wait(60)


@pytest.mark.slow
def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path, held, done))
    holder.start()
    try:
        assert held.wait(60)
        with pytest.raises(InputError, match=f"in use by process {holder.pid} since"), folder_lock(tmp_path):
            pass
    finally:
        holder.kill()
        holder.join()
    with folder_lock(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_folder_in_use_is_not_removed(tmp_path):
    folder = tmp_path / "store"
    (folder / "c").mkdir(parents=True)
    (folder / "c" / "0").write_bytes(b"block")
    with folder_lock(folder), pytest.raises(InputError, match="in use"):
        remove_folder(folder)
    assert (folder / "c" / "0").read_bytes() == b"block"
    remove_folder(folder)
    assert not folder.exists()


def test_what_cannot_be_locked_is_explained(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match=r"file cannot be used: .*--out"), folder_lock(tmp_path / "file"):
        pass


def test_a_file_is_replaced_when_the_block_ends_well_and_else_stays(tmp_path):
    path = tmp_path / "design.json"
    with atomic_write(path) as temporary:
        temporary.write_text("first", encoding="utf-8")
        assert not path.exists()
    with suppress(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["design.json"]


def test_half_an_append_is_taken_back(monkeypatch, tmp_path):
    path = tmp_path / "rows"
    atomic_append(path, b"one\n")
    write = os.write
    monkeypatch.setattr(files.os, "write", lambda file, view: write(file, view[:2]))
    atomic_append(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"

    def full(file: int, view: memoryview) -> int:
        if len(view) < 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, view[:2])

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(InputError, match="Free some space"), explained_errors(tmp_path):
        atomic_append(path, b"three\n")
    assert path.read_bytes() == b"one\ntwo\n"
