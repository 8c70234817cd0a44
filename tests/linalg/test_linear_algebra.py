"""Each algorithm of the room against NumPy's dense one, or against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev
from scipy.sparse.linalg import aslinearoperator
from tolerances import Oracle, assert_close

from notsodeep.equivalents.operators import positive_woodbury_core
from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.interpolation import at_many
from notsodeep.linalg.block_lanczos import (
    extreme_eigenvalues,
    leading_part,
    operator_norm,
)
from notsodeep.linalg.chebyshev import (
    chebyshev_basis,
    chebyshev_coefficients,
    chebyshev_nodes,
    clenshaw,
)
from notsodeep.linalg.dense import solve_definite, solve_symmetric


def symmetric(values, seed=0):
    """A matrix with these eigenvalues."""
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    return (basis * values) @ basis.T


# --- Chebyshev ------------------------------------------------------------------------------------------------


def test_nodes_coefficients_and_basis_are_those_of_numpy():
    np.testing.assert_allclose(np.sort(chebyshev_nodes(9)), chebyshev.chebpts1(9), atol=1e-15)
    table = np.random.default_rng(0).standard_normal((9, 3))
    values = chebyshev.chebval(chebyshev_nodes(9), table).T
    assert_close(chebyshev_coefficients(values), table, Oracle.CLOSED_FORM)
    assert_close(chebyshev_coefficients(values.T, axis=1), table.T, Oracle.CLOSED_FORM)
    points = np.linspace(-1.0, 1.0, 50)
    assert_close(chebyshev_basis(points, 9), chebyshev.chebvander(points, 8), Oracle.CLOSED_FORM)


def test_clenshaw():
    rng = np.random.default_rng(0)
    series, points = rng.standard_normal((12, 5)), rng.uniform(-1.0, 1.0, 40)
    assert_close(clenshaw(series[:, 0], points), chebyshev.chebval(points, series[:, 0]), Oracle.CLOSED_FORM)
    panel = rng.integers(0, 5, 40)
    expected = [chebyshev.chebval(x, series[:, k]) for x, k in zip(points, panel, strict=True)]
    assert_close(clenshaw(series, points, panel), expected, Oracle.CLOSED_FORM)
    assert_close(clenshaw(series[:, panel], points), expected, Oracle.CLOSED_FORM)
    assert_close(clenshaw(series[:1, 0], points), np.full(40, series[0, 0]), Oracle.IDENTITY)


@pytest.mark.parametrize(
    "function", [np.sqrt, np.tanh, lambda s: np.abs(s - 1.0)], ids=["sqrt", "tanh", "kink"]
)
def test_a_function_at_many_points(function):
    for points in (np.linspace(0.2, 4.0, 2000), np.array([0.5, 2.0]), np.full(100, 3.0)):
        found = at_many(lambda s: function(s)[:, None], points)[:, 0]
        assert_close(found, function(points), Oracle.CLOSED_FORM, scale=4.0)


# --- Lanczos ---------------------------------------------------------------------------------------------------


def test_eigenvalues_from_products():
    values = np.concatenate([-np.logspace(0, 2, 20), np.linspace(-0.5, 0.5, 60), [70.0, 80.0]])
    matrix = symmetric(values)
    assert_close(np.sort(extreme_eigenvalues(matrix, 3)), np.sort(values)[[0, 1, -1]], Oracle.QUADRATURE)
    assert_close(extreme_eigenvalues(matrix, 1, "LA")[0], 80.0, Oracle.QUADRATURE)
    operator = aslinearoperator(matrix)
    assert operator_norm(operator, 1e-6) == pytest.approx(100.0, rel=1e-6)
    assert operator_norm(aslinearoperator(matrix[:5, :5])) == pytest.approx(np.linalg.norm(matrix[:5, :5], 2))


# --- few columns -----------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0.0, 3.0))
@settings(deadline=None, max_examples=50)
def test_woodbury(seed, columns, size):
    rng = np.random.default_rng(seed)
    diagonal, factor = rng.uniform(0.5, 2.0, 15), rng.standard_normal((15, columns))
    root = rng.standard_normal((columns, columns))
    core = size * root @ root.T
    middle = positive_woodbury_core(factor.T @ (factor / diagonal[:, None]), core, least=0.0)
    scaled = factor / diagonal[:, None]
    expected = np.linalg.inv(np.diag(diagonal) + factor @ core @ factor.T)
    np.testing.assert_allclose(np.diag(1.0 / diagonal) - scaled @ middle @ scaled.T, expected, atol=1e-8)


def test_woodbury_where_the_matrix_is_not_positive():
    rng = np.random.default_rng(0)
    factor = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    middle = positive_woodbury_core(factor.T @ factor, np.diag([4.0, -0.5, -3.0]), least=0.1)
    # I + F S Fᵀ has the eigenvalues 5, 0.5 and -2 in these directions; the last is raised to 0.1.
    expected = np.eye(12) + factor @ np.diag([1 / 5.0 - 1, 1 / 0.5 - 1, 1 / 0.1 - 1]) @ factor.T
    assert_close(np.eye(12) - factor @ middle @ factor.T, expected, Oracle.CLOSED_FORM)


@pytest.mark.parametrize("passes", [1, 2])
def test_the_leading_part_of_a_matrix_of_low_rank(passes):
    values = np.concatenate([[10.0, -8.0, 3.0], np.zeros(40)])
    matrix = symmetric(values)
    found, vectors = leading_part(lambda block: matrix @ block, 43, 3, seed=0, passes=passes)
    assert_close(found, [10.0, -8.0, 3.0], Oracle.QUADRATURE)
    assert_close((vectors * found) @ vectors.T, matrix, Oracle.QUADRATURE)
    assert leading_part(lambda block: matrix @ block, 43, 100, seed=0, passes=passes)[0].shape == (43,)


# --- dense -----------------------------------------------------------------------------------------------------


def test_dense_systems():
    right = np.random.default_rng(0).standard_normal((6, 2))
    definite, indefinite = (
        symmetric([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        symmetric([-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    )
    for matrix in (definite, indefinite):
        assert_close(solve_symmetric(matrix, right), np.linalg.solve(matrix, right), Oracle.CLOSED_FORM)
    found, rcond = solve_definite(definite, right[:, 0])
    assert_close(found, np.linalg.solve(definite, right[:, 0]), Oracle.CLOSED_FORM)
    assert 0.05 < rcond < 1.0
    assert solve_definite(indefinite, right)[0] is None
    with pytest.raises(ConvergenceError, match="ridge"):
        solve_symmetric(symmetric([0.0, 1.0, 1.0]), np.ones(3))
    assert solve_symmetric(np.zeros((0, 0)), np.zeros((0, 2))).shape == (0, 2)
    room = definite.copy()
    solve_definite(room, right, overwrite=True)
    assert not np.array_equal(room, definite)
