"""Depth curves: left-out accuracies by refitting, tasks that need a known number of steps, trained networks."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from depth_tasks import chain, digits, paths
from oracles import ridge_with_intercept
from tolerances import Oracle, assert_close

import notsodeep as nsd

RELU = nsd.DEQ("relu", 0.5)
CHAIN_MODEL = nsd.ConvDEQ("relu", 0.9, 0.5)
KERNELS: dict[str, Any] = {"ck": nsd.conjugate_kernel, "ntk": nsd.tangent_kernel}


def refitted(kernel: np.ndarray, targets: np.ndarray, ridge: float) -> np.ndarray:
    """Predictions for every sample by a regression from all others, one system of equations for each."""
    n, found = len(kernel), np.empty_like(targets)
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        dual, intercept = ridge_with_intercept(kernel[np.ix_(rest, rest)], targets[rest], ridge)
        found[i] = kernel[i, rest] @ dual + intercept
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_accuracies_are_those_of_training_without_the_sample(kernel: str) -> None:
    generator, exact = np.random.default_rng(0), KERNELS[kernel]
    X = generator.standard_normal((40, 4)) / 2.0
    y = np.array(["a", "b", "c"])[np.argmax(X[:, :3] + 0.3 * generator.standard_normal((40, 3)), axis=1)]
    targets = np.eye(3)[np.unique(y, return_inverse=True)[1]]
    curve = nsd.depth_curve(RELU, (X, y), steps=[2, 5], kernel=kernel)
    for place, cut in enumerate((exact(RELU, X, depth=2), exact(RELU, X, depth=5), exact(RELU, X))):
        # Relative to the mean eigenvalue of the centred kernel, of which one is zero.
        ridges = (np.trace(cut) - 40 * cut.mean()) / 39 * 10.0 ** np.arange(-7.0, 2.0)
        right = [refitted(cut, targets, ridge).argmax(axis=1) == targets.argmax(axis=1) for ridge in ridges]
        assert curve.accuracy[place] == max(np.mean(one) for one in right)
        chosen = int(np.argmin(np.abs(np.log(ridges / curve.ridge[place]))))
        assert np.array_equal(curve.scores[place], right[chosen])
        error = nsd.kernel_distance(exact(RELU, X), cut).up_to_factor
        assert curve.kernel_error[place] == pytest.approx(error)
    assert curve.steps.tolist() == [2, 5, np.inf]
    assert curve.chance == np.unique(y, return_counts=True)[1].max() / 40


def test_a_regression_has_the_variance_explained() -> None:
    X = np.random.default_rng(1).standard_normal((30, 3))
    y = X[:, 0] * X[:, 1]
    curve = nsd.depth_curve(RELU, (X, y), steps=[1], ridge=0.1)
    errors = refitted(nsd.conjugate_kernel(RELU, X, depth=1), y[:, None], 0.1)[:, 0] - y
    assert curve.measure == "explained variance"
    assert_close(curve.accuracy[0], 1.0 - np.mean(errors**2) / y.var(), Oracle.QUADRATURE)
    half = 1.959964 * np.std(curve.scores[0], ddof=1) / np.sqrt(30)
    assert_close(np.diff(curve.interval[0]) / 2.0, half, Oracle.FINITE_DIFFERENCE)


@pytest.mark.parametrize(("length", "needed"), [(3, 1), (5, 2)])
def test_marks_at_both_ends_of_a_chain_must_meet(length: int, needed: int) -> None:
    curve = nsd.depth_curve(CHAIN_MODEL, chain(300, length), steps=[1, 2, 3])
    assert curve.steps_needed == needed
    assert curve.accuracy[-1] == 1.0
    assert (curve.accuracy[: needed - 1] < 0.7).all()


@pytest.mark.parametrize("distance", [2, 3])
def test_a_mark_travels_along_a_graph_by_one_node_in_a_step(distance: int) -> None:
    """Only the last node of each path has a label; without the others the mark would not arrive."""
    propagation, features, labels = paths(80, distance)
    model = nsd.GraphDEQ(propagation, "relu", 0.9, 0.9)
    curve = nsd.depth_curve(model, (features, labels), steps=[1, 2, 3, 4])
    assert curve.scores.shape == (5, 80)
    assert curve.accuracy[distance - 2] < 0.7
    assert (curve.accuracy[distance - 1 :] == 1.0).all()


def test_without_labels_kernels_are_compared() -> None:
    X, _ = digits(60)
    curve = nsd.depth_curve(RELU, X, steps=[1, 30])
    whole = nsd.conjugate_kernel(RELU, X)
    error = nsd.kernel_distance(whole, nsd.conjugate_kernel(RELU, X, depth=1)).up_to_factor
    assert curve.measure == "kernel similarity"
    assert curve.accuracy[0] == pytest.approx(1.0 - error)
    assert curve.steps_needed == 30


def test_a_curve_explains_draws_and_writes_itself() -> None:
    curve = nsd.depth_curve(RELU, digits(60), steps=[1, 4])
    assert json.loads(json.dumps(curve.to_dict()))["steps"] == [1, 4, None]
    assert len(repr(curve)) < 250
    assert curve.explain().count("\n") == 4
    axes = curve.plot()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4", "∞"]
    assert_close(axes.lines[0].get_ydata(), 100.0 * curve.accuracy, Oracle.IDENTITY)


def test_a_model_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np, notsodeep as nsd; "
        "X = np.random.default_rng(0).standard_normal((40, 3)); "
        "nsd.verdict(nsd.DEQ('relu', 0.2), X, np.arange(40) % 2)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_samples_too_small_for_a_kernel_are_refused() -> None:
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2
    with pytest.raises(nsd.InputError, match="Scale the samples up"):
        nsd.depth_curve(nsd.DEQ("relu", 0.2), (1e-160 * X, y))
    with pytest.raises(nsd.InputError, match="norm zero"):
        nsd.forecast(nsd.DEQ("relu", 0.2), 1e-160 * X)


# --- trained networks ------------------------------------------------------------------------------------------------


def small_net(outputs: int = 3) -> Any:
    return nsd.nets.DEQNet(nsd.DEQ("tanh", 0.6, bias2=0.1), 4, 8, outputs, seed=1)


def test_steps_of_a_network_are_its_own_with_a_refitted_readout() -> None:
    """The state by iteration in NumPy, the readout by least squares: eight features of 200 samples need no ridge."""
    net = small_net()
    X = np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)
    before = copy.deepcopy(net.state_dict())
    curve = nsd.depth_curve(net, X, steps=[1, 2, 40])
    W, U, b, *_ = (np.asarray(one.double()) for one in net.plain_weights())
    with torch.no_grad():
        goal = net(torch.as_tensor(X)).double().numpy()
    order = np.random.default_rng(0).permutation(400)
    z = np.zeros((400, 8))
    for place in range(2):
        z = np.tanh(z @ W.T + X @ U.T + b)
        design = np.column_stack([z, np.ones(400)])[order]
        readout = np.linalg.lstsq(design[:200], goal[order][:200], rcond=None)[0]
        same = (design[200:] @ readout).argmax(axis=1) == goal[order][200:].argmax(axis=1)
        # One of 200 samples may be decided by the ridge.
        assert curve.accuracy[place] == pytest.approx(same.mean(), abs=0.006)
    assert curve.accuracy[0] < curve.accuracy[1] < 1.0
    assert curve.accuracy[2:].tolist() == [1.0, 1.0]
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_a_single_output_and_images() -> None:
    X = np.random.default_rng(0).standard_normal((120, 4))
    single = nsd.depth_curve(small_net(1), X, steps=[1, 30])
    assert single.measure == "explained variance"
    assert single.accuracy[0] < single.accuracy[1]
    assert single.accuracy[1] == pytest.approx(1.0, abs=1e-5)
    images = np.random.default_rng(0).standard_normal((60, 1, 4, 4))
    net = nsd.nets.ConvDEQNet(nsd.ConvDEQ("relu", 0.5), 1, 4, 3, image_size=(4, 4), seed=0)
    assert nsd.depth_curve(net, images, steps=[1, 30]).accuracy[1] == 1.0


def test_bad_input_is_refused() -> None:
    X, y = digits(60)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((RELU, (X, y[:50])), "y has shape .50,. for 60 samples"),
        ((RELU, (X, [None, np.nan, *y[2:]])), "no label for 2 of 60"),
        ((RELU, (X, y, y)), "tuple of 3"),
        ((RELU, (X, y), []), "steps is empty"),
        ((RELU, (X, y), [0]), "steps"),
        ((RELU, (X, y), [1], "ntk_paper"), "kernel"),
        ((RELU, (X, y), [1], "ck", -1.0), "ridge"),
        ((torch.nn.Linear(64, 10), X), "from_weights"),
        ((small_net(), X), "4"),
        ((small_net(), X[:20, :4]), "too few"),
    ]
    for arguments, words in cases:
        with pytest.raises(nsd.InputError, match=words):
            nsd.depth_curve(*arguments)
