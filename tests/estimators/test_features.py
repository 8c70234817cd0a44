"""Random features: what their inner products tend to, how fast, and how far that is from the DEQ."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close, assert_within_noise

import notsodeep as nsd
from notsodeep.estimators import DEQFeatures


def rows(n=25, p=40, seed=0):
    return np.random.default_rng(seed).standard_normal((n, p)) * 3.0 + 1.0


def gram(X, **parameters):
    features = DEQFeatures(**parameters).fit_transform(X)
    return features @ features.T


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_mean_over_draws_is_the_kernel_of_the_designed_network(activation):
    X, options = rows(n=6), {"activation": activation}
    fitted = DEQFeatures(2, **options).fit(X)
    limit = nsd.conjugate_kernel(fitted.network_, fitted.rows_.transform(X))
    draws = [gram(X, n_components=400, random_state=s, **options) for s in range(60)]
    # Two layers have a bias of order 1/width.
    assert_within_noise(limit, np.array(draws), bias=1.0 / 400)


def test_the_designed_network_stands_for_the_deq():
    p = 300
    X = np.random.default_rng(1).standard_normal((200, p))
    for activation in ("tanh", "relu"):
        fitted = DEQFeatures(2, activation=activation, sigma_a2=0.3).fit(X)
        inner = fitted.rows_.transform(X)
        expected = nsd.conjugate_kernel(fitted.model_, inner)
        found = nsd.conjugate_kernel(fitted.network_, inner)
        assert np.linalg.norm(found - expected, 2) < 0.01 * np.linalg.norm(expected, 2)
        assert fitted.residual_ < 1e-9
        assert fitted.model_.sigma_a2 == 0.3


def test_their_number_their_names_and_their_seeds():
    X = rows()
    features = DEQFeatures(7, random_state=3)
    made = features.fit_transform(X)
    assert made.shape == (25, 7)
    assert list(features.get_feature_names_out()) == [f"deqfeatures{i}" for i in range(7)]
    assert_close(DEQFeatures(7, random_state=3).fit_transform(X), made, Oracle.IDENTITY)
    assert not np.allclose(DEQFeatures(7, random_state=4).fit_transform(X), made)
    generators = (np.random.default_rng(3), np.random.default_rng(3))
    assert_close(*(DEQFeatures(7, random_state=g).fit_transform(X) for g in generators),
                 Oracle.IDENTITY)  # fmt: skip
    legacy = [DEQFeatures(7, random_state=np.random.RandomState(1)) for _ in range(2)]
    assert_close(*(one.fit_transform(X) for one in legacy), Oracle.IDENTITY)


def test_the_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    DEQFeatures(5, random_state=None).fit(rows())
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_the_design_follows_the_scale_of_the_rows():
    X = rows()
    as_they_are = DEQFeatures(2, activation="tanh", scale=None).fit(X)
    scaled = DEQFeatures(2, activation="tanh").fit(X)
    assert as_they_are.network_ != scaled.network_
    inner = as_they_are.rows_.transform(X)
    wanted = nsd.conjugate_kernel(as_they_are.model_, inner)
    found = nsd.conjugate_kernel(as_they_are.network_, inner)
    assert np.linalg.norm(found - wanted, 2) < 0.05 * np.linalg.norm(wanted, 2)


def test_samples_and_weights_of_one_seed_have_nothing_in_common():
    """Both come from generators seeded with 0: as one stream, weights would be equal to samples."""
    X = np.random.default_rng(0).standard_normal((200, 300)) / np.sqrt(300.0)
    limit = nsd.conjugate_kernel(DEQFeatures(2, center=False, scale=None).fit(X).network_, X)
    errors = [
        np.linalg.norm(gram(X, n_components=500, center=False, scale=None, random_state=s) - limit, 2)
        for s in range(8)
    ]
    # One layer after the other: a draw among eight is hardly ever twice as bad as the typical one.
    assert errors[0] < 2.0 * np.median(errors[1:])
