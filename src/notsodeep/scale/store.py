"""A kernel matrix on disk, block by block: a zarr array, and a journal that says which blocks are finished.

    G.zarr/zarr.json      shape, chunks, precision; as an attribute, what was computed and its hash
    G.zarr/c/i/j          a block, not compressed (a kernel hardly compresses); the upper half is not there
    G.zarr/blocks.jsonl   one line for each finished block: its checksum and evidence, and a checksum of the line
    G.zarr/.lock          held while a run works here

A block is written completely or not at all, and counts as finished when its line is on the disk. If a line is cut or
altered, or a block is missing or altered, the next run computes that block again. Nothing else is ever overwritten. To
other programs the array is an ordinary zarr array whose upper blocks are NaN.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.files import (
    LOCK,
    LOCK_HOLDER,
    atomic_append,
    explained_errors,
    folder_lock,
    journal_line,
    read_journal_line,
    remove_folder,
    remove_leftovers,
    replace_file,
)
from notsodeep.fingerprint import differences, digest
from notsodeep.memory import in_words
from notsodeep.results import KernelInfo
from notsodeep.scale.blocks import Cell, Grid
from notsodeep.scale.kernel_jobs import FORMAT

JOURNAL, ATTRIBUTE = "blocks.jsonl", "notsodeep"
_DIGITS = 32
_WORDS = {
    "model": "another model",
    "kernel": "another kernel",
    "rows": "other rows X",
    "columns": "other rows Y",
    "shape": "another shape",
    "storage": "another precision",
    "block": "another block size",
    "format": "another version of the format",
}


@dataclass(frozen=True)
class Entry:
    """One finished block."""

    cell: Cell  # the place of the block
    checksum: str  # the checksum of its bytes
    info: KernelInfo  # how it was obtained

    def encoded(self) -> bytes:
        """The line of the journal, led by a checksum of the rest."""
        return journal_line({"block": self.cell, "checksum": self.checksum, "info": asdict(self.info)})

    @classmethod
    def decoded(cls, line: bytes) -> Entry | None:
        """The entry in a line without its newline; None if the line is not as it was written."""
        content = read_journal_line(line)
        if content is None:
            return None
        return cls(tuple(content["block"]), content["checksum"], KernelInfo(**content["info"]))


class BlockArray:
    """The zarr array of a store, written and read block by block, by any process.

    Args:
        path: the folder of the store.
        run: the hash of the run that it must belong to, if that is known.
    """

    def __init__(self, path: Path, run: str | None = None) -> None:
        self.path = path
        self.array = _open(path)
        self.described = _described(self.array, path)
        self.run = digest(self.described)
        if run is not None and run != self.run:
            raise InputError(
                f"{path} here is not the store that the run writes to: the workers must see the same folder under "
                "the same path as the process that started the run. Name a folder on a shared file system."
            )
        rows, columns = self.described["shape"]
        symmetric = self.described["columns"] is None
        self.grid = Grid(rows, columns, self.described["block"], symmetric)
        found = f"{self.array.shape} of {self.array.dtype}"
        noted = f"{(rows, columns)} of {self.described['storage']}"
        if found != noted:
            raise InputError(
                f"The array in {path} has the shape {found}; when it was made it had {noted}: it was changed. "
                f"{_ELSEWHERE}"
            )

    def write(self, cell: Cell, block: NDArray[Any]) -> str:
        """Write a block to the disk, completely or not at all; returns its checksum."""
        with explained_errors(self.path):
            self.array[self.grid.slices(cell)] = block
        return checksum(block)

    def read(self, cell: Cell) -> NDArray[Any]:
        """A block as it is on the disk, not verified."""
        with explained_errors(self.path):
            try:
                return np.ascontiguousarray(self.array[self.grid.slices(cell)])
            except (ValueError, TypeError) as error:
                # A file that was cut has not the bytes of a block.
                raise InputError(f"Block {cell} of {self.path} is damaged: {error}.") from error

    def is_sound(self, entry: Entry) -> bool:
        """Whether a block on the disk has the checksum that the journal has for it."""
        try:
            return checksum(self.read(entry.cell)) == entry.checksum
        except InputError:
            return False


class KernelStore(BlockArray):
    """A store that a run writes to; made by `open_store`, which holds the lock.

    Attributes:
        finished: the blocks that are on the disk and have the right checksum.
        repaired: blocks that were found missing or damaged when the store was opened; they run again.
    """

    def __init__(self, path: Path, run: str) -> None:
        super().__init__(path, run)
        # Files that a killed run was writing; the lock is held, so nobody is writing now.
        for leftover in path.rglob("*.partial"):
            leftover.unlink(missing_ok=True)
        remove_leftovers(path, JOURNAL)
        found = read_journal(path, self.grid)
        self.repaired = tuple(cell for cell, entry in found.items() if not self.is_sound(entry))
        self.finished = {cell: entry for cell, entry in found.items() if cell not in self.repaired}
        content = b"".join(entry.encoded() for entry in self.finished.values())
        if not (path / JOURNAL).exists() or (path / JOURNAL).read_bytes() != content:
            replace_file(path / JOURNAL, content)

    def record(self, entry: Entry) -> None:
        """Note that a block is finished."""
        with explained_errors(self.path):
            atomic_append(self.path / JOURNAL, entry.encoded())
        self.finished[entry.cell] = entry


_ELSEWHERE = "Remove it, restore it, or name another folder."


def checksum(block: NDArray[Any]) -> str:
    """The checksum of the bytes of a block, which finds accidental damage."""
    content = np.ascontiguousarray(block)
    return hashlib.sha256(content.view(np.uint8).data).hexdigest()[:_DIGITS]


@contextmanager
def open_store(path: Path, described: dict[str, Any]) -> Iterator[KernelStore]:
    """The store of a run, new or resumed, for use in a with statement, which holds its lock.

    Raises:
        InputError: if the folder holds something else, or another run; nothing in it is changed then.
    """
    # A folder that is not a store is refused before anything is put into it, the lock included.
    if is_vacant(path):
        _refuse_small_disk(path, described)
        needed("zarr", "A kernel on disk (out=…)")
        with explained_errors(path):
            path.mkdir(parents=True, exist_ok=True)
    else:
        _refuse_another(path, described)
    with folder_lock(path):
        # Looked at again: of two runs that found the folder vacant one has made the store by now.
        if is_vacant(path):
            _create(path, described)
        _refuse_another(path, described)
        yield KernelStore(path, digest(described))


def is_vacant(path: Path) -> bool:
    """Whether a store can be made there: there is nothing yet, or only files of a run that has not made one yet."""
    with explained_errors(path):
        if not path.is_dir():
            return not path.exists()
        return all(_precedes(entry.name) for entry in path.iterdir())


def _precedes(name: str) -> bool:
    """Whether a file can be there before the array is: the lock, and what zarr writes before it renames it."""
    return name in (LOCK, LOCK_HOLDER) or (name.startswith("zarr.") and name.endswith(".partial"))


def block_of(path: Path) -> int | None:
    """The block size of the store at a path, None if there is none yet."""
    return None if is_vacant(path) else BlockArray(path).grid.block


def remove_store(path: Path) -> None:
    """Remove a store of this or of an earlier format, and nothing that is not one."""
    _notes(_open(path), path)
    remove_folder(path)


def _create(path: Path, described: dict[str, Any]) -> None:
    zarr = needed("zarr", "A kernel on disk (out=…)")
    size = described["block"]
    shape = tuple(described["shape"])
    with explained_errors(path):
        zarr.create_array(
            path,
            shape=shape,
            chunks=(min(size, shape[0]), min(size, shape[1])),
            dtype=described["storage"],
            fill_value=float("nan"),
            compressors=None,
            attributes={ATTRIBUTE: {"run": digest(described), **described}},
        )


def _open(path: Path) -> Any:
    zarr = needed("zarr", "A kernel on disk (out=…)")
    if not path.exists():
        raise InputError(f"There is no kernel at {path}.")
    try:
        return zarr.open_array(path, mode="r+")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is there and is not a zarr array that can be read ({type(error).__name__}). Nothing was "
            "changed. Name another folder."
        ) from error


def _notes(array: Any, path: Path) -> dict[str, Any]:
    """The description in the attributes of a store, whichever version of this package has written it."""
    noted = dict(array.attrs.get(ATTRIBUTE) or {})
    if "format" not in noted:
        raise InputError(
            f"{path} is a zarr array that no kernel run has made. Nothing was changed. Name another folder."
        )
    return noted


def _described(array: Any, path: Path) -> dict[str, Any]:
    """The description of the run that made a store of this format, without its hash."""
    noted = _notes(array, path)
    if noted["format"] != FORMAT:
        raise InputError(
            f"{path} was written by another version of notsodeep (format {noted['format']}, this one has {FORMAT}); in "
            "format 1 a run could go on with another model. Nothing was changed. Compute the kernel again: name "
            "another folder, or remove that one (notsodeep kernel --overwrite does)."
        )
    run = noted.pop("run", None)
    if set(noted) != set(_WORDS) or run != digest(noted):
        raise InputError(f"The description in {path} was altered. {_ELSEWHERE}")
    return noted


def _refuse_another(path: Path, described: dict[str, Any]) -> None:
    found = BlockArray(path).described
    different = [words for key, words in _WORDS.items() if found[key] != described[key]]
    if different:
        shown = ("model", "kernel", "shape", "storage", "block")
        details = "; ".join(words for key in shown for words in differences(found[key], described[key], key))
        raise InputError(
            f"{path} holds the kernel of another run: {', '.join(different)}"
            + (f" ({details})" if details else "")
            + ". Nothing was changed. Name another folder, or remove that one."
        )


def _refuse_small_disk(path: Path, described: dict[str, Any]) -> None:
    rows, columns = described["shape"]
    grid = Grid(rows, columns, described["block"], symmetric=described["columns"] is None)
    side = min(grid.block, grid.rows), min(grid.block, grid.columns)
    size = grid.count * side[0] * side[1] * np.dtype(described["storage"]).itemsize
    folder = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"The kernel takes {in_words(size)} and the disk of {folder} has {in_words(free)} free. Make room, name "
            "a folder on another disk, or halve it with storage='float32'."
        )


# --- journal ----------------------------------------------------------------------------------------------


def read_journal(path: Path, grid: Grid) -> dict[Cell, Entry]:
    """The finished blocks according to the journal; lines that were cut or altered do not count."""
    journal = path / JOURNAL
    with explained_errors(path):
        lines = journal.read_bytes().splitlines() if journal.exists() else []
    known = set(grid.cells())
    entries = (Entry.decoded(line) for line in lines)
    return {entry.cell: entry for entry in entries if entry is not None and entry.cell in known}
