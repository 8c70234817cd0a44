"""Read samples and labels from a user's CSV, Parquet, NPY and NPZ files, and write matrices.

The files may come from anywhere: nothing is unpickled and nothing is executed. Tables are read by pandas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.data.mixtures import GaussianMixture, UnitSphere
from notsodeep.data.preprocessing import Preprocessing, inspect_rows
from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.files import atomic_write
from notsodeep.validation import Array, as_rows, root_mean_square_norm

EXTENSIONS = (".csv", ".npy", ".npz", ".parquet")
WRITTEN = (".csv", ".npy", ".npz")
_NPY = b"\x93NUMPY"
_LONGEST_CELL = 40  # characters of a cell that a message repeats
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls the index of a table
_MISSING = (
    "",
    "nan",
    "NaN",
    "None",
    "<NA>",
    "NaT",
    "NA",
    "N/A",
    "null",
    "NULL",
    "?",
)  # how tables write nothing
# A column of more different words is text or an identifier, not a category.
_MOST_CATEGORIES = 100
# Norms beyond which fourth powers, which designs and spectra take, leave the range of double precision.
_SMALLEST_NORM, _LARGEST_NORM = 1e-50, 1e50


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples that were drawn, read or loaded.

    Attributes:
        X: samples in rows (n, p), or images; finite float64 (float32 where `load` was asked for it).
        y: one class or target for each sample, or None.
        notes: sentences on how a file was read and how the rows were scaled.
        total: number of rows in the file; `X` may be only the first of them.
        law: the distribution they were drawn from, or None.
        tau0: the norm of a typical row, docs/theory.md (4.2).
        advice: a sentence on what is unusual about the scaled rows, with a remedy; may be empty.
    """

    X: NDArray[Any]
    y: Any = None
    notes: tuple[str, ...] = ()
    total: int = 0
    law: GaussianMixture | UnitSphere | None = None
    tau0: float = 1.0
    advice: str = ""

    def scaled(self, how: str = "auto") -> Samples:
        """Scale the samples, see `Preprocessing.fit`, and inspect the result."""
        scaling = Preprocessing.fit(self.X, how)
        rows = np.asarray(scaling.apply(self.X), dtype=np.float64)
        flat = rows.reshape(len(rows), -1) / sqrt(scaling.positions)
        norm = root_mean_square_norm(flat)
        if not _SMALLEST_NORM < norm < _LARGEST_NORM:
            raise InputError(
                f"The rows have norm {norm:.3g} with scale {how!r}, which is too small or too large to compute with. "
                "Use scale 'auto'."
            )
        notes = (*self.notes, scaling.note)
        return replace(self, X=rows, notes=notes, tau0=norm, advice=inspect_rows(flat).advice)


def is_table(source: str) -> bool:
    """Tell whether a text names a file that can be read here: rows.csv, rows.npz, rows.npz:X."""
    return split_member(source)[0].suffix.lower() in EXTENSIONS


def split_member(source: str) -> tuple[Path, str | None]:
    """Split a text such as rows.npz:X into the path and the name of the array."""
    before, colon, member = source.rpartition(":")
    if colon and PurePath(before).suffix.lower() == ".npz":
        return Path(before), member
    return Path(source), None


