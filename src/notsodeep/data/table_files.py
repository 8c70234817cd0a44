"""A user's files of numbers (CSV, NPY, NPZ, Parquet), read as rows with labels and as nothing else, and written.

They may come from anywhere: nothing is unpickled and nothing is executed.
"""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from notsodeep.errors import InputError
from notsodeep.files import atomic_write
from notsodeep.validation import Array, as_rows

_NPY = b"\x93NUMPY"
_LONGEST_CELL = 40  # characters of a cell that a message repeats
_LARGEST_DENSE = 2.0  # GB that a sparse matrix may take as a dense one
_SPARSE = {"format", "shape", "data"}  # names in the NPZ file of a sparse matrix
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")  # how pandas calls the index of a table
_MISSING = ("", "nan", "NaN", "None", "<NA>", "NaT", "NA", "N/A", "null", "NULL")  # how tables write nothing


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds.

    Attributes:
        rows: samples in rows (n, p), finite float64.
        labels: one for each row, where a column or an array of labels was named.
        note: what was done to make rows of it, in sentences, or empty.
        total: number of rows of the file, of which `rows` may be the first ones.
    """

    rows: Array
    labels: NDArray[Any] | None = None
    note: str = ""
    total: int = 0


def is_table(source: str) -> bool:
    """Whether a text names a file that can be read here: rows.csv, rows.npz, rows.npz:X."""
    return split_member(source)[0].suffix.lower() in ENDINGS


def split_member(source: str) -> tuple[Path, str | None]:
    """The path and the name of the array in a text such as rows.npz:X."""
    before, colon, member = source.rpartition(":")
    if colon and PurePath(before).suffix.lower() == ".npz":
        return Path(before), member
    return Path(source), None


def open_table(source: str | Path, n: int | None = None, label_column: str | None = None) -> Table:
    """Rows and labels of a file.

    Args:
        source: the path of a .csv, .npy, .npz or .parquet file; rows.npz:X names an array of an NPZ file, which is
            else the only one, or the one called X.
        n: how many rows, from the first one on; all if not given.
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
) -> Table:
    """Rows and labels of an open file whose name says what it is; the arguments are those of `open_table`."""
    ending = PurePath(name).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"{name} has an unsupported extension {ending or '(none)'}; expected one of {', '.join(ENDINGS)}."
        )
    try:
        found = _READERS[ending](file, name, label_column, member)
    except UnicodeDecodeError:
        raise InputError(
            f"The file {name} is not text in UTF-8. Save it as plain CSV, or write a NPY file."
        ) from None
    rows, note = _flattened(found.rows, found.note)
    labels = found.labels
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"The file {name} has {len(rows)} rows and {len(labels)} labels: not one for each.")
    checked = as_rows(rows[:n] if rows.ndim else rows, f"The file {name}")
    if n is not None and n < len(rows):
        note = f"{note} The first {n} of {len(rows)} rows were taken.".strip()
    return Table(checked, None if labels is None else _labels(labels[:n], name), note, len(rows))


def open_labels(path: str | Path, total: int, n: int | None = None) -> tuple[NDArray[Any], str]:
    """The labels of the first n of `total` rows, and a note on what was left out of their file.

    Args:
        path: a .npy file, or a .csv file with one column. Its first line is a header if it has one line more than there
            are rows.
        total: number of rows that the labels belong to: the file must have as many.
        n: how many labels, from the first one on; all if not given.

    Raises:
        InputError: if there is not exactly one label for each row.
    """
    place, note = Path(path), ""
    if not place.is_file():
        raise InputError(f"There is no file {path}.")
    with place.open("rb") as file:
        if place.suffix.lower() == ".npy":
            found = read_npy(file, str(path))
        elif place.suffix.lower() == ".csv":
            found, note = _csv_labels(file, str(path), total)
        else:
            raise InputError(
                f"Labels come from a .npy or .csv file with one for each row; {path} is neither."
            )
    if found.ndim != 1 and found.shape[1:] != (1,):
        raise InputError(f"{path} has the shape {found.shape}; one label for each row is needed.")
    if len(found) != total:
        raise InputError(
            f"{path} has {len(found)} {'labels' if place.suffix.lower() == '.npy' else 'lines'} for {total} rows. Give "
            "exactly one label for each row of the data, below a header or without."
        )
    return _labels(found.reshape(-1)[:n], str(path)), note


