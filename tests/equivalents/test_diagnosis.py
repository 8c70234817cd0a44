"""The diagnosis agrees with the exact kernel and speaks plainly."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing, load
from notsodeep.equivalents import diagnose, equivalence_error
from notsodeep.errors import InputError
from notsodeep.models import DEQ, Explicit


@pytest.fixture(scope="module", name="digits")
def _digits():
    data = load("digits", classes=(6, 8))
    return Preprocessing.fit(data.X).apply(data.X), data.y


@pytest.mark.slow
def test_a_mixture_in_high_dimension_is_one():
    X, y = GaussianMixture.paper(1200).sample(800, seed=0)
    diagnosis = diagnose(X, y)
    assert diagnosis
    assert diagnosis.recommended == "asymptotic"
    assert diagnosis.largest_correlation < 0.3
    assert str(diagnosis).startswith("Yes")
    exact = float(equivalence_error(DEQ("tanh", 0.2), X, MixtureStatistics.estimate(X, y)))
    np.testing.assert_allclose(diagnosis.predicted_error, exact, rtol=0.05)


@pytest.mark.slow
def test_digits_are_not(digits):
    X, y = digits
    diagnosis = diagnose(X, y)
    assert not diagnosis.verdict
    assert diagnosis.recommended == "refined"
    assert diagnosis.refined_error < 0.05 < diagnosis.checked_error
    text = str(diagnosis)
    assert text.startswith("No")
    assert "form='refined'" in text
    assert f"{len(X)} samples of 64 features" in text


def test_measurements_are_those_of_all_pairs(digits):
    X, y = digits
    diagnosis = diagnose(X, y, subsample=50)
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = (directions @ directions.T)[~np.eye(len(X), dtype=bool)]
    squares = np.sum(X**2, axis=1)
    np.testing.assert_allclose(diagnosis.typical_correlation, np.sqrt(np.mean(cosines**2)))
    np.testing.assert_allclose(diagnosis.largest_correlation, np.abs(cosines).max())
    np.testing.assert_allclose(diagnosis.norm_spread, squares.std() / squares.mean())
    assert (diagnosis.n, diagnosis.p, diagnosis.subsample) == (*X.shape, 50)


def test_it_is_repeatable_and_takes_any_model(digits):
    X, y = digits
    model = Explicit(["swish", "relu"])
    assert diagnose(X, y, model=model, seed=4) == diagnose(X, y, model=model, seed=4)


@pytest.mark.slow
def test_parallel_samples_want_the_exact_kernel():
    X = np.random.default_rng(0).standard_normal((200, 2))
    diagnosis = diagnose(X, model=DEQ("relu", 0.5), tolerance=0.01)
    assert diagnosis.recommended == "exact"
    assert "exact kernels" in str(diagnosis)


def test_data_without_any_expansion_have_a_diagnosis_too():
    """One column of wine, in mg/l, outweighs all others: cosines are near ±1, and the refined form does not exist."""
    table = load_wine().data
    diagnosis = diagnose(Preprocessing.fit(table).apply(table), model=DEQ("relu", 0.2))
    assert not diagnosis
    assert diagnosis.recommended == "exact"
    assert diagnosis.refined_error == np.inf
    assert "no expansion" in str(diagnosis)
    assert "refined impossible" in str(diagnosis)


def test_data_of_odd_scale_are_remarked(digits):
    X, y = digits
    assert "scale them" in str(diagnose(20.0 * X, y, subsample=100))


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        (np.ones((1, 4)), None, {}, "at least two"),
        (np.eye(6), np.zeros(6), {}, "one class"),
        (np.random.default_rng(0).standard_normal((9, 4)), [0] * 8 + [1], {}, "too few samples"),
        (np.eye(6), [0, 1], {}, "label"),
        (np.ones((6, 4)), None, {}, "no variance"),
        (np.full((6, 4), np.nan), None, {}, "NaN"),
        (np.eye(6), None, {"tolerance": 0.0}, "tolerance"),
        (np.eye(6), None, {"subsample": 1}, "subsample"),
    ],
)
def test_bad_input_is_named(X, y, options, message):
    with pytest.raises(InputError, match=message):
        diagnose(X, y, **options)
