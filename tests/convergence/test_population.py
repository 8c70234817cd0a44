"""K: the recursion by hand, 40 digits, the conjugate kernel and the bounds on depth."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mp
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.convergence import population_gram


def sphere(n: int, d: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X * np.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)


def arc_cosine(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, -1.0, 1.0)
    return (np.sqrt(1.0 - x**2) + (np.pi - np.arccos(x)) * x) / np.pi


def recursion(X: np.ndarray, sigma_w2: float, depth: int) -> np.ndarray:
    """Definition 1 of the paper, layer by layer from K = 0."""
    cosines = X @ X.T / X.shape[1]
    np.fill_diagonal(cosines, 1.0)
    K = np.zeros_like(cosines)
    for _ in range(depth):
        inner, outer = sigma_w2 * K + cosines, sigma_w2 * np.diag(K) + 1.0
        scale = np.sqrt(np.outer(outer, outer))
        K = scale * arc_cosine(inner / scale)
    return K


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_finite_depth_is_the_recursion(depth):
    X = sphere(15, 10)
    assert_close(population_gram(X, 0.1, depth).matrix, recursion(X, 0.1, depth), Oracle.CLOSED_FORM)


def test_it_is_the_conjugate_kernel_of_another_scaling():
    # The same network with φ = ReLU and the factor 2 in the variances.
    X = sphere(30, 20)
    other = nsd.conjugate_kernel(nsd.DEQ("relu", 2 * 0.08, 2.0), X / np.sqrt(20))
    assert_close(population_gram(X, 0.08).matrix, other, Oracle.CLOSED_FORM)


@pytest.mark.parametrize("sigma_w2", [0.01, 0.08, 0.12])
def test_depth_errors_fall_as_the_bound_says(sigma_w2):
    X = sphere(25, 12)
    n, limit = len(X), population_gram(X, sigma_w2).matrix
    for depth in range(1, 12):
        apart = limit - population_gram(X, sigma_w2, depth).matrix
        entry = sigma_w2**depth / (1.0 - sigma_w2)
        rounding = 1e-13 * np.abs(limit).max()
        assert np.abs(apart).max() <= entry + rounding
        # Theorem 3(i) is weaker: of the order n √l σ_w^l.
        assert np.linalg.norm(apart) <= n * np.sqrt(depth) * sigma_w2 ** (depth / 2) + n * rounding
        np.testing.assert_allclose(apart.diagonal(), entry, atol=rounding)


def mp_least_eigenvalue(X: np.ndarray, sigma_w2: float) -> mpmath.mpf:
    """λ_* by fixed-point iteration and eigenvalues at 40 digits."""
    with mp.workdps(40):
        rows = mp.matrix(X.tolist())
        n, s = len(X), mp.mpf(sigma_w2)
        gram = rows * rows.T
        K = mp.matrix(n, n)
        for i in range(n):
            for j in range(n):
                c = mp.mpf(1) if i == j else gram[i, j] / mp.sqrt(gram[i, i] * gram[j, j])
                x = c
                for _ in range(60):
                    x = s * mp_arc_cosine(x) + (1 - s) * c
                K[i, j] = mp_arc_cosine(x) / (1 - s)
        return min(mp.eigsy(K, eigvals_only=True))


def mp_arc_cosine(x: mpmath.mpf) -> mpmath.mpf:
    x = min(x, mp.mpf(1))
    return (mp.sqrt(1 - x * x) + (mp.pi - mp.acos(x)) * x) / mp.pi


@pytest.mark.parametrize("closeness", [1.0, 1e-2, 1e-4])
def test_the_error_of_the_least_eigenvalue_is_a_bound(closeness):
    X = sphere(4, 5)
    X[1] = X[0] + closeness * (X[1] - X[0])
    X *= np.sqrt(5) / np.linalg.norm(X, axis=1, keepdims=True)
    least = population_gram(X, 0.1).least
    true = float(mp_least_eigenvalue(X, 0.1))
    assert least.lower <= true <= least.upper
    assert least.error <= 1e-11
    assert true > 0


def test_one_sample():
    gram = population_gram(np.ones((1, 4)), 0.1)
    assert_close(gram.least.estimate, 1.0 / 0.9, Oracle.CLOSED_FORM)


def test_opposite_samples_are_no_obstacle():
    # Only equal directions make λ_* vanish.
    X = np.sqrt(3) * np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    assert population_gram(X, 0.1).positive
