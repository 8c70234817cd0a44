"""Read samples and labels from a user's CSV, NPY, NPZ and Parquet files, and write matrices.

The files may come from anywhere: nothing is unpickled and nothing is executed.
"""

from __future__ import annotations

import csv
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.files import atomic_write
from notsodeep.validation import Array, as_rows

EXTENSIONS = (".csv", ".npy", ".npz", ".parquet")
WRITTEN = (".csv", ".npy", ".npz")
_NPY = b"\x93NUMPY"
_LONGEST_CELL = 40  # characters of a cell that a message repeats
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls the index of a table
_MISSING = ("", "nan", "NaN", "None", "<NA>", "NaT", "NA", "N/A", "null", "NULL")  # how tables write nothing


@dataclass(frozen=True, eq=False)
class TableData:
    """Samples and labels read from a file.

    Attributes:
        rows: samples in rows (n, p), finite float64.
        labels: one label for each row, or None.
        note: what was changed while reading, in sentences; empty if nothing was.
        total: number of rows in the file; `rows` may be only the first of them.
    """

    rows: Array
    labels: NDArray[Any] | None = None
    note: str = ""
    total: int = 0


def is_table(source: str) -> bool:
    """Tell whether a text names a file that can be read here: rows.csv, rows.npz, rows.npz:X."""
    return split_member(source)[0].suffix.lower() in EXTENSIONS


def split_member(source: str) -> tuple[Path, str | None]:
    """Split a text such as rows.npz:X into the path and the name of the array."""
    before, colon, member = source.rpartition(":")
    if colon and PurePath(before).suffix.lower() == ".npz":
        return Path(before), member
    return Path(source), None


def open_table(source: str | Path, n: int | None = None, label_column: str | None = None) -> TableData:
    """Read samples and labels from a file.

    Args:
        source: path of a .csv, .npy, .npz or .parquet file. rows.npz:X names an array of an NPZ file; without a name
            it is the only array, or the one called X.
        n: number of rows to read, from the start of the file; all if None.
        label_column: the column that holds labels: its name, or its number counted from 1 (-1 is the last one); for an
            NPZ file the name of the array of labels.

    Raises:
        InputError: if there is no such file, or if it is not a matrix of finite numbers.
    """
    path, member = split_member(str(source))
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    with path.open("rb") as file:
        return read_table(file, str(path), n, label_column, member)


def read_table(
    file: BinaryIO,
    name: str,
    n: int | None = None,
    label_column: str | None = None,
    member: str | None = None,
) -> TableData:
    """Read samples and labels from an open file; the extension of `name` gives the format, see `open_table`."""
    check_extension(Path(name))
    extension = PurePath(name).suffix.lower()
    if extension == ".npz":
        table = _npz_table(file, name, label_column, member)
    else:
        read = {".csv": _csv_table, ".npy": _npy_table, ".parquet": _parquet_table}[extension]
        table = read(file, name, label_column)
    rows, labels, note = table.rows, table.labels, table.note
    if rows.ndim in (3, 4) and 0 not in rows.shape:
        size = " × ".join(map(str, rows.shape[1:]))
        rows = rows.reshape(len(rows), -1)
        note = f"Images of {size} were flattened into {rows.shape[1]} columns."
    if labels is not None and len(labels) != len(rows):
        raise InputError(
            f"The file {name} has {len(rows)} rows and {len(labels)} labels; one for each row is needed."
        )
    checked = as_rows(rows[:n] if rows.ndim else rows, f"The file {name}")
    note = f"{note} {cut_note(n, len(rows))}".strip()
    return TableData(checked, None if labels is None else _labels(labels[:n], name), note, len(rows))


def cut_note(n: int | None, total: int) -> str:
    """Say that only the first n of all rows of a file are used; empty if all are."""
    return f"Only the first {n} of {total} rows are used." if n is not None and n < total else ""


