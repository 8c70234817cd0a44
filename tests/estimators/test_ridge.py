"""Kernel ridge against a dense solve written out, and the invariances it must have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ridge_with_intercept
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.metrics import log_loss
from sklearn.svm import SVC
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.estimators import DEQKernel, DEQKernelClassifier, DEQKernelRidge, ridge
from notsodeep.estimators.ridge import probabilities, temperature

KERNELS = {"ck": nsd.conjugate_kernel, "ntk": nsd.tangent_kernel}
CASES = [
    ("relu", 0.2, None, 0.0),
    ("tanh", 0.5, None, 0.0),
    ("swish", 0.3, 0.9, 0.2),
    (nsd.activation("leaky_relu", b=-0.2), 0.7, 0.5, 0.0),
]


def data(n=30, p=8, targets=2, seed=0, offset=1.0):
    rng = np.random.default_rng(seed)
    X = offset + rng.standard_normal((n, p)) * rng.uniform(0.5, 3.0, (n, 1))
    return X, rng.standard_normal((n, targets)) + 5.0


def scaled(X, other):
    centred = X - X.mean(axis=0)
    size = np.sqrt((centred**2).sum() / len(X))
    return centred / size, (other - X.mean(axis=0)) / size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "kernel"), list(zip(CASES, ["ck", "ntk", "ntk", "ck"], strict=True)), ids=str
)
def test_predictions_are_those_of_a_dense_solve(kernel, case):
    X, y = data()
    new, _ = data(n=11, seed=1)
    phi, sigma_a2, sigma_b2, bias2 = case
    model = DEQKernelRidge(
        kernel=kernel, activation=phi, sigma_a2=sigma_a2, sigma_b2=sigma_b2, bias2=bias2, alpha=0.3
    ).fit(X, y)
    rows, new_rows = scaled(X, new)
    deq = nsd.DEQ(phi, sigma_a2, sigma_b2, bias2)
    K = KERNELS[kernel](deq, rows)
    dual, intercept = ridge_with_intercept(K, y, 0.3)
    expected = KERNELS[kernel](deq, new_rows, rows) @ dual + intercept
    assert_close(model.predict(new), expected, Oracle.QUADRATURE)
    assert_close(model.dual_coef_, dual, Oracle.QUADRATURE)
    assert model.predict(new).shape == (11, 2)
    assert_close(model.fit(X, y[:, 1]).predict(new), expected[:, 1], Oracle.QUADRATURE)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_mean_of_a_gaussian_process_is_the_same_function(kernel):
    X, y = data()
    new, _ = data(n=5, seed=2)
    model = DEQKernelRidge(kernel=kernel, activation="tanh", alpha=0.1, scale="none")
    model.set_params(fit_intercept=False).fit(X, y)
    process = GaussianProcessRegressor(DEQKernel("tanh", kernel=kernel), alpha=0.1, optimizer=None).fit(X, y)
    assert_close(model.predict(new), process.predict(new), Oracle.QUADRATURE)


def test_predictions_do_not_depend_on_the_blocks(monkeypatch):
    X, y = data()
    model = DEQKernelRidge().fit(X, y)
    whole = model.predict(X)
    monkeypatch.setattr(ridge, "_BLOCK", 70)
    assert_close(model.predict(X), whole, Oracle.IDENTITY)


def test_the_classifier_is_the_ridge_on_signs():
    X, _ = data(n=40)
    labels = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [0.0, 2.0])]
    model = DEQKernelClassifier(alpha=0.1).fit(X, labels)
    assert list(model.classes_) == ["high", "low", "middle"]
    signs = np.where(labels[:, None] == model.classes_, 1.0, -1.0)
    expected = DEQKernelRidge(alpha=0.1).fit(X, signs).predict(X)
    assert_close(model.decision_function(X), expected, Oracle.IDENTITY)
    assert list(model.predict(X)) == list(model.classes_[expected.argmax(axis=1)])
    two = labels != "middle"
    binary = DEQKernelClassifier(alpha=0.1).fit(X[two], labels[two])
    assert binary.decision_function(X).shape == (40,)
    assert list(binary.predict(X)) == [
        ["high", "low"][int(score > 0)] for score in binary.decision_function(X)
    ]


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6), kernel=st.sampled_from(["ck", "ntk"]), phi=st.sampled_from(["relu", "erf"])
)
def test_the_order_of_the_samples_does_not_matter(seed, kernel, phi):
    X, y = data(n=14, p=5, seed=seed)
    order = np.random.default_rng(seed).permutation(len(X))
    one = DEQKernelRidge(kernel=kernel, activation=phi, alpha=0.1).fit(X, y)
    other = DEQKernelRidge(kernel=kernel, activation=phi, alpha=0.1).fit(X[order], y[order])
    assert_close(other.predict(X), one.predict(X), Oracle.QUADRATURE)
    assert_close(other.dual_coef_, one.dual_coef_[order], Oracle.QUADRATURE)


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    slope=st.floats(-100.0, 100.0).filter(lambda a: abs(a) > 1e-3),
    offset=st.floats(-100.0, 100.0),
)
def test_predictions_follow_an_affine_change_of_the_targets(seed, slope, offset):
    X, y = data(n=14, p=5, seed=seed)
    before = DEQKernelRidge().fit(X, y).predict(X)
    after = DEQKernelRidge().fit(X, slope * y + offset).predict(X)
    size = abs(slope) * float(np.abs(y).max()) + abs(offset)
    assert_close(after, slope * before + offset, Oracle.QUADRATURE, scale=size)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), factor=st.floats(1e-3, 1e3), phi=st.sampled_from(["relu", "erf"]))
def test_units_origin_and_rotation_of_the_features_do_not_matter(seed, factor, phi):
    X, y = data(n=14, p=5, seed=seed)
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    moved = factor * (X @ rotation + rng.standard_normal(5))
    before = DEQKernelRidge(activation=phi, alpha=0.1).fit(X, y).predict(X)
    after = DEQKernelRidge(activation=phi, alpha=0.1).fit(moved, y).predict(moved)
    # Centring moved data loses as many digits as the origin is far away, in units of the spread.
    assert_close(after, before, Oracle.CUSTOM_CALLABLE)


@pytest.mark.parametrize("kernel", KERNELS)
def test_classes_that_differ_in_scale_need_a_bias(kernel):
    """Standard deviations 1 and 2: as good as a support vector machine, which has a bias, on the same kernel."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2500)
    X = rng.standard_normal((2500, 20)) * (1.0 + y)[:, None]
    train, test = slice(0, 500), slice(500, None)
    model = DEQKernelClassifier(kernel=kernel).fit(X[train], y[train])
    cross = model._between(model.scaling_.apply(X[test]), model.X_fit_)
    machine = SVC(kernel="precomputed").fit(model._between(model.X_fit_), y[train])
    accuracy = model.score(X[test], y[test])
    assert accuracy > 0.95
    assert accuracy > machine.score(cross, y[test]) - 0.01
    assert model.set_params(fit_intercept=False).fit(X[train], y[train]).score(X[test], y[test]) < 0.6


