"""A user's own file through every command: read, looked at, scaled, answered in seconds; files written by name."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import sparse
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner, Result

import notsodeep as nsd
from notsodeep.cli.entry import app, main
from notsodeep.cli.scenario import Data, is_data
from notsodeep.data import Preprocessing, inspect_rows, open_table

ROWS = np.random.default_rng(0).standard_normal((30, 8)) / np.sqrt(8)
LABELED = ("--label-column", "diagnosis")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """569 rows of 30 unscaled columns with a header and a column of words: on this `kernel` once took ten minutes."""
    found = load_breast_cancer()
    lines = [",".join([*found.feature_names, "diagnosis"])]
    for row, label in zip(found.data, found.target, strict=True):
        lines.append(",".join([*map(repr, map(float, row)), str(found.target_names[label])]))
    path = tmp_path_factory.mktemp("own") / "cancer.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refusal(*arguments: str) -> str:
    done = run(*arguments)
    assert isinstance(done.exception, nsd.InputError), done.output
    return str(done.exception)


# --- the file that hung ---------------------------------------------------------------------------------------------

COMMANDS = {
    "kernel": ("kernel", "FILE"),
    "tangent kernel as it is": ("kernel", "FILE", "--ntk", "--scale", "none"),
    "design": ("design", "--data", "FILE", "--activation", "relu"),
    "spectrum": ("spectrum", "--data", "FILE", "--no-check", "--activation", "tanh"),
    "train": (
        "train",
        "--data",
        "FILE",
        "--width",
        "64",
        "--seeds",
        "1",
        "--epochs",
        "2",
        "--scale",
        "standard",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_unscaled_columns_are_answered_in_seconds(name: str, cancer: str) -> None:
    words = [cancer if word == "FILE" else word for word in COMMANDS[name]]
    start = time.perf_counter()
    done = run(*words, *LABELED, "--json")
    assert done.exit_code == 0, done.output
    assert time.perf_counter() - start < 60.0
    record = json.loads(done.stdout)
    if name == "train":
        assert [row["model"] for row in record] == ["deq", "twin", "plain"]
        assert min(row["accuracy"] for row in record) > 0.85
        assert {row["scale"] for row in record} == {"standard"}
        return
    about = record["data"] if isinstance(record["data"], dict) else record
    assert (about["n"], about["p"]) == (569, 30)
    assert "norm 1.3e+03, 86% of it their mean" in about["notes"][0]
    assert "scale 'standard'" in about["advice"]
    if name == "kernel":
        rows = open_table(cancer, label_column="diagnosis").rows
        expected = nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), Preprocessing.fit(rows).apply(rows))
        np.testing.assert_array_equal(np.load("kernel.npy"), expected)
    if name == "design":
        distances = record["measured"][0]["distances"]
        assert set(distances) == {"twin", "plain_1", "plain_2"}
        assert (
            distances["twin"]["relative_up_to_factor"] < 0.3 * distances["plain_1"]["relative_up_to_factor"]
        )


def test_certify_takes_two_words_as_labels(cancer: str) -> None:
    done = run("certify", "--data", cancer, *LABELED, "--n", "25", "--width", "40", "--json")
    assert json.loads(done.stdout)["width"] == 40
    assert "have 1 class; needed are two" in refusal("certify", "--data", cancer, *LABELED, "--n", "6")


def test_the_look_is_one_sentence_with_a_remedy() -> None:
    assert inspect_rows(ROWS).advice == ""
    assert (
        "norm is 100 and not near 1; scale 'auto'"
        in inspect_rows(100 * ROWS / inspect_rows(ROWS).norm).advice
    )
    parallel = ROWS + 5.0
    assert "nearly parallel" in inspect_rows(parallel).advice
    assert "not centred" in inspect_rows(ROWS + 0.25).advice
    narrow = ROWS * np.array([30.0, *[0.1] * 7])
    assert (
        "column 1 has 100.0% of the variance; scale 'standard'"
        in inspect_rows(narrow / inspect_rows(narrow).norm).advice
    )
    assert inspect_rows(np.where(np.arange(8) < 3, 1.0, ROWS)).constant == 3
    for found in (parallel, narrow, ROWS + 0.25):
        assert inspect_rows(found).advice.count(". ") == 0


@pytest.mark.parametrize("how", ["none", "center", "standard", "unit", "auto"])
def test_what_each_scaling_does(how: str) -> None:
    X = 3.0 + ROWS * np.array([10.0, *[1.0] * 6, 0.0])  # the last column is constant
    found = Preprocessing.named(how, X).apply(X)
    mean, norms = np.abs(found.mean(axis=0)).max(), np.linalg.norm(found, axis=1)
    assert (mean < 1e-12) == (how in ("center", "standard", "auto"))
    assert (np.sqrt(np.mean(norms**2)) == pytest.approx(1.0)) == (how in ("standard", "auto", "unit"))
    if how == "none":
        np.testing.assert_array_equal(found, X)
    if how == "unit":
        np.testing.assert_allclose(norms, 1.0)
    if how == "standard":
        np.testing.assert_allclose(found.std(axis=0), [*[1 / np.sqrt(7)] * 7, 0.0])


# --- formats --------------------------------------------------------------------------------------------------------


def test_all_formats_hold_the_same_rows() -> None:
    pytest.importorskip("pyarrow", exc_type=ImportError)
    names = [f"c{number}" for number in range(8)]
    labels = ["a" if row[0] > 0 else "b" for row in ROWS]
    lines = [",".join([*map(repr, map(float, row)), label]) for row, label in zip(ROWS, labels, strict=True)]
    Path("rows.csv").write_text("\n".join([",".join([*names, "kind"]), *lines]), encoding="utf-8")
    np.save("rows.npy", ROWS)
    np.savez("rows.npz", X=ROWS, y=np.array(labels), other=np.zeros(3))
    np.savez("one.npz", whatever=ROWS)
    sparse.save_npz("sparse.npz", sparse.csr_array(ROWS))
    np.save("images.npy", ROWS.reshape(30, 2, 4))
    import pyarrow
    import pyarrow.parquet

    columns = dict(zip(names, ROWS.T, strict=True)) | {"kind": labels}
    pyarrow.parquet.write_table(pyarrow.table(columns), "rows.parquet")
    for source, label in {
        "rows.csv": "kind", "rows.npy": None, "rows.npz": "y", "rows.npz:X": None, "one.npz": None, "sparse.npz": None,
        "images.npy": None, "rows.parquet": "kind",
    }.items():  # fmt: skip
        found = open_table(source, 20, label)
        np.testing.assert_array_equal(found.rows, ROWS[:20], err_msg=source)
        if label is not None:
            assert list(found.labels) == labels[:20], source
        assert Data(source, None, label_column=label).samples().rows.shape == (30, 8)
    assert "made dense" in open_table("sparse.npz").note
    assert "2 × 4 were flattened into 8 columns" in open_table("images.npy").note


@pytest.mark.slow
def test_files_that_leave_a_question_get_an_answer() -> None:
    np.savez("two.npz", a=ROWS, b=ROWS)
    assert "two.npz:a" in refusal("kernel", "two.npz")
    assert "no array c" in refusal("kernel", "two.npz:c")
    assert "array of it, not 'y'" in refusal("kernel", "two.npz:a", "--label-column", "y")
    np.savez("objects.npz", X=np.array([None, 1], dtype=object))
    assert "Python objects" in refusal("kernel", "objects.npz")
    huge = sparse.coo_array(([1.0], ([0], [0])), shape=(10**6, 10**5))
    sparse.save_npz("huge.npz", huge)
    assert "TruncatedSVD" in refusal("kernel", "huge.npz")
    Path("rows.csv").write_text("a,b\n1,x\n2,y\n", encoding="utf-8")
    assert "--label-column 'b'" in refusal("kernel", "rows.csv")
    assert "no column 'c'. It has a, b." in refusal("kernel", "rows.csv", "--label-column", "c")
    np.save("rows.npy", ROWS)
    assert "comes without labels" in refusal("train", "--data", "rows.npy")
    assert "leave --scale unit out" in refusal("spectrum", "--scale", "unit")
    assert "scale='big'" in refusal("kernel", "rows.npy", "--scale", "big")


def test_a_damaged_parquet_file_is_named() -> None:
    pytest.importorskip("pyarrow", exc_type=ImportError)
    Path("rows.parquet").write_bytes(b"PAR1 and nothing else")
    assert "cannot be read as Parquet" in refusal("kernel", "rows.parquet")


def test_parquet_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("rows.parquet").write_bytes(b"PAR1")
    assert "pip install pyarrow" in refusal("kernel", "rows.parquet")


def test_parquet_with_a_package_that_does_not_fit_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyarrow.py").write_text('raise ImportError("pyarrow requires NumPy 9")', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    Path("rows.parquet").write_bytes(b"PAR1")
    assert "cannot be imported: pyarrow requires NumPy 9" in refusal("kernel", "rows.parquet")


def test_labels_from_a_file_of_their_own() -> None:
    np.save("rows.npy", ROWS)
    Path("y.csv").write_text("kind\n" + "a\nb\n" * 15, encoding="utf-8")
    (X, _), (X_test, y_test) = Data("rows.npy", None, labels=Path("y.csv")).parts()
    assert (len(X), len(X_test)) == (24, 6)
    assert sorted(y_test) == ["a"] * 3 + ["b"] * 3
    np.testing.assert_array_equal(np.sort(np.vstack([X, X_test]), axis=0), np.sort(ROWS, axis=0))


def labels_of(text: str, n: int | None = None) -> list[object]:
    Path("y.csv").write_text(text, encoding="utf-8")
    return list(Data("rows.npy", n, labels=Path("y.csv")).samples().labels)


def test_a_label_file_has_one_label_for_each_row_with_or_without_a_header() -> None:
    np.save("rows.npy", ROWS)
    kinds = ["a", "b", "c"] * 10
    plain, numbers = "\n".join(kinds), "\n".join("012" * 10)
    for n in (None, 5):  # the lengths of the files are compared, not that of what is used
        assert labels_of(plain, n) == labels_of(f"kind\n{plain}\n", n) == kinds[:n]
    # What pandas writes for a series without a name: the header 0, and its index.
    index = "".join(f"\n{row},{row % 3}" for row in range(30))
    assert labels_of(numbers) == labels_of(f"0\n{numbers}") == labels_of(f",0{index}") == labels_of(index[1:])
    found = Data("rows.npy", labels=Path("y.csv")).samples()
    assert "numbers the rows, was left out" in found.notes[0]
    for text, words in {
        "a\n" + plain: "31 lines for 30 rows",
        "3\n" + numbers: "31 lines for 30 rows",
        "kind\n" + plain[2:]: "starts with 'kind', which looks like a header, and has then 29 labels",
        "\n".join(f"{kind},1" for kind in kinds): "2 columns; labels are one column",
        "kind\n" + plain.replace("b", "", 1): "1 of 30 labels of y.csv are missing: row 2.",
        plain.replace("a", "NaN", 1): "missing: row 1.",
    }.items():
        with pytest.raises(nsd.InputError, match=words):
            labels_of(text)
    np.save("y.npy", np.zeros((30, 2)))
    assert "one label for each row" in refusal("train", "rows.npy", "--labels", "y.npy")
    np.save("y.npy", np.zeros(31))
    assert "31 labels for 30 rows" in refusal("train", "rows.npy", "--labels", "y.npy", "--n", "20")


def test_a_missing_word_is_an_error_and_no_class() -> None:
    Path("rows.csv").write_text("x,kind\n1,a\n2,\n3,b\n4,None\n", encoding="utf-8")
    with pytest.raises(nsd.InputError, match=r"2 of 4 labels of rows\.csv are missing: rows 2, 4"):
        open_table("rows.csv", label_column="kind")
    assert list(open_table("rows.csv", 1, label_column="kind").labels) == ["a"]
    pytest.importorskip("pyarrow", exc_type=ImportError)
    import pyarrow
    import pyarrow.parquet

    for kinds in (["a", None, "b"], [1.0, None, 2.0]):
        table = pyarrow.table({"x": [1.0, 2.0, 3.0], "__index_level_0__": [7, 3, 5], "kind": kinds})
        pyarrow.parquet.write_table(table, "rows.parquet")
        with pytest.raises(nsd.InputError, match=r"1 of 3 labels of rows\.parquet are missing: row 2"):
            open_table("rows.parquet", label_column="kind")
        found = open_table("rows.parquet", 1, label_column="kind")
        assert found.rows.tolist() == [[1.0]]
        assert "The index '__index_level_0__' was left out." in found.note


# Text of a CSV file, its rows, and what is said about it.
PANDAS = {
    "0,1,2\n4,5,6\n7,8,9\n": ([[4, 5, 6], [7, 8, 9]], "header"),
    "0,1\n.5,2\n3,4\n": ([[0.5, 2], [3, 4]], "header"),
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
    np.testing.assert_array_equal(found.rows, rows)
    assert all(word in found.note for word in said.split())
    assert bool(found.note) == bool(said)


def test_a_numbered_header_beside_a_named_column_is_one_only_if_the_name_is_no_label() -> None:
    Path("rows.csv").write_text("0,1,kind,3\n5,6,a,8\n7,8,a,9\n", encoding="utf-8")
    assert list(open_table("rows.csv", label_column="kind").labels) == ["a", "a"]
    Path("rows.csv").write_text("0,1,a\n5,6,a\n7,8,b\n", encoding="utf-8")
    assert list(open_table("rows.csv", label_column="3").labels) == ["a", "a", "b"]


def test_one_wide_column_is_scaled_and_said() -> None:
    rows = ROWS[:, :4] * [3e4, 1.0, 1.0, 1.0]
    np.savez("rows.npz", X=rows, y=np.where(rows[:, 1] > 0, "a", "b"))
    found = Data("rows.npz").samples()
    np.testing.assert_allclose(found.rows, Preprocessing.named("standard", rows).apply(rows))
    assert "scale 'auto' as 'standard', because column 1 has 100.0% of the variance" in found.notes[0]
    training = (
        "--label-column",
        "y",
        "--width",
        "64",
        "--seeds",
        "1",
        "--epochs",
        "30",
        "--lr",
        "1",
        "--json",
    )
    done = run("train", "rows.npz", "--model", "deq", *training)
    assert json.loads(done.stdout)[0]["accuracy"] > 0.6
    assert "because column 1" in done.stderr


# --- errors of the file system ---------------------------------------------------------------------------------------


def sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What the console script says on stderr before it stops with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["notsodeep", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    return said


def test_errors_of_the_file_system_are_sentences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("rows.npy", ROWS)
    Path("K.npy").mkdir()
    long, kernel = "x" * 300, ("kernel", "rows.npy", "--save")
    for words, arguments in {
        "K.npy is a folder": (*kernel, "K.npy", "--overwrite"),
        "rows.npy is not a folder": (*kernel, "rows.npy/K.npy"),
        "File name too long": (*kernel, f"{long}.npy"),
        "too long. Name a shorter one": ("kernel", f"{long}.csv"),
        "Give the file of weights first": ("distill", "rows.npy"),
        "is not a .pt or .npz file of weights": ("verdict", "rows.pt"),
        "Name the data": ("kernel",),
        "named twice": ("kernel", "rows.npy", "--data", "digits"),
    }.items():
        Path("rows.pt").write_text("1,2\n", encoding="utf-8")
        assert words in sentence(capsys, monkeypatch, *arguments)

    def fails(code: int) -> Callable[..., None]:
        def call(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code), "rows.npy")

        return call

    with monkeypatch.context() as full:
        full.setattr(np, "save", fails(errno.ENOSPC))
        assert "Make room" in sentence(capsys, full, "kernel", "rows.npy")
    monkeypatch.setattr(Path, "open", fails(errno.EACCES))
    assert "Check its rights" in sentence(capsys, monkeypatch, "kernel", "rows.npy")


@pytest.mark.parametrize("size", [1e90, 1e-90])
def test_huge_and_tiny_entries_are_scaled_or_refused(size: float) -> None:
    np.save("rows.npy", size * ROWS)
    np.save("y.npy", np.sign(ROWS[:, 0]).astype(int))
    for words in (("design",), ("spectrum", "--no-check"), ("certify", "--labels", "y.npy", "--width", "20")):
        assert run(words[0], "rows.npy", *words[1:]).exit_code in (0, 3)
        assert "Use scale 'auto'" in refusal(
            words[0], "rows.npy", *words[1:], "--scale", "none", "--overwrite"
        )


# --- output ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["K.csv", "K.npy", "K.npz", "K.parquet"])
def test_a_kernel_is_written_under_its_name_in_its_format(name: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", exc_type=ImportError)
    np.save("rows.npy", ROWS)
    assert run("kernel", "rows.npy", "--activation", "relu", "--save", name).exit_code == 0
    rows = Preprocessing.fit(ROWS).apply(ROWS)
    np.testing.assert_array_equal(open_table(name).rows, nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), rows))
    assert {path.name for path in Path().iterdir()} == {"rows.npy", name}


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "K.npy": ("kernel", "rows.npy", "--save", "K.npy"),
        "twin.json": ("design", "--save", "twin.json"),
        "twin.png": ("design", "--figure", "twin.png"),
        "s.png": ("spectrum", "--n", "30", "--p", "20", "--save", "s.png"),
        "loss.png": ("certify", "--width", "30", "--train", "2", "--figure", "loss.png"),
    }.items(),
)
def test_a_file_that_is_there_is_an_error(name: str, words: tuple[str, ...]) -> None:
    np.save("rows.npy", ROWS)
    Path(name).write_text("mine", encoding="utf-8")
    assert f"{name} is there already" in refusal(*words)
    assert Path(name).read_text(encoding="utf-8") == "mine"
    assert {path.name for path in Path().iterdir()} == {"rows.npy", name}


def test_overwrite_replaces_and_an_unknown_format_is_refused_first() -> None:
    np.save("rows.npy", ROWS)
    Path("K.npy").write_text("mine", encoding="utf-8")
    assert run("kernel", "rows.npy", "--save", "K.npy", "--overwrite").exit_code == 0
    assert np.load("K.npy").shape == (30, 30)
    assert "K.txt says no format" in refusal("kernel", "rows.npy", "--save", "K.txt")


# --- words ----------------------------------------------------------------------------------------------------------


def commands() -> list[str]:
    group = typer.main.get_command(app)
    return ["", *group.commands]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("name", commands())
def test_help_fits_eighty_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    done = CliRunner().invoke(app, [*([name] if name else []), "--help"], terminal_width=80)
    assert done.exit_code == 0
    assert max(len(line) for line in done.output.splitlines()) <= 80
    assert "…" not in done.output  # what rich cuts


def test_every_command_that_takes_data_takes_the_same_options() -> None:
    group = typer.main.get_command(app)
    shared = {"--scale", "--label-column", "--labels", "--n", "--samples", "--p", "--seed", "--data-dir"}
    shared |= {"--data", "source"}
    for name in ("kernel", "design", "spectrum", "train", "certify", "predict", "verdict", "distill"):
        params = group.commands[name].params  # type: ignore[attr-defined]
        assert shared <= {option for one in params for option in one.opts}, name
        defaults = {one.name: one.default for one in params}
        assert (defaults["scale"], defaults.get("activation", "relu")) == ("auto", "relu"), name


def test_data_are_an_argument_or_an_option_everywhere() -> None:
    np.save("rows.npy", ROWS)
    np.save("y.npy", np.arange(30) % 2)
    small = ("--width", "8", "--json")
    for command in (
        ("design", "--family", "papers", "--json"), ("certify", "--labels", "y.npy", *small),
        ("predict", "--labels", "y.npy", "--sizes", "10", "--ridge", "1", "--json"),
    ):  # fmt: skip
        argument, option = (
            run(command[0], *data, *command[1:]) for data in (["rows.npy"], ["--data", "rows.npy"])
        )
        assert argument.stdout == option.stdout
        assert argument.exit_code in (0, 3), argument.output
    # Before the data `verdict` takes weights; a file with an array W has some.
    weights = {"W": np.zeros((3, 3)), "U": np.ones((3, 8)), "readout": np.ones((2, 3))}
    np.savez("deq.npz", **weights)
    Path("rows.csv").write_text("\n".join("1,2" for _ in range(9)), encoding="utf-8")
    assert [is_data(one) for one in ("rows.csv", "digits:0,1", "mixture", "deq.npz", "deq.pt")] == [
        True
    ] * 3 + [False] * 2
    assert "rows.csv" in refusal("verdict", "rows.csv", "--scale", "unit", "--label-column", "x")
    assert "FILE has a trained DEQ" in refusal("verdict", "deq.npz", "rows.npy", "--width", "2")


def test_advice_names_only_what_exists() -> None:
    assert "sigma_b2" not in refusal("design", "--sigma-a2", "1.5")
    done = run("design", "--activation", "x**3")
    assert isinstance(done.exception, nsd.ConvergenceError)
    assert "e-" not in str(done.exception).partition("Lower")[2]
    assert "grows" in str(done.exception)
