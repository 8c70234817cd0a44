"""The oracles judge the package; here the oracles are judged: by each other, closed forms and finer rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles
import pytest
from mpmath import mp, mpf
from oracles import ALL, PIECEWISE, POLYNOMIALS, WAVES, Dual, Reference

CORRELATIONS = (-1.0, -0.999, -0.5, 0.0, 0.7, 0.99, 0.999999, 1.0 - 1e-10, 1.0)
VARIANCES = ((1e-6, 1e-6), (1e-6, 1e6), (1.0, 25.0), (1e4, 1e4), (1e6, 1e6))

# From `oracles.mp_dual`, nested quadrature at 25 digits: 8 to 20 seconds each, so they are frozen here.
NESTED = (
    ("tanh", 1.0, 25.0, 0.999, 0.5427798588567141, 0.15221830326265173),
    ("mish", 0.01, 4.0, -0.9, -0.05270601666639993, 0.2921899184507408),
    ("softsign", 25.0, 1e4, 0.99, 0.6651539151638902, 0.003745312346073355),
    ("elu", 1.0, 1.0, 0.7, 0.44992559268108545, 0.6345927289355295),
    ("gelu", 1e4, 100.0, 0.999999, 499.8946445231731, 0.5000487047106167),
)


def relative(a: Any, b: Any, scale: Any) -> float:
    return float(abs(a - b) / abs(scale))


def moment_distance(a: oracles.Moments, b: oracles.Moments, q: float) -> float:
    """The largest relative distance; coefficients and means relative to the root of S."""
    size = mp.sqrt(b.second)
    means = [
        relative(x, y, max(abs(y), size * mpf(10) ** -15 / mp.sqrt(q) ** k))
        for k, (x, y) in enumerate(zip(a.mean, b.mean, strict=True))
    ]
    coefficients = [relative(x, y, size) for x, y in zip(a.mehler, b.mehler, strict=True)]
    scalars = [relative(x, y, y) for x, y in zip(a[1:4], b[1:4], strict=True)]
    return max(means + coefficients + scalars)


@pytest.mark.parametrize("phi", ALL, ids=str)
def test_the_two_definitions_agree(phi: Reference) -> None:
    x = np.concatenate([sign * np.logspace(-3, 3, 25) for sign in (-1, 1)])
    for exact, fast in ((phi.mp_value, phi.np_value), (phi.mp_slope, phi.np_slope)):
        expected = np.array([float(exact(mpf(float(t)))) for t in x])
        np.testing.assert_allclose(fast(x), expected, rtol=2e-15, atol=2e-16)


@pytest.mark.parametrize("phi", ALL, ids=str)
def test_the_slope_is_the_derivative(phi: Reference) -> None:
    for x in (-3.7, -0.8, 0.3, 1.7):
        difference = oracles.mp_derivative(phi, x, 1)
        assert float(phi.mp_slope(mpf(x))) == pytest.approx(difference, rel=1e-14, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("phi", PIECEWISE + POLYNOMIALS + WAVES, ids=str)
@pytest.mark.parametrize("q", [0.04, 4.0])
def test_closed_moments_equal_quadrature(phi: Reference, q: float) -> None:
    assert moment_distance(oracles.mp_moments(phi, q, 12), oracles.mp_quadrature(phi, q, 12), q) < 1e-18


def scales(phi: Reference, q1: float, q2: float) -> tuple[float, float]:
    """The geometric means of S and of E1."""
    first, second = (oracles.mp_moments(phi, q) for q in (q1, q2))
    return (
        math.sqrt(first.second * second.second),
        math.sqrt(first.slope_second * second.slope_second),
    )


def dual_distance(a: Dual, b: Dual, size: tuple[float, float]) -> float:
    return max(abs(a.value - b.value) / size[0], abs(a.slope - b.slope) / size[1])


@pytest.mark.slow
@pytest.mark.parametrize("phi", [phi for phi in ALL if oracles.closed_dual(phi, 1.0, 1.0, 0.0)], ids=str)
def test_brute_force_equals_closed_forms(phi: Reference) -> None:
    for q1, q2 in VARIANCES:
        if phi.wave and max(q1, q2) > 25:
            continue  # thousands of periods: brute force is not an oracle there, the closed form is
        nodes = 20 if phi.wave else 12
        for rho in CORRELATIONS:
            brute = oracles.brute_dual(phi, q1, q2, rho, nodes=nodes)
            assert dual_distance(brute, oracles.closed_dual(phi, q1, q2, rho), scales(phi, q1, q2)) < 1e-14


@pytest.mark.parametrize(("name", "q1", "q2", "rho", "value", "slope"), NESTED)
def test_brute_force_equals_nested_mpmath(
    name: str, q1: float, q2: float, rho: float, value: float, slope: float
) -> None:
    brute = oracles.brute_dual(oracles.reference(name), q1, q2, rho)
    assert brute.value == pytest.approx(value, rel=1e-14)
    assert brute.slope == pytest.approx(slope, rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["relu", "hard_tanh", "piecewise_linear", "erf", "sin"])
def test_the_precise_pair_solver_equals_the_brute_one(label: str) -> None:
    """Price's integral in mpmath against two-dimensional quadrature, at correlations that both know."""
    phi, rows = oracles.reference(label), np.array([[1.0, 0.5, -0.3], [-0.2, 1.5, 0.4]])
    for other in (rows[1], -1.001 * rows[0]):
        pair = np.array([rows[0], other])
        precise = oracles.mp_pair(phi, 0.3, (0.7, 0.1), pair)
        brute = oracles.brute_kernels(phi, 0.3, 0.7, 0.1, oracles.exact_gram(pair))
        for field, value in precise._asdict().items():
            assert brute[field][0, 1] == pytest.approx(value, rel=1e-12, abs=1e-13)


def test_the_exact_gram_is_correctly_rounded() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 50)) * np.logspace(-3, 3, 50)
    with mp.workdps(60):
        exact = [[float(mp.fdot(a.tolist(), b.tolist())) for b in rows] for a in rows]
    np.testing.assert_array_equal(oracles.exact_gram(rows), np.array(exact))
