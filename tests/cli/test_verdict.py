"""`notsodeep verdict`: words, JSON, exit codes, a trained DEQ from a file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from notsodeep.cli.entry import app
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet

pytestmark = pytest.mark.slow
RUN = CliRunner()


def test_a_verdict_in_words_and_as_json() -> None:
    arguments = ["verdict", "--data", "digits", "--n", "250", "--width", "64", "--train", "readout"]
    shown = RUN.invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "Will the twin do? Yes." in shown.output
    assert "notsodeep design --data digits --n 250 --activation relu --sigma-a2 0.2" in " ".join(
        shown.output.split()
    )
    told = json.loads(RUN.invoke(app, [*arguments, "--json"]).output)
    assert told["answer"] == "yes"
    assert {gap["source"] for gap in told["gaps"]} == {"kernels", "networks"}


def test_a_trained_deq_comes_from_a_file(tmp_path: Path) -> None:
    weights = DEQNet(DEQ("relu", 0.1), 64, 32, 10, seed=0).plain_weights()
    names = {"W": "recurrent", "U": "inputs", "b": "bias", "readout": "readout"}
    torch.save({name: getattr(weights, part) for name, part in names.items()}, tmp_path / "deq.pt")
    rows = np.random.default_rng(0).standard_normal((200, 64)) / 8.0
    np.save(tmp_path / "X.npy", rows)
    arguments = ["verdict", str(tmp_path / "deq.pt"), str(tmp_path / "X.npy")]
    shown = RUN.invoke(app, arguments)
    assert shown.exit_code in (0, 3, 4), shown.output
    assert "Will a few explicit steps do?" in shown.output
    assert "Rows taken as they are" in " ".join(shown.output.split())
    refused = RUN.invoke(app, [*arguments, "--width", "5"])
    assert "leave --model, --width and --train out" in str(refused.exception)


def test_the_exit_code_says_uncertain_where_the_model_has_no_solution(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", 1e3 * np.random.default_rng(0).standard_normal((60, 5)))
    arguments = ["--data", str(tmp_path / "X.npy"), "--scale", "none", "--activation", "x**3", "--width", "8"]
    assert RUN.invoke(app, ["verdict", *arguments, "--sigma-a2", "0.5"]).exit_code == 4


def test_the_command_that_goes_on_has_all_that_was_said_about_the_data(tmp_path: Path) -> None:
    """A file with labels in a column, whose name has a space: the command runs as it is printed."""
    X, y = load_digits(return_X_y=True)
    file = tmp_path / "my rows.csv"
    lines = [
        ",".join([*map(str, row), "ab"[int(kind > 4)]]) for row, kind in zip(X[:80], y[:80], strict=True)
    ]
    file.write_text("\n".join([",".join([*(f"c{i}" for i in range(64)), "kind"]), *lines]), encoding="utf-8")
    arguments = ["--data", str(file), "--label-column", "kind", "--scale", "standard", "--width", "32"]
    found = RUN.invoke(app, ["verdict", *arguments, "--train", "readout", "--json"])
    words = shlex.split(json.loads(found.stdout)["next"])
    assert words[:4] == ["notsodeep", words[1], "--data", str(file)]
    assert words[4:8] == ["--label-column", "kind", "--scale", "standard"]
    if words[1] == "train":
        words += ["--epochs", "1", "--seeds", "1"]
    assert RUN.invoke(app, words[1:]).exit_code == 0
