"""Files that come from a browser, read from their bytes as matrices of numbers and as nothing else.

Nothing is unpickled and nothing is executed: of a NPY file only plain arrays are read, of a CSV file only numbers.
"""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.validation import as_rows

Array = NDArray[np.float64]

MEGABYTE = 2**20
FEWEST_ROWS = 20
MOST_ROWS = 20_000
MOST_COLUMNS = 10_000
_NPY = b"\x93NUMPY"
_LONGEST_CELL = 40  # characters of a cell that a message repeats


@dataclass(frozen=True)
class Upload:
    """The rows of a file; two are equal when their bytes are.

    Attributes:
        name: of the file, without its folder.
        digest: SHA-256 of its bytes.
        rows: samples in rows.
    """

    name: str
    digest: str
    rows: Array = field(compare=False, repr=False)


def read_upload(name: str, content: bytes, *, megabytes: float) -> Upload:
    """A CSV or NPY file as a matrix of finite numbers.

    Args:
        name: of the file; its ending says what it is.
        content: its bytes.
        megabytes: the most that is read.

    Raises:
        InputError: for anything that is not such a matrix; the message says what came and what to do.
    """
    if len(content) > megabytes * MEGABYTE:
        raise InputError(
            f"The file has {len(content) / MEGABYTE:.1f} MB; at most {megabytes:g} MB are read here. Upload fewer "
            "rows, or start with notsodeep explore --max-upload MB."
        )
    if not content:
        raise InputError("The file is empty. Upload a CSV or NPY file with one sample in each row.")
    ending = PurePath(name).suffix.lower()
    if ending not in (".csv", ".npy"):
        raise InputError(f"A file with the ending {ending or '(none)'} came; a .csv or .npy file is needed.")
    found = _of_npy(content) if ending == ".npy" else _of_csv(content)
    return Upload(PurePath(name).name, hashlib.sha256(content).hexdigest(), _checked(found))


def _of_npy(content: bytes) -> Any:
    if not content.startswith(_NPY):
        raise InputError("This is not a NPY file. Write one with numpy.save('rows.npy', X).")
    try:
        _refuse_large_header(content)
        return np.load(io.BytesIO(content), allow_pickle=False)
    except InputError:
        raise
    # What a broken or hostile header raises has no common type: all of it means the same to the reader.
    except Exception as error:
        reason = (
            "it holds Python objects" if "pickle" in str(error) else "its content does not fit its header"
        )
        raise InputError(
            f"The NPY file cannot be read: {reason}. Write a plain matrix of numbers with numpy.save."
        ) from None


def _refuse_large_header(content: bytes) -> None:
    """A header may promise more than the file has: refused before any memory is asked for."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > len(content):
        raise ValueError("promises more than there is")


def _of_csv(content: bytes) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            "The CSV file is not text in UTF-8. Save it as plain CSV, or upload a NPY file."
        ) from None
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError("The CSV file has no rows. Upload one with a sample in each row.")
    for sign, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(lines[0]) == 1 and sign in lines[0][0]:
            raise InputError(
                f"The cells are separated by {word}. Save the file with commas, and decimal points."
            )
    return _numbers(lines)


def _numbers(lines: list[list[str]]) -> Array:
    width = len(lines[0])
    rows = np.empty((len(lines), width))
    for number, line in enumerate(lines, 1):
        if len(line) != width:
            raise InputError(
                f"Row {number} of the CSV file has {len(line)} cells, the first row {width}. Give every row as many."
            )
        try:
            rows[number - 1] = [float(cell) for cell in line]
        except ValueError:
            _refuse_text(number, line)
    return rows


def _refuse_text(number: int, line: list[str]) -> None:
    column, cell = next((place, cell) for place, cell in enumerate(line, 1) if not _is_number(cell))
    said = cell.strip()[:_LONGEST_CELL]
    if number == 1:
        raise InputError(
            f"The first row has {said!r} where a number is needed; it looks like a header. Remove the header and "
            "upload again."
        )
    what = "an empty cell" if not said else f"{said!r}"
    raise InputError(
        f"Row {number}, column {column} of the CSV file has {what}, not a number. Remove text columns (labels too) and "
        "fill or drop what is missing."
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _checked(found: Any) -> Array:
    if getattr(found, "dtype", None) is None or found.dtype.kind not in "biuf":
        kind = getattr(found, "dtype", type(found).__name__)
        raise InputError(f"The file holds {kind}; real numbers are needed. Convert them first.")
    if found.ndim != 2:
        raise InputError(
            f"The file holds an array of shape {found.shape}; a matrix with one sample in each row is needed."
        )
    if not FEWEST_ROWS <= found.shape[0] <= MOST_ROWS or not 2 <= found.shape[1] <= MOST_COLUMNS:
        raise InputError(
            f"The file has {found.shape[0]} rows and {found.shape[1]} columns; the page takes {FEWEST_ROWS} to "
            f"{MOST_ROWS} rows and 2 to {MOST_COLUMNS} columns. For more, use notsodeep kernel (docs/scale.md)."
        )
    rows = as_rows(found, "The file")
    if not np.any(rows != rows[0]):
        raise InputError("All rows of the file are equal: there is nothing to tell apart. Check the file.")
    rows.setflags(write=False)
    return rows


__all__ = ["MEGABYTE", "Upload", "read_upload"]
