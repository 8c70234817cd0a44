"""Read uploaded files, with limits on their size."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

from notsodeep.data import TableData, read_table
from notsodeep.data.table_files import csv_cells, is_number
from notsodeep.errors import InputError
from notsodeep.validation import Array

# Other formats are compressed, and could expand beyond the limits.
ENDINGS = (".csv", ".npy")
MEGABYTE = 2**20
FEWEST_ROWS = 20
MOST_ROWS = 20_000
MOST_COLUMNS = 10_000


@dataclass(frozen=True)
class Upload:
    """An uploaded file; two uploads are equal if their bytes are.

    Attributes:
        name: name of the file, without its folder.
        digest: SHA-256 of its bytes.
        table: rows as in the file, and labels.
        label_column: the label column, given by the user or detected as the only column of words.
    """

    name: str
    digest: str
    table: TableData = field(compare=False, repr=False)
    label_column: str | None = None

    @property
    def rows(self) -> Array:
        """The samples as in the file."""
        return self.table.rows


def read_upload(name: str, content: bytes, *, megabytes: float, label_column: str | None = None) -> Upload:
    """Read a CSV or NPY file as a matrix of finite numbers.

    Args:
        name: name of the file; its extension decides the format.
        content: its bytes.
        megabytes: largest size.
        label_column: the label column, see `data.open_table`; by default a single column of words.

    Raises:
        InputError: if the file is not such a matrix.
    """
    if len(content) > megabytes * MEGABYTE:
        raise InputError(
            f"The file has {len(content) / MEGABYTE:.1f} MB; at most {megabytes:g} MB are read here. Upload fewer "
            "rows, or start with notsodeep explore --max-upload MB."
        )
    if not content:
        raise InputError("The file is empty. Upload a CSV or NPY file with one sample per row.")
    # A name may contain a path.
    short = PurePath(name).name
    if PurePath(short).suffix.lower() not in ENDINGS:
        raise InputError(f"Unsupported file {short!r}; expected {' or '.join(ENDINGS)}.")
    label_column = label_column or _column_of_words(short, content)
    table = read_table(io.BytesIO(content), short, label_column=label_column)
    rows = table.rows
    if not FEWEST_ROWS <= rows.shape[0] <= MOST_ROWS or not 2 <= rows.shape[1] <= MOST_COLUMNS:
        raise InputError(
            f"The file has {rows.shape[0]} rows and {rows.shape[1]} columns; the page accepts {FEWEST_ROWS} to "
            f"{MOST_ROWS} rows and 2 to {MOST_COLUMNS} columns. For larger data use notsodeep "
            "kernel (docs/how-to/large-data.md)."
        )
    if not np.any(rows != rows[0]):
        raise InputError("All rows of the file are equal. Check the file.")
    rows.setflags(write=False)
    return Upload(short, hashlib.sha256(content).hexdigest(), table, label_column)


def _column_of_words(name: str, content: bytes) -> str | None:
    """Detect the label column of a CSV file: the only column of repeated words; None if there is no such column.

    The column is given by its name in the header, or by its number.
    """
    if not name.lower().endswith(".csv"):
        return None
    try:
        header, numbered = csv_cells(io.BytesIO(content), name)
    except (UnicodeDecodeError, InputError):
        return None  # reading the file will raise the error
    body = [cells for _, cells in numbered]
    if any(len(cells) != len(header or body[0]) for cells in body):
        return None
    words = [
        column
        for column, cells in enumerate(zip(*body, strict=True))
        if all(cell.strip() and not is_number(cell) for cell in cells)
        and 2 <= len(set(cells)) <= len(cells) // 2
    ]
    if len(words) != 1:
        return None
    return header[words[0]] if header and header.count(header[words[0]]) == 1 else str(words[0] + 1)
