"""`notsodeep kernel --model conv`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tolerances import Oracle, assert_close
from typer.testing import CliRunner, Result

import notsodeep as nsd
from notsodeep.cli.entry import app
from notsodeep.errors import InputError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["kernel", *arguments])


def test_images_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(
        "digits", "--samples", "20", "--model", "conv", "--readout", "pool", "--activation", "relu", "--json"
    )
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["model"] == "ConvDEQ(relu, sigma_a2=0.2, sigma_b2=0.8, filter_size=3, zeros, pool)"
    data = nsd.data.load("digits", n=20)
    rows = nsd.data.Preprocessing.fit(data.X).apply(data.X) * 8.0
    model = nsd.ConvDEQ("relu", 0.2, readout="pool")
    assert_close(
        np.load("kernel.npy"), nsd.conjugate_kernel(model, rows.reshape(-1, 1, 8, 8)), Oracle.QUADRATURE
    )


def test_images_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).standard_normal((6, 2, 5, 4))
    np.save("images.npy", images)
    done = run(
        "images.npy",
        "--scale",
        "none",
        "--model",
        "conv",
        "--filter-size",
        "1",
        "--activation",
        "relu",
        "--ntk",
        "--out",
        "T.zarr",
    )
    assert done.exit_code == 0, done.output
    expected = nsd.tangent_kernel(nsd.ConvDEQ("relu", 0.2, filter_size=1), images)
    assert_close(np.asarray(nsd.open_kernel("T.zarr")), expected, Oracle.QUADRATURE)


def test_options_that_do_not_fit() -> None:
    for arguments, message in (
        (("digits", "--readout", "pool"), "Add --model conv"),
        (("digits", "--filter-size", "3"), "Add --model conv"),
        (("digits", "--model", "graph"), "--model"),
        (("digits", "--model", "conv", "--readout", "mean"), "readout"),
        (("cifar10_vgg19", "--model", "conv", "--samples", "5"), ""),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, InputError)
        assert message in str(done.exception)
