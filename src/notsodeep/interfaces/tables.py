"""Files of numbers, CSV or NPY, read as matrices and as nothing else.

They may come from anywhere: nothing is unpickled and nothing is executed.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.validation import Array, as_rows

ENDINGS = (".csv", ".npy")
_NPY = b"\x93NUMPY"
_LONGEST_CELL = 40  # characters of a cell that a message repeats


def open_table(path: str | Path, n: int | None = None) -> Array:
    """The first n rows of a file, or all of them.

    Raises:
        InputError: if there is no such file, or if it is not a matrix of finite numbers.
    """
    if not Path(path).is_file():
        raise InputError(f"There is no file {path}.")
    with Path(path).open("rb") as file:
        return read_table(file, str(path), n)


def read_table(file: BinaryIO, name: str, n: int | None = None) -> Array:
    """The first n rows of an open file, or all of them.

    Args:
        file: open for reading bytes.
        name: of the file; its ending says what it is.
        n: how many rows.

    Raises:
        InputError: for anything that is not a matrix of finite numbers; the message says what came and what to do.
    """
    ending = PurePath(name).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"A file with the ending {ending or '(none)'} came; a .csv or .npy file is needed.")
    found = read_npy(file, name) if ending == ".npy" else _read_csv(file, name)
    return as_rows(found[:n] if found.ndim else found, f"The file {name}")


def read_npy(file: BinaryIO, name: str) -> NDArray[Any]:
    """The array in an open NPY file, of whatever shape."""
    start = file.tell()
    if file.read(len(_NPY)) != _NPY:
        raise InputError(f"The file {name} is not a NPY file. Write one with numpy.save('rows.npy', X).")
    try:
        _refuse_large_header(file, start)
        return np.asarray(np.load(file, allow_pickle=False))
    # What a broken or hostile header raises has no common type: all of it means the same to the reader.
    except Exception as error:
        reason = (
            "it holds Python objects" if "pickle" in str(error) else "its content does not fit its header"
        )
        raise InputError(
            f"The file {name} cannot be read: {reason}. Write a plain matrix of numbers only, with numpy.save."
        ) from None


def _refuse_large_header(file: BinaryIO, start: int) -> None:
    """A header may promise more than the file has: refused before any memory is asked for."""
    size = file.seek(0, 2) - start
    file.seek(start)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > size:
        raise ValueError("promises more than there is")
    file.seek(start)


def _read_csv(file: BinaryIO, name: str) -> Array:
    try:
        lines = file.read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(
            f"The file {name} is not text in UTF-8. Save it as plain CSV, or write a NPY file."
        ) from None
    table = [(number, line.split(",")) for number, line in enumerate(lines, 1) if line.strip()]
    if not table:
        raise InputError(f"The file {name} has no rows. One sample in each row is needed.")
    first = table[0][1]
    for sign, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(first) == 1 and sign in first[0]:
            raise InputError(
                f"The cells of {name} are separated by {word}. Save the file with commas, and decimal points."
            )
    rows = np.empty((len(table), len(first)))
    for row, (number, cells) in zip(rows, table, strict=True):
        if len(cells) != len(first):
            raise InputError(
                f"Row {number} of {name} has {len(cells)} cells, the first row {len(first)}. Give every row as many."
            )
        row[:] = [_number(cell, name, number, column) for column, cell in enumerate(cells, 1)]
    return rows


def _number(cell: str, name: str, row: int, column: int) -> float:
    try:
        return float(cell)
    except ValueError:
        pass
    text = cell.strip()[:_LONGEST_CELL]
    if row == 1:
        raise InputError(
            f"Row 1, column {column} of {name} has {text!r} where a number is needed; it looks like a header. Remove "
            "the header."
        )
    raise InputError(
        f"Row {row}, column {column} of {name} has {repr(text) if text else 'an empty cell'}, not a number. Remove "
        "text columns (labels too) and fill or drop what is missing."
    )
