"""The numbers of the page, computed by another route."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from explorer_choices import CHOICES, SMALL

import notsodeep as nsd
from notsodeep.designs import TwinDistances
from notsodeep.equivalents import KernelDistance
from notsodeep_lab.explorer import computations
from notsodeep_lab.explorer.choice import Choice, PageData
from notsodeep_lab.explorer.images import shrunk, small_images
from notsodeep_lab.explorer.words import design_summary, next_steps, plain, spectrum_summary

# One of each kind of data and kernel; a typed formula takes seconds.
SOME = ("mixture", "tangent kernel", "papers' tangent kernel", "sphere", "csv", "even")
by_name = pytest.mark.parametrize("choice", [CHOICES[name] for name in SOME], ids=SOME)


@pytest.mark.slow
@by_name
def test_eigenvalues_are_those_of_the_exact_kernel(choice: Choice):
    found = computations.spectrum_of(choice)
    matrix = computations.kernel_of(computations.centred_model(choice), choice.data, choice.shown_kernel)
    assert np.sum(found.exact) == pytest.approx(np.trace(matrix), rel=1e-10)
    assert np.sum(found.exact**2) == pytest.approx(np.sum(matrix**2), rel=1e-10)
    assert np.all(np.diff(found.exact) >= 0)
    assert found.exact[0] > -1e-10 * found.exact[-1]


@pytest.mark.slow
@by_name
def test_distances_are_those_of_dense_matrices(choice: Choice):
    model, rows = computations.centred_model(choice), computations.samples_of(choice.data).rows
    tau0, kernel = computations.samples_of(choice.data).tau0, choice.shown_kernel
    exact = nsd.conjugate_kernel if kernel == "ck" else nsd.tangent_kernel

    def dense(network) -> np.ndarray:
        paper = kernel == "ntk_paper" and isinstance(network, nsd.DEQ)
        return exact(network, rows, of="paper") if paper else exact(network, rows)

    target = dense(model)
    plain_layer = nsd.Explicit([model.activation]).centred(tau0)
    found = computations.distances_of(choice)
    for one, network in ((found.twin, computations.design_of(choice).network), (found.plain[1], plain_layer)):
        expected = np.linalg.norm(dense(network) - target, 2) / np.linalg.norm(target, 2)
        assert one.relative == pytest.approx(expected, rel=5e-3, abs=1e-12)
        assert one.up_to_factor <= one.relative


def test_samples_are_those_that_the_choice_names():
    drawn = computations.samples_of(SMALL)
    rows, labels = nsd.GaussianMixture.paper(80, mean=8.0, gap=8.0).sample(120, seed=0)
    assert np.array_equal(drawn.rows, rows)
    assert np.array_equal(drawn.labels, labels)
    sphere = computations.samples_of(PageData("sphere", n=50, p=30))
    assert np.allclose(np.linalg.norm(sphere.rows, axis=1), 1.0)
    digits = computations.samples_of(PageData("digits", n=2000))
    assert digits.rows.shape == (1437, 64)
    assert digits.tau0 == pytest.approx(1.0)
    assert np.abs(digits.rows.mean(axis=0)).max() < 1e-12


@pytest.mark.slow
def test_a_choice_is_computed_once():
    choice = Choice(sigma_a2=0.123, data=SMALL)
    assert computations.design_of(choice) is computations.design_of(Choice(sigma_a2=0.123, data=SMALL))
    assert computations.spectrum_of(choice) is computations.spectrum_of(replace(choice, family="polynomial"))


@pytest.mark.slow
@by_name
def test_every_choice_is_summarised(choice: Choice):
    made, found = computations.design_of(choice), computations.spectrum_of(choice)
    summary = design_summary(made, computations.distances_of(choice))
    good = made.exact or made.misfit is not None
    assert summary.startswith("Yes" if good else "Not quite")
    assert "up to a factor" in summary
    if choice.kernel == "ntk_paper":
        assert not made.exact
        assert "true tangent kernel" in next_steps(choice, made, found)[0]
    assert spectrum_summary(found).endswith(".")
    steps = next_steps(choice, made, found)
    assert 0 < len(steps) <= 3
    assert all(step.endswith(".") for step in steps)


def test_the_summary_depends_on_the_distance_on_the_samples():
    """A design whose numbers agree is a plain yes only if plain layers are further away, up to a factor too."""
    near, far = KernelDistance(0.01, 0.01, 1.0), KernelDistance(0.3, 0.19, 0.8)
    made = computations.design_of(CHOICES["mixture"])
    good = TwinDistances("ck", 80, near, far, {1: far}, True)
    assert good.gain == pytest.approx(19.0)
    assert "19 times closer" in str(good)
    assert design_summary(made, good).startswith("Yes: 2 hidden layers.")
    poor = TwinDistances("ck", 80, far, far, {1: KernelDistance(0.3, 0.01, 0.8)}, True)
    assert design_summary(made, poor).startswith("Yes, but a plain network is as close")


@pytest.mark.parametrize(
    "text", ["a*b*c", "__init__", "[x](http://y)", "$x$", "<b>", ":red[x]", "~~a~~", "# a"]
)
def test_user_text_is_escaped(text: str):
    assert all(f"\\{sign}" in plain(text) for sign in text if not sign.isalnum() and sign not in " /")


def test_samples_needed_are_read_from_the_curve():
    from notsodeep.learning import LearningCurve

    pytest.importorskip("streamlit")
    from notsodeep_lab.explorer.verdict_panels import samples_needed

    n, accuracy = np.array([10, 100, 1000]), np.array([0.5, 0.7, 0.9])
    flat = np.zeros(3)
    curve = LearningCurve(
        n, accuracy, flat, np.stack([accuracy, accuracy], 1), flat, flat > 0, None, "ck", "m", "s"
    )
    assert samples_needed(curve, 0.8) == "320"  # half way from 100 to 1000 on a logarithmic axis: 316
    assert samples_needed(curve, 0.5) == "at most 10"
    assert samples_needed(curve, 0.95) == "more than 1000"


def test_images_are_downscaled_by_averaging_over_blocks():
    images = np.arange(2 * 9 * 8.0).reshape(1, 2, 9, 8)
    small = shrunk(images, 4)
    assert small.shape == (1, 2, 3, 4)
    assert small[0, 1, 2, 3] == pytest.approx(images[0, 1, 6:9, 6:8].mean())
    digits = small_images(PageData("digits", n=50))
    assert digits.rows.shape == (50, 1, 4, 4)
    assert np.mean(np.sum(digits.rows**2, axis=1)) == pytest.approx(1.0)
