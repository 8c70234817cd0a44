"""`notsodeep certify`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from notsodeep.cli.entry import app
from notsodeep.errors import InputError

pytestmark = pytest.mark.slow


def run(words: str):
    return CliRunner().invoke(app, ["certify", *words.split()])


def test_a_network_as_assumed_is_not_certified_and_no_width_helps():
    found = run("--width 300")
    assert found.exit_code == 3
    assert "With this readout scale no width is enough" in " ".join(found.output.split())
    assert "(8.19)" in found.output


def test_small_labels_and_readout_are_certified():
    found = run("--n 2 --sigma-w2 1e-4 --readout-scale 1e-3 --label-scale 0.01 --width 2000 --json")
    assert found.exit_code == 0, found.output
    record = json.loads(found.stdout)
    assert record["certified"]
    assert all(one["holds"] and one["ratio"] > 1 for one in record["inequalities"])
    assert record["data"]["n"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data digits --n 50", "have 10 classes; certify needs two"),
        ("--sigma-w2 0.2", "1/8"),
        ("--data rows.npy", "no file rows.npy"),
    ],
)
def test_bad_input_is_a_sentence(words, message):
    found = run(words)
    assert isinstance(found.exception, InputError), found.output
    assert message in str(found.exception)
