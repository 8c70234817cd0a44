"""Samples in memory, in a mapped file, in a zarr array or in a dask array, read slice by slice.

`Rows` have a shape, (n, p) or (n, …) for samples that are not vectors, and read a slice of the samples as float64. When
they are sent to another process, samples in a file are sent as a path, samples in memory as an array.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.files import explained_errors
from notsodeep.models.protocol import Model
from notsodeep.validation import Array, as_real, check_real, check_row_shape

# Bytes (as float64) of the rows that are read at once in a pass over all of them.
CHUNK = 32 * 1000**2
# Number of quantiles of the squared norms that every block is given; see `anchors`.
ANCHORS = 288


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Rows of an array in memory or of a zarr array."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples, then the shape of one."""
        return tuple(int(size) for size in self.array.shape)

    def read(self, rows: slice) -> Array:
        """Read these samples as a C-contiguous float64 array."""
        return np.ascontiguousarray(self.array[rows], dtype=np.float64)


@dataclass(frozen=True)
class MappedRows:
    """Rows of a mapped file; mapped anew for each reading, so that its pages do not stay in the process."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def read(self, rows: slice) -> Array:
        """Read these samples as a C-contiguous float64 array."""
        try:
            mapped = np.memmap(self.path, np.dtype(self.dtype), "r", self.offset, self.shape)
        except (OSError, ValueError) as error:
            raise InputError(
                f"The rows in {self.path} cannot be read ({error}). Put the file on a file system that all workers "
                "share, under the same path."
            ) from error
        return np.array(mapped[rows], dtype=np.float64, order="C")


Rows = ArrayRows | MappedRows


@contextmanager
def rows_of(X: Any, name: str = "X", *, out: Path | None = None, sent: bool = False) -> Iterator[Rows]:
    """Wrap X during a with statement; a dask array is computed once, chunk after chunk, into a file.

    Args:
        X: an array, an np.memmap, a zarr array or a dask array.
        name: name of the samples in errors.
        out: the store of the run. The file of a dask array is written next to it, where workers on other machines can
            read it; without a store it is a temporary file.
        sent: whether workers need the rows. Without a store a dask array is then computed into memory and sent.
    """
    if not is_out_of_core(X, "dask"):
        yield plain_rows(X, name)
        return
    _check(X.shape, X.dtype, name)
    if sent and out is None:
        yield ArrayRows(_computed(X, np.empty(X.shape)))
        return
    folder = None if out is None else out.absolute().parent
    if folder is not None:
        with explained_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".rows-", dir=folder) as staging:
        file = Path(staging) / "rows.npy"
        _computed(X, np.lib.format.open_memmap(file, "w+", np.float64, X.shape)).flush()
        yield open_rows(file)


def plain_rows(X: Any, name: str = "X") -> Rows:
    """Wrap an array in memory, an np.memmap or a zarr array."""
    if isinstance(X, MappedRows | ArrayRows):
        return X
    if not isinstance(X, np.memmap) and not is_out_of_core(X, "zarr"):
        X = as_real(X, name)
    _check(X.shape, X.dtype, name)
    mapped = _mapped(X) if isinstance(X, np.memmap) else None
    return ArrayRows(X) if mapped is None else mapped


def open_rows(path: str | Path) -> Rows:
    """Open the rows of a .npy file or of a zarr array; they are read when they are needed."""
    file = Path(path)
    if not file.exists():
        raise InputError(f"There is no file {path}.")
    if file.suffix == ".npy":
        try:
            return plain_rows(np.load(file, mmap_mode="r", allow_pickle=False), str(path))
        except ValueError as error:
            raise InputError(f"{path} cannot be read as a matrix of numbers: {error}.") from None
    zarr = needed("zarr", "Rows in a zarr array")
    try:
        array = zarr.open_array(file, mode="r")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is neither a .npy file nor a zarr array ({type(error).__name__})."
        ) from error
    return plain_rows(array, str(path))


def is_out_of_core(X: Any, *packages: str) -> bool:
    """Whether X is an array of zarr or dask, or of the given one of them."""
    return type(X).__module__.split(".")[0] in (packages or ("zarr", "dask"))


def _computed(X: Any, target: Any) -> Any:
    """Compute a dask array into the target, one chunk of rows after the other, and return the target."""
    start = 0
    for size in X.chunks[0]:
        target[start : start + size] = X[start : start + size].compute()
        start += size
    return target


def _mapped(X: np.memmap[Any, Any]) -> MappedRows | None:
    """Where the rows are in their file; None if they do not lie there one after the other."""
    root = X
    while isinstance(root.base, np.memmap):
        root = root.base
    if not X.flags.c_contiguous or not isinstance(root.filename, str | Path):
        return None
    # A view keeps the offset of the array it was cut from; the addresses say where it is.
    inside = X.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return MappedRows(str(root.filename), X.dtype.str, X.shape, root.offset + inside)


def _check(shape: tuple[int, ...], dtype: Any, name: str) -> None:
    check_real(dtype, name)
    check_row_shape(shape, name, more_axes=True)


# --- one pass over all rows -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SurveyedRows:
    """Samples with the results of one pass over all of them, on which all blocks must agree."""

    rows: Rows
    squares: Array  # their squared norms as `Model.squared_norms` gives them, first axis: samples
    fingerprint: str  # a hash of the samples as float64, in their order

    @property
    def count(self) -> int:
        """Number of samples."""
        return self.rows.shape[0]

    @property
    def size(self) -> int:
        """Numbers in one sample."""
        return int(np.prod(self.rows.shape[1:]))


def survey(rows: Rows, model: Model, name: str = "X") -> SurveyedRows:
    """Read all samples once, chunk after chunk, and check them for the model."""
    digest, squares = hashlib.sha256(f"{rows.shape} ".encode()), []
    n = rows.shape[0]
    step = max(CHUNK // (8 * int(np.prod(rows.shape[1:]))), 1)
    for start in range(0, n, step):
        stop = min(start + step, n)
        read = model.check_samples(rows.read(slice(start, stop)), f"{name} (rows {start} to {stop - 1})")
        digest.update(read.view(np.uint8).data)
        squares.append(model.squared_norms(read))
    return SurveyedRows(rows, np.concatenate(squares), digest.hexdigest()[:32])


def anchors(*squares: Array) -> Array:
    """Quantiles of all squared norms, with the smallest and the largest among them.

    What depends on one sample is interpolated between the smallest and the largest norm. With these beside its own
    samples every block interpolates over the same range, whatever the blocking.
    """
    everything = np.sort(np.concatenate([part.ravel() for part in squares]))
    return everything[np.linspace(0, len(everything) - 1, ANCHORS).round().astype(np.intp)]
