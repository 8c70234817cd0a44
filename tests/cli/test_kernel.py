"""`notsodeep kernel` beyond memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from tolerances import Oracle, assert_close

import notsodeep as nsd


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "notsodeep.cli", "kernel", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def rows(tmp_path: Path) -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((40, 5))
    np.save(tmp_path / "rows.npy", X)
    return X


def test_a_kernel_goes_to_a_folder_and_is_resumed(rows: np.ndarray, tmp_path: Path) -> None:
    wanted = ("rows.npy", "--out", "G.zarr", "--storage", "float32", "--max-memory", "2GB", "--json")
    done = run(*wanted, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["shape"] == [40, 40]
    assert facts["file"] == "G.zarr"
    expected = nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), rows)
    kernel = nsd.open_kernel(tmp_path / "G.zarr")
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)
    (tmp_path / "G.zarr" / "c" / "0" / "0").unlink()
    again = run(*wanted[:-1], folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "1 blocks were missing or damaged" in again.stdout
    assert not (tmp_path / "kernel.npy").exists()
    # Another run is refused, unless it is asked for.
    other = ("rows.npy", "--out", "G.zarr", "--ntk")
    refused = run(*other, folder=tmp_path)
    assert refused.returncode == 2
    assert "another run" in refused.stderr
    assert run(*other, "--overwrite", folder=tmp_path).returncode == 0
    found = np.asarray(nsd.open_kernel(tmp_path / "G.zarr"))
    assert_close(found, nsd.tangent_kernel(nsd.DEQ("tanh", 0.2), rows), Oracle.IDENTITY)


def test_two_workers_and_rows_in_zarr(rows: np.ndarray, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "rows.zarr", shape=rows.shape, dtype="float64")[:] = rows
    done = run("rows.zarr", "--out", "G.zarr", "--workers", "2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), rows)
    assert_close(np.asarray(nsd.open_kernel(tmp_path / "G.zarr")), expected, Oracle.IDENTITY)


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
    arguments: tuple[str, ...], words: str, rows: np.ndarray, tmp_path: Path
) -> None:
    done = run("rows.npy", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), rows)
