"""`notsodeep train` as a newcomer uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from notsodeep.cli import main

pytestmark = pytest.mark.slow

SMALL = "--width 32 --epochs 2 --n 200"


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

    def command(words: str) -> Done:
        monkeypatch.setattr("sys.argv", ["notsodeep", "train", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return command


def test_one_table_for_all_models(run: Run, tmp_path: Path) -> None:
    done = run(f"{SMALL} --seeds 2")
    assert done.code == 0, done.stderr
    for words in ("deq", "twin", "plain", "±", "Learning rate", "leaky_relu"):
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_json_is_all_there_is_on_stdout_and_a_second_call_goes_on(run: Run, tmp_path: Path) -> None:
    command = (
        f"{SMALL} --data digits:1,7 --train all --seeds 1 --json --checkpoint-dir . --networks twin,deq "
        "--activation tanh"
    )
    first = run(command)
    assert first.code == 0, first.stderr
    rows = json.loads(first.stdout)
    assert [row["model"] for row in rows] == ["twin", "deq"]
    assert all(row["accuracy"] > 0.6 and row["width"] == 32 and row["train"] == "all" for row in rows)
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert sorted(files) == ["deq-0.pt", "twin-0.pt"]
    second = run(command)
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
        ("--networks deq,twins", "deq, twin, plain"),
        ("--checkpoint-dir missing", "missing"),
        ("--sigma-a2 0.9 --contractive --width 16", "contractive"),
        ("--model conv --data mixture", "mixture has no images"),
        ("--model conv --data X.npy", "X.npy has no labels"),
        ("--model conv --data X.npy --labels short.npy", "2 labels for 6 rows"),
        ("--model conv --data rows.npy --labels y.npy", "images are (n, channels, height, width)"),
        ("--model conv --data digits --filter-size 9", "fewer than the 9 taps"),
        ("--model conv --data digits --filter-size 4", "must be odd"),
        ("--readout pool", "Add --model conv"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_code_two(run: Run, arguments: str, words: str) -> None:
    np.save("X.npy", np.ones((6, 1, 4, 4)))
    np.save("rows.npy", np.ones((6, 4)))
    np.save("y.npy", np.arange(6) % 2)
    np.save("short.npy", np.arange(2))
    done = run(f"--n 50 {arguments}")
    assert done.code == 2
    assert words in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.slow
def test_convolutional_networks_of_a_data_set_and_of_a_file(run: Run, tmp_path: Path) -> None:
    small = "--model conv --networks deq,twin --width 4 --epochs 1 --seeds 1 --json"
    done = run(f"--data digits --n 60 --readout flatten {small}")
    assert done.code == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["model"] for row in rows] == ["deq", "twin"]
    assert rows[0]["network"] == "ConvDEQ(relu, sigma_a2=0.2, sigma_b2=0.8, filter_size=3, zeros, flatten)"
    assert rows[1]["network"].startswith("ConvExplicit([relu, relu")
    assert rows[0]["width"] == 4
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.standard_normal((60, 2, 4, 4)))
    np.save(tmp_path / "y.npy", np.arange(60) % 2)
    own = run(f"--data X.npy --labels y.npy --filter-size 1 {small}")
    assert own.code == 0, own.stderr
    assert "filter_size=1" in json.loads(own.stdout)[0]["network"]
