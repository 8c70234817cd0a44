"""Loops: two-step kernels against networks, predictions against trained readouts, input that cannot be used."""

import numpy as np
import pytest
from oracles import ridge_with_intercept

import notsodeep as nsd
from notsodeep.learning import step_kernel
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.models import normalised_adjacency

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8)) / np.sqrt(8)
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
DATA, TEST = (X[:40], Y[:40]), (X[40:], Y[40:])
DEQ = nsd.DEQ("tanh", 1.4, 0.4)


def features(model, rows, width, steps, seed):
    """Features of one network after each step."""
    rng, states = np.random.default_rng(seed), []
    A = rng.normal(size=(width, width)) * np.sqrt(model.sigma_a2 / width)
    forcing = rows @ rng.normal(size=(rows.shape[1], width)) * np.sqrt(model.sigma_b2)
    forcing = forcing + rng.normal(size=width) * np.sqrt(model.bias2)
    state = np.zeros_like(forcing)
    for _ in range(steps):
        state = model.activation(state @ A + forcing)
        states.append(state / np.sqrt(width))
    return states


@pytest.mark.parametrize("model", [DEQ, nsd.DEQ("relu", 1.0, 0.5, bias2=0.2)], ids=str)
def test_kernels_of_two_steps_are_those_of_networks(model):
    draws = [features(model, X[:6], 700, 5, seed) for seed in range(16)]
    for k, K in ((2, 5), (5, 2), (1, 3)):
        products = np.array([states[k - 1] @ states[K - 1].T for states in draws])
        error = products.std(axis=0) / 4.0 + 2.0 / 700
        assert np.abs((products.mean(axis=0) - step_kernel(model, X[:6], X[:6], k, K)) / error).max() < 4.5


@pytest.mark.parametrize(
    ("model", "samples"),
    [
        (DEQ, X[:6]),
        (nsd.ConvDEQ("relu", 0.8, readout="pool"), RNG.normal(size=(4, 1, 3, 3))),
        (nsd.ConvDEQ("tanh", 0.8), RNG.normal(size=(4, 2, 3, 3))),
        (nsd.GraphDEQ(normalised_adjacency(np.ones((6, 6))), "tanh", 0.8), X[:6]),
    ],
    ids=str,
)
def test_equal_steps_are_the_cut_model_and_transposes_agree(model, samples):
    same = step_kernel(model, samples, samples, 3, 3)
    np.testing.assert_allclose(same, nsd.conjugate_kernel(model.unrolled(3), samples), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        step_kernel(model, samples, samples, 2, 5),
        step_kernel(model, samples, samples, 5, 2).T,
        rtol=1e-9,
        atol=1e-12,
    )


def test_the_prediction_is_ridge_regression_with_two_step_kernels():
    curve = nsd.loop_curve(DEQ, DATA, test=TEST, train_steps=3, steps=[1, 3, 9], ridge=0.1)
    K = nsd.conjugate_kernel(DEQ.unrolled(3), X[:40])
    weights, intercept = ridge_with_intercept(K, 2.0 * Y[:40] - 1.0, 0.1)
    for place, k in enumerate((1, 3, 9)):
        outputs = step_kernel(DEQ, X[40:], X[:40], k, 3) @ weights + intercept
        assert curve.mse[place] == pytest.approx(np.mean((outputs - 2.0 * Y[40:] + 1.0) ** 2), rel=1e-9)
        assert curve.accuracy[place] == np.mean((outputs > 0) == Y[40:])
    assert curve.mse.shape == curve.accuracy.shape == (3,)
    assert "To be trusted" in str(curve)
    axes = curve.plot(measured=[[1, 0.5], [3, 0.4]])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), curve.mse)
    targets = nsd.loop_curve(
        DEQ, (X[:40], X[:40, :2]), test=(X[40:], X[40:, :2]), train_steps=2, steps=[2], intercept=False
    )
    assert np.isnan(targets.accuracy).all()


