"""Bounds hold against 60 digits, also where floating point is in trouble."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from notsodeep.convergence.verified import (
    frobenius_norm,
    least_gram_eigenvalue,
    spectral_norm,
)


def matrix(rows: int, columns: int, log_condition: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((k, k)))[0] for k in (rows, columns))
    size = min(rows, columns)
    values = np.logspace(0.0, -log_condition, size)
    return left[:, :size] * values @ right[:, :size].T


def gram_eigenvalues(A: np.ndarray) -> list[float]:
    with mp.workdps(60):
        exact = mp.matrix(A.tolist())
        return sorted(mp.eigsy(exact * exact.T, eigvals_only=True))


shapes = st.tuples(st.integers(1, 6), st.integers(1, 6))


@given(shapes, st.floats(0.0, 12.0), st.integers(0, 1000))
def test_norms_are_enclosed(shape, log_condition, seed):
    A = matrix(*shape, log_condition, seed)
    with mp.workdps(60):
        spectral = mp.sqrt(max(gram_eigenvalues(A)))
        whole = mp.sqrt(sum(mp.mpf(float(v)) ** 2 for v in A.ravel()))
    for found, true in ((spectral_norm(A), spectral), (frobenius_norm(A), whole)):
        assert found.lower <= true <= found.upper
        assert found.upper - found.lower <= 1e-5 * float(true)


@given(st.integers(1, 5), st.integers(5, 8), st.floats(0.0, 10.0), st.integers(0, 1000))
def test_the_least_eigenvalue_is_enclosed(n, width, log_condition, seed):
    # Up to a condition number of 1e20 of the Gram matrix: the true value is far below rounding.
    Z = matrix(n, width, log_condition, seed)
    true = min(gram_eigenvalues(Z))
    found = least_gram_eigenvalue(Z)
    assert found.lower <= true <= found.upper
    assert found.error <= 1e-11


def test_equal_rows_are_not_called_independent():
    Z = np.random.default_rng(0).standard_normal((3, 50))
    Z[2] = Z[1]
    assert least_gram_eigenvalue(Z).lower <= 0.0


@pytest.mark.parametrize("shape", [(500, 500), (600, 450), (450, 700)])
def test_large_matrices_go_through_lanczos(shape):
    A = np.random.default_rng(1).standard_normal(shape)
    true = np.linalg.norm(A, 2)
    found = spectral_norm(A)
    assert found.lower <= true * (1 + 1e-12)
    assert found.upper >= true * (1 - 1e-12)
    assert found.upper <= true * (1 + 1e-5)