def open_table(source: str | Path, n: int | None = None, label_column: str | None = None) -> Samples:
    """Read samples and labels from a file.

    In a table, columns of words become one column of 0 and 1 for each word, and missing numbers become the median of
    their column, with another column that says where. The notes of the result name these columns.

    Args:
        source: path of a .csv, .npy, .npz or .parquet file. An NPZ file has its samples in the array X; rows.npz:A
            names another one.
        n: number of rows to read, from the start of the file; all if None.
        label_column: the column that holds labels: its name, or its number counted from 1 (-1 is the last one); for an
            NPZ file the name of the array of labels.

    Raises:
        InputError: if there is no such file, or if it has no samples in rows.
    """
    path, member = split_member(str(source))
    check_extension(path)
    _existing(path)
    notes: list[str] = []
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        frame, notes = _csv_frame(path) if suffix == ".csv" else (_parquet_frame(path), [])
        rows, labels, total = (
            *_table_parts(frame.head(n or len(frame)), path, label_column, notes),
            len(frame),
        )
    else:
        rows, labels = (
            _npz_parts(path, member, label_column) if suffix == ".npz" else _npy_parts(path, label_column)
        )
        total = len(rows) if rows.ndim else 0
        if rows.ndim in (3, 4) and 0 not in rows.shape:
            size = " × ".join(map(str, rows.shape[1:]))
            rows = rows.reshape(len(rows), -1)
            notes.append(f"Images of {size} were flattened into {rows.shape[1]} columns.")
        if labels is not None and len(labels) != total:
            raise InputError(
                f"The file {path} has {total} rows and {len(labels)} labels; one for each row is needed."
            )
    checked = as_rows(rows[:n] if rows.ndim else rows, f"The file {path}")
    labels = None if labels is None else _labels(labels[:n], str(path))
    return Samples(checked, labels, (*notes, *cut_notes(n, total)), total)


def cut_notes(n: int | None, total: int) -> tuple[str, ...]:
    """Say that only the first n of all rows of a file are used."""
    return (f"Only the first {n} of {total} rows are used.",) if n is not None and n < total else ()