def open_labels(path: str | Path, total: int, n: int | None = None) -> tuple[NDArray[Any], str]:
    """Read the labels of the first n of `total` rows, with a note on a header that was skipped.

    Args:
        path: a .npy file, or a .csv file with one column. Its first line is a header if there is one line more than
            rows.
        total: number of rows that the labels belong to.
        n: number of labels to return, from the start of the file; all if None.

    Raises:
        InputError: if there is not exactly one label for each row.
    """
    place, note = Path(path), ""
    if not place.is_file():
        raise InputError(f"There is no file {path}.")
    with place.open("rb") as file:
        if place.suffix.lower() == ".npy":
            labels = _read_npy(file, str(path))
        elif place.suffix.lower() == ".csv":
            labels, note = _csv_labels(file, str(path), total)
        else:
            raise InputError(f"Unsupported extension of {path}; labels are read from .npy and .csv files.")
    if labels.ndim != 1 and labels.shape[1:] != (1,):
        raise InputError(f"The file {path} has shape {labels.shape}; one label for each row is needed.")
    if len(labels) != total:
        raise InputError(
            f"The file {path} has {len(labels)} labels for {total} rows; one for each row is needed."
        )
    return _labels(labels.reshape(-1)[:n], str(path)), note


def write_table(path: Path, matrix: Array) -> None:
    """Write a matrix in the format of the extension: .csv, .npy or .npz (as the array K)."""
    check_extension(path, WRITTEN)
    with atomic_write(path) as temporary:
        if path.suffix.lower() == ".csv":
            np.savetxt(temporary, matrix, delimiter=",", fmt="%.17g")
        elif path.suffix.lower() == ".npy":
            np.save(temporary, matrix, allow_pickle=False)
        else:
            np.savez(temporary, K=matrix)


def check_extension(path: Path, known: tuple[str, ...] = EXTENSIONS) -> None:
    """Refuse a file name whose extension is not one of the known formats."""
    if path.suffix.lower() not in known:
        raise InputError(
            f"Unsupported extension {path.suffix or '(none)'} of {path}; expected one of {', '.join(known)}."
        )


# --- NPY and NPZ ----------------------------------------------------------------------------------------------------


def _read_npy(file: BinaryIO, name: str) -> NDArray[Any]:
    start = file.tell()
    if file.read(len(_NPY)) != _NPY:
        raise InputError(f"The file {name} is not a NPY file. Write one with numpy.save('rows.npy', X).")
    try:
        # A header that promises more than the file has is refused before any memory is allocated.
        size = file.seek(0, 2) - start
        file.seek(start)
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize > size:
            raise ValueError("the header promises more than the file has")
        file.seek(start)
        return np.asarray(np.load(file, allow_pickle=False))
    # What a broken or hostile header raises has no common type: all of it means the same to the reader.
    except Exception as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> InputError:
    reason = "it holds Python objects" if "pickle" in str(error) else "its content does not fit its header"
    return InputError(f"The file {name} cannot be read: {reason}. Write plain arrays of numbers with NumPy.")


def _npy_table(file: BinaryIO, name: str, label_column: str | None) -> TableData:
    array = _read_npy(file, name)
    if label_column is None:
        return TableData(array)
    if array.ndim != 2:
        raise InputError(f"--label-column needs a matrix; {name} has shape {array.shape}. Use --labels.")
    column = _column(label_column, [], array.shape[1], name)
    return TableData(np.delete(array, column, axis=1), array[:, column])


def _npz_table(file: BinaryIO, name: str, label_column: str | None, member: str | None) -> TableData:
    try:
        with np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            others = [one for one in names if one != label_column]
            chosen = member or ("X" if "X" in others else others[0] if len(others) == 1 else None)
            for one in (chosen, label_column or chosen):
                if one not in names:
                    remedy = f", and no {one}." if one else f": name one, as in {name}:{(others or 'X')[0]}."
                    raise InputError(f"The file {name} has the arrays {', '.join(names) or '(none)'}{remedy}")
            labels = None if label_column is None else archive[label_column].reshape(-1)
            return TableData(archive[chosen], labels)
    except InputError:
        raise
    except zipfile.BadZipFile:
        raise InputError(f"The file {name} is not a NPZ file. Write one with numpy.savez.") from None
    # As for NPY files: damage has no common type.
    except Exception as error:
        raise _unreadable(name, error) from None


