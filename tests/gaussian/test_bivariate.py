"""E[phi(u)phi(v)] and E[phi'(u)phi'(v)] against brute-force quadrature: every built-in, any correlation."""

from __future__ import annotations

import math

import numpy as np
import oracles
import pytest
from oracles import ALL, Dual, Reference
from tolerances import Oracle, assert_close, tolerance

from notsodeep.gaussian import Activation, activation
from notsodeep.gaussian.bivariate import dual

RELATIVE = tolerance(Oracle.QUADRATURE).rtol
CORRELATIONS = (-1.0, -0.999, -0.9, -0.5, 0.0, 0.3, 0.7, 0.95, 0.99, 0.999, 0.999999, 1.0)
# All but the last have an exact root of the product, so that rho = +-1 is not a rounding away from it.
VARIANCES = ((1e-6, 1e-6), (1.0, 1.0), (25.0, 1.0), (1e4, 25.0), (8.1e5, 8.1e5), (1e-6, 1e6))


def made(phi: Reference) -> Activation:
    return activation(phi.name, **phi.parameters)


def sizes(phi: Reference, q1: float, q2: float) -> tuple[float, float]:
    """Geometric means of S and of E1 at the two variances: what an error is relative to."""
    first, second = (oracles.mp_moments(phi, q) for q in (q1, q2))
    return math.sqrt(first.second * second.second), math.sqrt(first.slope_second * second.slope_second)


def errors(
    phi: Reference, q1: float, q2: float, correlations: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of F and F' over the correlations, in one vectorised call."""
    c = np.array(correlations) * math.sqrt(q1 * q2)
    value, slope = dual(made(phi), np.full(c.shape, q1), np.full(c.shape, q2), c)
    exact = [oracles.exact_dual(phi, q1, q2, rho) for rho in correlations]
    size = sizes(phi, q1, q2)
    return (
        np.abs(value - [one.value for one in exact]) / size[0],
        np.abs(slope - [one.slope for one in exact]) / size[1],
    )


@pytest.mark.slow
@pytest.mark.parametrize("variances", VARIANCES, ids=lambda q: f"{q[0]:g},{q[1]:g}")
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_dual(phi: Reference, variances: tuple[float, float], record_property: pytest.RecordProperty) -> None:
    if variances == (1e-6, 1e6):
        # the root of this product is 1 - 1e-16 in floating point: the two ends belong to the test below
        value, slope = errors(phi, *variances, CORRELATIONS[1:-1])
    else:
        value, slope = errors(phi, *variances, CORRELATIONS)
    record_property("digits", f"{-math.log10(max(value.max(), slope.max(), 1e-17)):.1f}")
    assert value.max() <= RELATIVE, f"F at rho={CORRELATIONS[int(value.argmax())]}: {value.max():.1e}"
    assert slope.max() <= RELATIVE, f"F' at rho={CORRELATIONS[int(slope.argmax())]}: {slope.max():.1e}"


@pytest.mark.slow
@pytest.mark.parametrize("phi", ALL, ids=str)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_dual_of_parallel_vectors_of_any_length(phi: Reference, sign: float) -> None:
    """c = +-sqrt(q1 q2) rounded: F and F' may move by what one rounding of c moves the truth, and no more."""
    q1, q2 = 0.37, 1.9e3
    c = sign * math.sqrt(q1 * q2)
    value, slope = dual(made(phi), np.array([q1]), np.array([q2]), np.array([c]))
    end, nudged = (oracles.exact_dual(phi, q1, q2, sign * one) for one in (1.0, 1.0 - 4e-16))
    size = sizes(phi, q1, q2)
    assert abs(value[0] - end.value) <= RELATIVE * size[0] + abs(end.value - nudged.value)
    assert abs(slope[0] - end.slope) <= RELATIVE * size[1] + abs(end.slope - nudged.slope)


@pytest.mark.slow
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_scaled_and_shifted(phi: Reference) -> None:
    """psi = a phi(g x) + b: F is a^2 F(g^2 q1, g^2 q2, g^2 c) + ab (M_0 + M_0') + b^2, F' is (ag)^2 F'."""
    a, g, b, q1, q2, rho = 1.4, 1.6, -0.3, 0.5, 3.0, 0.8
    psi = made(phi).scaled(amplitude=a, gain=g).shifted(b)
    value, slope = dual(psi, np.array([q1]), np.array([q2]), np.array([rho * math.sqrt(q1 * q2)]))
    inner = oracles.exact_dual(phi, g * g * q1, g * g * q2, rho)
    means = [float(oracles.mp_moments(phi, g * g * q).mean[0]) for q in (q1, q2)]
    expected = Dual(a * a * inner.value + a * b * sum(means) + b * b, (a * g) ** 2 * inner.slope)
    assert value[0] == pytest.approx(expected.value, rel=RELATIVE, abs=RELATIVE)
    assert slope[0] == pytest.approx(expected.slope, rel=RELATIVE, abs=RELATIVE)


@pytest.mark.slow
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_a_zero_variance_makes_its_factor_constant(phi: Reference) -> None:
    value = dual(made(phi), np.array([0.0, 0.0]), np.array([2.0, 0.0]), np.zeros(2))[0]
    at_zero = float(phi.np_value(np.zeros(1))[0])
    expected = [at_zero * float(oracles.mp_moments(phi, 2.0).mean[0]), at_zero**2]
    assert_close(value, expected, Oracle.QUADRATURE, scale=1.0)