def test_at_finite_width_mean_and_variance_are_those_of_independent_neurons():
    roots = RNG.normal(size=(90, 200)) * np.arange(1, 201) ** -0.7
    C = roots @ roots.T / np.mean(np.sum(roots**2, axis=1))
    factor, y, width = np.linalg.cholesky(C + 1e-12 * np.eye(90)), np.sign(roots[:60, :1]), 120
    outputs = []
    for seed in range(200):
        drawn = factor @ np.random.default_rng(seed).normal(size=(90, width)) / np.sqrt(width)
        K = drawn[:60] @ drawn[:60].T
        outputs.append(drawn[60:] @ drawn[:60].T @ np.linalg.solve(K + 0.02 * np.eye(60), y))
    readout = TrainedKernel.of(C[:60, :60], y, intercept=False)
    scores = readout.at(C[60:, :60] @ readout.vectors, np.diag(C)[60:], 0.02, width)
    assert np.var(outputs, axis=0).mean() == pytest.approx(scores.variance.mean(), rel=0.1)
    assert np.abs(np.mean(outputs, axis=0) - scores.mean).max() < 5.0 * np.sqrt(scores.variance.max() / 200)


def test_a_graph_is_trained_and_tested_on_its_nodes():
    train, test = [*Y[:40].tolist(), *[None] * 20], [*[None] * 40, *Y[40:].tolist()]
    graph = nsd.GraphDEQ(np.eye(60), "tanh", 1.4, 0.4)
    curve = nsd.loop_curve(graph, (X, train), test=(X, test), train_steps=3, steps=[1, 5])
    # Without edges every node is a row.
    rows = nsd.loop_curve(DEQ, DATA, test=TEST, train_steps=3, steps=[1, 5])
    np.testing.assert_allclose(curve.mse, rows.mse, rtol=1e-9)


def test_cells_of_a_graph_and_long_loops_are_taken():
    from notsodeep import cells

    z, x, S = cells.state(), cells.input(), normalised_adjacency(np.ones((60, 60)))
    train, test = [*Y[:40].tolist(), *[None] * 20], [*[None] * 40, *Y[40:].tolist()]
    cell = cells.activation(cells.graph(z, S, 1.2) + cells.dense(x, 0.4), "tanh")
    curve = nsd.loop_curve(
        nsd.Equilibrium(cell), (X, train), test=(X.copy(), test), train_steps=3, steps=3, intercept=False
    )
    K = nsd.conjugate_kernel(nsd.Loop(cell, 3), X)
    outputs = K[40:, :40] @ np.linalg.solve(K[:40, :40] + 0.1 * np.eye(40), 2.0 * Y[:40] - 1.0)
    np.testing.assert_allclose(curve.mse, np.mean((outputs - 2.0 * Y[40:] + 1.0) ** 2), rtol=1e-9)
    # Hundreds of steps do not exhaust the stack.
    near, far = nsd.loop_curve(DEQ, DATA, test=TEST, train_steps=200, steps=[200, 300]).mse
    assert near == pytest.approx(far, rel=1e-6)
    with pytest.raises((nsd.ConvergenceError, nsd.InputError)):
        nsd.loop_curve(nsd.DEQ("relu", 50.0, 0.4), DATA, test=TEST, train_steps=2, steps=[2000])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": []}, "steps is empty"),
        ({"train_steps": 0}, "train_steps"),
        ({"ridge": -1.0}, "ridge"),
        ({"test": X[40:]}, "test must be labelled samples"),
        ({"test": (X[40:, :3], Y[40:])}, "the same features"),
        ({"test": (X[40:], Y[:3])}, "one label for each sample"),
        ({"test": (X[40:], Y[40:] + 5)}, "y_test"),
        ({"model": nsd.Explicit(["relu"])}, "loop_curve takes a DEQ"),
    ],
)
def test_unusable_input_is_refused(changes, words):
    arguments = {"model": DEQ, "data": DATA, "test": TEST, "train_steps": 3, "steps": [1, 3]} | changes
    with pytest.raises(nsd.InputError, match=words):
        nsd.loop_curve(arguments.pop("model"), arguments.pop("data"), **arguments)
