"""The covariance function: its gradients against differences, its diagonal, scikit-learn's optimiser on top of it."""

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
from notsodeep.estimators.gradient import _Hinges, _Series
from notsodeep.estimators.process import admissible
from notsodeep.gaussian.bivariate import dual

ACTIVATIONS = {
    "relu": nsd.activation("relu"),
    "turned leaky_relu": nsd.activation("leaky_relu", b=-0.4, gain=-1.3, amplitude=0.8, offset=0.2),
    "hard_tanh": nsd.activation("hard_tanh", c=0.7),
    "hard_sigmoid": nsd.activation("hard_sigmoid", gain=3.0),
    "identity": nsd.activation("identity"),
    "tanh": nsd.activation("tanh"),
    "swish": nsd.activation("swish"),
    "turned softplus": nsd.activation("softplus", gain=-1.2, offset=-0.4),
    "cos": nsd.activation("cos"),
    "polynomial": nsd.activation("polynomial", coefficients=[0.1, 0.6, 0.1, -0.02]),
}


def rows(n=7, p=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) / np.sqrt(p)


def difference(kernel, X, direction):
    """A central difference in theta with the step eps^(1/3)."""
    step = np.finfo(float).eps ** (1 / 3) * direction
    ends = [kernel.clone_with_theta(kernel.theta + sign * step)(X) for sign in (1.0, -1.0)]
    return (ends[0] - ends[1]) / (2.0 * np.linalg.norm(step))


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["ck", "ntk"])
@pytest.mark.parametrize("phi", ACTIVATIONS.values(), ids=list(ACTIVATIONS))
@pytest.mark.parametrize(("sigma_b2", "bias2"), [(None, 0.0), (0.7, 0.1)])
def test_gradients_are_those_of_differences(phi, reading, sigma_b2, bias2):
    X = rows()
    X[3] = X[2]  # the same row twice
    X[5] = 1.7 * X[4]  # parallel rows
    X[6] = -X[1]  # opposite rows
    kernel = DEQKernel(phi, 0.3, (0.1, 0.5), 1.2, (0.1, 10.0), kernel=reading, sigma_b2=sigma_b2, bias2=bias2)
    value, slopes = kernel(X, eval_gradient=True)
    assert_close(value, kernel(X), Oracle.IDENTITY)
    assert slopes.shape == (7, 7, 2)
    size = float(np.abs(value).max())
    for number, direction in enumerate(np.eye(2)):
        expected = difference(kernel, X, direction)
        assert_close(slopes[:, :, number], expected, Oracle.FINITE_DIFFERENCE, scale=size)


@pytest.mark.parametrize("reading", ["ck", "ntk"])
@pytest.mark.parametrize("name", ["elu", "softsign"])
def test_gradients_of_activations_whose_derivatives_jump(name, reading):
    X = rows()
    X[3] = X[2]
    kernel = DEQKernel(name, 0.3, (0.1, 0.5), kernel=reading, bias2=0.1)
    _, slopes = kernel(X, eval_gradient=True)
    assert_close(slopes[:, :, 0], difference(kernel, X, np.ones(1)), Oracle.FINITE_DIFFERENCE)


@pytest.mark.parametrize("reading", ["ck", "ntk"])
def test_without_recurrence_and_with_a_row_of_zeros(reading):
    X = rows()
    X[2] = 0.0
    for phi in ("tanh", "relu"):
        kernel = DEQKernel(phi, 1e-4, kernel=reading)
        assert_close(
            kernel(X, eval_gradient=True)[1][:, :, 0],
            difference(kernel, X, np.ones(1)),
            Oracle.FINITE_DIFFERENCE,
            scale=1.0,
        )


def test_the_two_ways_to_differentiate_the_dual_agree_with_its_differences():
    q = np.array([0.4, 0.9, 1.6])
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((3, 3))
    correlation = np.corrcoef(mix)
    covariance = correlation * np.sqrt(q[:, None] * q)
    phi = ACTIVATIONS["hard_tanh"]
    closed, series = _Hinges(phi, q, covariance), _Series(nsd.activation("tanh"), q, covariance)
    off = ~np.eye(3, dtype=bool)
    step = 1e-5
    for pairs, function in ((closed, phi), (series, nsd.activation("tanh"))):

        def at(factor, fixed_correlation, function=function):
            moved = covariance * (np.sqrt(factor) if fixed_correlation else 1.0)
            return dual(function, factor * q[:, None], q, moved)

        values = [at(1.0 + sign * step, False)[0] for sign in (1, -1)]
        slopes = [at(1.0 + sign * step, True)[1] for sign in (1, -1)]
        # 2 q ∂/∂q is twice the derivative in the factor.
        assert_close(pairs.by_scale[off], ((values[0] - values[1]) / step)[off], Oracle.FINITE_DIFFERENCE)
        assert_close(
            pairs.slope_by_scale[off], ((slopes[0] - slopes[1]) / step)[off], Oracle.FINITE_DIFFERENCE
        )
        bent = [dual(function, q[:, None], q, covariance + sign * step)[1] for sign in (1, -1)]
        assert_close(pairs.curvature[off], ((bent[0] - bent[1]) / (2 * step))[off], Oracle.FINITE_DIFFERENCE)


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
@pytest.mark.parametrize("name", ["relu", "tanh", "swish", "sin", "elu", "softplus", "arctan"])
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
@pytest.mark.parametrize("reading", ["ck", "ntk"])
def test_the_gradient_of_the_marginal_likelihood(reading):
    X, y = drawn_process(0.5)
    kernel = ConstantKernel(2.0) * DEQKernel("tanh", 0.3, kernel=reading) + WhiteKernel(1e-2)
    process = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    theta = process.kernel_.theta
    _, gradient = process.log_marginal_likelihood(theta, eval_gradient=True)
    step = np.finfo(float).eps ** (1 / 3)
    expected = [
        (process.log_marginal_likelihood(theta + d) - process.log_marginal_likelihood(theta - d)) / (2 * step)
        for d in step * np.eye(len(theta))
    ]
    assert_close(gradient, expected, Oracle.FINITE_DIFFERENCE)


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
