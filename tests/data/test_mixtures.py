from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tolerances import Oracle, assert_close, assert_within_noise

from notsodeep.data import Covariance, GaussianMixture, UnitSphere
from notsodeep.data.mixtures import largest_remainder
from notsodeep.errors import InputError

P = 5
RNG = np.random.default_rng(7)
SQUARE = RNG.standard_normal((P, P))
NARROW = RNG.standard_normal((P, 2))
COVARIANCES: dict[str, Covariance] = {
    "diagonal": Covariance.of_variances([0.0, 0.5, 1.0, 2.0, 3.0]),
    "factor": Covariance.of_factor(NARROW),
    "dense": Covariance.of_matrix(SQUARE @ SQUARE.T),
    "singular": Covariance.of_matrix(NARROW @ NARROW.T),
}
covariances = pytest.mark.parametrize("covariance", COVARIANCES.values(), ids=COVARIANCES.keys())


@covariances
def test_a_representation_answers_like_its_dense_self(covariance):
    dense = covariance.to_dense()
    for other in COVARIANCES.values():
        assert_close(covariance.trace_product(other), np.trace(dense @ other.to_dense()), Oracle.IDENTITY)
    block = RNG.standard_normal((P, 3))
    assert covariance.dimension == P
    assert_close(covariance.diagonal(), np.diag(dense), Oracle.IDENTITY)
    assert_close(covariance @ block, dense @ block, Oracle.IDENTITY)


def test_a_matrix_is_factored_whether_it_is_singular_or_not():
    for matrix in (SQUARE @ SQUARE.T, NARROW @ NARROW.T):
        assert_close(Covariance.of_matrix(matrix).to_dense(), matrix, Oracle.CLOSED_FORM)


@covariances
def test_samples_have_the_mean_and_covariance_asked_for(covariance):
    mean = np.arange(1.0, P + 1)
    samples, _ = GaussianMixture([mean], [covariance]).sample(20_000, seed=3)
    scaled = np.sqrt(P) * samples
    residual = scaled - mean
    assert_within_noise(mean, scaled)
    assert_within_noise(covariance.to_dense(), residual[:, :, None] * residual[:, None, :])


def test_the_papers_mixture():
    p = 64
    mixture = GaussianMixture.paper(p, classes=3)
    assert mixture.means[np.arange(3), [0, 8, 16]].tolist() == [8.0, 8.0, 8.0]
    assert np.count_nonzero(mixture.means) == 3
    assert_close(mixture.traces / p, [1.0, 2.0, 3.0], Oracle.CLOSED_FORM)
    assert_close(mixture.trace_product(1, 2), 6.0 * p, Oracle.CLOSED_FORM)
    assert_close(mixture.mean_gram, 64.0 * np.eye(3), Oracle.CLOSED_FORM)
    assert_close(mixture.covariances[1].to_dense(), 2.0 * np.eye(p), Oracle.CLOSED_FORM)
    assert_close(mixture.weights, np.full(3, 1 / 3), Oracle.CLOSED_FORM)


def test_large_dimensions_need_no_square_array():
    # A p × p array of 400 000 dimensions would take over a terabyte.
    mixture = GaussianMixture.paper(400_000)
    X, _ = mixture.sample(2)
    assert X.shape == (2, 400_000)
    assert_close(mixture.trace_product(0, 0), 400_000.0, Oracle.CLOSED_FORM)


def test_covariances_are_read_by_their_shape():
    means = np.zeros((4, P))
    mixture = GaussianMixture(means, [2.0, np.ones(P), np.eye(P), Covariance.of_factor(NARROW)], [1, 1, 1, 1])
    assert [c.is_diagonal for c in mixture.covariances] == [True, True, False, False]
    assert_close(mixture.covariances[0].to_dense(), 2.0 * np.eye(P), Oracle.IDENTITY)
    shared = GaussianMixture(means, 3.0)
    assert shared.traces.tolist() == [3.0 * P] * 4


