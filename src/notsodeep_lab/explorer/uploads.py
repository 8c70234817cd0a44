"""Files that come from a browser, within the limits of a page."""

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

# Other formats are packed, and could unpack to more than a page should hold.
ENDINGS = (".csv", ".npy")
MEGABYTE = 2**20
FEWEST_ROWS = 20
MOST_ROWS = 20_000
MOST_COLUMNS = 10_000


@dataclass(frozen=True)
class Upload:
    """The rows of a file; two are equal when their bytes are.

    Attributes:
        name: of the file, without its folder.
        digest: SHA-256 of its bytes.
        table: samples in rows, as they are in the file, and labels.
        label_column: the column that holds labels, if one was named or is the only one with words in it.
        image_shape: channels, height and width, where the file holds images.
    """

    name: str
    digest: str
    table: TableData = field(compare=False, repr=False)
    label_column: str | None = None
    image_shape: tuple[int, int, int] | None = None

    @property
    def rows(self) -> Array:
        """Samples in rows, as they are in the file."""
        return self.table.rows


def read_upload(name: str, content: bytes, *, megabytes: float, label_column: str | None = None) -> Upload:
    """A CSV or NPY file as a matrix of finite numbers.

    Args:
        name: of the file; its ending says what it is.
        content: its bytes.
        megabytes: the most that is read.
        label_column: the column that holds labels, see `data.open_table`; a single column of words if not given.

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
    # A name may hold a path; the last part is enough.
    short = PurePath(name).name
    if PurePath(short).suffix.lower() not in ENDINGS:
        raise InputError(f"The page reads {' and '.join(ENDINGS)} files; {short!r} is neither.")
    label_column = label_column or _column_of_words(short, content)
    table = read_table(io.BytesIO(content), short, label_column=label_column)
    rows = table.rows
    if not FEWEST_ROWS <= rows.shape[0] <= MOST_ROWS or not 2 <= rows.shape[1] <= MOST_COLUMNS:
        raise InputError(
            f"The file has {rows.shape[0]} rows and {rows.shape[1]} columns; the page takes {FEWEST_ROWS} to "
            f"{MOST_ROWS} rows and 2 to {MOST_COLUMNS} columns. For more, use notsodeep kernel (docs/scale.md)."
        )
    if not np.any(rows != rows[0]):
        raise InputError("All rows of the file are equal: there is nothing to tell apart. Check the file.")
    rows.setflags(write=False)
    return Upload(
        short, hashlib.sha256(content).hexdigest(), table, label_column, _image_shape(short, content)
    )


def _column_of_words(name: str, content: bytes) -> str | None:
    """The only column of a CSV file that holds words, the same ones again and again; None if there is no such column.

    By its name in the header, or by its number.
    """
    if not name.lower().endswith(".csv"):
        return None
    try:
        header, numbered = csv_cells(io.BytesIO(content), name)
    except (UnicodeDecodeError, InputError):
        return None  # reading it will say so
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


def _image_shape(name: str, content: bytes) -> tuple[int, int, int] | None:
    """Channels, height and width of the images in a NPY file; None where it holds no images."""
    if not name.lower().endswith(".npy"):
        return None
    shape = np.load(io.BytesIO(content), allow_pickle=False).shape
    if len(shape) == 3:
        return 1, int(shape[1]), int(shape[2])
    return (int(shape[1]), int(shape[2]), int(shape[3])) if len(shape) == 4 else None