def write_table(path: Path, matrix: Array) -> None:
    """Write a matrix in the format of the suffix: csv, npy, npz (as the array K) or parquet.

    Raises:
        InputError: for another suffix, before anything is written.
    """
    check_writable(path)
    ending = path.suffix.lower()
    with atomic_write(path) as temporary:
        if ending == ".csv":
            np.savetxt(temporary, matrix, delimiter=",", fmt="%.17g")
        elif ending == ".npy":
            np.save(temporary, matrix, allow_pickle=False)
        elif ending == ".npz":
            np.savez(temporary, K=matrix)
        else:
            arrow = _arrow()
            columns = {str(number): column for number, column in enumerate(matrix.T)}
            arrow.parquet.write_table(arrow.table(columns), temporary)


def check_writable(path: Path) -> None:
    """Refuse a name whose suffix says no format that can be written."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path} says no format; name a file that ends in {', '.join(ENDINGS)}.")
    if path.suffix.lower() == ".parquet":
        _arrow()


# --- NPY and NPZ ----------------------------------------------------------------------------------------------------


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
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> InputError:
    reason = "it holds Python objects" if "pickle" in str(error) else "its content does not fit its header"
    return InputError(
        f"The file {name} cannot be read: {reason}. Write plain arrays of numbers only, with numpy.save or numpy.savez."
    )


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


def _npy_table(file: BinaryIO, name: str, label_column: str | None, member: str | None) -> Table:
    found = read_npy(file, name)
    if label_column is None:
        return Table(found)
    if found.ndim != 2:
        raise InputError(
            f"A label column belongs to a matrix; {name} has the shape {found.shape}. Leave it out."
        )
    column = _column(label_column, [], found.shape[1], name)
    return Table(np.delete(found, column, axis=1), found[:, column])


def _npz_table(file: BinaryIO, name: str, label_column: str | None, member: str | None) -> Table:
    try:
        with np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            if set(names) >= _SPARSE:
                return Table(*_dense(file, name, label_column))
            others = [one for one in names if one != label_column]
            chosen = member or ("X" if "X" in others else others[0] if len(others) == 1 else None)
            if chosen is None or chosen not in names:
                wrong = f"no array {chosen}" if chosen else "several arrays and none called X"
                example = others[0] if others else "X"
                raise InputError(
                    f"{name} holds {', '.join(names) or 'nothing'}: {wrong}. Name one as in {name}:{example}."
                )
            if label_column is not None and label_column not in names:
                raise InputError(
                    f"{name} holds {', '.join(names)}; the labels of an NPZ file are an array of it, not "
                    f"{label_column!r}."
                )
            labels = None if label_column is None else archive[label_column].reshape(-1)
            return Table(archive[chosen], labels)
    except InputError:
        raise
    except zipfile.BadZipFile:
        raise InputError(f"The file {name} is not a NPZ file. Write one with numpy.savez.") from None
    # As for NPY files: damage has no common type.
    except Exception as error:
        raise _unreadable(name, error) from None


def _dense(file: BinaryIO, name: str, label_column: str | None) -> tuple[Array, None, str]:
    """The rows of a sparse matrix, dense: kernels are, too."""
    if label_column is not None:
        raise InputError(f"{name} is a sparse matrix and has no labels: give them by a file of their own.")
    file.seek(0)
    matrix = sparse.load_npz(file)
    gigabytes = 8e-9 * math.prod(matrix.shape)
    if gigabytes > _LARGEST_DENSE:
        raise InputError(
            f"{name} is a sparse matrix of shape {matrix.shape}, {gigabytes:.1f} GB when it is dense, which kernels "
            f"need. Reduce its columns first, for example with sklearn.decomposition.TruncatedSVD."
        )
    filled = matrix.nnz / math.prod(matrix.shape)
    return np.asarray(matrix.toarray()), None, f"A sparse matrix, {filled:.1%} filled, was made dense."


def _flattened(rows: NDArray[Any], note: str) -> tuple[NDArray[Any], str]:
    """Images (n, height, width) or (n, …, …, channels) become rows."""
    if rows.ndim not in (3, 4) or 0 in rows.shape:
        return rows, note
    size = " × ".join(map(str, rows.shape[1:]))
    flat = rows.reshape(len(rows), -1)
    return flat, f"Images of {size} were flattened into {flat.shape[1]} columns."


# --- CSV ------------------------------------------------------------------------------------------------------------


def _csv_table(file: BinaryIO, name: str, label_column: str | None, member: str | None) -> Table:
    header, body = csv_cells(file, name)
    if not body:
        raise InputError(f"The file {name} has no rows. One sample in each row is needed.")
    width = len(header or body[0][1])
    for number, cells in body:
        if len(cells) != width:
            raise InputError(
                f"Row {number} of {name} has {len(cells)} cells, the first row {width}. Give every row as many."
            )
    label = None if label_column is None else _column(label_column, header, width, name)
    notes = ["The first row, 0, 1, 2, …, was taken as a header."] if any(map(is_number, header)) else []
    index = _has_index(header, [cells[0] for _, cells in body]) and label != 0 and width > 1
    if index:
        notes.append("The first column, which numbers the rows, was left out.")
    columns = [column for column in range(int(index), width) if column != label]
    rows = np.empty((len(body), len(columns)))
    for row, (number, cells) in zip(rows, body, strict=True):
        row[:] = [_number(cells[column], name, number, column, header) for column in columns]
    labels = None if label is None else np.array([cells[label].strip() for _, cells in body])
    return Table(rows, labels, " ".join(notes))


def _csv_labels(file: BinaryIO, name: str, total: int) -> tuple[NDArray[Any], str]:
    """Labels of a CSV file with one column; the number of rows decides whether its first line is a header."""
    lines = [cells for _, cells in _lines(file, name, keep_blank=True)]
    width, starts = max(map(len, lines)), ["".join(cells[:1]).strip() for cells in lines]
    with_header = _has_index(starts[:1], starts[1:])
    index = width == 2 and (with_header or _has_index([], starts))
    notes = [f"The first column of {name}, which numbers the rows, was left out."] if index else []
    if width != 1 + index:
        raise InputError(f"{name} has {width} columns; labels are one column. Remove the others.")
    words = ["".join(cells[int(index) :]).strip() for cells in lines]
    first, others = words[0], words[1:]
    is_name = not is_number(first) and first not in (*others, "")
    if len(words) == total + 1 and (is_name or first == "0" or (index and with_header)):
        notes.append(f"The first line of {name}, {first[:_LONGEST_CELL]!r}, was taken as a header.")
        words = others
    elif len(words) == total and is_name and (len(set(others)) < len(others) or all(map(is_number, others))):
        raise InputError(
            f"{name} starts with {first[:_LONGEST_CELL]!r}, which looks like a header, and has then {len(others)} "
            f"labels for {total} rows. Give exactly one label for each row; if it is a label, add a header above it."
        )
    return np.array(words), " ".join(notes)


def csv_cells(file: BinaryIO, name: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a CSV file, empty if there is none, and the cells of each row with its number."""
    table = _lines(file, name)
    header = _header(table[0][1], [cells for _, cells in table[1:]])
    return header, table[1:] if header else table


