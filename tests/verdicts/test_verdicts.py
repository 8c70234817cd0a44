"""Verdicts: the rules by themselves, the closed form behind them, and answers where the truth is known."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.data import Preprocessing, load
from notsodeep.learning.labelled import Labelled
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.verdicts import Closeness, Gap, Speed, TrainedState
from notsodeep.verdicts.findings import SURE
from notsodeep.verdicts.labelled_gaps import held_out
from notsodeep.verdicts.rules import POINT, decide_trained, decide_untrained

FAST = Speed(5.0, 4.0, 256, 1024)
CLOSE = Closeness("ck", 1e-4, 0.02, 0.0, 500)
EQUAL = Gap("kernels", 0.9, 0.9, 0.9, 0.0, 0.001, 0.0, 0.001, 0.1, False, 1000)
STATE = TrainedState(0.5, 0.1, 0.8, 2, 0.995, (0.99, 0.999), 0.99, 3, 0.4, 6.0, 400, 0.99)


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    data = load("digits", split="train", n=n)
    return Preprocessing.fit(data.X).apply(data.X), data.y


def chain(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Marks at both ends of a sequence: are they alike?"""
    generator = np.random.default_rng(length)
    ends = generator.choice([-1.0, 1.0], (n, 2))
    x = 0.01 * generator.standard_normal((n, 1, length))
    x[:, 0, 0], x[:, 0, -1] = ends.T
    return x * np.sqrt(length / 2.0), (ends[:, 0] == ends[:, 1]).astype(int)


# --- rules ----------------------------------------------------------------------------------------------------------


def combined(*estimates: tuple[float, float]) -> tuple[float, float]:
    """Independent normal estimates of one number: their mean by precisions, and its standard error."""
    precisions = np.array([error**-2 for _, error in estimates])
    return float(precisions @ [mean for mean, _ in estimates] / precisions.sum()), float(
        precisions.sum() ** -0.5
    )


@given(
    wide=st.floats(-0.1, 0.5),
    behind=st.floats(-0.2, 0.5),
    uncertainty=st.floats(1e-4, 0.1),
    close=st.booleans(),
)
def test_the_answer_follows_what_kernels_and_networks_say_together(
    wide: float, behind: float, uncertainty: float, close: bool
) -> None:
    kernels = replace(EQUAL, behind=wide, uncertainty=0.004)
    networks = replace(EQUAL, source="networks", behind=behind, uncertainty=uncertainty)
    closeness = replace(CLOSE, twin=1e-4 if close else 0.005)
    expected = wide, 0.004
    if close and kernels.estimate.least <= POINT:
        expected = combined(expected, (0.0, POINT / 2))
    expected = expected[0], float(np.hypot(expected[1], max(POINT, abs(expected[0])) / 2))
    mean, error = combined(expected, (behind, uncertainty))
    answer = decide_untrained([kernels, networks], closeness, FAST).answer
    for bound, wanted in ((mean - SURE * error, "no"), (POINT - mean - SURE * error, "yes")):
        beyond = bound - (POINT if wanted == "no" else 0.0)
        if abs(beyond) > 1e-9:
            assert (answer == wanted) == (beyond > 0.0)


def test_the_reason_of_a_no_names_what_is_behind() -> None:
    """Kernels surely ahead, networks surely behind: the reason is the networks', though the kernels are surer."""
    kernels = replace(EQUAL, behind=-0.02, uncertainty=0.0001)
    networks = replace(EQUAL, source="networks", behind=0.06, uncertainty=0.002)
    found = decide_untrained([kernels, networks], replace(CLOSE, twin=0.005), FAST)
    assert found.answer == "no"
    assert found.reason.startswith("With the networks the twin is 6.0 points behind")


def test_a_few_narrow_networks_cannot_refute_kernels_that_agree() -> None:
    """Four points behind, give or take two: less than it takes; nor is a large gap in the kernels overruled."""
    noisy = replace(EQUAL, source="networks", behind=0.042, uncertainty=0.019)
    assert decide_untrained([EQUAL, noisy], CLOSE, FAST).answer == "yes"
    sure = replace(noisy, uncertainty=0.003)
    assert decide_untrained([EQUAL, sure], CLOSE, FAST).answer == "no"
    far = replace(EQUAL, behind=0.48, uncertainty=0.02)
    assert decide_untrained([far, replace(far, source="networks")], CLOSE, FAST).answer == "no"


@given(distance=st.floats(1e-6, 1.0))
def test_without_labels_kernels_that_are_further_apart_never_get_a_better_answer(distance: float) -> None:
    order = {"yes": 0, "uncertain": 1, "no": 2}
    near, far = (
        decide_untrained([], replace(CLOSE, twin=one), FAST).answer for one in (distance, 1.5 * distance)
    )
    assert order[near] <= order[far]