# --- Parquet --------------------------------------------------------------------------------------------------------


def _parquet_table(file: BinaryIO, name: str, label_column: str | None) -> TableData:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"Parquet files need the package pyarrow (pip install pyarrow): {str(error).rstrip('.')}. "
            "Or use .csv or .npy."
        ) from None
    try:
        content = pyarrow.parquet.read_table(pyarrow.BufferReader(file.read()))
    # As for NPY files: damage has no common type.
    except Exception as error:
        raise InputError(f"The file {name} cannot be read as Parquet: {str(error).rstrip('.')}.") from None
    names = list(content.column_names)
    label = None if label_column is None else _column(label_column, names, len(names), name)
    columns = [np.asarray(content.column(index).to_numpy()) for index in range(len(names))]
    features = [index for index in range(len(names)) if index != label]
    for index in features:
        if columns[index].dtype.kind not in "biuf":
            raise InputError(
                f"The column {names[index]!r} of {name} holds {columns[index].dtype}, not numbers. If it holds labels, "
                f"use --label-column {names[index]!r}; otherwise remove it."
            )
    # pandas stores the index of a table as a column, usually the last one.
    skipped = [i for i in features if names[i] in _INDEX_NAMES and columns[i].dtype.kind in "iu"]
    skipped = [i for i in skipped if len(set(columns[i])) == len(content)]
    rows = [columns[i].astype(np.float64) for i in features if i not in skipped]
    if not rows:
        raise InputError(f"The file {name} has no columns of numbers.")
    note = f"The index {names[skipped[0]]!r} was skipped." if skipped else ""
    return TableData(np.column_stack(rows), None if label is None else columns[label], note)


# --- CSV ------------------------------------------------------------------------------------------------------------


def _csv_table(file: BinaryIO, name: str, label_column: str | None) -> TableData:
    header, body = csv_cells(file, name)
    if not body:
        raise InputError(f"The file {name} has no rows. One sample in each row is needed.")
    width = len(header or body[0][1])
    for number, cells in body:
        if len(cells) != width:
            raise InputError(f"Row {number} of {name} has {len(cells)} cells, the first row {width}.")
    label = None if label_column is None else _column(label_column, header, width, name)
    notes = ["The first row, 0, 1, 2, …, was read as a header."] if any(map(is_number, header)) else []
    index = int(_has_index(header, [cells[0] for _, cells in body]) and label != 0 and width > 1)
    if index:
        notes.append("The first column numbers the rows and was skipped.")
    columns = [column for column in range(index, width) if column != label]
    rows = np.empty((len(body), len(columns)))
    for row, (number, cells) in zip(rows, body, strict=True):
        row[:] = [_number(cells[column], name, number, column, header) for column in columns]
    labels = None if label is None else np.array([cells[label].strip() for _, cells in body])
    return TableData(rows, labels, " ".join(notes))


def _csv_labels(file: BinaryIO, name: str, total: int) -> tuple[NDArray[Any], str]:
    """Read the labels of a CSV file with one column; line 1 is a header if there is one line more than rows."""
    lines = [cells for _, cells in _lines(file, name, keep_blank=True)]
    if max(map(len, lines)) > 1:
        raise InputError(
            f"The file {name} has {max(map(len, lines))} columns; labels are one column. Remove the others."
        )
    words = ["".join(cells).strip() for cells in lines]
    first, others = words[0], words[1:]
    is_name = first == "0" or not (is_number(first) or first in (*others, ""))
    if len(words) == total + 1 and is_name:
        return np.array(others), f"The first line of {name}, {first[:_LONGEST_CELL]!r}, was read as a header."
    return np.array(words), ""


