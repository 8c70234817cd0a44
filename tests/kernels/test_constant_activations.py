"""Activations that are zero or constant, in every way to write one: kernels and moments are known."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.gaussian import Activation, activation, custom_activation, moments
from notsodeep.gaussian.bivariate import dual

# Each with the constant that it is.
CONSTANTS: dict[str, tuple[Activation, float]] = {
    "polynomial [0]": (activation("polynomial", coefficients=[0.0]), 0.0),
    "polynomial [0.7]": (activation("polynomial", coefficients=[0.7]), 0.7),
    "polynomial, no gain": (activation("polynomial", coefficients=[0.7, 1.0]).scaled(gain=0.0), 0.7),
    "no knot": (activation("piecewise_linear", knots=(), slopes=(0.0,)), 0.0),
    "two knots": (activation("piecewise_linear", knots=(-1.0, 1.0), slopes=(0.0, 0.0, 0.0)), 0.0),
    "two knots, a value": (
        activation("piecewise_linear", knots=(-1.0, 1.0), slopes=(0.0,) * 3, value=0.4),
        0.4,
    ),
    "0 tanh": (activation("tanh").scaled(0.0), 0.0),
    "tanh(0 x)": (activation("tanh").scaled(gain=0.0), 0.0),
    "relu(0 x) + 1": (activation("relu").scaled(gain=0.0).shifted(1.0), 1.0),
    "0 elu - 2": (activation("elu").scaled(0.0).shifted(-2.0), -2.0),
    "cos(0 x)": (activation("cos").scaled(gain=0.0), 1.0),
    "callable": (custom_activation(lambda x: 0.0 * x), 0.0),
}
EVERY = pytest.mark.parametrize("name", CONSTANTS)


def _rows() -> np.ndarray:
    """Some at random, one twice, one with its opposite, one zero."""
    rows = np.random.default_rng(0).standard_normal((4, 3))
    return np.vstack([rows, rows[0], -rows[1], np.zeros(3)])


@pytest.mark.slow
@EVERY
def test_kernels(name: str) -> None:
    phi, value = CONSTANTS[name]
    rows = _rows()
    square = np.full((len(rows), len(rows)), value**2)
    for model in (nsd.DEQ(phi, 0.2), nsd.Explicit([phi]), nsd.Explicit(["tanh", phi])):
        assert_close(nsd.conjugate_kernel(model, rows), square, Oracle.CLOSED_FORM, scale=1.0)
        # Nothing below a constant can be trained: only the readout counts.
        assert_close(nsd.tangent_kernel(model, rows), square, Oracle.CLOSED_FORM, scale=1.0)


@pytest.mark.slow
@EVERY
def test_moments(name: str) -> None:
    phi, value = CONSTANTS[name]
    q = np.array([0.0, 1e-6, 1.0, 100.0])
    assert_close(moments.second_moment(phi, q), np.full(4, value**2), Oracle.CLOSED_FORM, scale=1.0)
    assert_close(moments.mean_derivative(phi, q, 0), np.full(4, value), Oracle.CLOSED_FORM, scale=1.0)
    for order in (1, 2):
        np.testing.assert_array_equal(moments.mean_derivative(phi, q, order), 0.0)
    for moment in (moments.second_moment_slope, moments.derivative_second_moment):
        np.testing.assert_array_equal(moment(phi, q), 0.0)
    value_of_pairs, slope_of_pairs = dual(phi, q, 1.0, 0.0)
    assert_close(value_of_pairs, np.full(4, value**2), Oracle.CLOSED_FORM, scale=1.0)
    np.testing.assert_array_equal(slope_of_pairs, 0.0)


@pytest.mark.parametrize("name", ["hard_tanh", "hard_sigmoid"])
def test_mean_derivatives_without_variance_are_the_derivatives_at_zero(name: str) -> None:
    phi = activation(name)
    for order in (1, 2):
        assert moments.mean_derivative(phi, 0.0, order) == phi.derivative(0.0, order)
