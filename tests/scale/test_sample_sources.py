"""Samples in memory, in files, in zarr and dask arrays: the same kernels, read chunk by chunk."""

from __future__ import annotations

from pathlib import Path

import dask.array
import numpy as np
import pytest
import zarr
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep import kernels
from notsodeep.scale import open_rows, sample_sources
from notsodeep.scale.sample_sources import MappedRows, plain_rows, rows_of, survey


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 37 rows of 20 numbers."""
    monkeypatch.setattr(sample_sources, "CHUNK", 37 * 20 * 8)


def in_memory(X: np.ndarray, folder: Path) -> object:
    return X


def mapped(X: np.ndarray, folder: Path) -> object:
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def part_of_a_map(X: np.ndarray, folder: Path) -> object:
    np.save(folder / "longer.npy", np.vstack([X[:3] + 1.0, X, X[:5]]))
    return np.load(folder / "longer.npy", mmap_mode="r")[3:-5]


def in_zarr(X: np.ndarray, folder: Path) -> object:
    array = zarr.create_array(folder / "X.zarr", shape=X.shape, chunks=(50, 7), dtype="float64")
    array[:] = X
    return array


def in_dask(X: np.ndarray, folder: Path) -> object:
    return dask.array.from_array(X, chunks=(110, 9))


def in_torch(X: np.ndarray, folder: Path) -> object:
    return pytest.importorskip("torch").as_tensor(X)


@pytest.mark.slow
@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("place", [in_memory, mapped, part_of_a_map, in_zarr, in_dask, in_torch])
def test_the_kernel_does_not_depend_on_where_the_rows_are(samples, tmp_path: Path, place) -> None:
    deq = nsd.DEQ("relu", 0.2)
    expected = kernels.tangent_kernel(deq, samples)
    there = place(samples, tmp_path)
    assert_close(nsd.tangent_kernel(deq, there, block=100), expected, Oracle.IDENTITY)
    assert_close(nsd.tangent_kernel(deq, samples[:50], there), expected[:50], Oracle.IDENTITY)
    stored = nsd.tangent_kernel(deq, there, out=tmp_path / "T.zarr")
    assert_close(np.asarray(stored), expected, Oracle.IDENTITY)
    # The same rows, wherever they are, belong to the same store.
    assert nsd.tangent_kernel(deq, samples, out=tmp_path / "T.zarr").run == stored.run


@pytest.mark.usefixtures("short_chunks")
def test_one_pass_leaves_what_all_rows_at_once_would(samples, tmp_path: Path) -> None:
    seen = survey(plain_rows(mapped(samples, tmp_path)), nsd.DEQ("tanh", 0.2))
    assert_close(seen.squares, (samples**2).sum(axis=1), Oracle.IDENTITY)
    assert seen.fingerprint == survey(plain_rows(samples), nsd.DEQ("tanh", 0.2)).fingerprint
    changed = samples.copy()
    changed[299, 19] = np.nextafter(changed[299, 19], np.inf)
    for other in (changed, samples[::-1], samples.reshape(600, 10)):
        assert survey(plain_rows(other), nsd.DEQ("tanh", 0.2)).fingerprint != seen.fingerprint


def test_a_map_is_sent_as_a_path(samples, tmp_path: Path) -> None:
    rows = plain_rows(part_of_a_map(samples, tmp_path))
    assert isinstance(rows, MappedRows)
    np.testing.assert_array_equal(rows.read(slice(10, 20)), samples[10:20])
    # Every other row does not lie in a row.
    np.testing.assert_array_equal(plain_rows(mapped(samples, tmp_path)[::2]).read(slice(0, 3)), samples[:6:2])


def test_rows_that_cannot_be_used(samples, tmp_path: Path) -> None:
    holes = samples.copy()
    holes[123, 4] = np.nan
    with pytest.raises(nsd.InputError, match="NaN or infinite entries in 1 of"):
        nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), holes, block=64)
    for bad, words in [
        (samples[0], "samples in rows"),
        (samples[:0], "empty"),
        (samples.astype(str), "real numbers"),
        (samples + 1j, "real numbers"),
        ([[1.0], [2.0, 3.0]], "cannot be read"),
    ]:
        with pytest.raises(nsd.InputError, match=words):
            nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), bad, out=tmp_path / "G.zarr")
    with pytest.raises(nsd.InputError, match="must be the same"):
        nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), samples, samples[:, :3], block=64)
    assert list(tmp_path.iterdir()) == []


def test_rows_by_path(samples, tmp_path: Path) -> None:
    mapped(samples, tmp_path)
    in_zarr(samples, tmp_path)
    for name in ("X.npy", "X.zarr"):
        np.testing.assert_array_equal(open_rows(tmp_path / name).read(slice(5, 9)), samples[5:9])
    (tmp_path / "bad.npy").write_text("no")
    for name, words in (("none.npy", "no file"), ("bad.npy", "cannot be read"), (".", "neither")):
        with pytest.raises(nsd.InputError, match=words):
            open_rows(tmp_path / name)


def test_the_file_of_a_dask_array_is_removed_after_use(samples, tmp_path: Path) -> None:
    with rows_of(in_dask(samples, tmp_path), out=tmp_path / "G.zarr") as rows:
        assert list(tmp_path.glob(".rows*"))
        np.testing.assert_array_equal(rows.read(slice(100, 120)), samples[100:120])
    assert not list(tmp_path.iterdir())
