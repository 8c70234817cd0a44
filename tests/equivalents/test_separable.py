"""Short sums of products stand for functions of two norms, within the bound they state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notsodeep.equivalents.separable import separable
from notsodeep.errors import ConvergenceError


def products(nodes):
    """A function of rank one, and one of no finite rank."""
    pairs = np.sqrt(nodes[:, None] * nodes)
    return np.stack([pairs, 1.0 / (1.0 + pairs)])


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.0, 3.0), st.sampled_from([1e-3, 1e-6, 1e-10]))
def test_the_bound_holds(seed, spread, tolerance):
    squares = np.exp(spread * np.random.default_rng(seed).uniform(-1.0, 1.0, 40))
    exact = products(squares)
    for function, values in zip(separable(products, squares, [tolerance] * 2), exact, strict=True):
        error = np.abs(function.block(slice(None)) - values).max()
        assert error <= 2.0 * function.error_bound + 1e-12
        assert function.error_bound <= 1.1 * tolerance * np.abs(exact).max() * np.exp(spread)


def test_what_cannot_be_resolved_is_refused():
    rough = lambda s: np.abs(np.subtract.outer(s, s))[None]  # noqa: E731
    with pytest.raises(ConvergenceError, match="not resolved"):
        separable(rough, np.linspace(0.1, 5.0, 300), [1e-8])
