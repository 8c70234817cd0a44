"""Every command and every line of Python that is printed as a next step runs as it is printed."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import notsodeep as nsd
from notsodeep.cli.entry import app
from notsodeep.verdicts.verdict import Decision

ROWS = np.random.default_rng(0).standard_normal((60, 4)) / 2.0
IMAGES = np.random.default_rng(1).standard_normal((40, 1, 3, 3))
CLASSES, NUMBERS = np.arange(60) % 2, ROWS[:, 0] * ROWS[:, 1]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def decide(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Let the rules give this answer, so that each next step is printed."""
    for rule in ("decide_untrained", "decide_trained"):
        module = sys.modules["notsodeep.verdicts.verdict"]
        monkeypatch.setattr(module, rule, lambda *_: Decision(answer, "It was said so."))


RUNS = {
    "rows": ("rows.npy", "--labels", "y.npy"),
    "numbers": ("rows.npy", "--labels", "numbers.npy"),
    "no labels": ("rows.npy",),
    "mixture": ("mixture", "--n", "60", "--p", "10"),
    "images": ("images.npy", "--model", "conv", "--labels", "y40.npy"),
    "images, numbers": ("images.npy", "--model", "conv", "--labels", "numbers40.npy"),
    "images, no labels": ("images.npy", "--model", "conv", "--filter-size", "1"),
    "no solution": ("rows.npy", "--scale", "none", "--activation", "x**3", "--sigma-a2", "0.9"),
    "weights": ("deq.pt", "rows.npy"),
}


NEXT = ["predict", "predict", "verdict", "predict", "kernel", "kernel", "verdict", "verdict", "distill"]
ANSWERS = [(case, "unsure", name) for case, name in zip(RUNS, NEXT, strict=True)]
ANSWERS += [("rows", "replace", "design"), ("images", "replace", "kernel")]


@pytest.mark.parametrize(("case", "answer", "name"), ANSWERS)
def test_the_command_after_a_verdict_runs(
    case: str, answer: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("rows.npy", np.vstack([ROWS, ROWS + 0.1]) * (1e3 if case == "no solution" else 1.0))
    np.save("images.npy", IMAGES)
    np.save("y.npy", np.tile(CLASSES, 2))
    np.save("numbers.npy", np.tile(NUMBERS, 2))
    np.save("y40.npy", CLASSES[:40])
    np.save("numbers40.npy", NUMBERS[:40])
    weights = nsd.nets.DEQNet(nsd.DEQ("relu", 0.2), 4, 6, 2, seed=0).plain_weights()
    names = {"W": "recurrent", "U": "inputs", "readout": "readout"}
    torch.save({key: getattr(weights, part) for key, part in names.items()}, "deq.pt")
    decide(monkeypatch, answer)
    shown = CliRunner().invoke(app, ["verdict", *RUNS[case], "--json"])
    assert shown.exit_code in (0, 3, 4), shown.exception
    command = json.loads(shown.stdout)["next"]
    words = shlex.split(command)[1:]
    assert words[0] == name
    if case == "images, no labels":  # it asks for a file of labels
        np.save("y.npy", CLASSES[:40])
    words += {"distill": ["--epochs", "0"]}.get(words[0], [])
    done = CliRunner().invoke(app, words)
    assert not isinstance(done.exception, Exception) or isinstance(done.exception, SystemExit), command
    assert done.exit_code in (0, 3, 4), (command, done.output)


def test_a_design_advises_only_arguments_that_exist() -> None:
    group = typer.main.get_command(app)
    options = {one for param in group.commands["design"].params for one in param.opts}  # type: ignore[attr-defined]
    made = [
        nsd.design(nsd.DEQ("tanh", 0.2), 1.0),
        nsd.design(nsd.DEQ("swish", 0.2), 1.0, family="leaky_relu"),
        nsd.design(nsd.DEQ("swish", 0.2), 1.0, "ntk_paper", family="leaky_relu"),
    ]
    for one in made:
        text = one.explain().replace(str(one.model), "the model")
        assert set(re.findall(r"(\w+)=", text)) <= set(inspect.signature(nsd.design).parameters)
        advised = set(re.findall(r"--[a-z-]+", text))
        assert advised
        assert advised <= options
        for name in re.findall(r"notsodeep\.(\w+)\(", text):
            assert callable(getattr(nsd, name))


def _examples() -> list[tuple[str, list[str]]]:
    """The command lines that the help of each command shows."""
    group = typer.main.get_command(app)
    lines = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for line in re.findall(rf"notsodeep {name}\b([^\n]*)", command.help or ""):
            lines.append((name, shlex.split(line.strip(" `.:"))))
    return lines


def test_examples_of_the_help_are_understood() -> None:
    """Each is parsed by its own command; nothing is run."""
    group, examples = typer.main.get_command(app), _examples()
    assert {"demo", "kernel", "design", "certify", "predict", "verdict", "distill"} <= {
        name for name, _ in examples
    }
    for name, arguments in examples:
        command = group.commands[name]  # type: ignore[attr-defined]
        command.make_context(name, list(arguments)).close()
