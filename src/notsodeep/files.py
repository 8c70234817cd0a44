"""Files are written whole or not at all, folders are held by one run at a time, and the system's errors are said."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from notsodeep.errors import InputError

LOCK = ".lock"
_MAKE_ROOM = "Make room on that disk and run the same again: it goes on where it stopped."
_ADVICE = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: "Raise the limit on the size of files and run the same again.",
}
_OTHER_ADVICE = "Name a folder that can be written to (--out)."


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends without an error."""
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


def free_path(path: Path, overwrite: bool = False) -> Path:
    """`path`, or with a number if that exists: nothing is overwritten without being asked to."""
    number, candidate = 2, path
    while candidate.exists() and not overwrite:
        candidate = path.with_stem(f"{path.stem}-{number}")
        number += 1
    return candidate


def append_whole(path: Path, content: bytes) -> None:
    """Append all of it or nothing, and force it to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        before = os.fstat(descriptor).st_size
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except BaseException:
            # Half a line would be found and repaired by the next run, but need not be there at all.
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


@contextmanager
def said(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, _OTHER_ADVICE)
        reason = error.strerror or str(error)
        raise InputError(f"{folder} cannot be used: {reason}. What was finished is kept. {advice}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The system lets go of it when the process ends, however it ends."""
    if sys.platform == "win32":
        raise InputError("Runs that can be resumed need the file locks of Linux or macOS. Run them in WSL.")
    import fcntl

    with said(folder):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
            raise InputError(
                f"{folder} is in use by {holder}. Wait until that run has ended, stop it, or name another folder "
                "(--out)."
            ) from None
        # For the message above; the lock holds without it, on a full disk too.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} since {stamp()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def stamp() -> str:
    """The time as part of a file's name."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
