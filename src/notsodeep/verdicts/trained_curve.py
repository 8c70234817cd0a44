"""How many of its own steps a trained network needs to give the answers of its equilibrium."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.samples import as_inputs
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.progress import Report
from notsodeep.validation import Array, frozen

# Largest number of samples, half for the fit and half for the measurement; the smallest number; samples per call.
_MOST, _LEAST, _BATCH = 1400, 40, 256
# Samples without an equilibrium are left out up to this share.
_UNSOLVED = 0.05
# Ridges to choose from, relative to the mean eigenvalue.
_RIDGES = 10.0 ** np.arange(-10.0, 3.0, 2.0)


def network_scores(net: Any, X: Any, steps: Sequence[int], seed: int, report: Report) -> dict[str, Any]:
    """Score a trained network after each number of steps, without labels; with the other fields of its curve."""
    if not isinstance(net, EquilibriumNet):
        raise InputError(
            f"Expected a model such as DEQ('relu', 0.2), or a trained DEQNet or ConvDEQNet; got "
            f"{type(net).__name__}. For weights of your own: "
            "nets.DEQNet.from_weights(W, U, b, activation, readout)."
        )
    samples = as_inputs(X, net, "X")
    if len(samples) < _LEAST:
        raise InputError(
            f"{len(samples)} samples are too few for a trained network: {_LEAST} or more are needed."
        )
    order = np.random.default_rng(seed).permutation(len(samples))[:_MOST]
    frozen_net = copy.deepcopy(net).eval()
    frozen_net.on_failure = "ignore"
    unsolved = 0
    outputs: list[Array] = []
    features: list[list[Array]] = [[] for _ in steps]
    batches = torch.split(samples[torch.as_tensor(order)], _BATCH)
    with torch.no_grad():
        for number, batch in enumerate(batches):
            report(number, len(batches), partial("batch {}".format, number + 1))
            every, solve = frozen_net(batch), frozen_net.last_solve
            settled = torch.ones(len(batch), dtype=torch.bool) if solve is None else solve.settled
            unsolved += int((~settled).sum())
            outputs.append(_array(every[settled]))
            for parts, state in zip(features, _states(frozen_net, batch[settled], steps), strict=True):
                parts.append(_array(state))
    _refuse_too_many(unsolved, len(order))
    weights = frozen_net.plain_weights()
    readout, bias = _array(weights.readout), _array(weights.readout_bias)
    goal = np.concatenate(outputs)
    half = len(goal) // 2
    left_out = f"; {unsolved} without an equilibrium left out" if unsolved else ""
    found = [_refitted(np.concatenate(parts), readout, bias, goal, half) for parts in features]
    scores = np.array([_scores(one, goal[half:]) for one in (*found, goal[half:])])
    nothing = frozen(np.full(len(scores), np.nan))
    return {
        "scores": scores,
        "steps": frozen(np.array([*steps, np.inf])),
        "measure": "agreement" if goal.shape[1] > 1 else "explained variance",
        "kernel_error": nothing,
        "ridge": nothing,
        "chance": 0.0,
        "kernel": "",
        "model": f"{type(net).__name__} of {net.spec}",
        "source": f"{len(goal) - half} samples, readout fitted on {half} others{left_out}",
        "unsolved": unsolved,
    }


def _refuse_too_many(unsolved: int, samples: int) -> None:
    """Refuse a network that does not reach its equilibrium on more than a small share of the samples."""
    if unsolved > _UNSOLVED * samples:
        raise ConvergenceError(
            f"The solver reaches no equilibrium for {unsolved} of {samples} samples; up to {_UNSOLVED:.0%} are left "
            "out.",
            "Build the network with solver=SolverOptions(max_steps=..., tolerance=...) that allows more steps or a "
            "larger residual, or leave such samples out (last_solve.unsolved of a forward pass has their places).",
        )


def _states(net: EquilibriumNet, X: Tensor, steps: Sequence[int]) -> Iterator[Tensor]:
    """The state after each number of steps from z = 0, as the readout sees it."""
    weights, phi = net.plain_weights(), TorchActivation(net.spec.activation)
    drive = net.connection.image(weights.inputs, X.flatten(1), weights.bias)
    state = phi(drive)
    for step in range(1, max(steps) + 1):
        if step > 1:
            state = phi(drive + net.connection.image(weights.recurrent, state))
        if step in steps:
            yield net.connection.read(state)


def _refitted(features: Array, readout: Array, bias: Array, goal: Array, half: int) -> Array:
    """Outputs for the second half: the network's own readout, corrected by ridge regression on the first half."""
    own = features @ readout.T + bias
    fit, new = features[:half], features[half:]
    trained = TrainedKernel.of(fit @ fit.T, goal[:half] - own[:half], intercept=True)
    ridges = max(float(trained.values.mean()), 1e-300) * _RIDGES
    errors = np.mean(trained.left_out_residuals(ridges) ** 2, axis=(1, 2))
    ridge = float(ridges[int(np.argmin(errors))])
    rotated, _ = trained.new_samples(new @ fit.T, np.zeros(len(new)))
    return own[half:] + trained.at(rotated, np.empty(0), ridge).mean


def _scores(outputs: Array, goal: Array) -> Array:
    """1 where the class is the same, else 0; of a single output 1 less its squared error over the variance."""
    if goal.shape[1] > 1:
        return np.asarray(outputs.argmax(axis=1) == goal.argmax(axis=1), dtype=np.float64)
    variance = max(float(goal.var()), 1e-300)
    return np.asarray(1.0 - (outputs - goal)[:, 0] ** 2 / variance)


def _array(values: Tensor) -> Array:
    return np.asarray(values.detach().double().cpu())
