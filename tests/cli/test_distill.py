"""`notsodeep distill`: weights of a file into a student, and refusals that help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import notsodeep as nsd
from notsodeep.cli.entry import app
from notsodeep.errors import InputError
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
    arguments = ["distill", str(folder / file), "--data", str(folder / "rows.npy"), *words]
    return CliRunner().invoke(app, [*arguments, "--activation", "relu", "--epochs", "1"])


@pytest.mark.parametrize("file", ["deq.pt", "deq.npz"])
def test_a_file_of_weights_becomes_a_student(folder: Path, file: str) -> None:
    words = ("--target-agreement", "0.8", "--batch-size", "64", "--seconds", "60", "--json")
    ran = run(folder, file, *words, "--save", str(folder / "student.pt"))
    assert ran.exit_code == 0, ran.output
    record = json.loads(ran.stdout)
    assert record["chosen"]["agreement"] >= 0.8
    kinds = {one["fit"] for one in record["candidates"]}
    assert kinds == {"cut", "refitted", "relaxed", "accelerated", "closed form", "trained", "mlp"}
    state = torch.load(folder / "student.pt", weights_only=True)
    assert len(state["linear.weight"]) == 3
    again = run(folder, file, "--save", str(folder / "student.pt"))
    assert isinstance(again.exception, InputError)


def test_verdict_and_distill_tell_one_story_about_a_trained_network(folder: Path) -> None:
    """The same candidates, agreements and certainty by both commands, and exit codes that agree."""
    options = ["--activation", "relu", "--epochs", "1", "--json"]
    arguments = [str(folder / "deq.pt"), str(folder / "rows.npy"), *options]
    for target, reached in (("0.8", True), ("0.9999", False)):
        judged, built = (
            CliRunner().invoke(app, [command, *arguments, "--target-agreement", target])
            for command in ("verdict", "distill")
        )
        answer, record = json.loads(judged.stdout), json.loads(built.stdout)
        assert (built.exit_code, record["chosen"]["certain"]) == (0 if reached else 3, reached)
        assert answer["distilled"]["certain"] is reached
        # Times differ from run to run, and with them which one of the certain candidates is the fastest.
        shares = {one["name"]: one["agreement"] for one in record["candidates"]}
        assert shares[answer["distilled"]["name"]] == answer["distilled"]["agreement"]
        faster = answer["distilled"]["speedup"] >= 1.2
        assert (answer["answer"] == "replace") == (reached and faster)
        assert (judged.exit_code == 0) == (answer["answer"] == "replace")
        assert answer["next"].endswith(f"--target-agreement {target} --epochs 1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"W": torch.eye(3)}, "Missing: U, readout"),
        ({"W": torch.eye(3), "U": torch.eye(3), "readout": torch.eye(3), "x": torch.eye(1)}, "not used: x"),
        ([1, 2], "holds a list"),
    ],
)
def test_a_file_that_is_something_else_is_refused(folder: Path, content: object, words: str) -> None:
    torch.save(content, folder / "other.pt")
    ran = run(folder, "other.pt")
    assert isinstance(ran.exception, InputError)
    assert words in str(ran.exception)
    (folder / "text.pt").write_text("no weights")
    assert "is not a .pt or .npz file of weights" in str(run(folder, "text.pt").exception)
    assert "There is no file" in str(run(folder, "nothing.pt").exception)


def test_the_state_of_a_module_is_read_by_its_names(folder: Path) -> None:
    """As torch saves it, inside of a checkpoint or not; other names are refused."""
    known = torch.load(folder / "deq.pt", weights_only=True)
    state = {
        "W.weight": known["W"],
        "U.weight": known["U"],
        "U.bias": torch.zeros(24),
        "readout.weight": known["readout"],
        "readout.bias": known["readout_bias"],
    }
    torch.save({"model": state, "epoch": 3, "optimizer": {}}, folder / "training.pt")
    ran = run(folder, "training.pt", "--target-agreement", "0.5", "--figure", str(folder / "front.png"))
    assert ran.exit_code == 0, ran.output
    assert (folder / "front.png").stat().st_size > 1000
    torch.save({f"cell.{key}": value for key, value in state.items()}, folder / "other.pt")
    assert "not used: cell.W.weight (24, 24)" in str(run(folder, "other.pt").exception)
    torch.save({**state, "W.bias": torch.zeros(24)}, folder / "two.pt")
    assert "save their sum as b" in str(run(folder, "two.pt").exception)


def test_nothing_in_a_file_is_executed(folder: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("open('owned', 'w')",)

    torch.save({"W": Evil()}, folder / "evil.pt")
    np.savez(folder / "evil.npz", W=np.array([Evil()], dtype=object))
    for name in ("evil.pt", "evil.npz"):
        assert "may hold Python objects" in str(run(folder, name).exception)
    assert not Path("owned").exists()
