"""`notsodeep certify` as it is typed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from notsodeep.cli.entry import app
from notsodeep.errors import InputError

pytestmark = pytest.mark.slow

SMALL = [
    "--samples",
    "2",
    "--sigma-w2",
    "1e-4",
    "--readout-scale",
    "1e-3",
    "--label-scale",
    "0.01",
    "--width",
    "2000",
]


def run(*arguments: str):
    return CliRunner().invoke(app, ["certify", *arguments])


def refused(*arguments: str) -> str:
    found = run(*arguments)
    assert isinstance(found.exception, InputError), found.output
    return str(found.exception)


def test_a_network_as_assumed_is_not_certified_and_no_width_helps():
    found = run("--width", "300")
    assert found.exit_code == 3
    assert "With this readout scale no width is enough" in " ".join(found.output.split())


def test_a_certified_network_trains_as_promised(tmp_path):
    figure = tmp_path / "loss.svg"
    found = run(*SMALL, "--train", "40", "--json", "--figure", str(figure))
    assert found.exit_code == 0, found.output
    record = json.loads(found.stdout)
    assert record["certified"]
    assert all(one["holds"] and one["ratio"] > 1 for one in record["inequalities"])
    rows = record["training"]["rows"]
    assert record["training"]["lr"] == record["step"]
    assert all(row["loss"] <= row["loss_bound"] and row["recurrent_norm"] < 1 for row in rows)
    assert rows[-1]["loss"] < 0.9 * rows[0]["loss"]
    assert figure.read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_own_rows_and_labels(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.standard_normal((5, 8)))
    np.save(tmp_path / "y.npy", rng.standard_normal(5))
    found = run(
        "--data",
        str(tmp_path / "X.npy"),
        "--labels",
        str(tmp_path / "y.npy"),
        "--samples",
        "5",
        "--width",
        "200",
    )
    assert found.exit_code == 3, found.output
    assert "(8.19)" in found.output


def test_two_classes_of_digits():
    found = run("--data", "digits:0,1", "--samples", "6", "--width", "100", "--json")
    assert json.loads(found.stdout)["width"] == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--figure", "a.png"], "add --train"),
        (["--data", "digits"], "name two classes"),
        (["--sigma-w2", "0.2"], "1/8"),
        (["--data", "rows.npy"], "no file rows.npy"),
    ],
)
def test_bad_input_is_a_sentence(arguments, message):
    assert message in refused(*arguments)
