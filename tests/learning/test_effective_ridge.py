"""The effective ridge and the test error of a given spectrum, against simulation, limits and identities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tolerances import Oracle, assert_close, assert_within_noise

from notsodeep.errors import InputError
from notsodeep.learning import Spectrum, effective_ridge, ridge_error

POWERS = np.arange(1.0, 301.0)
POWER_LAW = Spectrum(POWERS**-1.3)
TARGET = POWERS**-1.5

spectra = st.tuples(
    st.floats(0.6, 2.5), st.integers(1, 60), st.sampled_from([0.0, 1e-3, 0.3]), st.floats(1e-3, 1e3)
).map(
    lambda given: Spectrum(given[3] * np.arange(1.0, given[1] + 1.0) ** -given[0], tail=given[2] * given[3])
)
ridges = st.floats(-8.0, 4.0).map(lambda power: 10.0**power)
sizes = st.integers(1, 5000)


def simulated_error(n: int, width: int | None, ridge: float, seed: int) -> float:
    """Squared error of one ridge regression on Gaussian eigenfunctions, in closed form over test samples."""
    rng = np.random.default_rng(seed)
    eigenfunctions = rng.standard_normal((n, len(POWERS)))
    y = eigenfunctions @ np.sqrt(TARGET) + 0.3 * rng.standard_normal(n)
    factor = np.diag(np.sqrt(POWER_LAW.eigenvalues))
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
    predicted = ridge_error(POWER_LAW, TARGET, n, ridge, noise=0.09, width=width).mse
    assert_within_noise(predicted, draws, bias=0.02)


@given(spectra, sizes, ridges)
def test_equation_of_the_effective_ridge(spectrum, n, ridge):
    kappa = effective_ridge(spectrum, n, ridge)
    assert_close(spectrum.degrees_of_freedom(kappa) + ridge / kappa, float(n), Oracle.QUADRATURE)


@given(spectra, sizes, sizes, ridges)
def test_equations_at_finite_width(spectrum, n, width, ridge):
    second = effective_ridge(spectrum, n, ridge, width)
    degrees = spectrum.degrees_of_freedom(second)
    assert degrees <= min(n, width) * (1.0 + 1e-12)
    product = second * (1.0 - degrees / width) * (n - degrees)
    assert product == pytest.approx(ridge, rel=1e-6, abs=1e-9 * spectrum.trace)


@pytest.mark.parametrize("width", [None, 40, 150, 900])
@pytest.mark.parametrize(("n", "ridge"), [(60, 0.3), (200, 1e-2)])
def test_noise_is_amplified_by_the_slope_of_the_effective_ridge(n, ridge, width):
    """Of a target that is noise alone the error is noise · n · (1 - df₂/m) · dν/dλ, by implicit differentiation."""
    found = ridge_error(POWER_LAW, np.zeros(300), n, ridge, noise=0.7, width=width)
    step = 1e-5 * ridge
    above, below = (effective_ridge(POWER_LAW, n, ridge + side, width) for side in (step, -step))
    share = 0.0 if width is None else POWER_LAW.squared_degrees_of_freedom(found.effective_ridge) / width
    assert found.mse == pytest.approx(0.7 * n * (1.0 - share) * (above - below) / (2.0 * step), rel=1e-7)
    assert found.bias == pytest.approx(0.7)
    assert found.variance == pytest.approx(found.mse - 0.7)


@pytest.mark.parametrize("width", [40, 150, 900])
@pytest.mark.parametrize(("n", "ridge"), [(60, 0.3), (200, 1e-2)])
def test_every_direction_has_the_error_that_the_literature_has(n, ridge, width):
    """Simon, Karkada, Ghosh and Belkin (2023) write the same theory with other sums: one direction at a time."""
    kappa = effective_ridge(POWER_LAW, n, ridge, width)
    learnt = POWER_LAW.eigenvalues / (POWER_LAW.eigenvalues + kappa)
    z, q = learnt.sum(), np.square(learnt).sum()
    factor = 1.0 / (1.0 - (q * (width - 2.0 * z) + z**2) / (n * (width - q)))
    for k in (0, 7, 100):
        expected = factor * (1.0 - learnt[k]) * (1.0 - learnt[k] * (width - z) / (width - q))
        found = ridge_error(POWER_LAW, np.eye(300)[k], n, ridge, width=width)
        assert found.mse == pytest.approx(expected, rel=1e-9)


@given(spectra, sizes, ridges, st.floats(1.01, 10.0))
def test_the_effective_ridge_is_monotone(spectrum, n, ridge, factor):
    kappa = effective_ridge(spectrum, n, ridge)
    assert effective_ridge(spectrum, n, ridge * factor) > kappa
    assert effective_ridge(spectrum, n + 1, ridge) < kappa
    assert effective_ridge(spectrum, n, ridge, width=50) > kappa
    assert effective_ridge(spectrum, n, ridge, width=51) < effective_ridge(spectrum, n, ridge, width=50)


@given(spectra, sizes, ridges)
def test_a_very_wide_network_is_the_kernel(spectrum, n, ridge):
    target = spectrum.eigenvalues / spectrum.trace
    ridge = max(ridge, 1e-3 * spectrum.trace)
    wide, kernel = (ridge_error(spectrum, target, n, ridge, noise=0.1, width=m) for m in (10**10, None))
    assert wide.mse == pytest.approx(kernel.mse, rel=1e-4)


@given(spectra, sizes)
def test_limits_of_the_ridge(spectrum, n):
    target = np.ones_like(spectrum.eigenvalues)
    huge = ridge_error(spectrum, target, n, 1e12 * spectrum.trace)
    assert huge.mse == pytest.approx(target.sum(), rel=1e-6)
    # One sample against an enormous ridge is no sample at all.
    assert effective_ridge(spectrum, 1, 1e12 * spectrum.trace) == pytest.approx(
        1e12 * spectrum.trace, rel=1e-6
    )


def test_more_samples_help_at_the_best_ridge():
    best = [
        min(ridge_error(POWER_LAW, TARGET, n, 10.0**power, noise=0.1).mse for power in np.arange(-5, 3, 0.25))
        for n in (10, 30, 100, 300, 1000)
    ]
    assert np.all(np.diff(best) < 0.0)


def test_double_descent():
    errors = [ridge_error(POWER_LAW, TARGET, 100, 1e-5, noise=0.1, width=m).mse for m in (30, 100, 1000)]
    assert errors[1] > 10.0 * max(errors[0], errors[2])


def test_least_squares_without_a_ridge():
    spectrum = Spectrum(np.ones(20))
    found = ridge_error(spectrum, np.ones(20), 60, 0.0, noise=0.5)
    assert found.effective_ridge == 0.0
    assert_close(found.mse, 0.5 * 60 / 40, Oracle.CLOSED_FORM)


def test_a_tail_is_a_ridge():
    with_tail = ridge_error(Spectrum(POWER_LAW.eigenvalues, tail=0.2), TARGET, 100, 0.1, noise=0.3)
    with_ridge = ridge_error(POWER_LAW, TARGET, 100, 0.3, noise=0.3)
    assert_close(with_tail.mse, with_ridge.mse, Oracle.QUADRATURE)


def test_multiplicity_is_repetition():
    together = Spectrum([2.0, 0.5], multiplicity=[3, 40])
    apart = Spectrum([2.0] * 3 + [0.5] * 40)
    assert_close(effective_ridge(together, 30, 0.1), effective_ridge(apart, 30, 0.1), Oracle.QUADRATURE)


@pytest.mark.parametrize("values", [[-1.0, 2.0], [0.0, 0.0]])
def test_spectra_that_are_none(values):
    with pytest.raises(InputError):
        Spectrum(values)
