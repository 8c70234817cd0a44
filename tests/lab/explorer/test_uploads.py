"""Uploaded files: matrices are read to the last bit, everything else is refused with a message.

They are read as other files are, see tests/data/test_table_files.py; the page adds limits and finds labels by itself.
"""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from notsodeep.errors import InputError
from notsodeep_lab.explorer.uploads import read_upload

ROWS = np.random.default_rng(0).standard_normal((25, 3))


def npy(array, **settings) -> bytes:
    content = io.BytesIO()
    np.save(content, array, **settings)
    return content.getvalue()


def csv(array) -> bytes:
    return "\n".join(",".join(repr(float(cell)) for cell in row) for row in array).encode()


def read(name: str, content: bytes, megabytes: float = 1.0):
    return read_upload(name, content, megabytes=megabytes)


@given(
    arrays(np.float64, (20, 3), elements=st.floats(-1e50, 1e50)).filter(lambda rows: (rows != rows[0]).any())
)
def test_both_kinds_come_through_to_the_last_bit(rows):
    for name, content in (("rows.npy", npy(rows)), ("rows.csv", csv(rows))):
        assert np.array_equal(read(name, content).rows, rows)


def test_a_single_column_of_words_is_taken_for_labels():
    kinds = ["cat" if row[2] > 0 else "dog" for row in ROWS]
    lines = [f"{a},{kind},{b}" for (a, b, _), kind in zip(ROWS, kinds, strict=True)]
    for header, column in (("height,kind,weight", "kind"), ("", "2")):
        found = read("a.csv", "\n".join([header, *lines]).encode())
        assert found.label_column == column
        assert np.array_equal(found.rows, ROWS[:, :2])
        assert list(found.table.labels) == kinds


def test_words_that_are_no_labels_are_refused():
    names = [f"{a},name {number}" for number, (a, *_) in enumerate(ROWS)]
    with pytest.raises(InputError, match="column 2"):
        read("a.csv", "\n".join(names).encode())
    two = [f"{a},{'xy'[int(a > 0)]},{'uv'[int(b > 0)]}" for a, b, _ in ROWS]
    with pytest.raises(InputError, match="column 2"):
        read("a.csv", "\n".join(two).encode())


def test_a_header_a_label_column_and_images():
    text = b'height,"weight, kg",kind\n' + b"\n".join(
        f"{a},{b},{'ab'[int(c > 0)]}".encode() for a, b, c in ROWS
    )
    found = read_upload("a.csv", text, megabytes=1, label_column="kind")
    assert np.array_equal(found.rows, ROWS[:, :2])
    assert list(found.table.labels) == ["ab"[int(c > 0)] for c in ROWS[:, 2]]
    assert found != read_upload("a.csv", csv(ROWS), megabytes=1)
    images = read("a.npy", npy(np.arange(25 * 6.0).reshape(25, 2, 3)))
    assert images.rows.shape == (25, 6)
    assert "2 × 3 were flattened" in images.table.note


def test_equal_files_are_equal_choices_and_rows_cannot_be_changed():
    one, other = read("a.npy", npy(ROWS)), read("a.npy", npy(ROWS))
    assert one == other
    assert hash(one) == hash(other)
    assert one != read("a.npy", npy(ROWS + 1))
    assert read("../../etc/rows.csv", csv(ROWS)).name == "rows.csv"
    with pytest.raises(ValueError, match="read-only"):
        one.rows[0, 0] = 1.0


class Bomb:
    exploded = False

    def __reduce__(self):
        return (Bomb.explode, ())

    @staticmethod
    def explode():
        Bomb.exploded = True


def promising_too_much() -> bytes:
    """A header of 8 TB with nothing behind it."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    return file.getvalue()


def with_cell(cell: str, row: int = 5) -> bytes:
    lines = csv(ROWS).decode().splitlines()
    lines[row] = f"1,{cell},3"
    return "\n".join(lines).encode()


REFUSED = {
    "empty": ("a.csv", b"", "empty"),
    "another kind": ("a.xlsx", b"PK\x03\x04", "csv or .npy"),
    "text": ("a.csv", with_cell("seven"), "Row 6, column 2.*'seven'.*label column 2"),
    "NaN": ("a.csv", with_cell("nan"), "NaN or infinite entries in 1 of 25"),
    "one column": ("a.csv", csv(ROWS[:, :1]), "2 to"),
    "few rows": ("a.csv", csv(ROWS[:19]), "20 to"),
    "equal rows": ("a.csv", csv(np.ones((25, 3))), "All rows"),
    "markup": ("a.csv", b"<script>alert(1)</script>,2,3\n" + csv(ROWS), "Row 1, column 1"),
    "a broken array": ("a.npy", npy(ROWS)[:-8], "does not fit its header"),
    "code in the header": (
        "a.npy",
        b"\x93NUMPY\x01\x00" + (40).to_bytes(2, "little") + b"__import__('os').system('false')".ljust(40),
        "does not fit its header",
    ),
    "promises": ("a.npy", promising_too_much(), "does not fit its header"),
    "objects": ("a.npy", npy(np.array([[Bomb()] * 3] * 25), allow_pickle=True), "Python objects"),
    "a pickle": ("a.npy", pickle.dumps(Bomb()), "not a NPY file"),
    "too many columns": ("a.npy", npy(np.zeros((20, 10_001), dtype="u1")), "10000 columns"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), REFUSED.values(), ids=list(REFUSED))
def test_everything_else_is_refused(name, content, words):
    with pytest.raises(InputError, match=words) as refusal:
        read(name, content)
    assert str(refusal.value)[0].isupper()
    assert "Traceback" not in str(refusal.value)
    assert not Bomb.exploded


def test_size_is_limited():
    content = npy(np.random.default_rng(1).standard_normal((100, 1000)))
    assert read("a.npy", content, megabytes=1).rows.shape == (100, 1000)
    with pytest.raises(InputError, match=r"0\.8 MB; at most 0\.5 MB.*--max-upload"):
        read("a.npy", content, megabytes=0.5)
