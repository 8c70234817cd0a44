from __future__ import annotations

import tracemalloc
from itertools import permutations

import numpy as np
import pytest
from tolerances import Oracle, assert_close, assert_within_noise

from notsodeep.data import ClassStatistics, Covariance, GaussianMixture, MixtureStatistics
from notsodeep.data.statistics import ClassMoments, covariance_square
from notsodeep.errors import InputError


def mixture_of_three(p: int, seed: int = 0) -> GaussianMixture:
    """Full, low-rank and diagonal covariances with unequal weights."""
    rng = np.random.default_rng(seed)
    square = rng.standard_normal((p, p)) / np.sqrt(p)
    low = rng.standard_normal((p, p // 2)) / np.sqrt(p // 2)
    covariances = [square @ square.T, Covariance.of_factor(low), rng.uniform(0.5, 2.0, p)]
    return GaussianMixture(3 * rng.standard_normal((3, p)), covariances, [0.3, 0.25, 0.45])


# --- exact -----------------------------------------------------------------------------------------


def test_exact_statistics_are_their_definitions():
    mixture = mixture_of_three(12)
    X, y = mixture.sample(40, seed=1)
    stats = MixtureStatistics.of(mixture, X, y)
    matrices = [mixture.covariances[a].to_dense() for a in range(3)]
    common = sum(size / 40 * C for size, C in zip(stats.sizes, matrices, strict=True))
    assert stats.sizes.tolist() == [12, 10, 18]
    assert_close(stats.tau0**2, np.trace(common) / 12, Oracle.CLOSED_FORM)
    assert_close(stats.t, [np.trace(C - common) / np.sqrt(12) for C in matrices], Oracle.CLOSED_FORM)
    assert_close(stats.T, [[np.trace(A @ B) / 12 for B in matrices] for A in matrices], Oracle.CLOSED_FORM)
    residual = X - mixture.means[y] / np.sqrt(12)
    expected = np.sum(residual**2, axis=1) - np.array([np.trace(C) for C in matrices])[y] / 12
    assert_close(stats.psi, expected, Oracle.CLOSED_FORM)
    assert (stats.n, stats.p, stats.exact) == (40, 12, True)
    assert np.array_equal(stats.one_hot.argmax(axis=1), y)
    assert np.array_equal(stats.one_hot.sum(axis=0), stats.sizes)


def test_a_class_without_samples_is_no_obstacle_to_exact_statistics():
    mixture = GaussianMixture.paper(20)
    X, y = mixture.sample(10)
    stats = MixtureStatistics.of(mixture, X[y == 1], y[y == 1])
    assert stats.sizes.tolist() == [0, 5]
    assert_close(stats.tau0**2, mixture.traces[1] / 20, Oracle.CLOSED_FORM)


# --- estimated: algebra ----------------------------------------------------------------------------


@pytest.mark.parametrize("p", [4, 9])
def test_the_square_of_a_covariance_is_the_average_over_quadruples(p):
    X = np.random.default_rng(3).standard_normal((7, p)) + 2.0
    kernel = [((X[i] - X[j]) @ (X[k] - X[m])) ** 2 / 4 for i, j, k, m in permutations(range(7), 4)]
    assert_close(covariance_square(ClassMoments.of(X)), np.mean(kernel), Oracle.CLOSED_FORM)


def test_psi_leaves_its_own_sample_out():
    X, y = mixture_of_three(8).sample(30, seed=4)
    stats = MixtureStatistics.estimate(X, y)
    expected = []
    for i in range(30):
        others = X[(y == y[i]) & (np.arange(30) != i)]
        trace = np.trace(np.cov(others.T))
        expected.append(np.sum((X[i] - others.mean(axis=0)) ** 2) - (1 + 1 / len(others)) * trace)
    assert_close(stats.psi, expected, Oracle.CLOSED_FORM)


def test_traces_and_products_of_different_classes_are_the_sample_covariances():
    X, y = mixture_of_three(8).sample(50, seed=5)
    stats = MixtureStatistics.estimate(X, y)
    sample = [np.cov(X[y == a].T) for a in range(3)]
    assert_close(stats.traces, [np.trace(S) for S in sample], Oracle.CLOSED_FORM)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert_close(stats.T[a, b], 8 * np.vdot(sample[a], sample[b]), Oracle.CLOSED_FORM)
    assert np.array_equal(stats.T, stats.T.T)
    assert_close(stats.tau0**2, stats.weights @ stats.traces, Oracle.CLOSED_FORM)


def test_few_samples_in_many_dimensions_never_make_a_square_array():
    p = 5000
    X, y = GaussianMixture.paper(p).sample(40)
    tracemalloc.start()
    stats = MixtureStatistics.estimate(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stats.p == p
    # The data take 1.6 MB, a p × p array 200 MB.
    assert peak < 5 * X.nbytes


# --- estimated: invariances ------------------------------------------------------------------------


def test_without_labels_all_samples_are_one_class():
    X, _ = GaussianMixture(np.ones((1, 6)), 1.0).sample(20)
    stats = MixtureStatistics.estimate(X)
    assert stats.sizes.tolist() == [20]
    assert_close(stats.t, [0.0], Oracle.IDENTITY, scale=stats.tau0**2)
    assert_close(stats.tau0**2, np.trace(np.cov(X.T)), Oracle.CLOSED_FORM)


# --- estimated: bias -------------------------------------------------------------------------------


def plug_in(X, y):
    sample = [np.cov(X[y == a].T) for a in range(y.max() + 1)]
    return X.shape[1] * np.array([[np.vdot(A, B) for B in sample] for A in sample])


@pytest.mark.slow
def test_estimates_are_unbiased_at_p_near_n_where_the_plug_in_is_not():
    p, n, draws = 60, 72, 400
    mixture = mixture_of_three(p)
    estimates, plug_ins = [], []
    for seed in range(draws):
        X, y = mixture.sample(n, seed=seed)
        stats = MixtureStatistics.estimate(X, y)
        estimates.append(np.concatenate([[stats.tau0**2], stats.t, stats.T.ravel()]))
        plug_ins.append(plug_in(X, y))
    exact = MixtureStatistics.of(mixture, X, y)
    assert_within_noise(np.concatenate([[exact.tau0**2], exact.t, exact.T.ravel()]), estimates)

    bias = np.mean(plug_ins, axis=0) - exact.T
    errors = np.std(plug_ins, axis=0, ddof=1) / np.sqrt(draws)
    predicted = (exact.traces * p) ** 2 / (exact.sizes * p)
    assert np.all(np.diag(bias) > 20 * np.diag(errors))
    # The prediction is the leading term in 1/n_a; the next are T_aa/n_a and (tr C_a)²/(n_a² p), some percent.
    np.testing.assert_allclose(np.diag(bias), predicted, rtol=0.15)


# --- refusals --------------------------------------------------------------------------------------

X20 = np.random.default_rng(0).standard_normal((20, 3))
Y20 = np.arange(20) % 2


def with_value(value):
    X = X20.copy()
    X[3, 1] = value
    return X


def one_class_constant():
    X = X20.copy()
    X[Y20 == 1] = 0.1
    return X


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (with_value(np.nan), Y20, "NaN"),
        (X20[:, 0], Y20, "samples in rows"),
        (X20[:0], Y20[:0], "empty"),
        (X20, Y20[:-1], "one label for each of the 20 rows"),
        (X20, np.where(Y20 == 0, np.nan, 1.0), "labels that are NaN"),
        (X20, np.zeros(20), "leave y out"),
        (X20, np.r_[np.zeros(19), 1], r"\{1.0: 1\}"),
        (X20, np.r_[np.zeros(17), 1, 1, 1], "4 samples per class"),
        (one_class_constant(), Y20, "no variance"),
        (np.zeros((20, 3)), Y20, "no variance"),
    ],
)
def test_samples_that_cannot_be_used_are_refused_in_words(X, y, message):
    with pytest.raises(InputError, match=message):
        MixtureStatistics.estimate(X, y)


def test_exact_statistics_refuse_data_of_another_mixture():
    mixture = GaussianMixture.paper(10)
    X, y = mixture.sample(10)
    with pytest.raises(InputError, match="9 columns where 10"):
        MixtureStatistics.of(mixture, X[:, :9], y)
    with pytest.raises(InputError, match=r"labels \[2\]"):
        MixtureStatistics.of(mixture, X, y + 1)
    with pytest.raises(InputError, match="2 whole numbers"):
        ClassStatistics.of_mixture(mixture, [0.5, 0.5])
