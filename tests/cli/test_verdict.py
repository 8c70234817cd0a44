"""`notsodeep verdict`: words, JSON, exit codes, a trained DEQ from a file, and the command that goes on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from notsodeep.cli.entry import app

RUN = CliRunner()


def test_a_verdict_in_words_and_as_json() -> None:
    arguments = ["verdict", "--data", "digits", "--n", "250", "--sigma-a2", "0.1"]
    shown = RUN.invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "Can a few explicit layers replace the DEQ? Yes." in text
    assert "Next step: notsodeep design --data digits --n 250 --activation relu --sigma-a2 0.1" in text
    printed = json.loads(RUN.invoke(app, [*arguments, "--json"]).output)
    assert printed["answer"] == "replace"
    assert printed["curve"]["steps"][-1] is None
    assert printed["ordinary"]["name"] == "MLP"


def test_the_exit_code_says_unsure_where_the_model_has_no_solution(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", 1e3 * np.random.default_rng(0).standard_normal((60, 5)))
    arguments = ["--data", str(tmp_path / "X.npy"), "--scale", "none", "--activation", "x**3"]
    found = RUN.invoke(app, ["verdict", *arguments, "--sigma-a2", "0.5", "--json"])
    assert found.exit_code == 4
    assert json.loads(found.output)["next"].endswith("--sigma-a2 0.25")


def test_the_next_command_has_all_that_was_said_about_the_data(tmp_path: Path) -> None:
    """A file with labels in a column, whose name has a space."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((40, 3))
    file = tmp_path / "my rows.csv"
    lines = [
        f"{a},{b},{c},{'xy'[int(d)]}" for (a, b, c), d in zip(X, generator.random(40) < 0.5, strict=True)
    ]
    file.write_text("\n".join(["a,b,c,kind", *lines]), encoding="utf-8")
    arguments = ["--data", str(file), "--label-column", "kind", "--scale", "standard", "--kernel", "ntk"]
    found = RUN.invoke(app, ["verdict", *arguments, "--json"])
    assert found.exit_code == 4  # nothing can be learnt from random labels
    others = ["--activation", "relu", "--sigma-a2", "0.2", "--kernel", "ntk"]
    expected = ["notsodeep", "predict", *arguments[:6], *others]
    assert shlex.split(json.loads(found.stdout)["next"]) == expected
