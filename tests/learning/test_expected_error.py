"""The expected error of a ridge regression from population quantities, against simulation, limits and identities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from tolerances import assert_within_noise

from notsodeep.learning.trained_kernel import PoolCurves, TrainedKernel, expected_error

POWERS = np.arange(1.0, 301.0)
EIGENVALUES = POWERS**-1.3
TARGET = POWERS**-1.5


def effective_ridge(n: int, ridge: float, width: int | None) -> float:
    """ν of docs/theory.md (11.4) for the power law."""
    m = np.inf if width is None else width

    def excess(log_kappa: float) -> float:
        kappa = np.exp(log_kappa)
        degrees = np.sum(EIGENVALUES / (EIGENVALUES + kappa))
        if degrees >= min(n, m):
            return -1.0
        return kappa * (1.0 - degrees / m) * (n - degrees) - ridge

    return float(np.exp(brentq(excess, -40.0, 20.0, xtol=1e-13)))


def error(target: np.ndarray, n: int, ridge: float, noise: float, width: int | None) -> float:
    kappa = effective_ridge(n, ridge, width)
    learnt = EIGENVALUES / (EIGENVALUES + kappa)
    bias, penalty = target @ (1.0 - learnt) ** 2 + noise, target @ (learnt * (1.0 - learnt))
    return expected_error(bias, penalty, learnt.sum(), np.sum(learnt**2), n, width)


def simulated_error(n: int, width: int | None, ridge: float, seed: int) -> float:
    """Squared error of one ridge regression on Gaussian eigenfunctions, in closed form over test samples."""
    rng = np.random.default_rng(seed)
    eigenfunctions = rng.standard_normal((n, len(POWERS)))
    y = eigenfunctions @ np.sqrt(TARGET) + 0.3 * rng.standard_normal(n)
    factor = np.diag(np.sqrt(EIGENVALUES))
    if width is not None:
        factor = factor @ rng.standard_normal((len(POWERS), width)) / np.sqrt(width)
    features = eigenfunctions @ factor
    weights = features.T @ np.linalg.solve(features @ features.T + ridge * np.eye(n), y)
    return float(np.sum((np.sqrt(TARGET) - factor @ weights) ** 2)) + 0.09


@pytest.mark.parametrize(
    ("n", "width", "ridge"),
    [(150, None, 0.01), (150, None, 3.0), (150, 60, 0.01), (150, 400, 0.3), (60, 150, 0.03)],
)
def test_error_against_simulation(n, width, ridge):
    draws = [simulated_error(n, width, ridge, seed) for seed in range(30)]
    assert_within_noise(error(TARGET, n, ridge, 0.09, width), draws, bias=0.02)


@pytest.mark.parametrize("width", [40, 150, 900])
@pytest.mark.parametrize(("n", "ridge"), [(60, 0.3), (200, 1e-2)])
def test_every_direction_has_the_error_that_the_literature_has(n, ridge, width):
    """Simon, Karkada, Ghosh and Belkin (2023) write the same theory with other sums: one direction at a time."""
    learnt = EIGENVALUES / (EIGENVALUES + effective_ridge(n, ridge, width))
    z, q = learnt.sum(), np.square(learnt).sum()
    factor = 1.0 / (1.0 - (q * (width - 2.0 * z) + z**2) / (n * (width - q)))
    for k in (0, 7, 100):
        expected = factor * (1.0 - learnt[k]) * (1.0 - learnt[k] * (width - z) / (width - q))
        assert error(np.eye(300)[k], n, ridge, 0.0, width) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "width"), [(150, None), (300, None), (1200, None), (300, 200), (1200, 200)])
def test_a_pool_has_the_error_of_its_population(n, width, intercept):
    """Gaussian samples with a known spectrum: inside the pool and beyond it."""
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(4):
        eigenfunctions = rng.standard_normal((300, len(POWERS)))
        y = eigenfunctions @ np.sqrt(TARGET) + 0.3 * rng.standard_normal(300)
        kernel = (eigenfunctions * EIGENVALUES) @ eigenfunctions.T
        # An intercept takes out a constant of any size, and learns that of the targets.
        kernel, y = (kernel + 30.0, y + 10.0) if intercept else (kernel, y)
        trained = TrainedKernel.of(kernel, y[:, None], intercept=intercept)
        errors.append(PoolCurves.of(trained).error(n, 1.0, width))
    assert np.mean(errors) == pytest.approx(error(TARGET, n, 1.0, 0.09, width), rel=0.1)
