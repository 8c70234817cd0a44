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
from functools import reduce
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
from notsodeep.scale.kernel_jobs import FORMAT, Cell, Grid

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
    "tolerance": "another tolerance",
    "format": "another version of the format",
}


@dataclass(frozen=True)
class FinishedBlock:
    """A line of the journal: one finished block."""

    cell: Cell
    checksum: str
    info: KernelInfo

    def encoded(self) -> bytes:
        """Encode the line of the journal, starting with a checksum of the rest."""
        return journal_line({"block": self.cell, "checksum": self.checksum, "info": asdict(self.info)})


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
                f"{path} on this worker is not the store of the run. Use a folder on a shared file system, under the "
                "same path on all machines."
            )
        rows, columns = self.described["shape"]
        symmetric = self.described["columns"] is None
        self.grid = Grid(rows, columns, self.described["block"], symmetric)
        actual = f"{self.array.shape} of {self.array.dtype}"
        noted = f"{(rows, columns)} of {self.described['storage']}"
        if actual != noted:
            raise InputError(f"The array in {path} was changed from shape {noted} to {actual}. {_ELSEWHERE}")

    def write(self, cell: Cell, block: NDArray[Any]) -> str:
        """Write a block, completely or not at all, and return its checksum."""
        with explained_errors(self.path):
            self.array[self.grid.slices(cell)] = block
        return checksum(block)

    def read(self, cell: Cell) -> NDArray[Any]:
        """Read a block without verifying it."""
        with explained_errors(self.path):
            try:
                return np.ascontiguousarray(self.array[self.grid.slices(cell)])
            except (ValueError, TypeError) as error:
                # A file that was cut has not the bytes of a block.
                raise InputError(f"Block {cell} of {self.path} is damaged: {error}.") from error

    def is_sound(self, entry: FinishedBlock) -> bool:
        """Whether a block on the disk has the checksum that the journal has for it."""
        try:
            return checksum(self.read(entry.cell)) == entry.checksum
        except InputError:
            return False


class KernelStore(BlockArray):
    """A store that a run writes to; opened by `open_store`, which holds the lock.

    Attributes:
        finished: the blocks that are on the disk and have the right checksum.
        repaired: blocks that were missing or damaged when the store was opened, and are computed again.
    """

    def __init__(self, path: Path, run: str) -> None:
        super().__init__(path, run)
        # Files that a killed run was writing; the lock is held, so no other run is writing.
        for leftover in path.rglob("*.partial"):
            leftover.unlink(missing_ok=True)
        remove_leftovers(path, JOURNAL)
        entries = read_journal(path, self.grid)
        self.repaired = tuple(cell for cell, entry in entries.items() if not self.is_sound(entry))
        self.finished = {cell: entry for cell, entry in entries.items() if cell not in self.repaired}
        content = b"".join(entry.encoded() for entry in self.finished.values())
        if not (path / JOURNAL).exists() or (path / JOURNAL).read_bytes() != content:
            replace_file(path / JOURNAL, content)

    def record(self, entry: FinishedBlock) -> None:
        """Record that a block is finished."""
        with explained_errors(self.path):
            atomic_append(self.path / JOURNAL, entry.encoded())
        self.finished[entry.cell] = entry


_ELSEWHERE = "Remove it, restore it, or give another folder."


def checksum(block: NDArray[Any]) -> str:
    """The checksum of the bytes of a block, which finds accidental damage."""
    content = np.ascontiguousarray(block)
    return hashlib.sha256(content.view(np.uint8).data).hexdigest()[:_DIGITS]


@contextmanager
def open_store(path: Path, described: dict[str, Any]) -> Iterator[KernelStore]:
    """Open the store of a run, new or resumed, and hold its lock during the with statement.

    Raises:
        InputError: if the folder holds something else, or another run; nothing in it is changed then.
    """
    zarr = needed("zarr", "A kernel on disk (out=…)")
    # A folder that is not a store is refused before anything is put into it, the lock included.
    if is_vacant(path):
        _refuse_small_disk(path, described)
        with explained_errors(path):
            path.mkdir(parents=True, exist_ok=True)
    elif not (path / LOCK).exists():
        _refuse_another(path, described)
    # With a lock file the folder is that of a run, which may be creating its array right now.
    with folder_lock(path):
        # Checked again: of two runs that saw the folder vacant one has created the store by now.
        if is_vacant(path):
            shape, block = tuple(described["shape"]), described["block"]
            with explained_errors(path):
                zarr.create_array(
                    path,
                    shape=shape,
                    chunks=(min(block, shape[0]), min(block, shape[1])),
                    dtype=described["storage"],
                    fill_value=float("nan"),
                    compressors=None,
                    attributes={ATTRIBUTE: {"run": digest(described), **described}},
                )
        _refuse_another(path, described)
        yield KernelStore(path, digest(described))


def is_vacant(path: Path) -> bool:
    """Whether a store can be created: the folder is missing, empty, or has only files of a run that is starting."""
    with explained_errors(path):
        if not path.is_dir():
            return not path.exists()
        # Before the array there are the lock, and what zarr writes before it renames it.
        return all(
            entry.name in (LOCK, LOCK_HOLDER) or entry.match("zarr.*.partial") for entry in path.iterdir()
        )


