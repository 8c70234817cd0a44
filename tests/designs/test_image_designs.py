"""Designs for convolutional DEQs: their own activation, in layers that see the image again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.data import load
from notsodeep.designs import Design, InjectedFamily, design
from notsodeep.designs.injected import (
    Fit,
    cut_start,
    has_linear_part,
    network_at,
    reference_target,
    samples_target,
)
from notsodeep.designs.pair_kernels import PairKernels
from notsodeep.designs.sample_pairs import chosen_pairs
from notsodeep.errors import InputError
from notsodeep.gaussian import activation
from notsodeep.kernels import both_kernels, exact_kernel
from notsodeep.models import ConvDEQ, ConvExplicit

WEIGHTS, INJECT = [0.7, 0.4, 0.3], [0.6, 0.9]


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    """Images of 8×8, less their mean image: some positions are zero in all of them."""
    images = load("digits", n=60, seed=0).X.reshape(-1, 1, 8, 8)
    images = images - images.mean(axis=0)
    return np.asarray(images / np.sqrt(np.mean(images**2)))


def from_norm(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(np.linalg.norm(wanted - found, 2) / np.linalg.norm(wanted, 2))


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
    chosen = chosen_pairs(model, images)
    quick = PairKernels(model.activation, chosen.pairs, centre, bias2)
    found = quick.kernels(np.array(WEIGHTS), np.array(INJECT))
    for values, matrix in zip(found, both_kernels(network, images), strict=True):
        assert_close(values, matrix[chosen.rows, chosen.columns], Oracle.CUSTOM_CALLABLE)


def test_chosen_pairs_stand_for_the_whole_matrix(digits: np.ndarray) -> None:
    for model in (ConvDEQ("relu", 0.3), nsd.DEQ("relu", 0.3)):
        samples = digits if isinstance(model, ConvDEQ) else digits.reshape(60, -1)
        chosen = chosen_pairs(model, samples)
        used = len(np.unique(np.append(chosen.rows, chosen.columns)))
        assert_close(chosen.shares.sum(), float(used**2), Oracle.CLOSED_FORM)
        assert np.sum(chosen.rows == chosen.columns) == used


@pytest.mark.slow
@pytest.mark.parametrize(("name", "readout"), [("relu", "pool"), ("tanh", "flatten")])
def test_three_layers_have_both_kernels_on_images_they_have_not_seen(
    name: str, readout: str, digits: np.ndarray
) -> None:
    """The targets: 0.1 % by three layers for both kernels at once; closer than cutting and than a plain layer."""
    made = design(
        ConvDEQ(name, 0.3, readout=readout), X=digits, kernel="both", layers=3, family="injected", samples=8
    )
    evidence = made.held_out
    assert isinstance(made.network, ConvExplicit)
    assert evidence is not None
    assert (evidence.kernels, evidence.samples) == (("ck", "ntk"), 8)
    for fitted, cut, plain in zip(evidence.fitted, evidence.cut, evidence.plain, strict=True):
        assert fitted.plain <= 1e-3
        assert fitted.plain < cut.plain
        assert fitted.scaled < min(cut.scaled, plain.scaled)


@pytest.mark.parametrize(("name", "kernel"), [("relu", "ntk"), ("swish", "ck"), ("sin", "both")])
def test_two_layers(name: str, kernel: str, digits: np.ndarray) -> None:
    """0.5 % by two layers; the evidence is what the kernels of the network say."""
    model = ConvDEQ(name, 0.3, padding="circular")
    made = design(model, X=digits, kernel=kernel, layers=2, family="injected", samples=8)
    evidence = made.held_out
    assert evidence is not None
    for which, fitted, cut in zip(evidence.kernels, evidence.fitted, evidence.cut, strict=True):
        assert fitted.plain <= 5e-3
        assert fitted.plain < cut.plain
        others = digits[-12:]
        wanted, found = (exact_kernel(one, others, kernel=which) for one in (model, made.network))
        assert from_norm(wanted, found) <= 5e-3


@pytest.mark.parametrize("layers", [2, 3])
def test_slopes_of_both_signs_get_a_linear_part_in_the_first_layer(layers: int, digits: np.ndarray) -> None:
    """|x| lets loop gains change sign, (10.13): without the linear part two layers leave 1 to 2 % of the NTK."""
    model = ConvDEQ("abs", 0.3)
    made = design(model, X=digits, kernel="both", layers=layers, family="injected")
    first, *rest = made.network.layers
    steps = np.array([-2.0, -1.0, 1.0, 2.0])
    linear = first(steps) - np.abs(steps)
    assert_close(linear / steps, np.full(4, linear[-1] / 2.0), Oracle.CLOSED_FORM)
    assert linear[-1] > 0.2
    assert all(layer.name == "abs" for layer in rest)
    assert made.held_out is not None
    assert max(distance.plain for distance in made.held_out.fitted) <= {2: 5e-3, 3: 1e-3}[layers]
    assert Design.from_json(made.to_json()).network == made.network


@pytest.mark.parametrize("layers", [2, 3])
def test_without_images_the_linear_part_is_taken_where_it_is_closer(layers: int) -> None:
    """|x| of rows around τ0: the network is the closer of the two, with a linear part and without."""
    model = ConvDEQ("abs", 0.3)
    made = design(model, 1.0, "both", "injected", layers=layers)
    fit, start = Fit(model, reference_target(model.dense, 1.0, "both"), None), cut_start(model, layers)
    without, with_linear = (
        fit.distance(fit.closest(one)) for one in (start, np.append(start, math.log(0.1)))
    )
    assert_close(made.misfit, min(without, with_linear), Oracle.CLOSED_FORM)
    assert (made.network.layers[0].name == "abs") == (without < with_linear)


@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_quick_kernels_know_the_linear_part(readout: str, digits: np.ndarray) -> None:
    images = digits[:4, :, 2:6, 1:6]
    model = ConvDEQ(activation("leaky_relu", a=1.0, b=-0.6), 0.3, readout=readout)
    assert has_linear_part(model, 2)
    assert not has_linear_part(ConvDEQ("relu", 0.3), 2)
    assert not has_linear_part(model, 1)
    logs = np.log([1.3, *WEIGHTS, *INJECT, 0.2])
    network = network_at(model, logs, None)
    chosen = chosen_pairs(model, images)
    quick = PairKernels(model.activation, chosen.pairs, None)
    found = quick.kernels(np.array(WEIGHTS), np.array(INJECT), 0.2)
    for values, matrix in zip(found, both_kernels(network, images), strict=True):
        assert_close(1.3 * values, matrix[chosen.rows, chosen.columns], Oracle.CUSTOM_CALLABLE)


def test_without_images_it_is_the_design_of_rows() -> None:
    """A convolution treats images of one colour as rows, and says that it saw no others."""
    rows = design(nsd.DEQ("swish", 0.3), 1.2, "both", "injected", layers=2)
    made = design(
        ConvDEQ("swish", 0.3, padding="circular", readout="pool"), 1.2, "both", layers=2, family="injected"
    )
    assert made.network.weights == rows.network.weights
    assert made.network.inject == rows.network.inject
    assert made.misfit == rows.misfit
    assert "not judged on images" in made.explain()
    assert "images of one colour" in str(made)
    shades = np.random.default_rng(0).standard_normal((6, 3))
    images = np.broadcast_to(shades[:, :, None, None], (6, 3, 4, 4))
    for found, wanted in zip(
        both_kernels(made.network, images), both_kernels(rows.network, shades), strict=True
    ):
        assert_close(found, wanted, Oracle.QUADRATURE)


def test_one_position_and_one_tap_are_rows(digits: np.ndarray) -> None:
    rows = digits.reshape(60, 64)[:20] / 8.0
    images, model = rows[:, :, None, None], ConvDEQ("tanh", 0.4, filter_size=1)
    targets = samples_target(model, images, "ntk"), samples_target(model.dense, rows, "ntk")
    for values, of_rows in zip(*(target.wanted for target in targets), strict=True):
        assert_close(values, of_rows, Oracle.QUADRATURE)
    # Of rows the least squares are only the first part of a fit.
    logs = [
        Fit(one, target, None).closest(cut_start(one, 2))
        for one, target in zip((model, model.dense), targets, strict=True)
    ]
    np.testing.assert_allclose(logs[0], logs[1], rtol=1e-6)


def test_a_bias_stays(digits: np.ndarray) -> None:
    model = ConvDEQ("tanh", 0.3, bias2=0.2)
    made = design(model, X=digits, kernel="both", layers=3, family="injected", samples=8)
    evidence = made.held_out
    assert made.network.bias2 == 0.2
    assert evidence is not None
    assert all(ours.plain < cut.plain for ours, cut in zip(evidence.fitted, evidence.cut, strict=True))


def test_a_centred_model_has_centred_layers(digits: np.ndarray) -> None:
    made = design(ConvDEQ("relu", 0.3).centred(1.0), 1.0, X=digits, layers=2, family="injected", samples=8)
    again = made.network.centred(1.0)
    for layer, shifted in zip(made.network.layers, again.layers, strict=True):
        assert layer.offset != 0.0
        assert_close(layer.offset, shifted.offset, Oracle.CLOSED_FORM)


def test_a_design_comes_back_from_its_text(digits: np.ndarray) -> None:
    made = design(
        ConvDEQ("relu", 0.3, filter_size=5, readout="pool"),
        X=digits[:8],
        kernel="both",
        layers=1,
        family="injected",
    )
    assert Design.from_json(made.to_json()) == made
    with pytest.raises(InputError, match="images"):
        Design.from_json(made.to_json().replace('"filter_size"', '"filters"'))
    assert [curve.label[:3] for curve in made.curves()] == ["DEQ", "lay"]


def test_distances_of_images(digits: np.ndarray) -> None:
    made = design(ConvDEQ("relu", 0.3), 1.0, "ck", "injected", layers=2)
    found = nsd.twin_distances(made, digits[:20])
    assert found.twin.up_to_factor < 0.1 * min(one.up_to_factor for one in found.plain.values())
    assert found.is_worth_it


def test_auto_takes_the_family_that_has_networks_for_images() -> None:
    made = design(ConvDEQ("relu", 0.3), 1.0)
    assert made.family == "3 × injected"
    assert isinstance(made.network, ConvExplicit)


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


def test_another_layer_is_closer(digits: np.ndarray) -> None:
    one, two, three = (
        design(ConvDEQ("relu", 0.6), X=digits, kernel="ntk", family=InjectedFamily(layers), samples=6).misfit
        for layers in (1, 2, 3)
    )
    assert three < 0.2 * two < 0.04 * one
