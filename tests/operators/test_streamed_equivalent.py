"""The equivalent of samples that are read chunk by chunk, against the one in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.data import MixtureStatistics
from notsodeep.equivalents import equivalent
from notsodeep.operators import StreamedEquivalent, mixture_statistics
from notsodeep.scale import sample_sources


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 37 rows of 20 numbers."""
    monkeypatch.setattr(sample_sources, "CHUNK", 37 * 20 * 8)


def mapped(X: np.ndarray, folder: Path) -> np.ndarray:
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


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


@pytest.mark.slow
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
