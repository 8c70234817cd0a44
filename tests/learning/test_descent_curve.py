"""Predicted gradient descent against networks that are really trained."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import notsodeep as nsd
from notsodeep.learning import descent_curve

torch = pytest.importorskip("torch")

ROWS, LABELS = load_digits(return_X_y=True)
ROWS = ROWS - ROWS.mean(axis=0)
ROWS = ROWS / np.sqrt(np.mean(np.sum(ROWS**2, axis=1)))
TRAIN, TEST = (ROWS[:100], LABELS[:100]), (ROWS[100:300], LABELS[100:300])
MODEL = nsd.DEQ("tanh", 0.2)


def trained(net, steps, lr):
    history = nsd.nets.fit(net, TRAIN, TEST, optimizer="gd", lr=lr, epochs=max(steps), loss="squared")
    return np.array([(history.rows[t - 1].test_loss, history.rows[t - 1].test_accuracy) for t in steps]).T


@pytest.mark.parametrize(("mode", "kernel", "width"), [("readout", "ck", 1000), ("all", "ntk", 400)])
def test_against_training(mode, kernel, width):
    steps, lr = [1, 4, 12], 2.0
    predicted = descent_curve(MODEL, TRAIN, TEST, steps, lr, kernel, width=width)
    assert predicted.lazy.all()
    nets = [nsd.nets.DEQNet(MODEL, 64, width, 10, train=mode, seed=seed) for seed in range(3)]
    loss, accuracy = np.mean([trained(net, steps, lr) for net in nets], axis=0)
    np.testing.assert_allclose(predicted.test_loss, loss, rtol=0.08)
    np.testing.assert_allclose(predicted.test_accuracy, accuracy, atol=0.04)


def test_a_given_network_is_predicted_from_its_own_kernel():
    steps, lr = [1, 4, 12], 2.0
    readout = nsd.nets.DEQNet(MODEL, 64, 100, 10, train="readout", seed=1, dtype=torch.float64)
    found = descent_curve(readout, TRAIN, TEST, steps, lr)
    loss, accuracy = trained(readout, steps, lr)
    # The features stay: nothing is approximated.
    np.testing.assert_allclose(found.test_loss, loss, rtol=1e-8)
    np.testing.assert_allclose(found.test_accuracy, accuracy)
    assert found.kernel == "ck"
    net = nsd.nets.DEQNet(MODEL, 64, 400, 10, seed=1)
    found = descent_curve(net, TRAIN, TEST, steps, lr)
    before = {name: net.unit_weight(name).detach().clone() for name, _ in net.named_parameters()}
    loss, _ = trained(net, steps, lr)
    np.testing.assert_allclose(found.test_loss, loss, rtol=0.02)
    moved = sum(
        float((net.unit_weight(name).detach() - start).square().sum()) for name, start in before.items()
    )
    assert found.drift[-1] == pytest.approx(np.sqrt(moved / 400), rel=0.03)


def test_a_narrow_network_is_said_to_leave_the_lazy_regime():
    found = descent_curve(MODEL, TRAIN, TEST, [1, 3000], kernel="ntk", width=20)
    assert found.lazy.tolist() == [True, False]
    assert "leaves the lazy regime" in str(found)
    assert "Give width=" in descent_curve(MODEL, TRAIN, TEST, [1]).verdict
    assert descent_curve(MODEL, TRAIN, TEST, [3000], kernel="ck", width=20).lazy.all()


def test_the_readout_of_one_network_follows_its_own_gram_matrix_exactly():
    # A network with one hidden layer and identity features: the kernel is that of the samples themselves.
    linear = nsd.Explicit([nsd.activation("polynomial", coefficients=[0.0, 1.0])])
    found = descent_curve(linear, TRAIN, TEST, [0, 7, 50], 3.0, "ck", start="zero")
    weights, targets = np.zeros((64, 10)), np.eye(10)
    for step in range(51):
        if step in (0, 7, 50):
            row = [0, 7, 50].index(step)
            outputs = TEST[0] @ weights
            distance = np.sum((outputs - targets[TEST[1]]) ** 2, axis=1)
            assert found.test_loss[row] == pytest.approx(0.5 * distance.mean())
            if step:
                assert found.test_accuracy[row] == np.mean(outputs.argmax(axis=1) == TEST[1])
        weights -= 3.0 * TRAIN[0].T @ (TRAIN[0] @ weights - targets[TRAIN[1]]) / 100


def test_many_steps_are_the_ridgeless_regression():
    found = descent_curve(MODEL, TRAIN, TEST, [0, 10**7], kernel="ck", start="zero")
    kernel, cross = nsd.conjugate_kernel(MODEL, TRAIN[0]), nsd.conjugate_kernel(MODEL, TEST[0], TRAIN[0])
    scores = cross @ np.linalg.solve(kernel, np.eye(10)[TRAIN[1]])
    assert found.test_accuracy[1] == pytest.approx(np.mean(scores.argmax(axis=1) == TEST[1]), abs=0.011)
    assert found.loss[0] == pytest.approx(0.5)
    assert found.loss[1] < 1e-3


def test_a_rate_that_diverges_is_refused():
    with pytest.raises(nsd.InputError, match="diverges"):
        descent_curve(MODEL, TRAIN, TEST, [1], lr=1e4)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": []},
        {"steps": [-1]},
        {"kernel": "rbf"},
        {"start": "warm"},
        {"model": "tanh"},
        {"train": TRAIN[0]},
    ],
    ids=str,
)
def test_refused(change):
    arguments = {"model": MODEL, "train": TRAIN, "test": TEST, "steps": [1]} | change
    with pytest.raises(nsd.InputError):
        descent_curve(**arguments)


def test_the_curve_in_words():
    found = descent_curve(MODEL, TRAIN, TEST, [0, 3], kernel="ck")
    assert repr(found).startswith("DescentCurve(steps=[0, 3]")
