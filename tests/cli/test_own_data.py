"""A user's own file through every command: inspected, scaled, answered in seconds; the options of all commands."""

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
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner, Result

import notsodeep as nsd
from notsodeep.cli.entry import app, main
from notsodeep.cli.scenario import Data, is_data
from notsodeep.data import Preprocessing, inspect_rows, open_table

ROWS = np.random.default_rng(0).standard_normal((30, 8)) / np.sqrt(8)


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


def run(words: str) -> Result:
    return CliRunner().invoke(app, words.split())


def refusal(words: str) -> str:
    done = run(words)
    assert isinstance(done.exception, nsd.InputError), done.output
    return str(done.exception)


# --- the file that hung ---------------------------------------------------------------------------------------------

COMMANDS = {
    "kernel": "kernel FILE",
    "tangent kernel as it is": "kernel FILE --kernel ntk --scale none",
    "design": "design --data FILE",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_unscaled_columns_are_answered_in_seconds(name: str, cancer: str) -> None:
    start = time.perf_counter()
    done = run(f"{COMMANDS[name].replace('FILE', cancer)} --label-column diagnosis --json")
    assert done.exit_code == 0, done.output
    assert time.perf_counter() - start < 60.0
    record = json.loads(done.stdout)
    about = record["data"]
    assert (about["n"], about["p"]) == (569, 30)
    assert "norm 1.3e+03, 86% of it their mean" in about["notes"][0]
    as_it_is = "--scale none" in COMMANDS[name]
    assert ("scale 'standard'" in about["advice"]) == as_it_is
    assert ("as 'standard', because about 2 of 30 columns have" in about["notes"][0]) != as_it_is
    if name == "kernel":
        rows = open_table(cancer, label_column="diagnosis").X
        expected = nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), Preprocessing.fit(rows).apply(rows))
        np.testing.assert_array_equal(np.load("kernel.npy"), expected)
    if name == "design":
        distances = record["measured"][0]["distances"]
        assert set(distances) == {"twin", "cut", "plain_1", "plain_2"}
        assert (
            distances["twin"]["relative_up_to_factor"] < 0.3 * distances["plain_1"]["relative_up_to_factor"]
        )


def test_certify_takes_two_words_as_labels(cancer: str) -> None:
    command = f"certify --data {cancer} --label-column diagnosis --width 40 --json"
    assert json.loads(run(f"{command} --n 25").stdout)["width"] == 40
    assert "have 1 class; certify needs two" in refusal(f"{command} --n 6")


def test_the_look_is_one_sentence_with_a_remedy() -> None:
    assert inspect_rows(ROWS).advice == ""
    large = inspect_rows(100 * ROWS / inspect_rows(ROWS).norm).advice
    assert "norm is 100 instead of about 1; scale 'auto'" in large
    parallel = ROWS + 5.0
    assert "nearly parallel" in inspect_rows(parallel).advice
    assert "not centred" in inspect_rows(ROWS + 0.25).advice
    narrow = ROWS * np.array([30.0, *[0.1] * 7])
    one_column = inspect_rows(narrow / inspect_rows(narrow).norm).advice
    assert "column 1 has 100.0% of the variance; scale 'standard'" in one_column
    assert inspect_rows(np.where(np.arange(8) < 3, 1.0, ROWS)).constant == 3
    for found in (parallel, narrow, ROWS + 0.25):
        assert inspect_rows(found).advice.count(". ") == 0


@pytest.mark.parametrize("how", ["none", "center", "standard", "unit", "auto"])
def test_what_each_scaling_does(how: str) -> None:
    X = 3.0 + ROWS * np.array([10.0, *[1.0] * 6, 0.0])  # the last column is constant
    found = Preprocessing.fit(X, how).apply(X)
    mean, norms = np.abs(found.mean(axis=0)).max(), np.linalg.norm(found, axis=1)
    assert (mean < 1e-12) == (how in ("center", "standard", "auto"))
    assert (np.sqrt(np.mean(norms**2)) == pytest.approx(1.0)) == (how in ("standard", "auto", "unit"))
    if how == "none":
        np.testing.assert_array_equal(found, X)
    if how == "unit":
        np.testing.assert_allclose(norms, 1.0)
    if how == "standard":
        np.testing.assert_allclose(found.std(axis=0), [*[1 / np.sqrt(7)] * 7, 0.0])


def test_one_wide_column_is_scaled_and_said() -> None:
    rows = ROWS[:, :4] * [3e4, 1.0, 1.0, 1.0]
    np.savez("rows.npz", X=rows, y=np.where(rows[:, 1] > 0, "a", "b"))
    found = Data("rows.npz").samples()
    np.testing.assert_allclose(found.X, Preprocessing.fit(rows, "standard").apply(rows))
    assert "scale 'auto' as 'standard', because column 1 has 100.0% of the variance" in found.notes[0]
    done = run("predict rows.npz --label-column y --sizes 20 --ridge 0.1 --json")
    assert json.loads(done.stdout)["accuracy"][0] > 0.6


TABLE = ["plan,months,charge"] + [
    f"{'month' if row % 3 else 'year'},{row % 7 if row % 11 else ''},{row * 1.5}" for row in range(60)
]