def test_sampling_is_repeatable_ordered_and_shuffled_without_change():
    mixture = GaussianMixture.paper(16, classes=2)
    X, y = mixture.sample(9, seed=5)
    again, _ = mixture.sample(9, seed=5)
    other, _ = mixture.sample(9, seed=6)
    mixed, mixed_y = mixture.sample(9, seed=5, shuffled=True)
    assert np.array_equal(X, again)
    assert not np.array_equal(X, other)
    assert y.tolist() == [0] * 5 + [1] * 4
    order = np.lexsort((mixed[:, 0], mixed_y))
    assert not np.array_equal(mixed, X)
    assert np.array_equal(mixed[order], X[np.lexsort((X[:, 0], y))])


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8),
    st.integers(1, 5000),
)
def test_class_sizes_add_up_and_miss_their_share_by_less_than_one(raw, n):
    weights = np.array(raw) / np.sum(raw)
    sizes = largest_remainder(weights, n)
    assert sizes.sum() == n
    # Fractions count as whole within 1e-9.
    assert np.all(np.abs(sizes - n * weights) < 1 + 1e-8)


def test_equal_classes_share_the_rest_from_the_first_on():
    assert GaussianMixture(np.zeros((3, 2)), 1.0).class_sizes(8).tolist() == [3, 3, 2]
    assert GaussianMixture(np.zeros((3, 2)), 1.0, [0.2, 0.3, 0.5]).class_sizes(10).tolist() == [2, 3, 5]
    assert GaussianMixture(np.zeros((2, 2)), 1.0, [0.0, 1.0]).class_sizes(3).tolist() == [0, 3]


def test_the_sphere_is_unit_and_isotropic():
    X = UnitSphere(6).sample(20_000, seed=1)
    assert_close(np.linalg.norm(X, axis=1), np.ones(len(X)), Oracle.IDENTITY)
    assert_within_noise(np.eye(6) / 6, X[:, :, None] * X[:, None, :])
    assert np.array_equal(X, UnitSphere(6).sample(20_000, seed=1))


def test_a_mixture_cannot_be_changed_from_outside():
    means = np.zeros((2, P))
    mixture = GaussianMixture(means, 1.0)
    means[0, 0] = 9.0
    assert mixture.means[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        mixture.means[0, 0] = 1.0
    with pytest.raises(AttributeError):
        mixture.weights = np.ones(2)  # type: ignore[misc]


ONE = np.zeros((1, 2))
TWO = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianMixture(np.zeros(3), [1.0]), "2 axes"),
        (lambda: GaussianMixture(np.zeros((0, 3)), []), "empty"),
        (lambda: GaussianMixture([[np.nan, 1.0]], [1.0]), "NaN"),
        (lambda: GaussianMixture(TWO, Covariance.of_variances([1.0, 1.0])), "one covariance for each"),
        (lambda: GaussianMixture(TWO, 1.0, [-0.5, 1.5]), "not be negative"),
        (lambda: GaussianMixture(TWO, 1.0, [0.0, 0.0]), "not all zero"),
        (lambda: GaussianMixture(ONE, [[1.0, -1.0]]), "none negative"),
        (lambda: GaussianMixture(ONE, [[1.0, 1.0, 1.0]]), "dimension 3 where the means have 2"),
        (lambda: GaussianMixture(ONE, [[[1.0, 0.5], [0.4, 1.0]]]), "symmetric"),
        (lambda: GaussianMixture(ONE, [[[1.0, 2.0], [2.0, 1.0]]]), "smallest eigenvalue is -1"),
        (lambda: GaussianMixture(ONE, [np.ones((2, 3))]), "square"),
        (lambda: GaussianMixture(ONE, [Covariance.of_factor(np.ones((3, 1)))]), "of_factor"),
        (lambda: Covariance.of_factor(np.ones((3, 0))), "empty"),
        (lambda: GaussianMixture.paper(8), "p = 8 is too small"),
        (lambda: GaussianMixture(ONE, 1.0).sample(0), "whole number of at least 1"),
        (lambda: UnitSphere(0), "whole number of at least 1"),
    ],
)
def test_what_cannot_be_a_mixture_is_refused_in_words(make, message):
    with pytest.raises(InputError, match=message):
        make()
