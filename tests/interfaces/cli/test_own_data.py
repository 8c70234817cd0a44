"""A user's own file through every command: read, looked at, scaled, answered in seconds; files written by name."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import sparse
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner, Result

import notsodeep as nsd
from notsodeep.data import Preprocessing, inspect_rows, open_table
from notsodeep.interfaces.cli.entry import app
from notsodeep.interfaces.scenario import Data

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
    "spectrum": ("spectrum", "--data", "FILE", "--no-check"),
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
        expected = nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), Preprocessing.fit(rows).apply(rows))
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
    assert "about 1 of 8 columns" in inspect_rows(narrow / inspect_rows(narrow).norm).advice
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
    Path("y.csv").write_text("kind\na\n", encoding="utf-8")
    assert "1 labels for 30 rows" in refusal("train", "--data", "rows.npy", "--labels", "y.csv")


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
        "demo.html": ("demo", "--page", "demo.html"),
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
    for name in ("kernel", "design", "spectrum", "train", "certify"):
        options = {option for one in group.commands[name].params for option in one.opts}  # type: ignore[attr-defined]
        assert shared <= options, name


def test_advice_names_only_what_exists() -> None:
    assert "sigma_b2" not in refusal("design", "--sigma-a2", "1.5")
    done = run("design", "--activation", "x**3")
    assert isinstance(done.exception, nsd.ConvergenceError)
    assert "e-" not in str(done.exception).partition("Lower")[2]
    assert "grows" in str(done.exception)
