"""Distances of kernels, as they are and up to a factor."""

from __future__ import annotations

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.data import Preprocessing, load


def test_a_kernel_times_a_constant_is_the_same_kernel_up_to_a_factor() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 6))
    found = nsd.kernel_distance(X @ X.T, 0.4 * X @ X.T)
    assert found.relative == pytest.approx(0.6, rel=2e-3)
    assert found.up_to_factor < 1e-9
    assert found.factor == pytest.approx(2.5)
    large = rng.standard_normal((300, 300))
    for factor in (1.0, 2.0):  # iterations see an operator that is zero
        assert nsd.kernel_distance(large @ large.T, factor * (large @ large.T)).up_to_factor == 0.0


@pytest.mark.slow
def test_the_factor_is_the_best_of_a_fine_grid() -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.standard_normal((25, 8)) for _ in range(2))
    K, other = first @ first.T, second @ second.T
    found = nsd.kernel_distance(K, other)
    grid = np.linspace(-1.0, 3.0, 4001)
    least = min(np.linalg.norm(K - c * other, 2) for c in grid) / np.linalg.norm(K, 2)
    assert found.up_to_factor == pytest.approx(least, rel=3e-3)
    at_factor = np.linalg.norm(K - found.factor * other, 2) / np.linalg.norm(K, 2)
    assert at_factor == pytest.approx(found.up_to_factor, rel=2e-3)
    assert found.up_to_factor <= found.relative == pytest.approx(float(found))


def test_it_is_said_in_per_cent_and_bad_shapes_get_a_sentence() -> None:
    assert str(nsd.kernel_distance(np.eye(3), 0.5 * np.eye(3))) == "50% (0% up to a factor)"
    with pytest.raises(nsd.InputError, match="one shape"):
        nsd.kernel_distance(np.eye(3), np.eye(4))
    with pytest.raises(nsd.InputError, match="zero"):
        nsd.kernel_distance(np.zeros((3, 3)), np.eye(3))
    with pytest.raises(nsd.InputError, match="NaN or infinite"):
        nsd.kernel_distance(np.eye(3), np.full((3, 3), np.nan))


@pytest.mark.slow
def test_what_a_design_is_worth_on_digits() -> None:
    """The numbers of the front page: much for ReLU, nothing for tanh at weak feedback."""
    digits = load("digits", n=300)
    X = Preprocessing.fit(digits.X).apply(digits.X)
    relu, tanh = (
        nsd.twin_distances(nsd.design(nsd.DEQ(name, sigma_a2=0.2), 1.0), X) for name in ("relu", "tanh")
    )
    assert relu.agree
    assert set(relu.plain) == {1, 2}
    assert relu.twin.up_to_factor < 1e-4
    assert relu.plain[2].up_to_factor > 1000 * relu.twin.up_to_factor
    assert relu.gain > 100
    assert "times closer" in str(relu)
    assert tanh.agree
    assert tanh.plain[1].relative > 10 * tanh.twin.relative
    assert tanh.plain[1].up_to_factor < tanh.twin.up_to_factor
    assert "worth nothing" in str(tanh)