def test_a_gaussian_process_has_a_bias_by_a_constant_kernel():
    X, y = data()
    model = DEQKernelRidge(kernel="ck", activation="tanh", alpha=0.1, scale="none").fit(X, y)
    kernel = DEQKernel("tanh") + ConstantKernel(1e6)
    process = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.predict(X + 0.1), process.predict(X + 0.1), rtol=1e-5)


def test_a_constant_of_the_targets_is_that_of_the_predictions():
    X, y = data()
    small, large = (DEQKernelRidge(alpha=0.1).fit(X, y + offset) for offset in (0.0, 1e6))
    assert_close(large.predict(X), small.predict(X) + 1e6, Oracle.QUADRATURE, scale=1e6)
    assert_close(small.dual_coef_.sum(axis=0), np.zeros(2), Oracle.QUADRATURE, scale=1.0)


def test_the_best_alpha_has_the_least_left_out_error():
    X, _ = data(n=60)
    y = X[:, 0] + np.random.default_rng(3).standard_normal(60)
    best = DEQKernelRidge().fit(X, y)
    rows = np.arange(60)

    def error(alpha):
        return np.mean((DEQKernelRidge(alpha=alpha)._fit_machine(X, y, rows) - y) ** 2)

    least = error(best.alpha_)
    assert least <= min(error(best.alpha_ * factor) for factor in (0.1, 10.0))
    assert least < 0.9 * error(1e-6)


# --- probabilities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "intercept"), [(2, False), (3, False), (2, True), (3, True)])
def test_leave_one_out_scores_are_those_of_a_fit_without_the_row(classes: int, intercept: bool) -> None:
    X, y = blobs_of(40, classes)
    plain = {"scale": "none", "fit_intercept": intercept, "alpha": 0.01}
    signs = 2.0 * np.eye(classes)[y] - 1.0 if classes > 2 else 2.0 * y - 1.0
    held = np.arange(3, 9)
    scores = DEQKernelClassifier(**plain)._fit_machine(X, signs, held)
    for score, row in zip(scores, held, strict=True):
        others = np.delete(np.arange(len(X)), row)
        expected = DEQKernelRidge(**plain).fit(X[others], signs[others]).predict(X[[row]])[0]
        assert_close(score, expected, Oracle.CLOSED_FORM)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_calibrated_and_agree_with_the_prediction(classes: int) -> None:
    X, y = blobs_of(300, classes)
    model = DEQKernelClassifier(alpha=0.3).fit(X[:150], y[:150])
    found, scores = model.predict_proba(X[150:]), model.decision_function(X[150:])
    assert found.shape == (150, classes)
    assert_close(found.sum(axis=1), np.ones(150), Oracle.IDENTITY)
    assert np.array_equal(model.classes_[found.argmax(axis=1)], model.predict(X[150:]))
    # On new rows, mean confidence is mean accuracy to within three standard errors, ...
    accuracy = np.mean(model.predict(X[150:]) == y[150:])
    assert accuracy < 0.95
    assert abs(found.max(axis=1).mean() - accuracy) <= 3.0 * np.sqrt(accuracy * (1.0 - accuracy) / 150)
    # ... and no other temperature explains their labels much better.
    losses = [
        log_loss(y[150:], probabilities(scores / t)) for t in model.temperature_ * np.geomspace(0.2, 5.0, 21)
    ]
    assert log_loss(y[150:], found) <= min(losses) + 0.02


def test_the_temperature_of_scores_that_are_all_right() -> None:
    """Laplace's rule: 20 of 20 right means 21 in 22, so that T solves expit(1/T) = 21/22."""
    index = np.arange(20) % 2
    assert temperature(2.0 * index - 1.0, index) == pytest.approx(1.0 / np.log(21.0), rel=1e-4)


def test_separable_classes_do_not_give_certainty() -> None:
    X, y = blobs_of(20, 2, distance=8.0)
    assert 0.5 < DEQKernelClassifier().fit(X, y).predict_proba(X).max() < 0.9999


def blobs_of(n: int, classes: int, distance: float = 1.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    return (rng.standard_normal((n, 5)) + distance * np.eye(classes, 5)[y]) / np.sqrt(5), y
