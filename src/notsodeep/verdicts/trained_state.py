"""How far training has taken a DEQ from its kernels, and how few of its own steps still give its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from notsodeep.equivalents.error import kernel_distance
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.nets import empirical_kernels
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.fidelity import agreement_of, milliseconds
from notsodeep.nets.modules import network_of
from notsodeep.nets.readout_fit import fit_readout
from notsodeep.nets.students import StepsNet, first_steps
from notsodeep.nets.teacher_answers import answers_of
from notsodeep.progress import Report
from notsodeep.validation import Array
from notsodeep.verdicts.findings import TrainedState

# Steps to try with a fitted readout, and steps after which the DEQ is simply cut.
_FITTED = (1, 2, 3)
_CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Samples for the kernels (images cost more), and for one call of a network.
_ROWS, _IMAGES, _BATCH = 300, 40, 256
# Shares of the samples that fit a readout and choose its ridge; the others judge.
_FIT, _CHOOSE = 0.6, 0.1
_LEAST = 40


def trained_state(net: EquilibriumNet, X: Tensor, wanted: float, seed: int, report: Report) -> TrainedState:
    """All that is measured about a trained network; no labels are needed, and the network is not changed."""
    if len(X) < _LEAST:
        raise InputError(
            f"{len(X)} samples are too few to judge a trained network by: {_LEAST} or more are needed."
        )
    report(0, 3, lambda: "answers of the network")
    answers = answers_of(net, X, _BATCH, report)
    samples, wished = X[answers.good], answers.outputs[answers.good]
    report(1, 3, lambda: "a few of its steps")
    best, cuts = _few_steps(net, samples, wished, wanted, seed)
    report(2, 3, lambda: "its tangent kernel")
    change, fresh, share = _kernel_regime(net, samples, wished, seed)
    times = milliseconds({"DEQ": net, "steps": best.network}, samples[:_BATCH])
    needed = next((steps for steps, share_ in cuts.items() if share_ >= wanted), None)
    return TrainedState(
        change,
        fresh,
        share,
        best.network.steps,
        best.agreement,
        cuts[best.network.steps],
        needed,
        _contraction(net, samples[:_BATCH]),
        times["DEQ"] / times["steps"],
        best.judged,
        wanted,
    )


@dataclass(frozen=True)
class _Steps:
    network: StepsNet
    agreement: float
    judged: int


@torch.no_grad()
def _few_steps(
    net: EquilibriumNet, X: Tensor, Y: Tensor, wanted: float, seed: int
) -> tuple[_Steps, dict[int, float]]:
    """The fewest steps that agree as wanted once their readout is fitted, or the most faithful; and plain cutting."""
    order = torch.as_tensor(np.random.default_rng(seed).permutation(len(X)))
    ends = int(_FIT * len(X)), int((_FIT + _CHOOSE) * len(X))
    fit, choose, judge = order[: ends[0]], order[ends[0] : ends[1]], order[ends[1] :]
    found = []
    for steps in _FITTED:
        student = first_steps(net, steps)
        outputs = _batched(student, X)
        # A correction of the readout it has: with a large ridge the cut DEQ is what remains.
        missing = Y - outputs
        correction = fit_readout(
            student.features, (X[fit], missing[fit]), (X[choose], missing[choose]), _BATCH
        )
        if correction is not None and correction.error < float(missing[choose].double().square().mean()):
            student.set_readout(student.readout + correction.weights, student.readout_bias + correction.bias)
        found.append(_Steps(student, _agreement(_batched(student, X[judge]), Y[judge]), len(judge)))
        if found[-1].agreement >= wanted:
            break
    best = found[-1] if found[-1].agreement >= wanted else max(found, key=lambda one: one.agreement)
    cuts = {}
    for steps in _CUTS:
        cuts[steps] = _agreement(_batched(first_steps(net, steps), X[judge]), Y[judge])
        if cuts[steps] >= wanted and steps >= max(_FITTED):
            break
    return best, cuts


def _agreement(found: Tensor, wanted: Tensor) -> float:
    """The share of samples with the same class; for a single output the share of variance explained."""
    same = agreement_of(found, wanted)
    if same is not None:
        return float(same)
    spread = float((wanted - wanted.mean()).double().square().mean())
    return 1.0 - float((found - wanted).double().square().mean()) / max(spread, 1e-300)


def _batched(module: Callable[[Tensor], Tensor], X: Tensor) -> Tensor:
    return torch.cat([module(part) for part in torch.split(X, _BATCH)])


@torch.no_grad()
def _contraction(net: EquilibriumNet, X: Tensor) -> float:
    """How much of the distance to the equilibrium one step leaves, from the third step to the fifth."""
    end = net.features(X)
    apart = [
        float((first_steps(net, steps).features(X) / _feature_scale(net) - end).norm()) for steps in (3, 5)
    ]
    return float(np.sqrt(apart[1] / max(apart[0], 1e-300)))


def _feature_scale(net: EquilibriumNet) -> float:
    """Features of a network are divided by √m; those of the steps are not."""
    return float(np.sqrt(net.units))


@torch.no_grad()
def _kernel_regime(net: EquilibriumNet, X: Tensor, Y: Tensor, seed: int) -> tuple[float, float, float]:
    """Change of the tangent kernel by training, that of a fresh network by its width, and the tangent share."""
    count = min(len(X), _IMAGES if net.takes_images else _ROWS)
    rows, outputs = X[:count], np.asarray(Y[:count].double().cpu())
    untrained = exact_kernel(net.spec, net.spec.check_samples(np.asarray(rows.double().cpu())), kernel="ntk")
    fresh = network_of(
        net.spec, net.sample_shape, net.units, net.out_features, **{**net.shared_options, "seed": seed}
    )
    change, by_width = (
        kernel_distance(
            untrained, np.asarray(empirical_kernels(module, rows).ntk.double().cpu())
        ).up_to_factor
        for module in (net, fresh)
    )
    return change, by_width, _explained(untrained, outputs)


def _explained(kernel: Array, outputs: Array) -> float:
    """Share of the outputs' variance that a regression with this kernel explains on samples left out."""
    trained = TrainedKernel.of(kernel, outputs, intercept=True)
    size = float(np.mean(np.diagonal(kernel)))
    errors = [
        float(trained.left_out(size * 10.0**power).squared_errors(outputs).mean()) for power in range(-8, 3)
    ]
    return 1.0 - min(errors) / max(float(outputs.var(axis=0).mean()), 1e-300)
