"""Learning-rate multipliers, against exact kernels and against the recursion with all rates one."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.designs import design, tangent_coefficients, tangent_kernel_with_multipliers
from notsodeep.equivalents.coefficients import coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian import activation
from notsodeep.kernels import both_kernels, conjugate_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit

NETWORK = Explicit(["gelu", activation("leaky_relu", a=1.2, b=0.3), "tanh"]).centred(1.0)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    X = np.random.default_rng(5).standard_normal((8, 40))
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


@pytest.mark.slow
def test_rates_of_one_are_ordinary_training(rows: np.ndarray) -> None:
    ones = (1.0,) * 4
    assert_close(
        tangent_kernel_with_multipliers(NETWORK, rows, ones), tangent_kernel(NETWORK, rows), Oracle.QUADRATURE
    )
    ordinary = coefficients(NETWORK, 1.0, "ntk")
    assert_close(tangent_coefficients(NETWORK, 1.0, ones).as_array(), ordinary.as_array(), Oracle.CLOSED_FORM)


@pytest.mark.slow
def test_the_readout_alone_is_the_conjugate_kernel(rows: np.ndarray) -> None:
    rates = (0.0, 0.0, 0.0, 2.0)
    found = tangent_kernel_with_multipliers(NETWORK, rows, rates)
    assert_close(found, 2.0 * conjugate_kernel(NETWORK, rows), Oracle.QUADRATURE)
    features = coefficients(NETWORK, 1.0, "ck").as_array()
    assert_close(tangent_coefficients(NETWORK, 1.0, rates).as_array(), 2.0 * features, Oracle.CLOSED_FORM)


def test_the_scalars_are_those_of_the_exact_kernel() -> None:
    """Value at equal samples, and slope at orthogonal ones, read off the exact kernel of three samples."""
    rates, small = (0.7, 0.2, 1.9, 1.3), 1e-4
    X = np.array([[1.0, 0.0], [small, np.sqrt(1.0 - small**2)], [-small, np.sqrt(1.0 - small**2)]])
    kernel = tangent_kernel_with_multipliers(NETWORK, X, rates)
    scalars = tangent_coefficients(NETWORK, 1.0, rates)
    assert_close(kernel[0, 0], scalars.diagonal, Oracle.QUADRATURE)
    assert_close((kernel[0, 1] - kernel[0, 2]) / (2 * small), scalars.linear, Oracle.FINITE_DIFFERENCE)
    assert_close((kernel[0, 1] + kernel[0, 2]) / (2 * small**2), scalars.trace, Oracle.FINITE_DIFFERENCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "sin", "sigmoid", "cos"])
def test_both_kernels_are_met_by_odd_and_even_activations(name: str) -> None:
    made = design(DEQ(name, 0.2), 1.0, "both")
    assert made.exact, made.explain()
    assert made.multipliers is not None
    assert len(made.multipliers) == len(made.network.layers) + 1
    assert min(made.multipliers) >= 0.0
    wanted = coefficients(DEQ(name, 0.2).centred(1.0), 1.0, "ntk").as_array()
    found = tangent_coefficients(made.network, 1.0, made.multipliers).as_array()
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["relu", "elu"])
def test_the_conjugate_kernel_stays_exact_where_the_tangent_one_cannot_be_met(name: str) -> None:
    made = design(DEQ(name, 0.2), 1.0, "both", "papers")
    assert max(made.residuals.values()) <= 1e-9
    assert not made.exact
    assert made.tangent is not None
    assert made.tangent.residual < 0.05
    assert "matching_both" in made.explain()


@pytest.mark.slow
def test_multipliers_bring_the_exact_tangent_kernel_closer(rows: np.ndarray) -> None:
    deq = DEQ("tanh", 0.3).centred(1.0)
    made = design(deq, 1.0, "both")
    features, tangent = both_kernels(deq, rows)
    assert made.multipliers is not None
    with_rates = tangent_kernel_with_multipliers(made.network, rows, made.multipliers)
    without = tangent_kernel(made.network, rows)
    assert np.linalg.norm(with_rates - tangent) < 0.2 * np.linalg.norm(without - tangent)
    found = conjugate_kernel(made.network, rows)
    assert np.linalg.norm(found - features) < 0.02 * np.linalg.norm(features)


@pytest.mark.parametrize(
    "rates", [(1.0,), (1.0, 1.0, 1.0, -1.0), (1.0, 1.0, 1.0, float("nan")), ("a", 1.0, 1.0, 1.0), None, 1.0]
)
def test_bad_rates_are_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="multipliers"):
        tangent_coefficients(NETWORK, 1.0, rates)


def test_multipliers_of_a_model_that_has_none_are_refused() -> None:
    with pytest.raises(InputError, match="not to a DEQ"):
        tangent_kernel_with_multipliers(DEQ("tanh", 0.2), np.ones((2, 3)), (1.0, 1.0))
