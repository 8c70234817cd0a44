"""`notsodeep distill`: weights of a file into a student, and refusals that help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import notsodeep as nsd
from notsodeep.errors import InputError
from notsodeep.interfaces.cli.entry import app
from notsodeep.nets import DEQNet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A DEQ's weights in both formats, and rows without labels."""
    net = DEQNet(nsd.DEQ("relu", 0.2), 6, 24, 3, seed=0)
    weights = net.plain_weights()
    arrays = {
        "W": weights.recurrent,
        "U": weights.inputs,
        "readout": weights.readout,
        "readout_bias": torch.ones(3),
    }
    torch.save(arrays, tmp_path / "deq.pt")
    np.savez(tmp_path / "deq.npz", **{name: value.numpy() for name, value in arrays.items()})
    rows = np.random.default_rng(0).standard_normal((300, 6)) / 6**0.5
    np.save(tmp_path / "rows.npy", rows)
    return tmp_path


def run(folder: Path, file: str, *words: str):
    arguments = ["distill", str(folder / file), "--data", str(folder / "rows.npy"), "--scale", "none", *words]
    return CliRunner().invoke(app, [*arguments, "--activation", "relu", "--epochs", "1"])


@pytest.mark.parametrize("file", ["deq.pt", "deq.npz"])
def test_a_file_of_weights_becomes_a_student(folder: Path, file: str) -> None:
    ran = run(folder, file, "--until", "0.8", "--json", "--save", str(folder / "student.pt"))
    assert ran.exit_code == 0, ran.output
    record = json.loads(ran.stdout)
    assert record["student"]["agreement"] >= 0.8
    assert {one["kind"] for one in record["front"]} == {"cut", "closed form", "fitted"}
    state = torch.load(folder / "student.pt", weights_only=True)
    assert len(state["readout"]) == 3
    again = run(folder, file, "--save", str(folder / "student.pt"))
    assert isinstance(again.exception, InputError)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"W": torch.eye(3)}, "Missing: U, readout"),
        ({"W": torch.eye(3), "U": torch.eye(3), "readout": torch.eye(3), "x": torch.eye(1)}, "unknown: x"),
        ([1, 2], "holds a list"),
    ],
)
def test_a_file_that_is_something_else_is_refused(folder: Path, content: object, words: str) -> None:
    torch.save(content, folder / "other.pt")
    ran = run(folder, "other.pt")
    assert isinstance(ran.exception, InputError)
    assert words in str(ran.exception)
    (folder / "text.pt").write_text("no weights")
    assert "cannot be read" in str(run(folder, "text.pt").exception)
    assert "There is no file" in str(run(folder, "nothing.pt").exception)
