"""One-dimensional Gaussian moments against mpmath: relative, elementwise, over ten decades of variance."""

from __future__ import annotations

import math

import numpy as np
import oracles
import pytest
from oracles import ALL, Reference
from tolerances import Oracle, tolerance

from notsodeep.errors import InputError
from notsodeep.gaussian import Activation, activation, moments

VARIANCES = (1e-6, 1e-2, 0.3, 1.0, 25.0, 1e4)
TERMS = 60
RELATIVE = tolerance(Oracle.CLOSED_FORM).rtol
SUBNORMAL = float(np.finfo(np.float64).tiny)  # below it a double has no relative accuracy to speak of


def made(phi: Reference) -> Activation:
    return activation(phi.name, **phi.parameters)


def natural_size(exact: oracles.Moments, q: float, k: int) -> float:
    """Against what a mean that is zero by symmetry is judged: its neighbours in k, which are not."""
    if k == 0:
        return math.sqrt(exact.second)
    return math.sqrt(abs(float(exact.mean[k - 1]) * float(exact.mean[k + 1])))


def check_mean(phi: Reference, exact: oracles.Moments, q: float, k: int) -> None:
    got, expected, size = (
        moments.mean_derivative(made(phi), q, k),
        float(exact.mean[k]),
        natural_size(exact, q, k),
    )
    # 40 digits leave 1e-28 of the neighbours where symmetry says 0
    allowed = RELATIVE * (abs(expected) if abs(expected) > 1e-25 * size else size)
    assert abs(got - expected) <= allowed + SUBNORMAL, f"M_{k}: {got!r} for {expected!r}"


@pytest.mark.slow
@pytest.mark.parametrize("q", VARIANCES)
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_moments(phi: Reference, q: float) -> None:
    """One test per variance, because the oracle gives all moments at one variance together."""
    exact = oracles.mp_moments(phi, q, TERMS)
    for k in range(3):
        check_mean(phi, exact, q, k)
    for function, field in (
        (moments.second_moment, "second"),
        (moments.second_moment_slope, "second_slope"),
        (moments.derivative_second_moment, "slope_second"),
    ):
        expected = float(getattr(exact, field))
        assert function(made(phi), q) == pytest.approx(expected, rel=RELATIVE, abs=SUBNORMAL), field
    row = moments.mehler(made(phi), np.array([q]), TERMS)
    assert row.shape == (1, TERMS)
    coefficients = np.array([float(a) for a in exact.mehler])
    np.testing.assert_allclose(row[0], coefficients, rtol=0, atol=RELATIVE * math.sqrt(exact.second))


@pytest.mark.slow
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_scaled_and_shifted_moments(phi: Reference) -> None:
    """psi(x) = a phi(g x) + b: E psi^(k) = a g^k M_k(g^2 q), E psi^2 = a^2 S + 2ab M_0 + b^2, and so on."""
    a, g, b, q = -1.3, 0.7, 0.4, 2.5
    psi = made(phi).scaled(amplitude=a, gain=g).shifted(b)
    exact = oracles.mp_moments(phi, g * g * q)
    for k in (1, 2):
        expected = a * g**k * float(exact.mean[k])
        size = RELATIVE * max(abs(expected), 1e-3)
        assert moments.mean_derivative(psi, q, k) == pytest.approx(expected, rel=RELATIVE, abs=size)
    mean = float(exact.mean[0])
    assert moments.mean_derivative(psi, q, 0) == pytest.approx(a * mean + b, rel=RELATIVE, abs=RELATIVE)
    second = a * a * float(exact.second) + 2 * a * b * mean + b * b
    assert moments.second_moment(psi, q) == pytest.approx(second, rel=RELATIVE)
    slope = g * g * (a * a * float(exact.second_slope) + a * b * float(exact.mean[2]))
    assert moments.second_moment_slope(psi, q) == pytest.approx(slope, rel=RELATIVE, abs=RELATIVE * 1e-2)
    energy = (a * g) ** 2 * float(exact.slope_second)
    assert moments.derivative_second_moment(psi, q) == pytest.approx(energy, rel=RELATIVE)


@pytest.mark.slow
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_many_variances_at_once_give_what_each_gives(phi: Reference) -> None:
    q = np.logspace(-6, 4, 301)
    for function in (moments.second_moment, moments.second_moment_slope, moments.derivative_second_moment):
        alone = np.array([function(made(phi), one) for one in q[::60]])
        np.testing.assert_allclose(function(made(phi), q)[::60], alone, rtol=RELATIVE, atol=SUBNORMAL)
    rows = moments.mehler(made(phi), q, 10)
    alone = np.concatenate([moments.mehler(made(phi), one, 10) for one in q[::60]])
    np.testing.assert_allclose(
        rows[::60], alone, rtol=0, atol=RELATIVE * np.sqrt(moments.second_moment(made(phi), q)).max()
    )


@pytest.mark.parametrize("q", [-1.0, math.nan, math.inf])
def test_impossible_variances_are_refused(q: float) -> None:
    with pytest.raises(InputError):
        moments.second_moment(activation("tanh"), q)


@pytest.mark.parametrize("k", [-1, 3])
def test_orders_out_of_range_are_refused(k: int) -> None:
    with pytest.raises(InputError):
        moments.mean_derivative(activation("tanh"), 1.0, k)
