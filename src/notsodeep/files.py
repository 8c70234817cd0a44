"""Files and folders that are written completely or not at all, and locked by one run at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from notsodeep.errors import InputError

LOCK = ".lock"
# Who holds the lock, in a separate file: on Windows no other process can read a locked file.
LOCK_HOLDER = ".lock-holder"
_NO_SPACE = "Free some space on that disk"
_ADVICE = {
    errno.ENOSPC: _NO_SPACE,
    getattr(errno, "EDQUOT", errno.ENOSPC): _NO_SPACE,
    errno.EFBIG: "Raise the limit on the size of files",
    errno.EACCES: "Check its permissions",
    errno.ENAMETOOLONG: "Use a shorter name",
}
_LONGEST_NAME = 80  # characters of a path that a message repeats
# Windows alone has this flag, and without it would write every line feed as two bytes.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Open a temporary file that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(handle)
    try:
        yield Path(name)
        # A temporary file is private; the result has the rights of any new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def atomic_append(path: Path, content: bytes) -> None:
    """Append all of the content or nothing, and force it to the disk."""
    descriptor = os.open(path, _APPEND, 0o666)
    try:
        before = os.fstat(descriptor).st_size
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except BaseException:
            # The next run would repair half a line, but it need not be there at all.
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file; the new content is on disk before the old one goes."""
    with explained_errors(path.parent), atomic_write(path) as temporary:
        atomic_append(temporary, content)


def remove_leftovers(folder: Path, *names: str) -> None:
    """Remove temporary files of a killed run with these endings; the folder must be locked."""
    for name in names:
        for path in folder.glob(f".?*{Path(name).suffix}"):
            path.unlink(missing_ok=True)


def journal_line(content: dict[str, Any], **options: Any) -> bytes:
    """Encode a line of a journal: JSON, starting with a checksum of the rest; `options` are those of `json.dumps`."""
    body = json.dumps(content, **options).encode()
    return _line_head(body) + body[1:] + b"\n"


def read_journal_line(line: bytes) -> Any:
    """Decode a line without its newline; None if it is damaged."""
    size = len(_line_head(b""))
    body = b"{" + line[size:]
    return json.loads(body) if line[:size] == _line_head(body) else None


def _line_head(body: bytes) -> bytes:
    return b'{"sha256": "%s", ' % hashlib.sha256(body).hexdigest()[:16].encode()


def free_path(path: Path) -> Path:
    """Return `path`, or with a number if that exists."""
    number, candidate = 2, path
    while candidate.exists():
        candidate = path.with_stem(f"{path.stem}-{number}")
        number += 1
    return candidate


def new_path(path: Path, overwrite: bool = False) -> Path:
    """Check that a file can be written, and return its path.

    Raises:
        InputError: if the file exists and `overwrite` is false, or if it cannot be written.
    """
    try:
        exists, is_folder = path.exists(), path.is_dir()
        parent = next(one for one in path.absolute().parents if one.exists())
    except OSError as error:
        raise InputError(explained(error)) from None
    if is_folder:
        raise InputError(f"{path} is a folder. Give the name of a file.")
    if exists and not overwrite:
        raise InputError(f"{path} exists. Give another name, or add --overwrite to replace it.")
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{path} cannot be written: {parent} is not a writable folder. Give another path.")
    return path


def explained(error: OSError) -> str:
    """Explain an error of the file system in a sentence, with what to do."""
    name = str(error.filename or "")
    shown = f"{name[:_LONGEST_NAME]}…" if len(name) > _LONGEST_NAME else name
    advice = _ADVICE.get(error.errno or 0, "Give another file")
    return f"{shown or 'A file'} cannot be used: {error.strerror or error}. {advice}."


@contextmanager
def explained_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into an InputError that says what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "Give another folder (--out)")
        raise InputError(
            f"{folder} cannot be used: {error.strerror or error}. {advice} and repeat the command; finished parts are "
            "kept."
        ) from error


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; the system releases it whenever the process ends.

    Raises:
        InputError: if another run holds it, or if the folder cannot be written to.
    """
    with explained_errors(folder):
        # Each call opens the file again, so that a second call is refused in the same process, too.
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise InputError(
                f"{folder} is in use by {_holder(folder)}. Wait for that run, stop it, or give another folder (--out)."
            )
    try:
        # For the message above; the lock holds without it, on a full disk too.
        with suppress(OSError):
            (folder / LOCK_HOLDER).write_text(
                f"process {os.getpid()} since {timestamp()}\n", encoding="utf-8"
            )
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK_HOLDER).unlink(missing_ok=True)
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another process holds it."""
    try:
        try:
            import fcntl
        except ImportError:  # Windows
            msvcrt: Any = import_module("msvcrt")
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            os.close(descriptor)
            raise
        return False
    return True


def remove_folder(folder: Path) -> None:
    """Remove a folder that no run holds.

    Raises:
        InputError: if a run holds it.
    """
    with folder_lock(folder):
        for path in folder.iterdir():
            # The lock itself last, when it is released: on Windows a file that is open cannot be removed.
            if path.name not in (LOCK, LOCK_HOLDER):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(folder)


def _holder(folder: Path) -> str:
    try:
        holder = (folder / LOCK_HOLDER).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        holder = ""
    return holder or "another process"


def timestamp() -> str:
    """Return the time in UTC for use in file names."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