def _lines(file: BinaryIO, name: str, keep_blank: bool = False) -> list[tuple[int, list[str]]]:
    """The cells of each row with its number; blank rows are left out, or with `keep_blank` only those at the end."""
    text = file.read().decode("utf-8-sig").rstrip().splitlines()
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
                f"The cells of {name} are separated by {word}. Save the file with commas, and decimal points."
            )
    return table


def _header(row: list[str], others: list[list[str]]) -> list[str]:
    """The names of the columns, empty if there are none: a row without numbers, or the 0, 1, 2, … of pandas.

    Such numbers could be those of a sample. They are names if no word beside them occurs again in its column; without
    any word, if there are three of them, or if other rows have numbers that are not whole.
    """
    first = [cell.strip() for cell in row]
    places = [place for place, cell in enumerate(first) if is_number(cell)]
    if not places:
        return first
    shift = first[0] in _INDEX_NAMES
    counts = [first[place] for place in places]
    if counts not in ([str(place - shift) for place in places], [str(count) for count in range(len(places))]):
        return []
    words = [place for place in range(len(first)) if place not in places]
    if words:
        clear = not any(
            cells[place].strip() == first[place] for cells in others for place in words if place < len(cells)
        )
    else:
        whole = all(cell.strip().isdigit() for cells in others for cell in cells)
        clear = len(places) > 2 or (len(places) == 2 and not whole)
    return first if clear and others else []