def csv_cells(file: BinaryIO, name: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read the header of a CSV file, empty if there is none, and the cells of each row with its line number."""
    table = _lines(file, name)
    header = _header(table[0][1], [cells for _, cells in table[1:]])
    return header, table[1:] if header else table


def _lines(file: BinaryIO, name: str, keep_blank: bool = False) -> list[tuple[int, list[str]]]:
    """Read the cells of each row with its line number; blank rows are skipped unless `keep_blank`."""
    try:
        text = file.read().decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError:
        raise InputError(
            f"The file {name} is not text in UTF-8. Save it as plain CSV, or as a NPY file."
        ) from None
    reader = csv.reader(text, skipinitialspace=True)
    try:
        table = [(reader.line_num, cells) for cells in reader if keep_blank or "".join(cells).strip()]
    except csv.Error as error:
        raise InputError(f"Line {reader.line_num} of {name} is not CSV: {error}.") from None
    if not table:
        raise InputError(f"The file {name} has no rows. One sample in each row is needed.")
    first = table[0][1]
    for sign, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(first) == 1 and sign in first[0]:
            raise InputError(
                f"The file {name} is separated by {word}. Save it with commas and decimal points."
            )
    return table


def _header(first: list[str], others: list[list[str]]) -> list[str]:
    """Return the names of the columns, empty if there are none: a row without numbers, or the 0, 1, 2, … of pandas.

    Fewer than three such numbers could be a sample; they are names only beside a word that is not a label.
    """
    names = [cell.strip() for cell in first]
    numbers = [cell for cell in names if is_number(cell)]
    words = set(names) - set(numbers)
    is_label = any(cell.strip() in words for line in others for cell in line)
    counted = numbers == [str(count) for count in range(len(numbers))]
    clear = len(numbers) > 2 or bool(words)
    return names if not numbers or (others and counted and clear and not is_label) else []


def _has_index(header: list[str], column: list[str]) -> bool:
    """Tell whether the first column is the index that pandas writes: whole numbers, each once, without a name.

    Without a header they must count the rows from 0 on.
    """
    cells = [cell.strip() for cell in column]
    if header:
        return header[0] in _INDEX_NAMES and all(map(str.isdigit, cells)) and len(set(cells)) == len(cells)
    return len(cells) > 2 and cells == [str(number) for number in range(len(cells))]


def is_number(cell: str) -> bool:
    """Tell whether a cell of a CSV file is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, name: str, row: int, column: int, header: list[str]) -> float:
    try:
        return float(cell)
    except ValueError:
        pass
    text = cell.strip()[:_LONGEST_CELL]
    called = repr(header[column][:_LONGEST_CELL]) if column < len(header) else str(column + 1)
    raise InputError(
        f"Row {row}, column {column + 1} of {name} has {repr(text) if text else 'an empty cell'}, not a number. If "
        f"it is a label, name its column: label column {called} (--label-column {called}). Otherwise fill or remove it."
    )


def _column(column: str, header: list[str], width: int, name: str) -> int:
    """Return the index of a column given by its name or by its number from 1 (-1 is the last)."""
    if column in header:
        return header.index(column)
    try:
        number = int(column)
    except ValueError:
        number = 0
    if 1 <= abs(number) <= width:
        return number - 1 if number > 0 else width + number
    known = f"It has {', '.join(header[:12])}{', …' * (len(header) > 12)}." if header else "It has no header."
    raise InputError(
        f"The file {name} has no column {column!r}. {known} Numbers go from 1 to {width}; -1 is the last."
    )


def _labels(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Convert labels to numbers if all are numbers, whole ones to integers; refuse missing ones."""
    rows = [row for row, label in enumerate(labels.tolist(), 1) if str(label).strip() in _MISSING]
    if rows:
        listed = ", ".join(map(str, rows[:10])) + ", …" * (len(rows) > 10)
        raise InputError(
            f"{len(rows)} of {len(labels)} labels of {name} are missing: row{'s' * (len(rows) > 1)} {listed}. Remove "
            "these rows, or give them a class."
        )
    if labels.dtype.kind in "US":
        try:
            labels = labels.astype(np.float64)
        except ValueError:
            return labels
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and np.array_equal(labels, np.rint(labels)):
        return labels.astype(np.int64)
    return labels
