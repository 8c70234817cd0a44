"""`notsodeep kernel`: rows and images, files and folders."""

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
RELU = nsd.DEQ("relu", 0.2)


def run(words: str) -> Result:
    return CliRunner().invoke(app, ["kernel", *words.split()])


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Rows in a file of the working folder."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((40, 5))
    np.save("rows.npy", X)
    return X


def test_a_kernel_goes_to_a_folder_and_is_resumed(rows: np.ndarray) -> None:
    command = "rows.npy --scale none --out G.zarr --storage float32 --max-memory 20GB"
    done = run(f"{command} --json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["shape"], facts["file"]) == ([40, 40], "G.zarr")
    assert_close(np.asarray(nsd.open_kernel("G.zarr")), nsd.conjugate_kernel(RELU, rows), Oracle.IDENTITY)
    Path("G.zarr/c/0/0").unlink()
    again = run(command)
    assert again.exit_code == 0, again.output
    assert "1 blocks were missing or damaged" in again.stdout
    assert not Path("kernel.npy").exists()
    other = "rows.npy --scale none --out G.zarr --kernel ntk"
    refused = run(other)
    assert isinstance(refused.exception, nsd.InputError)
    assert "another run" in str(refused.exception)
    assert run(f"{other} --overwrite").exit_code == 0
    assert_close(np.asarray(nsd.open_kernel("G.zarr")), nsd.tangent_kernel(RELU, rows), Oracle.IDENTITY)


def test_rows_in_zarr_and_workers(rows: np.ndarray) -> None:
    zarr.create_array("rows.zarr", shape=rows.shape, dtype="float64")[:] = rows
    assert run("rows.zarr --scale none --out G.zarr --workers 1").exit_code == 0
    expected = nsd.conjugate_kernel(RELU, rows)
    assert_close(np.asarray(nsd.open_kernel("G.zarr")), expected, Oracle.IDENTITY)
    done = run("rows.zarr --scale none --n 12")
    assert done.exit_code == 0, done.output
    assert "Only the first 12 of 40 rows are used." in " ".join(done.stdout.split())
    assert_close(np.load("kernel.npy"), expected[:12, :12], Oracle.IDENTITY)


def test_every_kernel_by_its_name(rows: np.ndarray) -> None:
    assert run("rows.npy --scale none --kernel ntk_paper --depth 3 --save K.csv").exit_code == 0
    expected = nsd.tangent_kernel(RELU, rows, of="paper", depth=3)
    np.testing.assert_array_equal(np.loadtxt("K.csv", delimiter=","), expected)


def test_images_by_name_and_in_a_file(rows: np.ndarray) -> None:
    done = run("digits --n 20 --model conv --readout pool --json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["model"] == "ConvDEQ(relu, sigma_a2=0.2, sigma_b2=0.8, filter_size=3, zeros, pool)"
    data = nsd.data.load("digits", n=20)
    digits = (nsd.data.Preprocessing.fit(data.X).apply(data.X) * 8.0).reshape(-1, 1, 8, 8)
    expected = nsd.conjugate_kernel(nsd.ConvDEQ("relu", 0.2, readout="pool"), digits)
    assert_close(np.load("kernel.npy"), expected, Oracle.QUADRATURE)
    images = np.random.default_rng(0).standard_normal((6, 2, 5, 4))
    np.save("images.npy", images)
    assert (
        run("images.npy --scale none --model conv --filter-size 1 --kernel ntk --out T.zarr").exit_code == 0
    )
    expected = nsd.tangent_kernel(nsd.ConvDEQ("relu", 0.2, filter_size=1), images)
    assert_close(np.asarray(nsd.open_kernel("T.zarr")), expected, Oracle.QUADRATURE)
    assert run("images.npy --model conv --n 4 --overwrite").exit_code == 0
    scaled = images[:4] - images[:4].mean(axis=0)
    scaled *= np.sqrt(20.0 / np.mean(np.sum(scaled**2, axis=(1, 2, 3))))
    assert_close(
        np.load("kernel.npy"), nsd.conjugate_kernel(nsd.ConvDEQ("relu", 0.2), scaled), Oracle.QUADRATURE
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--out G.zarr --workers 2 --scheduler tcp://x:1", "give one of them"),
        ("--out G.zarr --max-memory plenty", "amount of memory"),
        ("--out G.zarr --storage half", "float32"),
        ("--out rows.npy --overwrite", "not a readable zarr array"),
        ("--kernel nkt", "Choose one of: ck"),
        ("--save K.txt", "Unsupported extension .txt of K.txt; expected one of .csv, .npy, .npz"),
        ("--readout pool", "Add --model conv"),
        ("--model graph", "--model"),
        ("--model conv --readout mean", "readout"),
        ("--model conv", "images are (n, channels, height, width)"),
    ],
)
def test_mistakes_get_a_sentence_and_change_nothing(arguments: str, words: str, rows: np.ndarray) -> None:
    done = run(f"rows.npy {arguments}")
    assert isinstance(done.exception, nsd.InputError)
    assert words in str(done.exception)
    assert [path.name for path in Path().iterdir()] == ["rows.npy"]
    np.testing.assert_array_equal(np.load("rows.npy"), rows)
