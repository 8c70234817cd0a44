"""`notsodeep predict`, as it is typed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from notsodeep.cli.common import app
from notsodeep.cli.training_commands import _read_sizes
from notsodeep.errors import InputError

import notsodeep.cli.entry  # noqa: F401, isort: skip


def run(words: str):
    return CliRunner().invoke(app, ["predict", *words.split()], catch_exceptions=False)


def test_digits_with_a_width(tmp_path):
    picture = tmp_path / "curve.png"
    result = run(f"--n 120 --sizes 60,300 --ridge 0.1 --width 100 --json --figure {picture}")
    found = json.loads(result.stdout)
    assert found["n"] == [60, 300]
    assert found["extrapolated"] == [False, True]
    assert 0.5 < found["accuracy"][0] < 1.0
    assert picture.stat().st_size > 0


def test_classes_that_differ_in_scale_need_a_bias(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    rows = rng.standard_normal((300, 20)) * (1.0 + labels)[:, None]
    np.savez(tmp_path / "rows.npz", X=rows, y=labels)
    words = f"{tmp_path}/rows.npz --label-column y --sizes 300 --json"
    (with_bias,), (without,) = (
        json.loads(run(words + end).stdout)["accuracy"] for end in ("", " --no-intercept")
    )
    assert with_bias > 0.9
    assert without < 0.65


def test_a_mixture_needs_no_samples():
    result = run("--data mixture --p 60 --sizes 100:1000 --ridge 0.1")
    assert "no samples" in result.stdout
    assert "n = 1000" in result.stdout


def test_ranges_of_sizes():
    assert _read_sizes("500") == [500]
    assert _read_sizes("100,1000") == [100, 1000]
    spread = _read_sizes("100:10000")
    assert (spread[0], spread[-1]) == (100, 10000)
    with pytest.raises(InputError, match="range"):
        _read_sizes("many")


def test_more_samples_than_a_dense_kernel_allows_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.ones((10_001, 1)))
    for name in ("predict", "design"):
        done = CliRunner().invoke(app, [name, "rows.npy"])
        assert isinstance(done.exception, InputError)
        assert "rows.npy has 10001 samples; at most 10000 are possible here. Add --n 1000." in str(
            done.exception
        )
