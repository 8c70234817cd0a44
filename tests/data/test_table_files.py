"""Files of users: read as rows and labels, or refused with a sentence that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.data import open_table
from notsodeep.data.table_files import open_labels, write_table
from notsodeep.errors import InputError

ROWS = np.random.default_rng(0).standard_normal((30, 8)) / np.sqrt(8)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_formats_hold_the_same_rows() -> None:
    labels = ["a" if row[0] > 0 else "b" for row in ROWS]
    lines = [",".join([*map(repr, map(float, row)), label]) for row, label in zip(ROWS, labels, strict=True)]
    header = ",".join([*(f"c{number}" for number in range(8)), "kind"])
    Path("rows.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    np.save("rows.npy", ROWS)
    np.savez("rows.npz", X=ROWS, y=np.array(labels), other=np.zeros(3))
    np.savez("one.npz", X=ROWS)
    np.save("images.npy", ROWS.reshape(30, 2, 4))
    for source, label in {
        "rows.csv": "kind", "rows.npy": None, "rows.npz": "y", "rows.npz:X": None, "one.npz": None, "images.npy": None,
    }.items():  # fmt: skip
        found = open_table(source, 20, label)
        np.testing.assert_array_equal(found.X, ROWS[:20], err_msg=source)
        assert found.y is None if label is None else list(found.y) == labels[:20]
        assert "Only the first 20 of 30 rows are used." in found.notes
        assert open_table(source, None, label).total == 30
    assert open_table("images.npy").notes == ("Images of 2 × 4 were flattened into 8 columns.",)
    by_number = open_table("rows.npy", label_column="-1")
    np.testing.assert_array_equal(by_number.y, ROWS[:, -1])
    np.testing.assert_array_equal(by_number.X, ROWS[:, :-1])


@pytest.mark.parametrize("name", ["K.csv", "K.npy", "K.npz"])
def test_a_matrix_comes_back_as_it_was_written(name: str) -> None:
    write_table(Path(name), ROWS)
    np.testing.assert_array_equal(open_table(name).X, ROWS)
    assert [path.name for path in Path().iterdir()] == [name]


def test_files_that_leave_a_question_get_an_answer() -> None:
    np.savez("two.npz", a=ROWS, b=ROWS)
    np.savez("empty.npz")
    np.savez("objects.npz", X=np.array([None, 1], dtype=object))
    np.savez("short.npz", X=ROWS, y=np.arange(3))
    Path("rows.csv").write_text("a,b\n1,x\n2,y\n", encoding="utf-8")
    Path("rows.txt").write_text("1", encoding="utf-8")
    for arguments, words in {
        ("two.npz",): "two.npz has the arrays a, b, and no X. Write two.npz:NAME.",
        ("two.npz:c",): "and no c",
        ("two.npz:a", None, "y"): "and no y",
        ("empty.npz",): "(none)",
        ("objects.npz",): "Python objects",
        ("short.npz", None, "y"): "30 rows and 3 labels",
        ("rows.csv", None, "c"): "no column 'c'. It has a, b. Numbers go from 1 to 2",
        ("rows.txt",): "Unsupported extension .txt of rows.txt; expected one of .csv, .npy, .npz",
        ("none.csv",): "no file none.csv",
    }.items():
        with pytest.raises(nsd.InputError) as refused:
            open_table(*arguments)
        assert words in str(refused.value)


def test_rows_of_files() -> None:
    X = np.arange(12.0).reshape(4, 3) / 7
    for dtype in ("float32", "int64", "uint8", "bool", ">f8"):
        np.save("rows.npy", X.astype(dtype))
        found = open_table("rows.npy", 2).X
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, X.astype(dtype)[:2])
    Path("rows.csv").write_bytes(b"\xef\xbb\xbf1, 2,3\r\n\r\n4,5,6e-1\r\n")
    np.testing.assert_array_equal(open_table("rows.csv", None).X, [[1.0, 2.0, 3.0], [4.0, 5.0, 0.6]])


ARRAYS = {
    "objects": (np.array([[1, "a"], [None, 2]], dtype=object), "plain arrays of numbers"),
    "text": (np.array([["a", "b"]]), "real numbers"),
    "one axis": (np.zeros(3), "matrix with samples in rows"),
    "infinite": (np.array([[1.0, np.inf]]), "NaN or infinite"),
    "complex": (np.array([[1.0 + 2.0j]]), "complex"),
    "empty": (np.zeros((0, 4)), "empty"),
    "no features": (np.zeros((4, 0)), "empty"),
    "huge": (np.array([[1e200, 1.0]]), "1e100"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_no_rows_are_refused(name: str) -> None:
    array, words = ARRAYS[name]
    np.save("rows.npy", array, allow_pickle=True)
    with pytest.raises(nsd.InputError, match=words):
        open_table("rows.npy", 100)


TEXTS = {
    b"a,b\n": "no rows",
    b"a\nx\n": "no columns that can be used. Columns left out: 'a' (1 different words)",
    b"1,2\n3,x\n": "Row 2, column '2' of rows.csv has 'x' among numbers",
    b"1,2\n3\n4,5,6\n": "Expected 2 fields in line 3, saw 3",
    b"": "no rows",
    b"1,inf\n": "NaN or infinite",
    b"\xff\xfe1\x00": "not text in UTF-8",
    b"1;2\n": "separated by semicolons",
    b",\n,\n": "no rows",
}


@pytest.mark.parametrize("content", TEXTS, ids=repr)
def test_texts_that_are_no_rows_are_refused(content: bytes) -> None:
    Path("rows.csv").write_bytes(content)
    with pytest.raises(nsd.InputError) as refused:
        open_table("rows.csv", None)
    assert TEXTS[content] in str(refused.value)


def test_files_that_are_not_arrays_are_refused() -> None:
    Path("rows.npy").write_bytes(b"not an array at all")
    with pytest.raises(nsd.InputError, match="not a NPY file"):
        open_table("rows.npy", None)
    np.savez("two.npz", a=np.zeros(2), b=np.zeros(2))
    Path("two.npz").rename("two.npy")
    with pytest.raises(nsd.InputError, match="not a NPY file"):
        open_table("two.npy", None)
    Path("folder.npy").mkdir()
    with pytest.raises(nsd.InputError, match="no file"):
        open_table("folder.npy", None)


# --- labels -----------------------------------------------------------------------------------------------------------


def labels_of(text: str, n: int | None = None) -> list[object]:
    Path("y.csv").write_text(text, encoding="utf-8")
    return list(open_labels("y.csv", 30, n)[0])


def test_a_label_file_has_one_label_for_each_row_with_or_without_a_header() -> None:
    kinds = ["a", "b", "c"] * 10
    plain, numbers = "\n".join(kinds), "\n".join("012" * 10)
    for n in (None, 5):  # the lengths of the files are compared, not that of what is used
        assert labels_of(plain, n) == labels_of(f"kind\n{plain}\n", n) == kinds[:n]
    assert labels_of(numbers) == labels_of(f"0\n{numbers}") == [0, 1, 2] * 10
    assert open_labels("y.csv", 30)[1] == ("The first line of y.csv, '0', was read as a header.",)
    for text, words in {
        "a\n" + plain: "31 labels for 30 rows",
        "3\n" + numbers: "31 labels for 30 rows",
        "\n".join(f"{kind},1" for kind in kinds): "2 columns; labels are one column",
        "kind\n" + plain.replace("b", "", 1): "1 of 30 labels of y.csv are missing: row 2.",
        plain.replace("a", "NaN", 1): "missing: row 1.",
    }.items():
        with pytest.raises(nsd.InputError, match=words):
            labels_of(text)
    for array, words in (
        (np.zeros((30, 2)), "one label for each row"),
        (np.zeros(31), "31 labels for 30 rows"),
    ):
        np.save("y.npy", array)
        with pytest.raises(nsd.InputError, match=words):
            open_labels("y.npy", 30)
    Path("y.txt").touch()
    with pytest.raises(nsd.InputError, match=r"Unsupported extension of y\.txt"):
        open_labels("y.txt", 30)


def test_a_missing_word_is_an_error_and_no_class() -> None:
    Path("rows.csv").write_text("x,kind\n1,a\n2,\n3,b\n4,None\n", encoding="utf-8")
    with pytest.raises(nsd.InputError, match=r"2 of 4 labels of rows\.csv are missing: rows 2, 4"):
        open_table("rows.csv", label_column="kind")
    assert list(open_table("rows.csv", 1, label_column="kind").y) == ["a"]


# --- what pandas writes --------------------------------------------------------------------------------------------

# Text of a CSV file, its rows, and what is said about it.
PANDAS = {
    "0,1,2\n4,5,6\n7,8,9\n": ([[4, 5, 6], [7, 8, 9]], "header"),
    "0,1\n1,0\n1,1\n": ([[0, 1], [1, 0], [1, 1]], ""),
    ",0,1\n0,5,6\n1,7,8\n": ([[5, 6], [7, 8]], "header numbers the rows"),
    ",a,b\n9,5,6\n4,7,8\n": ([[5, 6], [7, 8]], "numbers the rows"),
    "Unnamed: 0,a\n0,5\n1,7\n": ([[5], [7]], "numbers the rows"),
    "0,5\n1,7\n2,9\n": ([[5], [7], [9]], "numbers the rows"),
    "0,5\n2,7\n1,9\n": ([[0, 5], [2, 7], [1, 9]], ""),
    ",a\n0.5,5\n1,7\n": ([[0.5, 5], [1, 7]], ""),
}


@pytest.mark.parametrize("text", PANDAS)
def test_header_and_index_of_pandas_are_no_samples(text: str) -> None:
    Path("rows.csv").write_text(text, encoding="utf-8")
    found, (rows, said) = open_table("rows.csv"), PANDAS[text]
    np.testing.assert_array_equal(found.X, rows)
    assert all(word in " ".join(found.notes) for word in said.split())
    assert bool(found.notes) == bool(said)


def test_a_numbered_header_beside_a_named_column_is_one_only_if_the_name_is_no_label() -> None:
    Path("rows.csv").write_text("0,1,kind\n5,6,a\n7,8,a\n", encoding="utf-8")
    assert list(open_table("rows.csv", label_column="kind").y) == ["a", "a"]
    Path("rows.csv").write_text("0,1,a\n5,6,a\n7,8,b\n", encoding="utf-8")
    assert list(open_table("rows.csv", label_column="3").y) == ["a", "a", "b"]


# --- Parquet --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [["a", None, "b"], [1.0, None, 2.0]])
def test_a_parquet_file_has_rows_labels_and_no_index(kinds: list, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", exc_type=ImportError)
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    columns = {"x": [1.0, 2.0, 3.0], "__index_level_0__": [7, 3, 5], "kind": kinds}
    parquet.write_table(arrow.table(columns), path)
    with pytest.raises(InputError, match=r"1 of 3 labels of .*rows\.parquet are missing: row 2"):
        open_table(path, label_column="kind")
    table = open_table(path, 1, label_column="kind")
    assert table.X.tolist() == [[1.0]]
    assert table.y is not None
    assert table.y.tolist() == kinds[:1]
    assert "The index '__index_level_0__' numbers the rows and was skipped." in table.notes
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        open_table(path)


@pytest.mark.parametrize(("package", "name"), [("pyarrow", "rows.parquet"), ("pandas", "rows.csv")])
def test_tables_without_their_package_say_what_to_install(
    package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(InputError, match=rf"needs the package {package}.*pip install '\.\[tables\]'"):
        open_table(tmp_path / name)


# --- words and gaps -------------------------------------------------------------------------------------------------

CUSTOMERS = """id,plan,months,charge,paperless,left
a1,month,3,10.5,yes,no
b2,year,?,20,no,yes
c3,month,5,,yes,no
d4,,8,40.5,no,no
"""


def test_words_become_columns_and_gaps_medians_and_both_are_said() -> None:
    Path("rows.csv").write_text(CUSTOMERS, encoding="utf-8")
    table = open_table("rows.csv", label_column="left")
    plan = [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]  # month, year, missing
    months, charge = [[0, 3], [1, 5], [0, 5], [0, 8]], [[0, 10.5], [0, 20], [1, 20], [0, 40.5]]
    paperless = [[0, 1], [1, 0], [0, 1], [1, 0]]
    np.testing.assert_array_equal(table.X, np.hstack([plan, months, charge, paperless]))
    assert table.y is not None
    assert table.y.tolist() == ["no", "yes", "no", "no"]
    assert table.notes == (
        "Words became columns of 0 and 1: 'plan' 3, 'paperless' 2.",
        "Missing numbers became medians, with a column that says where: 1 of 'months', 1 of 'charge'.",
        "Columns left out: 'id' (4 different words).",
    )
    unlabelled = open_table("rows.csv")
    np.testing.assert_array_equal(unlabelled.X[:, :-2], table.X)
    assert unlabelled.notes[-1].endswith("If one holds the labels, name it: --label-column NAME.")


def test_a_parquet_file_has_the_columns_of_the_same_csv_file() -> None:
    pandas = pytest.importorskip("pandas")
    Path("rows.csv").write_text(CUSTOMERS, encoding="utf-8")
    frame = pandas.read_csv("rows.csv", na_values=["?"]).astype({"plan": "category"})
    frame.to_parquet("rows.parquet")
    found, expected = (open_table(name, label_column="left") for name in ("rows.parquet", "rows.csv"))
    np.testing.assert_array_equal(found.X, expected.X)
    assert found.y.tolist() == expected.y.tolist()  # type: ignore[union-attr]
    frame.assign(when=pandas.Timestamp("2020-01-01")).to_parquet("rows.parquet")
    with pytest.raises(InputError, match=r"'when' of rows\.parquet holds datetime"):
        open_table("rows.parquet")


def test_years_are_names_of_columns_and_labels_are_not() -> None:
    Path("rows.csv").write_text("2020,2021,region\n1,2,north\n3,4,south\n5,6,north\n", encoding="utf-8")
    table = open_table("rows.csv", label_column="region")
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4], [5, 6]])
    assert table.notes == ("The first row, 2020, 2021, region, was read as a header.",)
    Path("rows.csv").write_text("5.1,3.5,setosa\n4.9,3,setosa\n7,3.2,versicolor\n", encoding="utf-8")
    assert open_table("rows.csv", label_column="-1").X.shape == (3, 2)


def test_text_of_many_words_is_left_out() -> None:
    lines = [f"{row},w{row % 150}" for row in range(200)]
    Path("rows.csv").write_text("\n".join(["x,text", *lines]), encoding="utf-8")
    table = open_table("rows.csv")
    assert table.X.shape == (200, 1)
    assert table.notes[0].startswith("Columns left out: 'text' (150 different words).")
