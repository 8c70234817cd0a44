"""Ridge with the equivalent: its kernel between new and old rows by three routes, its answers beside the exact ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import linalg
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.estimators import DEQEquivalentRidge, DEQKernelRidge, equivalent_ridge
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    X, y = data(n=400, p=100)
    model = DEQEquivalentRidge().fit(X, y)
    kept = [value.size for value in vars(model).values() if isinstance(value, np.ndarray)]
    assert X.size not in kept
    assert sum(kept) < X.size


# --- tables without many features -----------------------------------------------------------------------------

TABLES = {
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "iris": load_iris,
}
FALLS_BACK = "exact kernel of .* takes its place"


def standardised(name):
    X, y = TABLES[name](return_X_y=True)
    return StandardScaler().fit_transform(X), y.astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "standardised"])
@pytest.mark.parametrize("name", TABLES)
def test_on_a_table_of_few_features_it_is_the_exact_kernel_ridge_and_says_so(name, raw, kernel):
    X, y = TABLES[name](return_X_y=True) if raw else standardised(name)
    with pytest.warns(RuntimeWarning, match=FALLS_BACK) as caught:
        model = DEQEquivalentRidge(kernel=kernel).fit(X, y)
    assert len(caught) == 1
    assert model.form_ == "exact"
    assert model.score(X, y) > 0.5
    exact = DEQKernelRidge(kernel=kernel).fit(X, y)
    assert_close(model.predict(X), exact.predict(X), Oracle.QUADRATURE)


def test_the_equivalent_can_be_kept_and_is_then_warned_of():
    X, y = standardised("diabetes")
    with pytest.warns(RuntimeWarning, match="not those of the kernel"):
        model = DEQEquivalentRidge(kernel="ck", fallback=False).fit(X, y)
    assert model.form_ == "equivalent"
    assert model.score(X, y) < 0.0  # what the warning is about


def test_a_close_equivalent_that_predicts_badly_is_replaced_too(monkeypatch):
    """The comparison sees 400 rows; the predictions for all training rows have the last word."""
    X, y = standardised("diabetes")
    monkeypatch.setattr(equivalent_ridge, "ridge_distortion", lambda *args, **rest: 1.0)
    with pytest.warns(RuntimeWarning, match="less of the training targets than their mean"):
        model = DEQEquivalentRidge(kernel="ck").fit(X, y)
    assert model.form_ == "exact"
    assert model.score(X, y) > 0.5


def test_more_rows_than_landmarks(monkeypatch):
    """Nyström's ridge, against the normal equations in the functions k(·, landmark)."""
    X, y = standardised("diabetes")
    monkeypatch.setattr(equivalent_ridge, "LANDMARKS", 60)
    with pytest.warns(RuntimeWarning, match="60 of 442"):
        model = DEQEquivalentRidge(alpha=0.1).fit(X, np.column_stack([y, y**2]))
    assert model.landmarks_.shape == (60, X.shape[1])
    between = nsd.tangent_kernel(model.model_, model.rows_.transform(X), model.landmarks_)
    inner = nsd.tangent_kernel(model.model_, model.landmarks_)
    right = np.column_stack([y, y**2]) - model.intercept_
    dual = np.linalg.solve(between.T @ between + 0.1 * inner, between.T @ right)
    assert_close(model.predict(X), between @ dual + model.intercept_, Oracle.CUSTOM_CALLABLE)
    assert model.score(X, np.column_stack([y, y**2])) > 0.4


def test_a_second_fit_forgets_the_form_of_the_first():
    X, y = standardised("wine")
    model = DEQEquivalentRidge()
    with pytest.warns(RuntimeWarning, match=FALLS_BACK):
        model.fit(X, y)
    high, target = data(n=60, p=40, targets=1)
    model.fit(high, target)
    assert model.form_ == "equivalent"
    assert not hasattr(model, "landmarks_")


@st.composite
def tables(draw):
    """Any number of samples and features, correlated, of different units, with rows that repeat."""
    n, p = draw(st.integers(2, 40)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    common = np.outer(rng.standard_normal(n), rng.standard_normal(p))
    X = draw(st.sampled_from([0.0, 1.0, 5.0])) * common + rng.standard_normal((n, p))
    X = X * 10.0 ** rng.uniform(0.0, draw(st.sampled_from([0.0, 3.0])), p)
    X = X[rng.integers(0, n, n)] if draw(st.booleans()) else X
    return X, rng.standard_normal(n) + X @ rng.standard_normal(p)


@pytest.mark.slow
@given(table=tables(), kernel=st.sampled_from(["ck", "ntk"]), order=st.integers(1, 3))
@settings(deadline=None)
def test_on_its_training_rows_it_is_never_worse_than_the_mean(table, kernel, order):
    X, y = table
    assume(np.ptp(X, axis=0).any() and np.ptp(y) > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        model = DEQEquivalentRidge(kernel=kernel, order=order).fit(X, y)
    assert model.score(X, y) > -1e-9


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), slope=st.floats(0.01, 100.0), offset=st.floats(-100.0, 100.0))
def test_predictions_follow_the_targets_and_the_order_of_the_samples(seed, slope, offset):
    X, y = data(n=20, p=15, seed=seed)
    order = np.random.default_rng(seed).permutation(len(X))
    before = DEQEquivalentRidge(alpha=0.1).fit(X, y).predict(X)
    after = DEQEquivalentRidge(alpha=0.1).fit(X[order], slope * y[order] + offset).predict(X)
    size = slope * float(np.abs(y).max()) + abs(offset)
    assert_close(after, slope * before + offset, Oracle.CUSTOM_CALLABLE, scale=size)
