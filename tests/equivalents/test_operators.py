"""Every structured operator against its dense self, by one list of tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg
from tolerances import Oracle, assert_close

from notsodeep.equivalents.operators import GramTerm, StructuredOperator, gram, low_rank
from notsodeep.errors import ConvergenceError, InputError

N, P = 40, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) / np.sqrt(P)
WIDE = RNG.standard_normal((N, 3 * N)) / np.sqrt(3 * N)
BASIS = RNG.standard_normal((N, 3))
# Singular and indefinite on purpose: no identity may invert it.
CORE = np.array([[0.0, 0.3, 0.0], [0.3, 0.0, 0.0], [0.0, 0.0, 0.0]])
WEIGHTS = 1.0 + 0.1 * RNG.standard_normal((N, 2))
UNEQUAL = 2.0 + RNG.random(N)
WEIGHTED = GramTerm(X, WEIGHTS, np.array([0.8, -0.05]))
SINGLE = StructuredOperator(0.5, [gram(X, 0.7)], size=N)

OPERATORS = {
    "identity": StructuredOperator(1.5, size=N),
    "a diagonal": StructuredOperator(UNEQUAL),
    "a Gram matrix": SINGLE,
    "asymptotic: Gram, low rank, constant diagonal": StructuredOperator(
        2.5, [gram(X, 0.7), low_rank(BASIS, 0.1 * CORE)], size=N
    ),
    "refined: weighted Gram terms, low rank, unequal diagonal": StructuredOperator(
        UNEQUAL, [WEIGHTED, low_rank(BASIS, 0.1 * CORE)]
    ),
    "dependent columns": StructuredOperator(0.5, [gram(X, 0.7), low_rank(X[:, :2], np.eye(2))], size=N),
    "more features than samples": StructuredOperator(0.5, [gram(WIDE)], size=N),
    "a negative diagonal": StructuredOperator(-0.5, [gram(WIDE, 3.0)], size=N),
}


@pytest.fixture(params=list(OPERATORS), name="operator")
def _operator(request):
    return OPERATORS[request.param]


def assert_identity(actual, expected, digits_lost=0.0):
    assert_close(actual, expected, Oracle.IDENTITY, scale=10.0**digits_lost * np.max(np.abs(expected)))


def test_multiplies(operator):
    dense = operator.to_dense()
    vector, block = RNG.standard_normal(N), RNG.standard_normal((N, 4))
    assert_identity(operator @ vector, dense @ vector)
    assert_identity(operator @ block, dense @ block)
    assert_identity(operator.T @ vector, dense.T @ vector)
    assert_identity(operator.matvec(vector[:, None]), (dense @ vector)[:, None])
    assert (operator @ vector).shape == (N,)
    assert isinstance(operator, LinearOperator)


def test_has_the_diagonal_and_trace_of_its_dense_self(operator):
    dense = operator.to_dense()
    assert_identity(operator.diagonal(), np.diagonal(dense))
    assert_identity(operator.trace(), np.trace(dense), digits_lost=1)


def test_eigenvalues(operator):
    expected = linalg.eigvalsh(operator.to_dense())
    values = operator.eigvalsh()
    assert values.shape == (N,)
    assert_identity(values, expected, digits_lost=1)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_solves(operator, ridge):
    dense = operator.to_dense() + ridge * np.eye(N)
    conditioning = np.log10(np.linalg.cond(dense))
    for right in (RNG.standard_normal(N), RNG.standard_normal((N, 3))):
        solution = operator.solve(right, ridge=ridge)
        assert_identity(solution, linalg.solve(dense, right), digits_lost=conditioning)
        assert solution.shape == right.shape
        assert_identity(operator.plus_diagonal(ridge).solve(right), solution, digits_lost=conditioning)


def test_with_many_columns_a_dense_factorisation_and_conjugate_gradients_agree():
    rng = np.random.default_rng(1)
    n, p, weights = 301, 30, 11
    rows = rng.standard_normal((n, p)) / np.sqrt(p)
    term = GramTerm(rows, 1.0 + 0.1 * rng.standard_normal((n, weights)), np.full(weights, 0.1))
    operator, right = StructuredOperator(2.0, [term], size=n), rng.standard_normal(n)
    assert not operator.is_thin
    solution = operator.solve(right, ridge=0.5)
    assert_identity(operator @ solution + 0.5 * solution, right, digits_lost=3)
    iterated, failed = cg(operator.plus_diagonal(0.5), right, rtol=1e-12)
    assert not failed
    np.testing.assert_allclose(iterated, solution, rtol=1e-9, atol=1e-9)


def test_singular_operators_say_so():
    for singular in (
        StructuredOperator(0.0, [gram(X)], size=N),
        StructuredOperator(1.0, [low_rank(np.eye(N)[:, :1], -np.eye(1))], size=N),
    ):
        with pytest.raises(ConvergenceError, match="ridge"):
            singular.solve(np.ones(N))
    assert np.all(np.isfinite(StructuredOperator(0.0, [gram(X)], size=N).solve(np.ones(N), ridge=1.0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StructuredOperator(1.0), "one number with size"),
        (lambda: StructuredOperator(np.ones((2, 2))), "n numbers"),
        (lambda: StructuredOperator([1.0, np.nan]), "NaN"),
        (lambda: StructuredOperator(1.0, [gram(X)], size=N + 1), "does not fit"),
        (lambda: StructuredOperator(1.0, [low_rank(BASIS, np.eye(2))], size=N), "does not fit"),
        (lambda: SINGLE.solve(np.ones(3)), "40 rows"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()