def _has_index(header: list[str], column: list[str]) -> bool:
    """Whether the first column is the index that pandas writes: without a name, and whole numbers, each once.

    Without a header they must count the rows from 0 on.
    """
    cells = [cell.strip() for cell in column]
    if header:
        return header[0] in _INDEX_NAMES and all(map(str.isdigit, cells)) and len(set(cells)) == len(cells)
    return len(cells) > 2 and cells == [str(number) for number in range(len(cells))]


def is_number(cell: str) -> bool:
    """Whether a cell of a CSV file is a number."""
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
        f"the column holds labels, say so: label column {called} (--label-column {called}). Else remove it, or fill or "
        "drop what is missing."
    )


def _column(wanted: str, header: list[str], width: int, name: str) -> int:
    """The index of a column that was named, or numbered from 1 (-1 is the last)."""
    if wanted in header:
        return header.index(wanted)
    try:
        number = int(wanted)
    except ValueError:
        number = 0
    if 1 <= abs(number) <= width:
        return number - 1 if number > 0 else width + number
    known = f"It has {', '.join(header[:12])}{', …' * (len(header) > 12)}." if header else "It has no header."
    raise InputError(
        f"{name} has no column {wanted!r}. {known} A number counts from 1, up to {width}; -1 is the last column."
    )


def _labels(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels as numbers where all are; a missing one is an error, not a class."""
    rows = [
        row for row, label in enumerate(labels.tolist(), 1) if label is None or str(label).strip() in _MISSING
    ]
    if rows:
        listed = ", ".join(map(str, rows[:10])) + ", …" * (len(rows) > 10)
        raise InputError(
            f"{len(rows)} of {len(labels)} labels of {name} are missing: row{'s' * (len(rows) > 1)} {listed}. Remove "
            "these rows, or give them a class."
        )
    return _as_numbers(labels.astype(str) if labels.dtype.kind == "O" else labels)


def _as_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels that are numbers as numbers, whole ones as integers; others stay as they are."""
    if labels.dtype.kind in "US":
        try:
            labels = labels.astype(np.float64)
        except ValueError:
            return labels
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and np.array_equal(labels, np.rint(labels)):
        return labels.astype(np.int64)
    return labels


# --- Parquet --------------------------------------------------------------------------------------------------------


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError(
            "Parquet files need the package pyarrow, which is not installed: pip install pyarrow. Or use .csv or .npy."
        ) from None
    except ImportError as error:
        # A pyarrow that is newer than NumPy is installed and cannot be imported.
        raise InputError(
            f"Parquet files need the package pyarrow, which cannot be imported: {str(error).rstrip('.')}. "
            "Or use .csv or .npy."
        ) from None
    return pyarrow


def _parquet_table(file: BinaryIO, name: str, label_column: str | None, member: str | None) -> Table:
    arrow = _arrow()
    try:
        found = arrow.parquet.read_table(arrow.BufferReader(file.read()))
    # Damage has no common type here either.
    except Exception as error:
        raise InputError(f"The file {name} cannot be read as Parquet: {str(error).rstrip('.')}.") from None
    names = list(found.column_names)
    label = None if label_column is None else _column(label_column, names, len(names), name)
    columns = [np.asarray(found.column(place).to_numpy()) for place in range(len(names))]
    for column, called in zip(columns, names, strict=True):
        if column.dtype.kind not in "biuf" and called != (None if label is None else names[label]):
            raise InputError(
                f"The column {called!r} of {name} holds {column.dtype}, not numbers. If it holds labels, say so: "
                f"--label-column {called!r}. Else remove it."
            )
    index = next(
        (place for place, called in enumerate(names) if called in _INDEX_NAMES and place != label), None
    )
    if index is not None and not (
        columns[index].dtype.kind in "iu" and len(set(columns[index])) == len(found)
    ):
        index = None
    rows = [column.astype(np.float64) for place, column in enumerate(columns) if place not in (label, index)]
    if not rows:
        raise InputError(f"The file {name} has no columns of numbers.")
    labels = None if label is None else columns[label]
    return Table(
        np.column_stack(rows), labels, "" if index is None else f"The index {names[index]!r} was left out."
    )


_READERS: Mapping[str, Callable[[BinaryIO, str, str | None, str | None], Table]] = {
    ".csv": _csv_table,
    ".npy": _npy_table,
    ".npz": _npz_table,
    ".parquet": _parquet_table,
}
ENDINGS = tuple(_READERS)