@pytest.mark.parametrize("command", ["verdict", "forecast", "kernel"])
def test_a_table_of_words_and_gaps_needs_no_labels(command: str) -> None:
    Path("rows.csv").write_text("\n".join(TABLE), encoding="utf-8")
    done = run(f"{command} rows.csv")
    assert done.exit_code in (0, 3, 4), done.output + repr(done.exception)
    said = " ".join(done.output.split())
    assert "Words became columns of 0 and 1: 'plan' 2." in said
    assert "Missing numbers became medians, with a column that says where: 6 of 'months'." in said
    if command == "kernel":
        rows = open_table("rows.csv").X
        assert rows.shape == (60, 5)
        expected = nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), Preprocessing.fit(rows).apply(rows))
        np.testing.assert_array_equal(np.load("kernel.npy"), expected)


# --- errors of the file system ---------------------------------------------------------------------------------------


def sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str) -> str:
    """What the console script prints on stderr before it stops with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["notsodeep", *words.split()])
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
    long = "x" * 300
    Path("rows.pt").write_text("1,2\n", encoding="utf-8")
    for words, command in {
        "K.npy is a folder": "kernel rows.npy --save K.npy --overwrite",
        "rows.npy is not a writable folder": "kernel rows.npy --save rows.npy/K.npy",
        "File name too long": f"kernel rows.npy --save {long}.npy",
        "too long. Use a shorter name": f"kernel {long}.csv",
        "Give the data": "kernel",
        "two sources of data": "kernel rows.npy --data digits",
        "Give the file of weights first": "distill rows.npy",
        "is not a .pt or .npz file of weights": "verdict rows.pt",
    }.items():
        assert words in sentence(capsys, monkeypatch, command)

    def fails(code: int) -> Callable[..., None]:
        def call(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code), "rows.npy")

        return call

    with monkeypatch.context() as full:
        full.setattr(np, "save", fails(errno.ENOSPC))
        assert "Free some space" in sentence(capsys, full, "kernel rows.npy")
    monkeypatch.setattr(Path, "open", fails(errno.EACCES))
    assert "Check its permissions" in sentence(capsys, monkeypatch, "kernel rows.npy")


@pytest.mark.parametrize("size", [1e90, 1e-90])
def test_huge_and_tiny_entries_are_scaled_or_refused(size: float) -> None:
    np.save("rows.npy", size * ROWS)
    np.save("y.npy", np.sign(ROWS[:, 0]).astype(int))
    for command in (
        "design rows.npy",
        "kernel rows.npy",
        "certify rows.npy --labels y.npy --width 20",
    ):
        assert run(command).exit_code in (0, 3)
        extra = "" if command.startswith("certify") else "--overwrite"
        assert "Use scale 'auto'" in refusal(f"{command} --scale none {extra}")


# --- output ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "command"),
    {
        "K.npy": "kernel rows.npy --save K.npy",
        "twin.json": "design --save twin.json",
        "twin.png": "design --figure twin.png",
    }.items(),
)
def test_an_existing_file_is_replaced_only_on_request(name: str, command: str) -> None:
    np.save("rows.npy", ROWS)
    Path(name).write_text("mine", encoding="utf-8")
    assert f"{name} exists" in refusal(command)
    assert Path(name).read_text(encoding="utf-8") == "mine"
    assert {path.name for path in Path().iterdir()} == {"rows.npy", name}
    assert run(f"{command} --overwrite").exit_code == 0
    assert Path(name).read_bytes() != b"mine"


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
    shared = {"--scale", "--label-column", "--labels", "--n", "--p", "--seed", "--data", "source"}
    for name in ("kernel", "design", "certify", "predict", "verdict", "distill"):
        params = group.commands[name].params  # type: ignore[attr-defined]
        assert shared <= {option for one in params for option in one.opts}, name
        defaults = {one.name: one.default for one in params}
        assert (defaults["scale"], defaults["n"], defaults["seed"]) == ("auto", None, 0), name
        assert (defaults.get("activation", "relu"), defaults.get("sigma_a2", 0.2)) == ("relu", 0.2), name
        assert defaults.get("kernel") in (None, "ck"), name


def test_data_are_an_argument_or_an_option_everywhere() -> None:
    np.save("rows.npy", ROWS)
    np.save("y.npy", np.arange(30) % 2)
    for name, options in {
        "design": "--family papers",
        "certify": "--labels y.npy --width 8",
        "predict": "--labels y.npy --sizes 10 --ridge 1",
    }.items():
        argument, option = (
            run(f"{name} {data} {options} --json") for data in ("rows.npy", "--data rows.npy")
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
    assert "rows.csv" in refusal("verdict rows.csv --scale unit --label-column x")
    assert "FILE has a trained DEQ" in refusal("verdict deq.npz rows.npy --kernel ntk")


def test_advice_names_only_what_exists() -> None:
    assert "sigma_b2" not in refusal("design --sigma-a2 1.5")
    done = run("design --activation x**3")
    assert isinstance(done.exception, nsd.ConvergenceError)
    assert "e-" not in str(done.exception).partition("Lower")[2]
    assert "grows" in str(done.exception)
