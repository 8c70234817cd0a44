"""The proved bound of interpolation in t, docs/theory.md (3.36) ff.: it holds and is of use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import notsodeep as nsd
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.gaussian.shapes import Shape
from notsodeep.linalg.chebyshev import chebyshev_coefficients, chebyshev_nodes
from notsodeep.pairs.single_pairs import solve_pairs
from notsodeep.pairs.solution_table import SolutionTable
from notsodeep.pairs.table_proof import ellipse_of, ellipse_of_range
from notsodeep.pairs.table_range import Range, coordinate, distance_at
from notsodeep.validation import Array

SMOOTH = ("tanh", "erf", "sigmoid", "swish", "gelu", "softplus", "elu", "mish", "arctan", "softsign")
KINKED: dict[str, dict[str, Any]] = {
    "hard_tanh": {"a": 0.8, "c": 1.2},
    "hard_sigmoid": {},
    "piecewise_linear": {"knots": [-0.7, 0.9], "slopes": [0.1, 1.0, 0.3]},
}


def solution(shape: Shape, feedback: float, q: tuple[float, float], d: Array) -> Array:
    """F/√(S_i S_j) at r = √(g_i g_j)(1 - 2d), pair by pair."""
    variances = np.array(q)
    energy = shape.second_moment(variances)
    ends = np.sqrt(np.prod(1.0 - feedback * energy / variances))
    bound = np.full(len(d), np.sqrt(np.prod(variances)))

    def evaluate(covariance: Array, chosen: object) -> tuple[Array, Array]:
        count = len(covariance)
        return shape_dual(shape, np.full(count, q[0]), np.full(count, q[1]), covariance)

    target = bound * ends * (1.0 - 2.0 * d)
    covariance, _, _ = solve_pairs(evaluate, target, bound, feedback, target)
    return np.asarray(evaluate(covariance, slice(None))[0] / np.sqrt(np.prod(energy)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMOOTH, *KINKED])
def test_the_bound_of_the_ellipse_holds_for_every_activation_at_any_norms(name: str) -> None:
    shape = nsd.activation(name, **KINKED.get(name, {})).shape.without_level()[0]
    generator = np.random.default_rng(len(name))
    first, second = np.exp(generator.uniform(-2.0, 2.0, 2))
    q = float(first), float(second)
    variances = np.array(q)
    limits = shape.derivative_second_moment(variances), shape.second_moment(variances) / variances
    feedback = 0.6 / float(np.max(limits))
    extent = Range((0.0, 1.0), (0.0, 1.0), -5, 1, both_ends=False)
    epsilon = [np.inf, 0.3][len(name) % 2]
    start, stop = extent.ends(epsilon)
    ellipse = ellipse_of_range(extent, start, stop, epsilon)
    assert ellipse is not None
    points = generator.uniform(start, stop, 8)
    truth = solution(shape, feedback, q, distance_at(points, epsilon, both_ends=False)[0])
    for count in (8, ellipse.orders(1e-11)):
        assert count is not None
        nodes = start + 0.5 * (stop - start) * (1.0 + chebyshev_nodes(count))
        values = solution(shape, feedback, q, distance_at(nodes, epsilon, both_ends=False)[0])
        z = (2.0 * points - start - stop) / (stop - start)
        found = np.polynomial.chebyshev.chebval(z, chebyshev_coefficients(values))
        # The evaluators by themselves are right to about 1e-12.
        assert np.max(np.abs(found - truth)) <= ellipse.error(count) + 1e-11


def test_the_bound_is_reached_up_to_a_factor() -> None:
    """A function with a singularity where the disc ends is interpolated no better than the bound says, by much."""
    extent = Range((0.0, 1.0), (0.0, 1.0), -5, 1, both_ends=False)
    start, stop = extent.ends(np.inf)
    ellipse = ellipse_of_range(extent, start, stop, np.inf)
    assert ellipse is not None
    # An extreme one: bounded by one in the disc, (1 - 2d) to a high power.
    points = np.linspace(start, stop, 400)
    worst = 0.0
    for power in range(10, 400, 10):
        count = 20
        nodes = start + 0.5 * (stop - start) * (1.0 + chebyshev_nodes(count))
        values = (1.0 - 2.0 * distance_at(nodes, np.inf, both_ends=False)[0]) ** power
        found = np.polynomial.chebyshev.chebval(
            (2.0 * points - start - stop) / (stop - start), chebyshev_coefficients(values)
        )
        exact = (1.0 - 2.0 * distance_at(points, np.inf, both_ends=False)[0]) ** power
        worst = max(worst, float(np.max(np.abs(found - exact))))
    assert 1e-4 * ellipse.error(20) <= worst <= ellipse.error(20)


@pytest.mark.parametrize("both_ends", [False, True])
@pytest.mark.parametrize("epsilon", [np.inf, 1.0, 0.05])
def test_complex_coordinates_are_those_of_the_table(epsilon: float, both_ends: bool) -> None:
    """|1 - 2d| on the real axis, where the ellipse has shrunk to the range, is that of the coordinate."""
    d = np.array([0.01, 0.2, 0.45])
    t = coordinate(d, 1.0 - d, epsilon, both_ends=both_ends)
    assert ellipse_of(float(t.min()), float(t.max()), epsilon, both_ends=both_ends) is not None
    # Rows that are parallel are where the disc ends: no ellipse is within it.
    end = float(coordinate(np.zeros(1), np.ones(1), epsilon, both_ends=both_ends)[0])
    assert ellipse_of(end, float(t.max()), epsilon, both_ends=both_ends) is None


@pytest.mark.parametrize("name", ["tanh", "hard_tanh", "gelu"])
def test_a_table_of_one_norm_is_proved(name: str) -> None:
    """All of its interpolation error is bounded: as far as ten digits, with a few orders kept."""
    shape = nsd.activation(name, **KINKED.get(name, {})).shape
    table = SolutionTable(shape, 0.5, Range((0.3, 0.3), (0.3, 0.3), -7, 1, both_ends=False))
    assert table.resolved
    assert table.proved <= 5e-12
    assert table.error <= 1e-10
    assert table.series.shape[1] < table.angles
    generator = np.random.default_rng(0)
    t = generator.uniform(table.start, table.stop, 15)
    truth = solution(
        shape, 0.5, (np.exp(0.3), np.exp(0.3)), distance_at(t, table.epsilon, both_ends=False)[0]
    )
    z = (2.0 * t - table.start - table.stop) / (table.stop - table.start)
    found = np.polynomial.chebyshev.chebval(z, table.series[0, :, 0, 0])
    assert np.max(np.abs(found - truth)) <= table.error + 1e-11


def coefficients(shape: Shape, q: complex, count: int) -> NDArray[np.complex128]:
    """a_k(q) = E[φ(√q ξ) h_k(ξ)] at a complex variance, by sums over a fine grid of u = √q ξ."""
    reach = 12.0 * np.sqrt(abs(q) / np.cos(np.angle(q)))
    u = np.linspace(-reach, reach, 20_001)
    x = u / np.sqrt(q)
    weighted = shape(u) * np.exp(-(u**2) / (2.0 * q)) / np.sqrt(2.0 * np.pi * q) * (u[1] - u[0])
    before, now = np.ones_like(x), x
    found = [weighted.sum(), (weighted * x).sum()]
    for k in range(1, count - 1):
        before, now = now, (x * now - np.sqrt(k) * before) / np.sqrt(k + 1.0)
        found.append((weighted * now).sum())
    return np.array(found)


@pytest.mark.parametrize("name", ["tanh", "gelu", "hard_tanh", "piecewise_linear"])
def test_mehler_coefficients_at_complex_norms_are_bounded(name: str) -> None:
    """(3.39): at real norms the coefficients of the package, at complex ones a norm below the bound."""
    shape = nsd.activation(name, **KINKED.get(name, {})).shape
    real = coefficients(shape, 1.3 + 0j, 40)
    np.testing.assert_allclose(real, shape.mehler(np.array([1.3]), 40)[0], atol=1e-6)
    for theta, radius in ((0.1, 0.8), (0.4, 0.8), (0.2, 0.95)):
        found = coefficients(shape, 1.3 * np.exp(1j * theta), 40)
        norm = float(np.sum(np.abs(found) ** 2 * radius ** np.arange(40)))
        room = np.cos(theta) ** 2 - radius**2
        variance = 1.3 * (1.0 - radius**2) * np.cos(theta) / room
        bound = np.sqrt((1.0 - radius**2) / room) * shape.second_moment(np.array([variance]))[0]
        at_real_norms = float(np.sum(np.abs(real) ** 2 * radius ** np.arange(40)))
        assert at_real_norms < norm <= bound