def test_a_twin_that_is_not_faster_or_labels_that_nobody_learns_are_not_a_yes() -> None:
    slow = decide_untrained([EQUAL, EQUAL], CLOSE, replace(FAST, forward=1.0, training=1.0))
    assert slow.answer == "no"
    assert "Nothing is gained" in slow.reason
    nothing = replace(EQUAL, deq=0.5, twin=0.5, chance=0.5)
    far = replace(CLOSE, twin=0.05)
    chance = decide_untrained([nothing, nothing], far, FAST)
    assert chance.answer == "uncertain"
    assert "do not learn these labels" in chance.reason
    # Nor a no: among labels that nobody learns a gap is chance.
    apart = replace(EQUAL, deq=0.45, twin=0.35, behind=0.1, chance=0.5)
    assert decide_untrained([apart, apart], far, FAST).answer == "uncertain"
    # Kernels that are close decide as they do without labels, unless those at infinite width do learn and are apart.
    assert "neither twin nor DEQ" in decide_untrained([nothing, nothing], CLOSE, FAST).reason
    assert decide_untrained([replace(EQUAL, behind=0.05), nothing], CLOSE, FAST).answer == "uncertain"


def test_a_yes_that_rests_on_the_kernels_says_so() -> None:
    noisy = replace(EQUAL, source="networks", behind=0.005, uncertainty=0.01)
    found = decide_untrained([EQUAL, noisy], CLOSE, FAST)
    assert found.answer == "yes"
    assert "With exact kernels, which agree to 0.0001" in found.reason
    assert "exact kernels" not in decide_untrained([EQUAL, EQUAL], CLOSE, FAST).reason


def test_a_plain_layer_that_was_better_is_not_said_to_be_too_little() -> None:
    """Kernels surely show a plain layer behind, networks show it ahead: these samples cannot tell."""
    kernels = replace(EQUAL, plain=0.85, plain_behind=0.05)
    for plain_behind, words in ((-0.01, "cannot tell"), (0.05, "would not do")):
        networks = replace(EQUAL, source="networks", plain_behind=plain_behind, plain_uncertainty=0.01)
        assert words in decide_untrained([kernels, networks], CLOSE, FAST).reason


def test_a_response_from_beyond_the_reach_of_the_twin_needs_labels() -> None:
    assert decide_untrained([], replace(CLOSE, beyond=0.3), FAST).answer == "uncertain"
    assert decide_untrained([EQUAL, EQUAL], replace(CLOSE, beyond=0.3), FAST).answer == "yes"


def test_the_answer_about_a_trained_network_follows_what_its_steps_agree_on() -> None:
    shares = (0.999, (0.99, 1.0)), (0.987, (0.98, 0.992)), (0.985, (0.98, 0.99)), (0.95, (0.94, 0.96))
    answers = [decide_trained(replace(STATE, agreement=one, interval=band)).answer for one, band in shares]
    # `distill` fits to more rows, which removes three tenths of what is missing: 98.6 % become 99.
    assert answers == ["yes", "yes", "uncertain", "no"]
    assert decide_trained(replace(STATE, speed=1.0)).answer == "no"
    assert "not left" in decide_trained(replace(STATE, kernel_change=0.1)).reason


# --- the closed form ------------------------------------------------------------------------------------------------


def test_left_out_errors_are_those_of_training_without_the_sample() -> None:
    """Of an exact kernel and of features, by refitting without the sample at every ridge."""
    generator = np.random.default_rng(0)
    X, y = generator.standard_normal((30, 5)), generator.standard_normal(30)
    found = nsd.verdict(nsd.DEQ("relu", 0.2), X, y, width=8, train="readout")
    kernel = nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), X)
    assert_close(found.gaps[0].deq, least_left_out_error(kernel, y), Oracle.QUADRATURE)
    features = generator.standard_normal((30, 8))
    trained = TrainedKernel.of_features(features, y[:, None], intercept=True)
    errors = held_out(trained, Labelled.of(y, 30))
    assert_close(errors.mean(), least_left_out_error(features @ features.T, y), Oracle.QUADRATURE)


