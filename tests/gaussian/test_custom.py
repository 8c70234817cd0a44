"""Any callable: nine digits if smooth, declared kinks honoured, an undeclared one never silently wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import oracles
import pytest
from oracles import Reference
from tolerances import Oracle, tolerance

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian import activation, custom_activation, moments
from notsodeep.gaussian.bivariate import dual

RELATIVE = tolerance(Oracle.CUSTOM_CALLABLE).rtol
VARIANCES = (1e-4, 0.09, 1.0, 16.0, 100.0)


def _bump(x: np.ndarray) -> np.ndarray:
    return np.tanh(2 * x) + 0.2 * np.exp(-((x - 0.5) ** 2))


# Smooth, neither odd nor even, and not in the list of built-ins.
SMOOTH = (
    Reference(
        "bump",
        lambda x: mpmath.tanh(2 * x) + 0.2 * mpmath.exp(-((x - 0.5) ** 2)),
        lambda x: 2 * mpmath.sech(2 * x) ** 2 - 0.4 * (x - 0.5) * mpmath.exp(-((x - 0.5) ** 2)),
        _bump,
        lambda x: 2 / np.cosh(np.clip(2 * x, -300, 300)) ** 2 - 0.4 * (x - 0.5) * np.exp(-((x - 0.5) ** 2)),
    ),
    Reference(
        "log_cosh",
        lambda x: abs(x) + mpmath.log1p(mpmath.exp(-2 * abs(x))) - mpmath.log(2),
        mpmath.tanh,
        lambda x: np.logaddexp(x, -x) - math.log(2),
        np.tanh,
    ),
)


@pytest.mark.parametrize("given", [False, True], ids=["values only", "with derivative"])
@pytest.mark.parametrize("phi", SMOOTH, ids=str)
def test_smooth_callables_have_nine_digits(phi: Reference, given: bool) -> None:
    made = custom_activation(phi.np_value, derivative=phi.np_slope if given else None)
    for q in VARIANCES:
        exact = oracles.mp_quadrature(phi, q)
        size = math.sqrt(exact.second)
        assert moments.second_moment(made, q) == pytest.approx(float(exact.second), rel=RELATIVE)
        assert moments.second_moment_slope(made, q) == pytest.approx(float(exact.second_slope), rel=RELATIVE)
        assert moments.derivative_second_moment(made, q) == pytest.approx(
            float(exact.slope_second), rel=RELATIVE
        )
        assert moments.mean_derivative(made, q, 0) == pytest.approx(float(exact.mean[0]), abs=RELATIVE * size)
        for k in (1, 2):
            expected = float(exact.mean[k])
            assert moments.mean_derivative(made, q, k) == pytest.approx(expected, rel=RELATIVE, abs=RELATIVE)
        expected_row = np.array([float(a) for a in oracles.mp_quadrature(phi, q, 20).mehler])
        np.testing.assert_allclose(
            moments.mehler(made, q, 20).ravel(), expected_row, rtol=0, atol=RELATIVE * size
        )


@pytest.mark.parametrize("phi", SMOOTH, ids=str)
def test_smooth_callables_in_two_dimensions(phi: Reference) -> None:
    made = custom_activation(phi.np_value)
    for q1, q2, rho in ((1.0, 1.0, 0.5), (0.04, 25.0, 0.99), (4.0, 4.0, -1.0), (9.0, 1.0, 0.999999)):
        value, slope = dual(made, np.array([q1]), np.array([q2]), np.array([rho * math.sqrt(q1 * q2)]))
        exact = oracles.brute_dual(phi, q1, q2, rho, nodes=20)
        assert value[0] == pytest.approx(exact.value, rel=RELATIVE, abs=RELATIVE)
        assert slope[0] == pytest.approx(exact.slope, rel=RELATIVE, abs=RELATIVE)


@pytest.mark.parametrize("name", ["relu", "hard_tanh", "elu", "softsign"])
def test_declared_kinks_give_the_built_in(name: str) -> None:
    phi = oracles.reference(name)
    made = custom_activation(phi.np_value, kinks=phi.kinks)
    built_in = activation(phi.name, **phi.parameters)
    q = np.array([0.01, 1.0, 50.0])
    for function in (moments.second_moment, moments.second_moment_slope, moments.derivative_second_moment):
        np.testing.assert_allclose(function(made, q), function(built_in, q), rtol=RELATIVE)
    for k in (0, 1, 2):
        expected = moments.mean_derivative(built_in, q, k)
        np.testing.assert_allclose(
            moments.mean_derivative(made, q, k), expected, rtol=RELATIVE, atol=RELATIVE
        )


def second_moment_of_hinge(at: float, q: float) -> float:
    """E max(u - at, 0)^2, closed."""
    s = math.sqrt(q)
    tail = 0.5 * math.erfc(at / s / math.sqrt(2))
    return (q + at * at) * tail - at * s * math.exp(-0.5 * (at / s) ** 2) / math.sqrt(2 * math.pi)


def value_or_refusal(compute: Callable[[], float]) -> float | str:
    """The number, or what the error says."""
    try:
        return float(compute())
    except (InputError, ConvergenceError) as refusal:
        return str(refusal)


def assert_refused_or_right(outcome: float | str, exact: float, why: str = "kink") -> None:
    """What the project promises: an error that names the cause, or the right number; nothing in between."""
    if isinstance(outcome, str):
        assert why in outcome.lower()
    else:
        assert outcome == pytest.approx(exact, rel=RELATIVE)


def second_moment_outcome(f: Callable[[np.ndarray], np.ndarray], q: float) -> float | str:
    return value_or_refusal(lambda: moments.second_moment(custom_activation(f), q))


@pytest.mark.parametrize("q", [1e-2, 1.0, 30.0])
@pytest.mark.parametrize("at", [0.0, 0.123456, 0.37, -1.5, math.pi, 2.0**-6])
def test_undeclared_kinks_are_refused_or_right(at: float, q: float) -> None:
    outcome = second_moment_outcome(lambda x: np.maximum(x - at, 0.0), q)
    assert_refused_or_right(outcome, second_moment_of_hinge(at, q))


@pytest.mark.parametrize("jump", [1e-2, 1e-4, 1e-6])
def test_small_undeclared_kinks_are_refused_or_right(jump: float) -> None:
    """x + jump max(x - 0.4, 0): the smaller the kink, the better it hides."""
    q, at = 1.0, 0.4
    # E[u max(u - at, 0)] = q P(u > at), by parts
    cross = q * 0.5 * math.erfc(at / math.sqrt(2 * q))
    exact = q + 2 * jump * cross + jump**2 * second_moment_of_hinge(at, q)
    outcome = second_moment_outcome(lambda x: x + jump * np.maximum(x - at, 0.0), q)
    assert_refused_or_right(outcome, exact)


def test_an_undeclared_jump_is_refused_or_right() -> None:
    outcome = second_moment_outcome(lambda x: np.where(x > 0.3, 1.0, 0.0), 1.0)
    assert_refused_or_right(outcome, 0.5 * math.erfc(0.3 / math.sqrt(2)))


def test_an_undeclared_kink_does_not_spoil_two_dimensions() -> None:
    phi, one = oracles.reference("hard_tanh"), np.ones(1)
    outcome = value_or_refusal(lambda: dual(custom_activation(phi.np_value), one, one, 0.6 * one)[0][0])
    assert_refused_or_right(outcome, oracles.brute_dual(phi, 1.0, 1.0, 0.6).value)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.sum(),
        lambda x: np.where(x > 1, np.nan, x),
        lambda x: np.exp(x * x),
        lambda x: "no number",
    ],
    ids=["changes shape", "NaN", "not integrable", "no number"],
)
def test_unusable_callables_are_refused(f: Callable[[np.ndarray], np.ndarray]) -> None:
    with pytest.raises((InputError, ConvergenceError)):
        moments.second_moment(custom_activation(f), 4.0)


def test_a_wrong_derivative_is_refused_or_ignored() -> None:
    outcome = value_or_refusal(
        lambda: moments.derivative_second_moment(custom_activation(np.tanh, derivative=np.tanh), 1.0)
    )
    exact = float(oracles.mp_moments(oracles.reference("tanh"), 1.0).slope_second)
    assert_refused_or_right(outcome, exact, why="derivative")
