"""The numbers and the sentence of the page, computed by another route."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from explorer_choices import CHOICES

import notsodeep as nsd
from notsodeep.errors import ConvergenceError, InputError
from notsodeep_lab.explorer.answers import answer_of, slowest_rate, twin_answer, unsettled
from notsodeep_lab.explorer.choice import Choice, PageData
from notsodeep_lab.explorer.computations import LAYERS, depths_of, forecast_of, labels_of, twin_of
from notsodeep_lab.explorer.offered_networks import Network
from notsodeep_lab.explorer.pictures import drawn, picture_of
from notsodeep_lab.explorer.uploads import read_upload

by_name = pytest.mark.parametrize("choice", CHOICES.values(), ids=list(CHOICES))


def left_out_accuracy(kernel: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy of ridge regression with intercept and the best of nine ridges, leaving out one sample at a time."""
    targets = np.eye(len(np.unique(labels)))[np.unique(labels, return_inverse=True)[1]]
    hits = []
    for ridge in np.trace(kernel) / len(kernel) * 10.0 ** np.arange(-7.0, 2.0):
        right = 0
        for one in range(len(kernel)):
            rest = np.delete(np.arange(len(kernel)), one)
            mean = targets[rest].mean(axis=0)
            inner = kernel[np.ix_(rest, rest)]
            weights = np.linalg.solve(inner + ridge * np.eye(len(rest)), targets[rest] - mean)
            right += int(np.argmax(mean + kernel[one, rest] @ weights) == np.argmax(targets[one]))
        hits.append(right / len(kernel))
    return max(hits)


def test_plain_networks_are_scored_by_leaving_samples_out():
    choice = CHOICES["deq"]
    samples, depths = choice.data.samples, depths_of(choice)
    for layers in (1, 3):
        kernel = nsd.conjugate_kernel(nsd.Explicit(["relu"] * layers), samples.rows)
        assert depths.plain[layers].score == pytest.approx(left_out_accuracy(kernel, samples.labels))


@pytest.mark.slow
@by_name
def test_one_measurement_serves_the_sentence_the_figure_and_the_library(choice: Choice):
    forecast, depths = forecast_of(choice), depths_of(choice)
    samples = choice.data.samples
    data = samples.rows if samples.labels is None else (samples.rows, samples.labels)
    curve = nsd.depth_curve(choice.network.model, data, (1, 2, 3, 4, 6), choice.kernel)
    assert [one.score for one in depths.steps] == pytest.approx(list(curve.accuracy))
    assert list(depths.plain) == ([] if samples.labels is None else list(LAYERS))
    said = answer_of(forecast, depths).sentence
    assert slowest_rate(forecast) in said
    assert said.startswith("**It settles**")
    assert said.endswith(".")
    if samples.labels is not None:
        assert curve.percent(-1) in said
        assert f"{curve.steps_needed} step" in said or np.isinf(curve.steps_needed)
    else:
        assert "add labels" in said
        assert "kernel error" in said


@pytest.mark.slow
@by_name
def test_the_answer_and_the_bars_agree(choice: Choice):
    """A network that is called enough has its bar within a point of the best, and every better one too."""
    depths, curve = depths_of(choice), depths_of(choice).curve
    answer = answer_of(forecast_of(choice), depths)
    for one, steps in zip(depths.steps, curve.steps, strict=True):
        assert one.low <= one.high
        if curve.steps_needed <= steps <= curve.steps[curve.best_place]:
            assert one.is_enough
    enough = [one for one in depths.plain.values() if one.is_enough]
    assert (answer.tone == "shallow") == (bool(enough) or np.isfinite(curve.steps_needed))
    assert ("does as well** (" in answer.sentence and "no plain" not in answer.sentence) == bool(
        enough and "does better" not in answer.sentence
    )


def test_labels_that_cannot_be_predicted_are_reported():
    choice = Choice(data=PageData(n=60, mean=0.0, gap=0.0))
    answer = answer_of(forecast_of(choice), depths_of(choice))
    assert answer.tone == "unsure"
    assert "cannot be predicted" in answer.sentence


def test_a_column_that_numbers_the_samples_is_refused():
    lines = "\n".join(f"{number % 7},{number % 5},{number}" for number in range(60))
    file = read_upload("a.csv", lines.encode(), megabytes=1, label_column="3")
    with pytest.raises(InputError, match="60 different values in 60 samples"):
        labels_of(PageData("file", upload=file))


def test_the_default_is_not_saturated_and_needs_its_depth():
    depths = depths_of(Choice())
    assert 0.8 < depths.steps[0].score < depths.steps[-1].score < 0.95
    assert answer_of(forecast_of(Choice()), depths).tone == "deep"


def test_what_does_not_settle_is_said():
    choice = Choice(Network("swiglu", "tanh", 2.0, 0.5), data=PageData(n=60, p=20))
    forecast = forecast_of(choice)
    answer = unsettled(forecast)
    assert answer is not None
    assert answer.tone == "unsettled"
    assert "lower the feedback" in answer.sentence
    assert float(slowest_rate(forecast)) > 1.0
    assert unsettled(forecast_of(CHOICES["deq"])) is None
    with pytest.raises(ConvergenceError, match="Lower sigma_a2"):
        forecast_of(Choice(Network("deq", "relu", 2.5), data=PageData(n=60)))


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.5, "0.50"), (0.996, "0.996"), (1.0004, "1.0004"), (1.2, "1.20"), (np.inf, "above 100")],
)
def test_a_rate_near_one_shows_its_side(rate: float, text: str):
    forecast = replace(forecast_of(CHOICES["deq"]), rate=np.array([0.1, rate]))
    assert slowest_rate(forecast) == text


@pytest.mark.parametrize("name", ["deq", "digits"])
def test_the_twin_is_compared_by_dense_kernels(name: str):
    choice = CHOICES[name]
    twin, rows = twin_of(choice), choice.data.samples.rows
    exact = nsd.conjugate_kernel if choice.kernel == "ck" else nsd.tangent_kernel
    target = exact(twin.design.model, rows)
    assert np.allclose(twin.kernels["DEQ"], target)
    for network, one in ((twin.design.network, "twin"), (None, "1 plain layer")):
        error = np.linalg.norm(twin.kernels[one] - target, 2) / np.linalg.norm(target, 2)
        assert twin.errors[one].up_to_factor == pytest.approx(error, rel=5e-3, abs=1e-12)
        if network is not None:
            assert np.allclose(twin.kernels[one], twin.errors[one].factor * exact(network, rows))
    assert twin.errors["twin"].up_to_factor < twin.errors["1 plain layer"].up_to_factor
    assert "times closer than 1 plain layer" in twin_answer(twin)
    assert twin.centred == (choice.network.activation == "relu")


def test_cells_have_no_twin_here():
    with pytest.raises(InputError, match="choose DEQ"):
        twin_of(CHOICES["residual cell"])


@pytest.mark.parametrize("kind", ["forecast", "depths", "entries", "eigenvalues"])
@pytest.mark.parametrize("name", ["deq", "npy"])
def test_figures_are_light_or_dark_and_have_words(name: str, kind: str):
    choice = CHOICES[name]
    light, dark = (drawn(kind, choice, dark) for dark in (False, True))
    assert "#0e1117" in dark
    assert "#0e1117" not in light
    assert drawn(kind, choice, True) is dark
    picture = picture_of(kind, choice)
    assert picture.words.endswith(".")
    assert picture.caption.endswith(".")
