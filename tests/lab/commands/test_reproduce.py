"""`notsodeep reproduce` as it is typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from toy_experiment import TROUBLE, Hungry, Timed, Toy, ToySpec, expected_rows, without_seconds

from notsodeep.cli.entry import main
from notsodeep.errors import InputError
from notsodeep_lab.papers import EXPERIMENTS, read_outcome
from notsodeep_lab.papers.data_files import DATA_VARIABLE
from notsodeep_lab.papers.drawings import DRAWINGS

Typed = Callable[..., tuple[int, str, str]]
QUICK = Toy().spec("quick")


def draw_toy(rows: list[dict[str, Any]]) -> Figure:
    figure = Figure()
    figure.subplots().plot([row["mean"] for row in rows if row["kind"] == "mean"])
    return figure


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Typed:
    """Type a command in an empty folder, with toys in the place of the experiments: code, stdout, stderr."""
    toys = {toy.name: toy for toy in (Toy(), Timed(), Hungry())}
    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    for name, toy in toys.items():
        monkeypatch.setitem(EXPERIMENTS, name, toy)
    monkeypatch.setitem(DRAWINGS, "toy", draw_toy)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["notsodeep", "reproduce", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return int(ended.value.code or 0), out, " ".join(err.split())

    return run


def test_the_list_has_papers_times_and_data(typed: Typed) -> None:
    code, out, _ = typed("--list")
    assert code == 0
    for word in ("toy", "timed", "hungry", "none", "means of a few", "0.1 min", "1 min", "cifar10_vgg19"):
        assert word in out
    code, out, _ = typed("--list", "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == ["toy", "timed", "hungry"]
    assert json.loads(out)[2]["needs"] == ["cifar10_vgg19"]
    assert json.loads(out)[0]["minutes"] == {"quick": 0.1, "full": 1.0}


@pytest.mark.slow
def test_one_experiment_gives_rows_a_figure_and_verdicts_once(typed: Typed) -> None:
    code, out, _ = typed("toy")
    assert code == 0
    folder = Path("results/toy", QUICK.hash())
    assert str(folder) in out.replace("\n", "")
    assert "means" in out
    assert "yes" in out
    assert "Quick size" in out
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "results.md", "rows.jsonl", "spec.toml", "provenance.json", "figure.png", "figure.svg", "figure.pdf", ".lock",
    }  # fmt: skip
    page = (folder / "results.md").read_text(encoding="utf-8")
    assert page.startswith("# toy")
    assert "](figure.png)" in page
    assert "$ notsodeep reproduce toy" in page
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert b"<svg" in (folder / "figure.svg").read_bytes()
    assert without_seconds(read_outcome(Toy(), folder).rows) == expected_rows(QUICK)
    lines = (folder / "rows.jsonl").read_bytes()
    assert "6 from an earlier run" in typed("toy")[1]
    assert (folder / "rows.jsonl").read_bytes() == lines
    code, out, err = typed("toy", "--fresh", "--json")
    assert "kept as rows.jsonl.old-" in err
    told = json.loads(out)
    assert told["skipped"] == told["failed"] == {}
    (toy,) = told["experiments"]
    assert (toy["finished"], toy["rows"]) == (True, 12)
    assert all(Path(path).exists() for path in toy["figures"])
    assert toy["expectations"][0] == {
        "what": "means", "paper": 6, "ours": 6, "verdict": True, "remark": "all of them",
    }  # fmt: skip


@pytest.mark.slow
def test_full_size_and_custom_settings(typed: Typed) -> None:
    code, out, _ = typed("toy", "--size", "full", "--seeds", "1", "--out", "elsewhere")
    assert code == 0
    assert "Differences from the paper: nothing but the sample size" in out
    assert Path("elsewhere/toy", ToySpec(seeds=1).hash(), "rows.jsonl").exists()
    own = replace(QUICK, sizes=(7,))
    Path("own.toml").write_text(own.to_toml())
    assert typed("toy", "--spec", "own.toml")[0] == 0
    assert without_seconds(read_outcome(Toy(), Path("results/toy", own.hash())).rows) == expected_rows(own)


@pytest.mark.slow
def test_all_skips_what_lacks_its_data(typed: Typed) -> None:
    code, out, err = typed("all", "--jobs", "2", "--json")
    assert code == 0
    told = json.loads(out)
    assert [one["name"] for one in told["experiments"]] == ["toy", "timed"]
    assert "cifar10_vgg19" in told["skipped"]["hungry"]
    assert "hungry is skipped: it needs cifar10_vgg19" in err
    assert "timed measures times" in err
    assert not Path("results/hungry").exists()


def test_all_goes_on_after_a_failure_and_says_so(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TROUBLE, "size=2 seed=0:convergence")
    code, out, err = typed("all", "--json")
    assert code == 2
    told = json.loads(out)
    assert "Take smaller steps" in told["failed"]["toy"]
    assert "toy failed" in err
    assert [one["name"] for one in told["experiments"]] == ["timed"]


@pytest.mark.slow
def test_an_interrupted_run_says_how_to_go_on(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TROUBLE, "size=2 seed=0:interrupt")
    code, out, err = typed("all", "--json")
    assert code == 130
    assert "2 of 6 tasks of toy are finished" in err
    assert "again to continue" in err
    (toy,) = json.loads(out)["experiments"]
    assert (toy["finished"], toy["tasks_done"], toy["figures"]) == (False, 2, [])
    assert not Path("results/timed").exists()
    monkeypatch.delenv(TROUBLE)
    code, out, _ = typed("toy")
    assert code == 0
    assert "2 from an earlier run" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--list"),
        (("tox",), "Unknown experiment 'tox'. Choose one of: toy, timed, hungry"),
        (("toy", "--size", "medium"), "'medium'"),
        (("hungry",), "cifar10_vgg19"),
        (("toy", "--spec", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("all", "--spec", "own.toml"), "name it"),
        (("toy", "--seeds", "0"), "--seeds"),
        (("toy", "--out", "/dev/null"), "Not a directory"),
        (("toy", "--data-dir", "/dev/null", "--jobs", "0"), "--jobs"),
    ],
)
def test_mistakes_are_a_sentence_and_exit_code_two(
    typed: Typed, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = typed(*arguments)
    assert code == 2
    assert words in err
    assert out == ""
    assert list(Path().iterdir()) == []


def test_a_figure_that_cannot_be_drawn_keeps_the_rows(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(rows: list[dict[str, Any]]) -> Figure:
        raise InputError("There is nothing to draw.")

    monkeypatch.setitem(DRAWINGS, "toy", refuse)
    code, _, err = typed("toy")
    assert code == 2
    assert "nothing to draw" in err
    assert read_outcome(Toy(), Path("results/toy", QUICK.hash())).finished