def least_left_out_error(kernel: np.ndarray, y: np.ndarray) -> float:
    n, errors = len(y), []
    for power in np.arange(-7.0, 3.1, 0.5):
        ridge = np.trace(kernel) / n * 10.0**power
        residuals = np.empty(n)
        for i in range(n):
            rest = np.delete(np.arange(n), i)
            mean = y[rest].mean()
            dual = np.linalg.solve(kernel[np.ix_(rest, rest)] + ridge * np.eye(n - 1), y[rest] - mean)
            residuals[i] = kernel[i, rest] @ dual + mean - y[i]
        errors.append(np.mean(residuals**2))
    return float(min(errors))


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_weak_feedback_on_digits_needs_no_equilibrium() -> None:
    X, y = digits(300)
    found = nsd.verdict(nsd.DEQ("relu", 0.2), X, y, width=128, train="readout")
    assert found.answer == "yes"
    assert [gap.source for gap in found.gaps] == ["kernels", "networks"]
    # What `compare` predicts for the same models, by its own route.
    models = {"DEQ": nsd.DEQ("relu", 0.2), "twin": found.twin.design.network}
    compared = nsd.compare_models(models, (X, y))
    for name, value in zip(compared.names, compared.accuracy, strict=True):
        assert getattr(found.gaps[0], name.lower()) == pytest.approx(value, abs=0.02)
    assert found.closeness.twin < 1e-3
    assert json.loads(json.dumps(found.as_dict()))["answer"] == "yes"
    assert "Go on with" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "answer"), [(4, "yes"), (9, "no")])
def test_a_chain_longer_than_the_twin_reaches_needs_the_equilibrium(length: int, answer: str) -> None:
    X, y = chain(200, length)
    model = nsd.ConvDEQ("relu", 0.8, 1.0, readout="flatten")
    found = nsd.verdict(model, X, y, width=16, train="readout")
    assert found.answer == answer
    assert found.gaps[0].deq == pytest.approx(1.0)
    assert nsd.verdict(model, X, width=16, train="readout").answer == "uncertain"


@pytest.mark.slow
def test_a_network_is_judged_by_its_own_steps_and_not_changed() -> None:
    X, _ = digits(400)
    # Of this draw three steps agree on every sample; of others on one or two fewer, which rounding decides.
    net = nsd.nets.DEQNet(nsd.DEQ("relu", 0.1), 64, 64, 10, seed=1)
    before = copy.deepcopy(net.state_dict())
    found = nsd.verdict(net, torch.as_tensor(X, dtype=torch.float32))
    assert found.answer == "yes"
    assert found.trained.steps <= 4
    # As it was drawn: its tangent kernel is as far from the limit as that of any network of this width.
    assert 0.5 < found.trained.kernel_change / found.trained.fresh_change < 2.0
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


@pytest.mark.slow
def test_strong_feedback_is_not_replaced_by_a_few_steps() -> None:
    X, _ = digits(300)
    # A rotation that hardly contracts: after a few steps the state still depends on where it is.
    width, scale = 64, 0.9
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((width, width)))[0]
    inputs = np.random.default_rng(1).standard_normal((width, 64)) / 8.0
    readout = np.random.default_rng(2).standard_normal((10, width))
    net = nsd.nets.DEQNet.from_weights(scale * turn, inputs, np.zeros(width), "tanh", readout)
    found = nsd.verdict(net, X, until=0.999)
    assert found.answer == "no"
    assert found.trained.contraction > 0.7


def test_bad_input_is_refused_before_any_work() -> None:
    X, y = digits(60)
    with pytest.raises(nsd.InputError, match="from_weights"):
        nsd.verdict(torch.nn.Linear(64, 10), X)
    with pytest.raises(nsd.InputError, match="labels"):
        nsd.verdict(nsd.DEQ("relu", 0.2), X, y[:50])
    for missing in (None, float("nan")):
        with pytest.raises(nsd.InputError, match="no label for 2 of 60"):
            nsd.verdict(nsd.DEQ("relu", 0.2), X, [missing, missing, *y[2:]])
    with pytest.raises(nsd.InputError, match="train"):
        nsd.verdict(nsd.DEQ("relu", 0.2), X, y, train="some")
    net = nsd.nets.DEQNet(nsd.DEQ("relu", 0.2), 64, 16, 10, seed=0)
    with pytest.raises(nsd.InputError, match="leave width"):
        nsd.verdict(net, X, width=10)
    with pytest.raises(nsd.InputError, match="until"):
        nsd.verdict(net, X, until=2.0)
    with pytest.raises(nsd.InputError, match="too few"):
        nsd.verdict(net, X[:20])


def test_a_model_without_an_equilibrium_on_the_data_is_uncertain() -> None:
    X, y = digits(60)
    found = nsd.verdict(nsd.DEQ("relu", 2.5, 1.0), X, y, width=16)
    assert found.answer == "uncertain"
    assert "no solution" in found.reason
