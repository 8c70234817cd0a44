"""The covariance function: its gradients, its diagonal, and scikit-learn's optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.errors import ConvergenceError
from notsodeep.estimators import DEQKernel
from notsodeep.estimators.gaussian_process import admissible


def rows(n=7, p=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) / np.sqrt(p)


@pytest.mark.parametrize("reading", ["ck", "ntk"])
@pytest.mark.parametrize("phi", ["identity", "relu", "tanh", "elu"])
def test_gradients_follow_from_the_fixed_point(phi, reading):
    """Homogeneous kernels scale with the rows; linear ones have closed forms; the rest against small differences."""
    X = rows()
    X[3] = X[2]  # the same row twice
    X[5] = 1.7 * X[4]  # parallel rows
    X[6] = 0.0
    kernel = DEQKernel(phi, 0.3, (0.1, 0.5), 1.2, (0.1, 10.0), kernel=reading, sigma_b2=0.7)
    value, slopes = kernel(X, eval_gradient=True)
    assert_close(value, kernel(X), Oracle.IDENTITY)
    assert slopes.shape == (7, 7, 2)
    by_length, by_variance = np.moveaxis(slopes, 2, 0)
    if phi in ("identity", "relu"):
        assert_close(by_length, -2.0 * value, Oracle.FINITE_DIFFERENCE)
    if phi == "identity":
        # G = σ_b² c/(1 - σ_a²), Θ = G (1 + 1/(1 - σ_a²)).
        factor = 0.3 / 0.7 * (1.0 if reading == "ck" else 1.0 + (1.0 / 0.7) / (1.0 + 1.0 / 0.7))
        assert_close(by_variance, factor * value, Oracle.FINITE_DIFFERENCE)
    step = np.finfo(float).eps ** (1 / 3) * np.array([0.0, 1.0])
    ends = [kernel.clone_with_theta(kernel.theta + sign * step)(X) for sign in (1.0, -1.0)]
    expected = (ends[0] - ends[1]) / (2.0 * step[1])
    assert_close(by_variance, expected, Oracle.FINITE_DIFFERENCE, scale=float(value.max()))


def test_the_input_variance_moves_with_the_recurrent_one():
    """With σ_b² = 1 - σ_a² a linear model has G = c, whatever σ_a², up to the end of its range."""
    for sigma_a2 in (0.3, 0.999):
        kernel = DEQKernel("identity", sigma_a2, (0.1, 0.99999))
        assert_close(
            kernel(rows(), eval_gradient=True)[1], np.zeros((7, 7, 1)), Oracle.FINITE_DIFFERENCE, scale=1.0
        )


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["ck", "ntk"])
def test_the_diagonal_is_the_diagonal(reading):
    X = rows()
    kernel = DEQKernel("tanh", 0.4, length_scale=0.5, kernel=reading, bias2=0.1)
    assert_close(kernel.diag(X), np.diag(kernel(X)), Oracle.QUADRATURE)
    assert_close(kernel(X, X[:3]), kernel(X)[:, :3], Oracle.QUADRATURE)
    assert not kernel.is_stationary()


def test_hyperparameters():
    kernel = DEQKernel("tanh", 0.3)
    assert_close(kernel.theta, np.log([0.3]), Oracle.IDENTITY)
    assert_close(np.exp(kernel.bounds), [[1e-4, 0.95]], Oracle.IDENTITY)
    assert clone(kernel) == kernel
    assert kernel != DEQKernel("tanh", 0.31)
    both = DEQKernel("tanh", 0.3, length_scale=2.0, length_scale_bounds=(0.1, 10.0))
    assert_close(both.theta, np.log([2.0, 0.3]), Oracle.IDENTITY)
    fixed = DEQKernel("tanh", 0.3, "fixed")
    assert len(fixed.theta) == 0
    value, slopes = fixed(rows(), eval_gradient=True)
    assert slopes.shape == (*value.shape, 0)
    assert repr(both) == "DEQKernel(tanh, ck, sigma_a2=0.3, length_scale=2)"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "swish", "sin", "softplus"])
def test_the_upper_bound_is_admissible_at_every_scale(name):
    top = admissible(name)
    for size in (0.1, 1.0, 30.0):
        kernel = DEQKernel(name, top, kernel="ntk", sigma_b2=0.5)
        assert np.all(np.isfinite(kernel(size * rows())))
    steep = nsd.activation(name, gain=3.0)
    assert admissible(steep) < 0.2
    assert np.all(np.isfinite(DEQKernel(steep, admissible(steep), kernel="ntk")(rows())))


def test_beyond_the_admissible_range_the_error_says_what_to_do():
    with pytest.raises(ConvergenceError, match="Lower sigma_a2"):
        DEQKernel(nsd.activation("relu").scaled(2.0), 0.9, kernel="ntk")(rows())


def drawn_process(sigma_a2, n=60, p=6):
    """A sample path of the Gaussian process with some noise."""
    X = rows(n, p, seed=3) * 1.5
    rng = np.random.default_rng(4)
    covariance = 4.0 * DEQKernel("tanh", sigma_a2)(X) + 1e-2 * np.eye(n)
    return X, np.linalg.cholesky(covariance) @ rng.standard_normal(n)


@pytest.mark.slow
def test_the_optimiser_of_scikit_learn_finds_a_stationary_point_inside_the_bounds():
    X, y = drawn_process(0.5)
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * DEQKernel("tanh", 0.05) + WhiteKernel(1e-2, "fixed")
    process = GaussianProcessRegressor(kernel).fit(X, y)
    found, gradient = process.log_marginal_likelihood(process.kernel_.theta, eval_gradient=True)
    assert found > process.log_marginal_likelihood(kernel.theta) + 1.0
    low, high = kernel.bounds.T
    inside = (process.kernel_.theta > low + 1e-3) & (process.kernel_.theta < high - 1e-3)
    assert np.all(np.abs(gradient[inside]) < 1e-2)
    assert 1e-4 <= process.kernel_.k1.k2.sigma_a2 <= 0.95
