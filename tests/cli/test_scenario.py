"""Activations and data as they are typed: all commands read them alike and print the numbers of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import notsodeep as nsd
from notsodeep.cli.entry import app
from notsodeep.cli.scenario import read_activation
from notsodeep.designs import Design


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


# --- activations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tanh", nsd.activation("tanh")),
        ("leaky_relu:a=1,b=0.2", nsd.activation("leaky_relu", a=1.0, b=0.2)),
        ("elu:alpha=-5e-1", nsd.activation("elu", alpha=-0.5)),
        ("polynomial:coefficients=0;1;-0.25", nsd.activation("polynomial", coefficients=(0.0, 1.0, -0.25))),
        (
            "piecewise_linear:knots=-1;2,slopes=0;1;0.5",
            nsd.activation("piecewise_linear", knots=(-1.0, 2.0), slopes=(0.0, 1.0, 0.5)),
        ),
        ("formula:x * clip(x, -1, 1)", nsd.activation("formula", expression="x*clip(x,-1,1)")),
        ("x*sigmoid(x)", nsd.activation("formula", expression="x*sigmoid(x)")),
    ],
)
def test_activations_as_they_are_typed(text: str, expected: nsd.Activation) -> None:
    assert read_activation(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leaky_relu:a", "not a parameter"),
        ("leaky_relu:slope=1", "does not take"),
        ("formula:", "empty"),
        ("formula:__import__('os')", "no place"),
    ],
)
def test_mistakes_in_activations_get_a_sentence(text: str, words: str) -> None:
    done = run("kernel", "digits", "--activation", text)
    assert isinstance(done.exception, nsd.InputError)
    assert re.search(words, str(done.exception))
    assert list(Path().iterdir()) == []


# --- data ------------------------------------------------------------------------------------------------------------


def test_design_measures_on_drawn_samples() -> None:
    mixture = nsd.GaussianMixture.paper(40, mean=4.0, gap=1.0)
    X, y = mixture.sample(50, seed=6)
    drawn = ("--data", "mixture", "--n", "50", "--p", "40", "--mean", "4", "--gap", "1", "--seed", "6")
    done = run("design", *drawn, "--activation", "tanh", "--save", "twin.json")
    assert done.exit_code == 0, done.output
    # An injected network is fitted to half of them, and measured on the others.
    assert "fitted to 25 samples. On these 25 samples" in " ".join(done.stdout.split())
    made = Design.load(Path("twin.json"))
    assert str(nsd.twin_distances(made, X[1::2]).twin) in done.stdout
    assert str(nsd.twin_distances(made, X[::2]).twin) != str(nsd.twin_distances(made, X[1::2]).twin)
    assert Design.load(Path("twin.json")).tau0 == pytest.approx(nsd.MixtureStatistics.of(mixture, X, y).tau0)
    assert "on these 30 rows" in run("design", "--data", "sphere", "--n", "30", "--p", "20").stdout


def test_a_family_that_cannot_match_says_so_with_exit_code_three() -> None:
    done = run("design", "--activation", "swish", "--family", "leaky_relu")
    assert done.exit_code == 3
    assert "do not all agree" in done.stdout
    assert "What to do" in done.stdout
