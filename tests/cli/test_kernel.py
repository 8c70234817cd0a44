"""`notsodeep kernel` beyond memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from tolerances import Oracle, assert_close
from typer.testing import CliRunner, Result

import notsodeep as nsd
from notsodeep.cli.entry import app

pytestmark = pytest.mark.slow


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["kernel", *arguments])


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Rows in a file of the working folder."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((40, 5))
    np.save("rows.npy", X)
    return X


def test_a_kernel_goes_to_a_folder_and_is_resumed(rows: np.ndarray) -> None:
    wanted = (
        "rows.npy",
        "--scale",
        "none",
        "--out",
        "G.zarr",
        "--storage",
        "float32",
        "--max-memory",
        "20GB",
        "--json",
    )
    done = run(*wanted)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["shape"] == [40, 40]
    assert facts["file"] == "G.zarr"
    kernel = nsd.open_kernel("G.zarr")
    assert_close(np.asarray(kernel), nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), rows), Oracle.IDENTITY)
    Path("G.zarr/c/0/0").unlink()
    again = run(*wanted[:-1])
    assert again.exit_code == 0, again.output
    assert "1 blocks were missing or damaged" in again.stdout
    assert not Path("kernel.npy").exists()
    # Another run is refused, unless it is asked for.
    other = ("rows.npy", "--scale", "none", "--out", "G.zarr", "--ntk")
    refused = run(*other)
    assert isinstance(refused.exception, nsd.InputError)
    assert "another run" in str(refused.exception)
    assert run(*other, "--overwrite").exit_code == 0
    found = np.asarray(nsd.open_kernel("G.zarr"))
    assert_close(found, nsd.tangent_kernel(nsd.DEQ("relu", 0.2), rows), Oracle.IDENTITY)


def test_rows_in_zarr_and_workers(rows: np.ndarray) -> None:
    zarr.create_array("rows.zarr", shape=rows.shape, dtype="float64")[:] = rows
    assert (
        run(
            "rows.zarr", "--scale", "none", "--out", "G.zarr", "--workers", "1", "--activation", "relu"
        ).exit_code
        == 0
    )
    expected = nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), rows)
    assert_close(np.asarray(nsd.open_kernel("G.zarr")), expected, Oracle.IDENTITY)
    done = run("rows.zarr", "--scale", "none", "--samples", "12", "--activation", "relu")
    assert done.exit_code == 0, done.output
    assert_close(np.load("kernel.npy"), expected[:12, :12], Oracle.IDENTITY)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workers", "2"), "Add --out"),
        (("--storage", "float32"), "Add --out"),
        (("--out", "G.zarr", "--workers", "2", "--scheduler", "tcp://x:1"), "give one of them"),
        (("--out", "G.zarr", "--max-memory", "plenty"), "amount of memory"),
        (("--out", "G.zarr", "--storage", "half"), "float32"),
        (("--out", "rows.npy", "--overwrite"), "not a zarr array"),
    ],
)
def test_mistakes_get_a_sentence_and_change_nothing(
    arguments: tuple[str, ...], words: str, rows: np.ndarray
) -> None:
    done = run("rows.npy", *arguments)
    assert isinstance(done.exception, nsd.InputError)
    assert words in str(done.exception)
    assert [path.name for path in Path().iterdir()] == ["rows.npy"]
    np.testing.assert_array_equal(np.load("rows.npy"), rows)
