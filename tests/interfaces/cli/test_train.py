"""`notsodeep train` as a newcomer uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from notsodeep.interfaces.cli import main

pytestmark = pytest.mark.slow

SMALL = ("--width", "32", "--epochs", "2", "--samples", "200", "--threads", "1")


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The console script, in an empty folder and in this process: torch takes seconds to start."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Done:
        monkeypatch.setattr("sys.argv", ["notsodeep", "train", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return command


def test_one_table_for_all_models(run: Run, tmp_path: Path) -> None:
    done = run(*SMALL, "--seeds", "2")
    assert done.code == 0, done.stderr
    for words in ("deq", "twin", "plain", "±", "MiB", "Learning rate", "leaky_relu"):
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_json_is_all_there_is_on_stdout_and_a_second_call_goes_on(run: Run, tmp_path: Path) -> None:
    arguments = (
        *SMALL,
        "--data",
        "digits:1,7",
        "--train",
        "all",
        "--seeds",
        "1",
        "--json",
        "--checkpoint-dir",
        ".",
    )
    arguments += ("--model", "twin,deq", "--activation", "tanh")
    first = run(*arguments)
    assert first.code == 0, first.stderr
    rows = json.loads(first.stdout)
    assert [row["model"] for row in rows] == ["twin", "deq"]
    assert all(row["accuracy"] > 0.6 and row["width"] == 32 and row["train"] == "all" for row in rows)
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert sorted(files) == ["deq-0.pt", "twin-0.pt"]
    second = run(*arguments)
    kept = ("model", "accuracy", "agreement", "lr")
    assert [[row[name] for name in kept] for row in json.loads(second.stdout)] == [
        [row[name] for name in kept] for row in rows
    ]
    assert {
        path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()
    } == files  # nothing left to train


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "deq,twins"), "deq, twin, plain"),
        (("--checkpoint-dir", "missing"), "missing"),
        (("--sigma-a2", "0.9", "--contractive", "--width", "16"), "contractive"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_code_two(run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = run("--samples", "50", "--threads", "1", *arguments)
    assert done.code == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_help_teaches(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    for words in ("twin", "plain", "--checkpoint-dir", "equilibrium", "notsodeep train --data mnist"):
        assert words in done.stdout
