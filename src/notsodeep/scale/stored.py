"""A kernel on disk: read like an array, multiplied like a matrix, although only its lower half is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse.linalg import LinearOperator

from notsodeep.errors import InputError
from notsodeep.memory import in_words
from notsodeep.results import KernelInfo
from notsodeep.scale.kernel_jobs import Cell
from notsodeep.scale.store import BlockArray, checksum, read_journal
from notsodeep.validation import Array

# Numbers of a block that are multiplied at once: a strip of float32 becomes float64 in the cache.
_STRIP = 2**17


class StoredKernel(LinearOperator):
    """A finished kernel on disk, read like an array: `K[100:200, :50]`, `K[7]`, `np.asarray(K)`.

    It is a `scipy.sparse.linalg.LinearOperator`: `K @ V` reads every block once, for any number of columns, and
    `eigsh`, `lobpcg` and `cg` of scipy take it. Blocks are verified by checksum the first time they are read.

    Attributes:
        path: the folder.
        shape: (n, n) or (n, k).
        dtype: the precision of the stored numbers.
        run: the hash of what was computed: model, kernel, data, precision, blocks.
        info: how the numbers were obtained, all blocks together.
        repaired: blocks that were damaged and that the run that returned this object computed again.
    """

    ndim = 2

    def __init__(
        self, path: str | Path, repaired: tuple[Cell, ...] = (), verified: Iterable[Cell] = ()
    ) -> None:
        self.path, self.repaired = Path(path), repaired
        self._array = BlockArray(self.path)
        self.grid, self.run = self._array.grid, self._array.run
        super().__init__(np.dtype(self._array.described["storage"]), (self.grid.rows, self.grid.columns))
        self._entries = read_journal(self.path, self.grid)
        if len(self._entries) < self.grid.count:
            raise InputError(
                f"{self.path} is not finished: {self.grid.count - len(self._entries)} of its {self.grid.count} blocks "
                "are missing. Repeat the call that began it; it continues where it stopped."
            )
        self._verified = set(verified)
        self.info = reduce(KernelInfo.merge, (entry.info for entry in self._entries.values()))

    @property
    def nbytes(self) -> int:
        """Bytes that the whole matrix would take in memory."""
        return int(self.shape[0] * self.shape[1] * self.dtype.itemsize)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"StoredKernel({str(self.path)!r}, shape={self.shape}, dtype={self.dtype}, {in_words(self.nbytes)})"

    def block(self, cell: Cell) -> NDArray[Any]:
        """A stored block (of a symmetric kernel on or below the diagonal), verified on the first reading."""
        block = self._array.read(cell)
        if cell not in self._verified and checksum(block) != self._entries[cell].checksum:
            raise InputError(
                f"Block {cell} of {self.path} is missing or damaged. Repeat the call that computed the kernel; it "
                "computes that block again."
            )
        self._verified.add(cell)
        return block

    def diagonal(self) -> NDArray[Any]:
        """The diagonal of a symmetric kernel."""
        if not self.grid.symmetric:
            raise InputError("A kernel between two sets of samples has no diagonal.")
        return np.concatenate([self.block((i, i)).diagonal() for i in range(self.grid.height)])

    def _matmat(self, right: Array) -> Array:
        return self._product(np.asarray(right, dtype=np.float64), turned=False)

    def _rmatmat(self, right: Array) -> Array:
        return self._product(np.asarray(right, dtype=np.float64), turned=not self.grid.symmetric)

    def _matvec(self, vector: Array) -> Array:
        return self._matmat(np.reshape(vector, (-1, 1)))[:, 0]

    def _rmatvec(self, vector: Array) -> Array:
        return self._rmatmat(np.reshape(vector, (-1, 1)))[:, 0]

    def _product(self, right: Array, *, turned: bool) -> Array:
        """The matrix, or its transpose, times a block of columns, in float64 whatever is stored."""
        result = np.zeros((self.shape[turned], right.shape[1]))
        for cell, block in self._sweep():
            rows, columns = self.grid.slices(cell)
            step = max(_STRIP // block.shape[1], 1)
            for start in range(0, len(block), step):
                strip = block[start : start + step].astype(np.float64, copy=False)
                part = slice(rows.start + start, rows.start + start + len(strip))
                if not turned:
                    result[part] += strip @ right[columns]
                if turned or self.grid.mirrored(cell):
                    result[columns] += strip.T @ right[part]
        return result

    def _sweep(self) -> Iterator[tuple[Cell, NDArray[Any]]]:
        """All stored blocks; the next one is read while this one is used."""
        with ThreadPoolExecutor(1) as pool:
            cells = list(self.grid.cells())
            waiting = pool.submit(self.block, cells[0])
            for cell, following in zip(cells, [*cells[1:], None], strict=True):
                block = waiting.result()
                if following is not None:
                    waiting = pool.submit(self.block, following)
                yield cell, block

    def __getitem__(self, index: Any) -> Any:
        both = index if isinstance(index, tuple) else (index,)
        if len(both) > 2:
            raise InputError(f"A kernel has two axes; got {len(both)} indices.")
        rows, columns = both[0], both[1] if len(both) == 2 else slice(None)
        top, left = (_range(part, size) for part, size in zip((rows, columns), self.shape, strict=True))
        window = self._window(top[0], left[0])
        return window[top[1], left[1]]

    def _window(self, rows: slice, columns: slice) -> NDArray[Any]:
        """A rectangle of the whole matrix, put together from the blocks that touch it."""
        result = np.empty((rows.stop - rows.start, columns.stop - columns.start), self.dtype)
        for i in _touched(rows, self.grid.block):
            for j in _touched(columns, self.grid.block):
                flipped = self.grid.symmetric and j > i
                block = self.block((j, i)).T if flipped else self.block((i, j))
                inside, target = zip(*map(_overlap, self.grid.slices((i, j)), (rows, columns)), strict=True)
                result[target] = block[inside]
        return result

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise InputError(
                f"{self.path} is on disk and cannot become an array with copy=False. Leave copy out, or read a part: "
                "K[:100, :100]."
            )
        whole = self._window(slice(0, self.shape[0]), slice(0, self.shape[1]))
        return whole if dtype is None else whole.astype(dtype, copy=False)


def open_kernel(path: str | Path) -> StoredKernel:
    """Open a kernel that `conjugate_kernel(…, out=path)` or `tangent_kernel(…, out=path)` has finished."""
    return StoredKernel(path)


def _range(index: Any, size: int) -> tuple[slice, Any]:
    """The range of rows that an index touches, and the index within it."""
    if isinstance(index, slice):
        steps = range(*index.indices(size))
        if not len(steps):
            return slice(0, 0), slice(0, 0)
        low, high = min(steps[0], steps[-1]), max(steps[0], steps[-1]) + 1
        return slice(low, high), slice(None, None, steps.step)
    try:
        position = range(size)[index]
    except (TypeError, IndexError) as error:
        raise InputError(
            f"The index {index!r} is not valid for {size} rows or columns; use whole numbers and slices."
        ) from error
    return slice(position, position + 1), 0


def _touched(part: slice, block: int) -> Iterator[int]:
    """The rows (or columns) of blocks that a range of rows (or columns) of the matrix touches."""
    return iter(range(part.start // block, -(-part.stop // block)) if part.stop > part.start else ())


def _overlap(block: slice, window: slice) -> tuple[slice, slice]:
    """Where a block and a window overlap, as slices of each."""
    low, high = max(block.start, window.start), min(block.stop, window.stop)
    return slice(low - block.start, high - block.start), slice(low - window.start, high - window.start)
