"""Rows from anywhere, and what is made of them in passes over chunks."""

from __future__ import annotations

from pathlib import Path

import dask.array
import numpy as np
import pytest
import zarr
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep import kernels
from notsodeep.data import MixtureStatistics
from notsodeep.equivalents import equivalent
from notsodeep.operators import StreamedEquivalent, mixture_statistics
from notsodeep.scale import open_rows
from notsodeep.scale import sample_sources as rows_module
from notsodeep.scale.sample_sources import MappedRows, plain_rows, rows_of, survey


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 37 rows of 20 numbers."""
    monkeypatch.setattr(rows_module, "CHUNK", 37 * 20 * 8)


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
    # The same rows, wherever they are, belong to the same store; a dask array leaves no file behind.
    assert nsd.tangent_kernel(deq, samples, out=tmp_path / "T.zarr").run == stored.run
    assert not list(tmp_path.glob(".rows*"))


@pytest.mark.usefixtures("short_chunks")
def test_one_pass_leaves_what_all_rows_at_once_would(samples, tmp_path: Path) -> None:
    seen = survey(plain_rows(mapped(samples, tmp_path)), nsd.DEQ("tanh", 0.2))
    assert_close(seen.squares, (samples**2).sum(axis=1), Oracle.IDENTITY)
    directions = samples / np.linalg.norm(samples, axis=1)[:, None]
    correlations = (directions @ directions.T)[~np.eye(len(samples), dtype=bool)]
    assert seen.mean_correlation == pytest.approx(correlations.mean(), abs=1e-14)
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


@pytest.mark.usefixtures("short_chunks")
def test_statistics_in_chunks_are_those_of_all_rows(samples, tmp_path: Path) -> None:
    labels = np.arange(300) % 3
    found = mixture_statistics(mapped(samples, tmp_path), labels)
    expected = MixtureStatistics.estimate(samples, labels)
    assert found.tau0 == pytest.approx(expected.tau0, rel=1e-12)
    for name in ("t", "T", "psi", "means"):
        assert_close(getattr(found, name), getattr(expected, name), Oracle.CLOSED_FORM, scale=10.0)
    with pytest.raises(nsd.InputError, match="one label for each"):
        mixture_statistics(samples, labels[:-1])


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("kernel", ["ck", "ntk"])
def test_the_streamed_equivalent_is_the_one_in_memory(samples, tmp_path: Path, kernel: str) -> None:
    labels = np.arange(300) % 3
    stats = mixture_statistics(samples, labels)
    deq = nsd.DEQ("relu", 0.2).centred(stats.tau0)
    there = mapped(samples, tmp_path)
    pairs = [
        (StreamedEquivalent.refined(deq, there, kernel), {"form": "refined", "order": 1}),
        (
            StreamedEquivalent.refined(deq, there, kernel, around="mean"),
            {"form": "refined", "order": 1, "around": "mean"},
        ),
        (StreamedEquivalent.asymptotic(deq, there, stats, kernel), {"stats": stats}),
    ]
    block = np.random.default_rng(1).standard_normal((300, 2))
    for streamed, how in pairs:
        held = equivalent(deq, samples, kernel=kernel, **how)
        # Both drop terms of the expansion below a tolerance of 1e-6.
        np.testing.assert_allclose(
            streamed @ block, held @ block, rtol=0, atol=1e-6 * np.abs(held @ block).max()
        )
        again = StreamedEquivalent.of(held)
        assert_close(again @ block[:, 0], held @ block[:, 0], Oracle.CLOSED_FORM, scale=100.0)


@pytest.mark.usefixtures("short_chunks")
def test_the_inverse_of_the_streamed_equivalent(samples) -> None:
    deq = nsd.DEQ("tanh", 0.2)
    operator = StreamedEquivalent.refined(deq, samples)
    dense = operator @ np.eye(300)
    assert np.linalg.eigvalsh(dense).min() > -0.05
    block = np.random.default_rng(2).standard_normal((300, 3))
    solved = operator.inverse(0.1).solve(block)
    np.testing.assert_allclose((dense + 0.1 * np.eye(300)) @ solved, block, rtol=0, atol=1e-9)


def test_the_inverse_is_positive_definite_even_where_the_equivalent_is_not(samples) -> None:
    deq = nsd.DEQ("tanh", 0.2)
    good = StreamedEquivalent.refined(deq, samples)
    bad = StreamedEquivalent(
        good.rows, good.own_diagonal - 1.0, good.weights, -good.scales, good.basis, -good.core
    )
    assert np.linalg.eigvalsh(bad @ np.eye(300)).min() < -1.0
    inverse = bad.inverse(0.1).solve(np.eye(300))
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0.0
    np.testing.assert_allclose(inverse, inverse.T, rtol=0, atol=1e-10 * np.abs(inverse).max())


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


def test_the_file_of_a_dask_array_goes_when_it_is_no_longer_needed(samples, tmp_path: Path) -> None:
    with rows_of(in_dask(samples, tmp_path), out=tmp_path / "G.zarr") as rows:
        assert list(tmp_path.glob(".rows*"))
        np.testing.assert_array_equal(rows.read(slice(100, 120)), samples[100:120])
    assert not list(tmp_path.iterdir())
