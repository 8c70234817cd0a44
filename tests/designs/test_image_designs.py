"""Designs for convolutional DEQs: their own activation, in layers that see the image again."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.data import load
from notsodeep.designs import design
from notsodeep.designs.pair_kernels import PairKernels, chosen_pairs
from notsodeep.errors import InputError
from notsodeep.kernels import both_kernels
from notsodeep.models import ConvDEQ, ConvExplicit

WEIGHTS, INJECT = [0.7, 0.4, 0.3], [0.6, 0.9]


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    """Images of 8×8, less their mean image: some positions are zero in all of them."""
    images = load("digits", n=60, seed=0).X.reshape(-1, 1, 8, 8)
    images = images - images.mean(axis=0)
    return np.asarray(images / np.sqrt(np.mean(images**2)))


@pytest.mark.parametrize("readout", ["flatten", "pool"])
@pytest.mark.parametrize(
    ("name", "padding", "centre", "bias2"),
    [("relu", "zeros", None, 0.0), ("gelu", "circular", 1.1, 0.0), ("erf", "zeros", None, 0.2)],
)
def test_quick_kernels_are_the_exact_ones(
    name: str, padding: str, centre: float | None, bias2: float, readout: str, digits: np.ndarray
) -> None:
    """The evaluation that fits use, against the kernels of the same network."""
    images = digits[:5, :, 2:6, 1:7]
    model = ConvDEQ(name, 0.3, bias2=bias2, padding=padding, readout=readout)
    network = model.network([model.activation] * 3, weights=WEIGHTS, inject=INJECT)
    network = network if centre is None else network.centred(centre)
    pairs, rows, columns, _ = chosen_pairs(model, images)
    quick = PairKernels(model.activation, pairs, centre, bias2)
    found = quick.kernels(np.array(WEIGHTS), np.array(INJECT))
    for values, matrix in zip(found, both_kernels(network, images), strict=True):
        assert_close(values, matrix[rows, columns], Oracle.CUSTOM_CALLABLE)


@pytest.mark.parametrize(
    ("name", "readout", "padding", "layers", "most"),
    [
        ("relu", "pool", "zeros", 3, 1e-3),
        ("tanh", "flatten", "zeros", 3, 1e-3),
        ("sin", "flatten", "circular", 2, 5e-3),
    ],
)
def test_a_few_layers_have_both_kernels_on_images_they_have_not_seen(
    name: str, readout: str, padding: str, layers: int, most: float, digits: np.ndarray
) -> None:
    """The targets: 0.1 % by three layers for both kernels at once; closer than cutting and than a plain layer."""
    model = ConvDEQ(name, 0.3, readout=readout, padding=padding)
    made = design(model, X=digits[:8], kernel="both", layers=layers, family="injected")
    assert isinstance(made.network, ConvExplicit)
    assert "fitted to 8 samples" in made.explain()
    for kernel in ("ck", "ntk"):
        found = nsd.twin_distances(made, digits[8:16], kernel, depths=[1])
        assert found.twin.relative <= most
        assert found.twin.relative < found.cut.relative
        assert found.twin.up_to_factor < min(found.cut.up_to_factor, found.plain[1].up_to_factor)


def test_without_images_it_is_the_design_of_rows() -> None:
    """A convolution treats images of one colour as rows, and says that it saw no others."""
    rows = design(nsd.DEQ("swish", 0.3), 1.2, "both", "injected", layers=2)
    made = design(
        ConvDEQ("swish", 0.3, padding="circular", readout="pool"), 1.2, "both", layers=2, family="injected"
    )
    assert made.network.weights == rows.network.weights
    assert made.network.inject == rows.network.inject
    assert made.misfit == rows.misfit
    assert "not fitted to images" in made.explain()
    assert "images of one colour" in str(made)
    shades = np.random.default_rng(0).standard_normal((6, 3))
    images = np.broadcast_to(shades[:, :, None, None], (6, 3, 4, 4))
    for found, wanted in zip(
        both_kernels(made.network, images), both_kernels(rows.network, shades), strict=True
    ):
        assert_close(found, wanted, Oracle.QUADRATURE)


def test_a_centred_model_has_centred_layers(digits: np.ndarray) -> None:
    made = design(ConvDEQ("relu", 0.3).centred(1.0), 1.0, X=digits, layers=2, family="injected", samples=8)
    again = made.network.centred(1.0)
    for layer, shifted in zip(made.network.layers, again.layers, strict=True):
        assert layer.offset != 0.0
        assert_close(layer.offset, shifted.offset, Oracle.CLOSED_FORM)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (ConvDEQ("relu"), {"family": "papers"}, "family='injected'"),
        (ConvDEQ("relu"), {"family": "leaky_relu"}, "family='injected'"),
        (ConvDEQ("relu"), {"family": "injected", "kernel": "ntk_paper"}, "no network"),
        (ConvDEQ("relu"), {"tau0": None}, "Give tau0"),
        (ConvDEQ("relu"), {"X": np.ones((8, 64))}, "images"),
        (ConvDEQ("relu"), {"X": np.zeros((8, 1, 4, 4))}, "not all zero"),
        (nsd.GraphDEQ(np.eye(3), "relu"), {}, "not GraphDEQ"),
    ],
)
def test_what_cannot_be_is_refused(model: ConvDEQ, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        design(model, **{"tau0": 1.0, **options})  # type: ignore[arg-type]
