"""`notsodeep verdict`: words, JSON, exit codes, a trained DEQ from a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from notsodeep.interfaces.cli.entry import app
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet

pytestmark = pytest.mark.slow
RUN = CliRunner()


def test_a_verdict_in_words_and_as_json() -> None:
    arguments = ["verdict", "--data", "digits", "--samples", "250", "--width", "64", "--train", "readout"]
    shown = RUN.invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "Will the twin do? Yes." in shown.output
    assert "notsodeep design --data digits --activation relu --sigma-a2 0.2" in " ".join(shown.output.split())
    told = json.loads(RUN.invoke(app, [*arguments, "--json"]).output)
    assert told["answer"] == "yes"
    assert {gap["source"] for gap in told["gaps"]} == {"kernels", "networks"}


def test_a_trained_deq_comes_from_a_file(tmp_path: Path) -> None:
    weights = DEQNet(DEQ("relu", 0.1), 64, 32, 10, seed=0).plain_weights()
    names = {"W": "recurrent", "U": "inputs", "b": "bias", "readout": "readout"}
    torch.save({name: getattr(weights, part) for name, part in names.items()}, tmp_path / "deq.pt")
    rows = np.random.default_rng(0).standard_normal((200, 64)) / 8.0
    np.save(tmp_path / "X.npy", rows)
    arguments = ["verdict", str(tmp_path / "deq.pt"), "--data", str(tmp_path / "X.npy"), "--scale", "none"]
    shown = RUN.invoke(app, arguments)
    assert shown.exit_code in (0, 3, 4), shown.output
    assert "Will a few explicit steps do?" in shown.output
    refused = RUN.invoke(app, [*arguments, "--width", "5"])
    assert "leave --model, --width and --train out" in str(refused.exception)


def test_the_exit_code_says_uncertain_where_the_model_has_no_solution(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", 1e3 * np.random.default_rng(0).standard_normal((60, 5)))
    arguments = ["--data", str(tmp_path / "X.npy"), "--scale", "none", "--activation", "x**3", "--width", "8"]
    assert RUN.invoke(app, ["verdict", *arguments, "--sigma-a2", "0.5"]).exit_code == 4
