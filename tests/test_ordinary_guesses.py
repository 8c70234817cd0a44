"""What a person tries who knows torch, NumPy and scikit-learn and has not read the documentation.

Each guess works as it does elsewhere, or it is refused by a sentence that names the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV

import notsodeep as nsd
from notsodeep.nets import network

ROWS = np.random.default_rng(0).standard_normal((30, 9)) / 3.0
LABELS = np.arange(30) % 3
TENSOR = torch.as_tensor(ROWS, dtype=torch.float32)
GRID = np.linspace(-2.0, 2.0, 9)
MODEL = nsd.DEQ("relu").centred(1.0)
pytestmark = pytest.mark.slow


def assert_refused(call: Callable[[], Any], words: str) -> None:
    """Check that a call is refused by a sentence with these words."""
    with pytest.raises((nsd.InputError, TypeError), match=words):
        call()


# --- names of activations -------------------------------------------------------------------------------------------


# --- arrays -----------------------------------------------------------------------------------------------------------


def test_an_equivalent_as_an_array() -> None:
    operator = nsd.equivalent(MODEL, ROWS, form="refined")
    np.testing.assert_array_equal(np.asarray(operator), operator.to_dense())
    np.testing.assert_allclose(operator @ ROWS, np.asarray(operator) @ ROWS, rtol=1e-12)
    assert np.asarray(operator, dtype=np.float32).dtype == np.float32


def test_a_design_from_samples() -> None:
    norm = float(np.sqrt((ROWS**2).sum() / len(ROWS)))
    assert nsd.design(MODEL, ROWS).network == nsd.design(MODEL, norm).network
    assert_refused(lambda: nsd.design(MODEL, ROWS[0]), "tau0 is one number")


def test_images_without_a_convolution() -> None:
    images = ROWS.reshape(30, 3, 3)
    assert_refused(lambda: nsd.conjugate_kernel(MODEL, images), r"X\.reshape\(len\(X\), -1\)")
    assert_refused(lambda: nsd.DEQKernelClassifier().fit(images, LABELS), r"X\.reshape\(len\(X\), -1\)")
    assert_refused(lambda: _net()(torch.as_tensor(images)), r"X\.reshape\(len\(X\), -1\)")


# --- networks -------------------------------------------------------------------------------------------------------


def _net(**options: Any) -> nsd.nets.DEQNet:
    return nsd.nets.DEQNet(MODEL, 9, 16, 3, **options)


# --- scikit-learn -----------------------------------------------------------------------------------------------------


def test_probabilities() -> None:
    model = CalibratedClassifierCV(nsd.DEQKernelClassifier(), cv=3).fit(ROWS, LABELS)
    np.testing.assert_allclose(model.predict_proba(ROWS).sum(axis=1), 1.0, rtol=1e-12)


# --- results ----------------------------------------------------------------------------------------------------------


def test_a_function_of_ones_own_as_an_activation() -> None:
    def root(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt(1.0 + x * x)

    z, x = nsd.cells.state(), nsd.cells.input()
    cell = nsd.Equilibrium(nsd.cells.activation(nsd.cells.dense(z, 0.3) + nsd.cells.dense(x, 0.7), root))
    X, known = np.eye(2), nsd.DEQ(nsd.custom_activation(root), 0.3)
    np.testing.assert_allclose(nsd.conjugate_kernel(cell, X), nsd.conjugate_kernel(known, X), rtol=1e-10)
    with pytest.raises(nsd.InputError, match="declare it"):
        nsd.DEQ(lambda x: np.abs(x))


@pytest.mark.parametrize(
    "make", [nsd.DEQ, nsd.ConvDEQ, lambda *args, **given: nsd.GraphDEQ(np.eye(2), *args, **given)]
)
def test_a_standard_deviation_in_the_place_of_a_variance(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"no argument 'sigma_a'. Did you mean sigma_a2, a variance"):
        make("tanh", sigma_a=0.2)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nsd.DEQ("tanh", 0.3), "sigma_a2"),
        (nsd.GraphDEQ(np.eye(2), "tanh", 0.3), "sigma_a2"),
        (nsd.ConvDEQ("tanh", 0.3), "sigma_a2"),
        (nsd.NeuralODE("tanh", 0.3), "sigma_w2"),
    ],
)
def test_the_gain_is_said_to_be_what_it_is(model: Any, name: str) -> None:
    """Not the variance of a recurrent weight: the width, and the taps of filters, times it."""
    line = next(line for line in type(model).__doc__.splitlines() if line.strip().startswith(f"{name}:"))
    factors = "channels times taps" if isinstance(model, nsd.ConvDEQ) else "width"
    assert f"{name}: {factors} times the variance of a recurrent weight." in line
    if isinstance(model, nsd.DEQ):
        root = Path(__file__).parents[1]
        for place in (
            "docs/notation.md",
            "src/notsodeep/cli/options.py",
            "src/notsodeep/cli/assessment_commands.py",
        ):
            text = (root / place).read_text(encoding="utf-8").lower()
            assert "width times the variance of a recurrent weight" in text, place
        W = network(model, (5,), 400, 1, seed=0).plain_weights().recurrent
        assert 400 * float(W.var()) == pytest.approx(0.3, rel=0.02)
    if isinstance(model, nsd.ConvDEQ):
        W = network(model, (2, 4, 4), 60, 1, seed=0).plain_weights().recurrent
        assert 60 * 9 * float(W.var()) == pytest.approx(0.3, rel=0.02)
