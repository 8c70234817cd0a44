"""Estimators with models of images: images as they are, and as rows in a pipeline."""

from __future__ import annotations

import re

import numpy as np
import pytest
from oracles import ridge_with_intercept
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import notsodeep as nsd
from notsodeep.estimators import DEQKernelClassifier, DEQKernelRidge

MODEL = nsd.ConvDEQ("relu", 0.3)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = load_digits(return_X_y=True)
    return rows[:160], labels[:160]


@pytest.mark.slow
def test_images_and_rows_with_a_shape_are_the_same(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = digits
    images = rows.reshape(-1, 1, 8, 8)
    direct = DEQKernelClassifier(model=MODEL).fit(images[:100], labels[:100])
    flat = DEQKernelClassifier(model=MODEL, image_shape=(1, 8, 8))
    piped = make_pipeline(FunctionTransformer(np.sqrt, np.square), clone(flat)).fit(
        rows[:100] ** 2, labels[:100]
    )
    expected = direct.decision_function(images[100:])
    assert np.array_equal(flat.fit(rows[:100], labels[:100]).decision_function(rows[100:]), expected)
    assert np.array_equal(flat.decision_function(images[100:]), expected)
    np.testing.assert_allclose(piped.decision_function(rows[100:] ** 2), expected, rtol=1e-9, atol=1e-11)
    assert direct.score(images[100:], labels[100:]) > 0.8
    assert cross_val_score(flat, rows[:60], labels[:60], cv=2).shape == (2,)


def test_images_have_unit_squares_at_their_positions(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = digits
    images = rows[:40].reshape(-1, 1, 8, 8)
    machine = DEQKernelRidge(model=nsd.ConvDEQ("tanh", 0.3), alpha=0.1).fit(images, labels[:40])
    scaled = images - images.mean(axis=0)
    scaled /= np.sqrt(np.mean(scaled**2))
    kernel = nsd.tangent_kernel(nsd.ConvDEQ("tanh", 0.3), scaled)
    dual, _ = ridge_with_intercept(kernel, labels[:40], 0.1)
    np.testing.assert_allclose(machine.dual_coef_, dual, rtol=1e-6, atol=1e-8)


def test_shapes_that_do_not_fit(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = digits
    images = rows.reshape(-1, 1, 8, 8)
    with pytest.raises(nsd.InputError, match=re.escape("image_shape (3, 8, 8) needs 192")):
        DEQKernelClassifier(model=MODEL, image_shape=(3, 8, 8)).fit(rows, labels)
    with pytest.raises(nsd.InputError, match=re.escape("Images of the shape (1, 4, 16) are needed")):
        DEQKernelClassifier(model=MODEL, image_shape=(1, 4, 16)).fit(images, labels)
    fitted = DEQKernelClassifier(model=MODEL).fit(images[:30], labels[:30])
    with pytest.raises(nsd.InputError, match=re.escape("X has images of (1, 4, 16)")):
        fitted.predict(rows.reshape(-1, 1, 4, 16))
    with pytest.raises(nsd.InputError, match="X must be images"):
        DEQKernelClassifier(model=MODEL).fit(rows, labels)
    with pytest.raises(ValueError, match="go in flattened"):
        DEQKernelClassifier().fit(images, labels)
