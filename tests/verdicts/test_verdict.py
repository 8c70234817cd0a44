"""Verdicts: the rules by themselves, and answers where the truth is known."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from depth_tasks import chain, digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import LeaveOneOut, cross_val_score

import notsodeep as nsd
from notsodeep.data import Preprocessing
from notsodeep.distillation import distill
from notsodeep.verdicts import DepthCurve, OrdinaryNetwork
from notsodeep.verdicts.depth_curve import curve_of_scores
from notsodeep.verdicts.verdict import decide_trained, decide_untrained

STEPS = np.array([1.0, 4.0, 16.0, np.inf])


# --- rules -----------------------------------------------------------------------------------------------------------


def scores(right: int, n: int = 1000) -> np.ndarray:
    """The first samples are right: fewer of them are a subset."""
    return (np.arange(n) < right).astype(float)


def curve_with(*right: int, n: int = 1000, errors: tuple[float, ...] = (0.1,) * 4) -> DepthCurve:
    nothing = np.full(len(STEPS), np.nan)
    fields: dict[str, Any] = {"kernel": "ck", "model": "DEQ", "source": f"{n} labelled samples"}
    rows = np.array([scores(one, n) for one in right])
    return curve_of_scores(
        rows,
        steps=STEPS,
        measure="accuracy",
        kernel_error=np.array(errors),
        ridge=nothing,
        chance=0.5,
        **fields,
    )


def mlp(right: int, n: int = 1000) -> OrdinaryNetwork:
    found = scores(right, n)
    return OrdinaryNetwork("MLP", 4, float(found.mean()), (0.0, 1.0), found)


@pytest.mark.parametrize(
    ("right", "needed"),
    [
        ((900, 900, 900, 900), 1),
        ((896, 900, 900, 900), 1),  # 0.4 points behind, at most 0.9 with 95 %
        ((890, 900, 900, 900), 4),  # exactly one point behind, perhaps more
        ((900, 880, 900, 900), 16),  # one that fails ends the search
        ((800, 820, 850, 900), np.inf),
        ((950, 900, 900, 900), 1),  # the best is the reference
    ],
)
def test_the_fewest_steps_that_are_certain_to_be_within_a_point(
    right: tuple[int, ...], needed: float
) -> None:
    assert curve_with(*right).steps_needed == needed


def test_few_samples_are_not_certain_unless_kernels_are_alike() -> None:
    assert curve_with(80, 80, 80, 80, n=100).steps_needed == np.inf
    assert curve_with(80, 80, 80, 80, n=100, errors=(0.1, 5e-4, 1e-5, 0.0)).steps_needed == 4
    # What the samples show counts more than the kernels.
    assert curve_with(78, 78, 80, 80, n=100, errors=(0.1, 5e-4, 1e-5, 0.0)).steps_needed == 16


@pytest.mark.parametrize(
    ("right", "ordinary", "few", "answer", "words"),
    [
        ((899, 900, 900, 900), None, 4, "replace", "1 step suffices: accuracy 89.9 %, equilibrium 90.0 %"),
        ((850, 900, 900, 900), 880, 4, "replace", "equilibrium 90.0 %, an ordinary MLP of 4 layers 88.0 %"),
        ((700, 750, 900, 900), 900, 4, "replace", "An ordinary MLP of 4 layers suffices: accuracy 90.0 %"),
        ((700, 750, 850, 900), 700, 4, "keep", "still rises at 16 steps: 90.0 % at the equilibrium, 75.0"),
        ((700, 750, 900, 900), None, 4, "keep", "16 steps are needed: accuracy 90.0 %"),
        ((700, 750, 900, 900), None, 16, "replace", "16 steps suffice"),
        ((885, 890, 900, 900), 890, 4, "unsure", "cannot tell whether 4 steps suffice"),
        ((515, 515, 515, 515), 505, 4, "unsure", "do not show that the labels can be predicted"),
        ((515, 515, 515, 515), 800, 4, "replace", "An ordinary MLP"),
    ],
)
def test_the_answer_follows_from_the_curve(
    right: tuple[int, ...], ordinary: int | None, few: int, answer: str, words: str
) -> None:
    found = decide_untrained(curve_with(*right), None if ordinary is None else mlp(ordinary), few)
    assert (found.answer, words in found.reason) == (answer, True), found.reason


@pytest.mark.parametrize(
    ("agreement", "interval", "certain", "speedup", "answer"),
    [
        (0.999, (0.992, 1.0), True, 5.0, "replace"),
        (0.999, (0.992, 1.0), True, 1.1, "keep"),
        (0.97, (0.96, 0.98), False, 5.0, "keep"),
        (0.99, (0.98, 0.996), False, 5.0, "unsure"),
    ],
)
def test_the_answer_about_a_network_is_that_of_its_distillation(
    agreement: float, interval: tuple[float, float], certain: bool, speedup: float, answer: str
) -> None:
    values = {"agreement": agreement, "agreement_interval": interval, "certain": certain, "speedup": speedup}
    distilled: Any = SimpleNamespace(name="cut after 2 steps", target_agreement=0.99, **values)
    found = decide_trained(distilled)
    assert found.answer == answer
    assert found.reason.startswith("Cut after 2 steps: agrees with the network on")


# --- answers ---------------------------------------------------------------------------------------------------------


def test_digits_need_no_equilibrium() -> None:
    X, y = digits(300)
    found = nsd.verdict(nsd.DEQ("relu", 0.2), X, y)
    assert found.answer == "replace"
    assert found.curve.steps_needed <= 3
    assert (
        str(found.ordinary)
        == f"ordinary MLP of {found.curve.steps_needed} layer{'s' * (found.curve.steps_needed > 1)}"
    )
    # What a learning curve predicts for the same network, with a ridge of its own.
    compared = nsd.learning_curve(nsd.Explicit(["relu"] * found.ordinary.layers), (X, y), len(X), "best")
    assert found.ordinary.accuracy == pytest.approx(compared.accuracy[0], abs=0.02)
    assert json.loads(json.dumps(found.to_dict()))["answer"] == "replace"
    assert str(found).startswith("Can a few explicit layers replace the DEQ? Yes.")
    assert len(found.plot().lines) >= 3


def test_a_linear_model_stands_beside_the_curve() -> None:
    rng = np.random.default_rng(0)
    X = 3.0 + rng.standard_normal((150, 6))
    y = np.where(X[:, 0] + X[:, 1] + rng.standard_normal(150) > 7.0, "a", "b")
    found = nsd.verdict(nsd.DEQ("relu", 0.2), Preprocessing.fit(X).apply(X), y)
    tries = [
        cross_val_score(RidgeClassifier(alpha), X, y, cv=LeaveOneOut()).mean()
        for alpha in 10.0 ** np.arange(-3, 4)
    ]
    assert found.linear.accuracy == pytest.approx(max(tries), abs=0.015)
    low, high = found.linear.interval
    assert low < found.linear.accuracy < high
    said = (
        f"A linear model: accuracy {100 * found.linear.accuracy:.1f} % ({100 * low:.1f} to {100 * high:.1f})."
    )
    assert f"{said} The most frequent class has {100 * found.curve.chance:.1f} %." in str(found)
    assert found.to_dict()["linear"]["accuracy"] == found.linear.accuracy
    assert nsd.verdict(nsd.DEQ("relu", 0.2), X[:30] / 10).linear is None


@pytest.mark.slow
def test_a_chain_that_few_layers_cannot_cross_needs_the_equilibrium() -> None:
    X, y = chain(1200, 7)
    model = nsd.ConvDEQ("relu", 0.9, 0.5)
    found = nsd.verdict(model, X, y, max_steps=2, samples=1200)
    assert found.answer == "keep"
    assert found.ordinary.accuracy < 0.7
    assert nsd.verdict(model, X, y, samples=1200).answer == "replace"


def test_without_labels_close_kernels_decide() -> None:
    X, _ = digits(100)
    close, far = (nsd.verdict(nsd.DEQ("relu", sigma_a2), X) for sigma_a2 in (0.2, 0.9))
    assert (close.answer, far.answer) == ("replace", "unsure")
    for found in (close, far):
        assert "Add labels for a firmer answer." in found.reason
        assert found.ordinary is None


def test_a_trained_network_is_what_distill_builds() -> None:
    X = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    net = nsd.nets.DEQNet(nsd.DEQ("tanh", 0.3), 4, 8, 3, seed=1)
    found = nsd.verdict(net, X, target_agreement=0.9, epochs=0)
    again = distill(net, X, target_agreement=0.9, epochs=0)
    assert found.distilled.certain == again.certain
    assert {one.name: one.agreement for one in found.distilled.candidates} == {
        one.name: one.agreement for one in again.candidates
    }
    assert found.answer == decide_trained(found.distilled).answer
    assert found.curve.measure == "agreement"
    json.dumps(found.to_dict())


def test_input_that_cannot_be_used_and_models_without_an_equilibrium() -> None:
    X, y = digits(60)
    with pytest.raises(nsd.InputError, match="from_weights"):
        nsd.verdict(torch.nn.Linear(64, 10), X)
    with pytest.raises(nsd.InputError, match="no label for 2 of 60"):
        nsd.verdict(nsd.DEQ("relu", 0.2), X, [None, float("nan"), *y[2:]])
    with pytest.raises(nsd.InputError, match="max_steps"):
        nsd.verdict(nsd.DEQ("relu", 0.2), X, y, max_steps=0)
    found = nsd.verdict(nsd.DEQ("relu", 2.5, 1.0), X, y)
    assert found.answer == "unsure"
    assert "no equilibrium" in found.reason
    with pytest.raises(nsd.InputError, match="no curve"):
        found.plot()


def test_classes_that_differ_in_scale_are_learnt_by_readouts_with_a_bias():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    X = rng.standard_normal((500, 20)) * (1.0 + y)[:, None] / np.sqrt(50.0)
    found = nsd.verdict(nsd.DEQ("relu", 0.2), X, y)
    assert found.answer == "replace"
    assert found.curve.accuracy.min() > 0.95
    assert found.ordinary.accuracy > 0.95
    without = nsd.verdict(nsd.DEQ("relu", 0.2), X, y, intercept=False)
    assert without.answer == "unsure"
    assert without.curve.accuracy.max() < 0.6
    curve = nsd.depth_curve(nsd.DEQ("relu", 0.2), (X, y), steps=[1, 4], intercept=False)
    assert curve.accuracy.max() < 0.6