def open_labels(path: str | Path, total: int, n: int | None = None) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Read the labels of the first n of `total` rows, with a note on a header that was skipped.

    Args:
        path: a .npy file, or a .csv file with one column. Its first line is a header if there is one line more than
            rows.
        total: number of rows that the labels belong to.
        n: number of labels to return, from the start of the file; all if None.

    Raises:
        InputError: if there is not exactly one label for each row.
    """
    place = _existing(Path(path))
    notes: tuple[str, ...] = ()
    if place.suffix.lower() == ".npy":
        labels = _read_npy(place)
    elif place.suffix.lower() == ".csv":
        text = _csv_text(place, skip_blank_lines=False)
        if text.shape[1] > 1:
            raise InputError(
                f"The file {path} has {text.shape[1]} columns; labels are one column. Remove the others."
            )
        words = text[0].fillna("").str.strip().tolist()
        first, others = words[0], words[1:]
        is_name = first == "0" or not (_is_number(first) or first in (*others, ""))
        if len(words) == total + 1 and is_name:
            words = others
            notes = (f"The first line of {path}, {first[:_LONGEST_CELL]!r}, was read as a header.",)
        labels = np.array(words)
    else:
        raise InputError(f"Unsupported extension of {path}; labels are read from .npy and .csv files.")
    if labels.ndim != 1 and labels.shape[1:] != (1,):
        raise InputError(f"The file {path} has shape {labels.shape}; one label for each row is needed.")
    if len(labels) != total:
        raise InputError(
            f"The file {path} has {len(labels)} labels for {total} rows; one for each row is needed."
        )
    return _labels(labels.reshape(-1)[:n], str(path)), notes


def write_table(path: Path, matrix: Array) -> None:
    """Write a matrix in the format of the extension: .csv, .npy or .npz (as the array X)."""
    check_extension(path, WRITTEN)
    with atomic_write(path) as temporary:
        if path.suffix.lower() == ".csv":
            np.savetxt(temporary, matrix, delimiter=",", fmt="%.17g")
        elif path.suffix.lower() == ".npy":
            np.save(temporary, matrix, allow_pickle=False)
        else:
            np.savez(temporary, X=matrix)


def check_extension(path: Path, known: tuple[str, ...] = EXTENSIONS) -> None:
    """Refuse a file name whose extension is not one of the known formats."""
    if path.suffix.lower() not in known:
        raise InputError(
            f"Unsupported extension {path.suffix or '(none)'} of {path}; expected one of {', '.join(known)}."
        )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    return path


# --- NPY and NPZ ----------------------------------------------------------------------------------------------------


def _read_npy(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        if file.read(len(_NPY)) != _NPY:
            raise InputError(f"The file {path} is not a NPY file. Write one with numpy.save('rows.npy', X).")
    try:
        # Mapped, so that a header that promises more than the file has is refused before memory is allocated.
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    # What a broken or hostile header raises has no common type: all of it means the same to the reader.
    except Exception as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    objects = "pickle" in str(error) or "Python objects" in str(error)
    reason = "it holds Python objects" if objects else "its content does not fit its header"
    return InputError(f"The file {path} cannot be read: {reason}. Write plain arrays of numbers with NumPy.")


def _npy_parts(path: Path, label_column: str | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    array = _read_npy(path)
    if label_column is None:
        return array, None
    if array.ndim != 2:
        raise InputError(f"--label-column needs a matrix; {path} has shape {array.shape}. Use --labels.")
    column = _column(label_column, [], array.shape[1], path)
    return np.delete(array, column, axis=1), array[:, column]


def _npz_parts(
    path: Path, member: str | None, label_column: str | None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in (member or "X", label_column):
                if name is not None and name not in archive.files:
                    listed = ", ".join(archive.files) or "(none)"
                    raise InputError(
                        f"The file {path} has the arrays {listed}, and no {name}. Write {path}:NAME."
                    )
            return archive[member or "X"], None if label_column is None else archive[label_column].reshape(-1)
    except InputError:
        raise
    # As for NPY files: damage has no common type.
    except Exception as error:
        raise _unreadable(path, error) from None


# --- tables ---------------------------------------------------------------------------------------------------------


def _csv_text(path: Path, **options: Any) -> Any:
    """Read all cells of a CSV file as words, with its header, if it has one, as the first row."""
    pandas = needed("pandas", "Reading CSV files")
    options |= {
        "encoding": "utf-8-sig",
        "skipinitialspace": True,
        "keep_default_na": False,
        "na_values": _MISSING,
    }
    try:
        text = pandas.read_csv(path, header=None, dtype=str, **options)
    except UnicodeDecodeError:
        raise InputError(
            f"The file {path} is not text in UTF-8. Save it as plain CSV, or as a NPY file."
        ) from None
    except pandas.errors.EmptyDataError:
        text = pandas.DataFrame([[None]])
    except pandas.errors.ParserError as error:
        raise InputError(f"The file {path} is not a table: {error}") from None
    text = text[: (text[0].last_valid_index() or 0) + 1] if text.shape[1] == 1 else text.dropna(how="all")
    if text.isna().all(axis=None):
        raise InputError(f"The file {path} has no rows. One sample in each row is needed.")
    for sign, word in ((";", "semicolons"), ("\t", "tabs")):
        if text.shape[1] == 1 and sign in str(text.iloc[0, 0]):
            raise InputError(
                f"The file {path} is separated by {word}. Save it with commas and decimal points."
            )
    return text


def _csv_frame(path: Path) -> tuple[Any, list[str]]:
    """Read a CSV file as a frame of words; its columns are named or, without a header, numbered from 1."""
    text = _csv_text(path)
    notes: list[str] = []
    names, body = text.iloc[0].fillna("").str.strip().tolist(), text[1:]
    numbers = [name for name in names if _is_number(name)]
    # Numbers are names beside words that are no labels, which would occur again; alone only the 0, 1, 2, … of pandas.
    words = set(names) - set(numbers)
    if words:
        named = not body.isin(words).any(axis=None)
    else:
        named = len(numbers) > 2 and numbers == [str(count) for count in range(len(numbers))]
    if numbers and not (len(body) and named):
        text.columns = [str(number + 1) for number in range(len(names))]
        first = text["1"].tolist()
        if len(first) > 2 and len(names) > 1 and first == [str(number) for number in range(len(first))]:
            return text.drop(columns="1"), ["The first column numbers the rows and was skipped."]
        return text, notes
    if numbers:
        shown = ", ".join(names[:6])[:_LONGEST_CELL]
        notes = [
            f"The first row, {shown}{', …' * (len(shown) < len(', '.join(names)))}, was read as a header."
        ]
    body.columns = names
    return body, notes


def _parquet_frame(path: Path) -> Any:
    needed("pyarrow", "Reading Parquet files")
    try:
        return needed("pandas", "Reading Parquet files").read_parquet(path)
    # As for NPY files: damage has no common type.
    except Exception as error:
        raise InputError(f"The file {path} cannot be read as Parquet: {str(error).rstrip('.')}.") from None


def _table_parts(
    frame: Any, path: Path, label_column: str | None, notes: list[str]
) -> tuple[Array, NDArray[Any] | None]:
    """Turn a frame into numbers and labels, and add to the notes what became of its columns."""
    if not len(frame):
        raise InputError(f"The file {path} has no rows. One sample in each row is needed.")
    names = [str(name) for name in frame.columns]
    label = None if label_column is None else _column(label_column, names, len(names), path)
    parts: list[Any] = []
    words, medians, left_out = [], [], []
    for place, name in enumerate(names):
        column, called = frame.iloc[:, place], repr(name[:_LONGEST_CELL])
        if place == label:
            continue
        numbers = _numbers(column, called, path)
        missing = column.isna().to_numpy()
        if name in _INDEX_NAMES and len(names) > 1 and _counts(numbers):
            notes.append(f"The index {name!r} numbers the rows and was skipped.")
        elif missing.all():
            left_out.append(f"{called} (empty)")
        elif numbers is not None:
            if missing.any():
                numbers = np.where(missing, np.median(numbers[~missing]), numbers)
                medians.append(f"{missing.sum()} of {called}")
                parts.append(missing)
            parts.append(numbers)
        elif 1 < column.nunique() < min(len(column), _MOST_CATEGORIES + 1):
            pandas = needed("pandas", "Reading tables")
            parts.append(pandas.get_dummies(column, dummy_na=bool(missing.any())).to_numpy())
            words.append(f"{called} {parts[-1].shape[1]}")
        else:
            left_out.append(f"{called} ({column.nunique()} different words)")
    hint = "" if label is not None else " If one holds the labels, name it: --label-column NAME."
    if words:
        notes.append(f"Words became columns of 0 and 1: {', '.join(words)}.{'' if left_out else hint}")
    if medians:
        notes.append(f"Missing numbers became medians, with a column that says where: {', '.join(medians)}.")
    if left_out:
        notes.append(f"Columns left out: {', '.join(left_out)}.{hint}")
    if not parts:
        raise InputError(f"The file {path} has no columns that can be used. {' '.join(notes)}")
    labels = None if label is None else frame.iloc[:, label].to_numpy(dtype=object, na_value="")
    return np.column_stack(parts).astype(np.float64), labels


def _counts(numbers: Array | None) -> bool:
    """Tell whether these are whole numbers, each once."""
    return (
        numbers is not None
        and len(set(numbers)) == len(numbers)
        and np.array_equal(numbers, np.rint(numbers))
    )


def _numbers(column: Any, called: str, path: Path) -> Array | None:
    """The numbers of a column, NaN where they are missing; None for a column of words."""
    if column.dtype.kind in "biuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if column.dtype.kind in "mMcV":
        raise InputError(
            f"The column {called} of {path} holds {column.dtype}, not numbers or words. Remove it."
        )
    try:
        # Python's own reading of numbers, exact to the last digit; that of pandas may be off by one.
        return np.asarray(column.astype(np.float64))
    except (TypeError, ValueError):
        pandas = needed("pandas", "Reading tables")
        numbers = pandas.to_numeric(column.astype("str"), errors="coerce")
    strange = (numbers.isna() & column.notna()).to_numpy()
    if 2 * strange.sum() > column.notna().sum():
        return None
    place = int(strange.argmax())
    cell = str(column.iloc[place])[:_LONGEST_CELL]
    raise InputError(
        f"Row {place + 1}, column {called} of {path} has {cell!r} among numbers. Correct it, or leave the cell empty."
    )


def _is_number(cell: str) -> bool:
    """Tell whether a cell of a CSV file is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(column: str, header: list[str], width: int, path: Path) -> int:
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
        f"The file {path} has no column {column!r}. {known} Numbers go from 1 to {width}; -1 is the last."
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
    if labels.dtype.kind in "OUS":
        labels = np.array(labels.tolist())
        try:
            labels = labels.astype(np.float64)
        except ValueError:
            return labels
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and np.array_equal(labels, np.rint(labels)):
        return labels.astype(np.int64)
    return labels
