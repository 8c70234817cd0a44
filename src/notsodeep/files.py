"""Files are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
