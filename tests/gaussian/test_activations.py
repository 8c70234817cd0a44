"""Activations: values and derivatives against our own definitions, scaling and shifting by their meaning."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from mpmath import mpf
from oracles import ALL, Reference
from tolerances import Oracle, assert_close

from notsodeep.errors import InputError
from notsodeep.gaussian import activation, custom_activation
from notsodeep.gaussian.activations import rebuilt

# Away from every kink of the references, on both sides, near 0 and far out.
POINTS = np.array([-40.0, -7.3, -2.4, -0.71, -0.04, 0.03, 0.37, 1.1, 1.9, 3.6, 12.5, 60.0])


@pytest.mark.parametrize("phi", ALL, ids=str)
def test_values(phi: Reference) -> None:
    expected = np.array([float(phi.mp_value(mpf(float(x)))) for x in POINTS])
    assert_close(activation(phi.name, **phi.parameters)(POINTS), expected, Oracle.CLOSED_FORM, scale=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_derivatives(phi: Reference, order: int) -> None:
    """Differences at 60 digits; far out in the tails a derivative is judged against the size of phi."""
    expected = np.array([oracles.mp_derivative(phi, float(x), order) for x in POINTS])
    actual = activation(phi.name, **phi.parameters).derivative(POINTS, order=order)
    assert_close(actual, expected, Oracle.CLOSED_FORM, scale=1.0)


@pytest.mark.parametrize("phi", ALL, ids=str)
def test_scaling_and_shifting_mean_what_they_say(phi: Reference) -> None:
    made = activation(phi.name, **phi.parameters)
    changed = made.shifted(0.3).scaled(amplitude=-1.7, gain=0.6).shifted(-0.2)
    assert_close(changed(POINTS), -1.7 * (made(0.6 * POINTS) + 0.3) - 0.2, Oracle.IDENTITY)
    for order in (1, 2):
        expected = -1.7 * 0.6**order * made.derivative(0.6 * POINTS, order=order)
        assert_close(changed.derivative(POINTS, order=order), expected, Oracle.IDENTITY)

    assert_close(made.kinks, phi.kinks, Oracle.IDENTITY)
    assert_close(made.scaled(gain=-2.0).kinks, sorted(-kink / 2 for kink in phi.kinks), Oracle.IDENTITY)


def test_arrays_of_any_shape_and_scalars() -> None:
    made = activation("tanh")
    assert made(0.5) == pytest.approx(np.tanh(0.5), rel=1e-15)
    assert made(np.zeros((2, 3, 4))).shape == (2, 3, 4)
    assert made.derivative(np.zeros((2, 3)), order=2).shape == (2, 3)
    assert made(np.array([1, 2], dtype=np.int64)).dtype == np.float64


def test_piecewise_linear_takes_a_value_at_zero() -> None:
    made = activation("piecewise_linear", knots=(-1.0, 2.0), slopes=(0.0, 1.0, 0.5), value=0.25)
    assert_close(made(np.array([-3.0, 0.0, 2.0, 4.0])), [-0.75, 0.25, 2.25, 3.25], Oracle.CLOSED_FORM)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("tahn", {}),
        ("tanh", {"c": 1.0}),
        ("hard_tanh", {"a": 1.0, "c": -1.0}),
        ("leaky_relu", {"a": np.nan, "b": 0.0}),
        ("polynomial", {"coefficients": [0.0, np.inf]}),
        ("piecewise_linear", {"knots": (1.0, 0.0), "slopes": (1.0, 2.0, 3.0)}),
    ],
)
def test_misuse_is_refused(name: str, parameters: dict[str, object]) -> None:
    with pytest.raises(InputError):
        activation(name, **parameters)


def test_a_function_of_ones_own_may_bear_the_name_of_a_built_in_one() -> None:
    def polynomial(x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    for f in (polynomial, sigmoid):
        phi = custom_activation(f)
        assert rebuilt(phi) is None
        assert str(phi) == f.__name__
        assert str(phi.scaled(2.0)) == f"2·{f.__name__}"
    assert rebuilt(activation("sigmoid").scaled(3.0)) == activation("sigmoid")


def test_numbers_of_numpy_mean_what_they_are() -> None:
    # Compared with 0.1 as a float32, this is 0.1.
    slope = np.float32(0.1)
    phi = activation("leaky_relu", a=slope, b=0.1)
    assert phi == activation("leaky_relu", a=float(slope), b=0.1)
    np.testing.assert_array_equal(phi([-1.0, 1.0]), [-0.1, float(slope)])


def test_derivatives_beyond_the_second_are_refused() -> None:
    for order in (0, 3, -1):
        with pytest.raises(InputError, match=str(order)):
            activation("tanh").derivative(0.0, order=order)