def block_of(path: Path) -> int | None:
    """The block size of the store at a path, None if there is none yet."""
    return None if is_vacant(path) else BlockArray(path).grid.block


def remove_store(path: Path) -> None:
    """Remove a store; a folder that is not one is refused."""
    if ATTRIBUTE not in _open(path).attrs:
        raise InputError(f"{path} is not a kernel of notsodeep. Nothing was changed.")
    remove_folder(path)


def _open(path: Path) -> Any:
    zarr = needed("zarr", "A kernel on disk (out=…)")
    if not path.exists():
        raise InputError(f"There is no kernel at {path}.")
    try:
        return zarr.open_array(path, mode="r+")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} exists and is not a readable zarr array ({type(error).__name__}). Nothing was changed. Give "
            "another folder."
        ) from error


def _described(array: Any, path: Path) -> dict[str, Any]:
    """Return the description of the run that created a store, without its hash."""
    attribute = array.attrs.get(ATTRIBUTE)
    noted = dict(attribute) if isinstance(attribute, dict) else {}
    if "format" not in noted:
        raise InputError(
            f"{path} is a zarr array, but not a kernel of notsodeep. Nothing was changed. Give another folder."
        )
    if noted["format"] != FORMAT:
        raise InputError(
            f"{path} was written by another version of notsodeep (format {noted['format']} instead of {FORMAT}). "
            "Nothing was changed. Give another folder, or remove this one."
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
            + ". Nothing was changed. Give another folder, or remove this one."
        )


def _refuse_small_disk(path: Path, described: dict[str, Any]) -> None:
    rows, columns = described["shape"]
    grid = Grid(rows, columns, described["block"], symmetric=described["columns"] is None)
    size = grid.count * min(grid.block, rows) * min(grid.block, columns)
    size *= np.dtype(described["storage"]).itemsize
    folder = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"The kernel takes {in_words(size)}; the disk of {folder} has {in_words(free)} free. Free some space, give "
            "a folder on another disk, or use storage='float32'."
        )


# --- journal ----------------------------------------------------------------------------------------------


def read_journal(path: Path, grid: Grid) -> dict[Cell, FinishedBlock]:
    """The finished blocks according to the journal; lines that were cut or altered do not count."""
    journal = path / JOURNAL
    with explained_errors(path):
        lines = journal.read_bytes().splitlines() if journal.exists() else []
    known, finished = set(grid.cells()), {}
    for content in map(read_journal_line, lines):
        if content is not None and (cell := tuple(content["block"])) in known:
            finished[cell] = FinishedBlock(cell, content["checksum"], KernelInfo(**content["info"]))
    return finished


# --- where computed blocks go -----------------------------------------------------------------------------


class InMemory:
    """Computed blocks go into whole matrices in memory, one for each kernel."""

    def __init__(self, grid: Grid, storage: str, kernels: int) -> None:
        self.grid = grid
        self.matrices = [np.empty((grid.rows, grid.columns), storage) for _ in range(kernels)]
        self._evidence: dict[Cell, KernelInfo] = {}

    @property
    def info(self) -> KernelInfo:
        """The evidence of all blocks together."""
        return reduce(KernelInfo.merge, self._evidence.values())

    def missing(self) -> list[Cell]:
        """List the blocks still to compute."""
        return [cell for cell in self.grid.cells() if cell not in self._evidence]

    def record(self, cell: Cell, blocks: list[NDArray[Any]], info: KernelInfo) -> None:
        """Copy the block of every kernel at this cell, and its mirror image, into the matrices."""
        rows, columns = self.grid.slices(cell)
        for matrix, block in zip(self.matrices, blocks, strict=True):
            matrix[rows, columns] = block
            if self.grid.mirrored(cell):
                matrix[columns, rows] = block.T
        self._evidence[cell] = info

    # A block that was computed here and one that a worker has sent are treated alike.
    put = record


class OnDisk:
    """Computed blocks go into stores on disk, one for each kernel."""

    def __init__(self, stores: list[KernelStore]) -> None:
        self.stores = stores

    @property
    def grid(self) -> Grid:
        """The blocks of each of the matrices."""
        return self.stores[0].grid

    def missing(self) -> list[Cell]:
        """List the blocks that are not yet in every store."""
        finished = set.intersection(*(set(store.finished) for store in self.stores))
        return [cell for cell in self.grid.cells() if cell not in finished]

    def put(self, cell: Cell, blocks: list[NDArray[Any]], info: KernelInfo) -> None:
        """Write the block of every kernel at this cell."""
        written = [store.write(cell, block) for store, block in zip(self.stores, blocks, strict=True)]
        self.record(cell, written, info)

    def record(self, cell: Cell, checksums: list[str], info: KernelInfo) -> None:
        """Record in the journals that the blocks of a cell are on disk."""
        for store, digits in zip(self.stores, checksums, strict=True):
            store.record(FinishedBlock(cell, digits, info))


Target = InMemory | OnDisk
