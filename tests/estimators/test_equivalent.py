"""Ridge with the equivalent: its kernel between new and old rows by three routes, its answers beside the exact ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.estimators import DEQEquivalentRidge, DEQKernelRidge
from notsodeep.gaussian.moments import mean_derivative


def data(n=60, p=40, seed=0, targets=2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.uniform(0.8, 1.25, (n, 1)) + 0.3
    direction = rng.standard_normal((p, targets))
    return X, np.tanh(X @ direction / np.sqrt(p)) + 0.1 * rng.standard_normal((n, targets)) + 2.0


def operator_of(model, X):
    rows = model.rows_.transform(X)
    return nsd.equivalent(model.model_, rows, kernel=model.kernel, form="refined", order=model.order)


def implied_kernel(model, X, new):
    """The kernel that `predict` uses: prediction is linear in the dual coefficients, one unit vector at a time."""
    kernel = np.empty((len(new), len(X)))
    rows = model.rows_.transform(X)
    kept = model.dual_coef_, model.intercept_
    model.dual_coef_ = np.eye(len(X))
    model.intercept_ = 0.0
    model._tabulate(rows)
    kernel[:] = model.predict(new)
    model.dual_coef_, model.intercept_ = kept
    model._tabulate(rows)
    return kernel


CASES = [("tanh", 3, 0.0), ("relu", 1, 0.0), ("relu", 2, 0.0), ("relu", 3, 0.0), ("swish", 2, 0.1)]


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize(("activation", "order", "bias2"), CASES)
def test_between_rows_it_is_the_operator_off_its_diagonal(kernel, activation, order, bias2):
    X, y = data()
    model = DEQEquivalentRidge(kernel=kernel, activation=activation, order=order, bias2=bias2).fit(X, y)
    dense = operator_of(model, X).to_dense()
    found = implied_kernel(model, X, X)
    off = ~np.eye(len(X), dtype=bool)
    # `equivalent` separates the norms to 1e-6 of the largest entry, relative to the size of the matrix.
    np.testing.assert_allclose(found[off], dense[off], rtol=0, atol=1e-6 * np.abs(dense).max())


def test_new_rows_against_the_series_written_out():
    """docs/theory.md (5.3) for an odd activation, with c³ → 3(u² + v)c - 2u³."""
    X, y = data()
    new, _ = data(n=20, seed=1)
    sigma_a2, sigma_b2 = 0.4, 0.6
    model = DEQEquivalentRidge(kernel="ck", activation="tanh", order=3, sigma_a2=sigma_a2).fit(X, y)
    rows, others = model.rows_.transform(X), model.rows_.transform(new)
    phi = nsd.activation("tanh")
    deq = nsd.DEQ(phi, sigma_a2)
    m1, m3, n1, n3 = (
        np.array([mean_derivative(phi, deq.preactivation_variance(np.linalg.norm(x)), k) for x in side])
        for side in (others, rows)
        for k in (1, 3)
    )
    gram = rows @ rows.T
    off = gram[~np.eye(len(rows), dtype=bool)]
    u, v = off.mean(), off.var()
    first = np.outer(m1, n1)
    epsilon = 1.0 / (1.0 - sigma_a2 * first)
    c = others @ rows.T
    linear = sigma_b2 * epsilon
    cubic = epsilon * np.outer(m3, n3) / 6.0 * linear**3
    expected = first * linear * c + cubic * (3.0 * (u**2 + v) * c - 2.0 * u**3)
    found = implied_kernel(model, X, new)
    assert_close(found, expected, Oracle.CUSTOM_CALLABLE)
    predicted = expected @ model.dual_coef_ + y.mean(axis=0)
    assert_close(model.predict(new), predicted, Oracle.CUSTOM_CALLABLE)


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize(("n", "thin"), [(60, False), (180, True)])
def test_the_coefficients_are_those_of_a_dense_solve(kernel, n, thin):
    X, y = data(n=n)
    model = DEQEquivalentRidge(kernel=kernel, alpha=0.05).fit(X, y)
    assert operator_of(model, X).is_thin == thin
    dense = operator_of(model, X).to_dense()
    expected = np.linalg.solve(dense + 0.05 * np.eye(len(X)), y - y.mean(axis=0))
    assert_close(model.dual_coef_, expected, Oracle.QUADRATURE)
    single = DEQEquivalentRidge(kernel=kernel, alpha=0.05).fit(X, y[:, 0])
    assert_close(single.predict(X), model.predict(X)[:, 0], Oracle.QUADRATURE)


def test_where_the_quick_solution_is_not_good_enough_another_is_taken(monkeypatch):
    X, y = data(n=180)
    expected = DEQEquivalentRidge().fit(X, y).dual_coef_
    monkeypatch.setattr(linalg, "lu_solve", lambda factors, block, **_: np.zeros_like(block))
    assert_close(DEQEquivalentRidge().fit(X, y).dual_coef_, expected, Oracle.QUADRATURE)


def mixture(n, seed):
    """Two classes in dimension n/2, labels ±1."""
    p = n // 2
    rng = np.random.default_rng(seed)
    means = np.zeros((2, p))
    means[:, 0] = (3.0, -3.0)
    gmm = nsd.GaussianMixture(means, [1.0, 1.0 + 4.0 / np.sqrt(p)], [0.5, 0.5])
    X, labels = gmm.sample(2 * n, seed=seed)
    old, new = np.split(rng.permutation(2 * n), 2)
    return X[old], 2.0 * labels[old] - 1.0, X[new]


def distance(n, activation, kernel):
    X, y, new = mixture(n, seed=n)
    exact = DEQKernelRidge(kernel=kernel, activation=activation, alpha=0.1).fit(X, y).predict(new)
    found = DEQEquivalentRidge(kernel=kernel, activation=activation, alpha=0.1).fit(X, y).predict(new)
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_in_high_dimension_it_predicts_what_the_exact_kernel_predicts(activation, kernel):
    small, large = distance(150, activation, kernel), distance(600, activation, kernel)
    assert large < 0.05
    assert large < 0.6 * small


def test_rows_of_any_length_have_an_answer():
    X, y = data()
    model = DEQEquivalentRidge().fit(X, y)
    middle = X.mean(axis=0)
    new = middle + np.outer([0.0, 1e-6, 0.5, 1.0, 2.0, 50.0], X[0] - middle)
    answers = model.predict(new)
    assert np.all(np.isfinite(answers))
    # Within the margin the norms are interpolated, not held: the answer at 1 is that of the training row.
    assert_close(answers[3], model.predict(X[:1])[0], Oracle.QUADRATURE)


def test_the_training_rows_are_not_kept():
    X, y = data(n=400, p=10)
    model = DEQEquivalentRidge().fit(X, y)
    kept = [value.size for value in vars(model).values() if isinstance(value, np.ndarray)]
    assert X.size not in kept
    assert sum(kept) < X.size


@given(seed=st.integers(0, 10**6), slope=st.floats(0.01, 100.0), offset=st.floats(-100.0, 100.0))
def test_predictions_follow_the_targets_and_the_order_of_the_samples(seed, slope, offset):
    X, y = data(n=20, p=15, seed=seed)
    order = np.random.default_rng(seed).permutation(len(X))
    before = DEQEquivalentRidge(alpha=0.1).fit(X, y).predict(X)
    after = DEQEquivalentRidge(alpha=0.1).fit(X[order], slope * y[order] + offset).predict(X)
    size = slope * float(np.abs(y).max()) + abs(offset)
    assert_close(after, slope * before + offset, Oracle.CUSTOM_CALLABLE, scale=size)
