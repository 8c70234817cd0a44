"""How far training has taken a DEQ from its kernels, and how few of its own steps still give its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from notsodeep.distillation.candidates import CLOSED_FORMS
from notsodeep.distillation.certainty import agreement as _agreement
from notsodeep.distillation.certainty import seconds_per_call, share_interval
from notsodeep.distillation.fitting import Fitter
from notsodeep.distillation.step_fit import Equilibria, fit_steps
from notsodeep.distillation.student_networks import DEQCell, StepsNet, UnrolledCell
from notsodeep.distillation.teachers import Teacher
from notsodeep.equivalents.error import kernel_distance
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.nets import empirical_kernels
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.modules import network_of
from notsodeep.progress import Report, silent
from notsodeep.validation import Array
from notsodeep.verdicts.findings import TrainedState

# Steps that are fitted, as many as `distill` tries, and steps after which the DEQ is simply cut.
_STEPS = (1, 2, *CLOSED_FORMS)
_CUTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
# Samples for the kernels (images cost more), and for one call of a network.
_ROWS, _IMAGES, _BATCH = 300, 40, 256
# Every sample judges a fit without its part; a tenth of the others chooses.
_PARTS, _CHOOSE = 3, 0.1
# Of the interval of an agreement, both sides together.
_RISK = 0.2
_LEAST = 40


def trained_state(net: EquilibriumNet, X: Tensor, wanted: float, seed: int, report: Report) -> TrainedState:
    """All that is measured about a trained network; no labels are needed, and the network is not changed."""
    if len(X) < _LEAST:
        raise InputError(
            f"{len(X)} samples are too few to judge a trained network by: {_LEAST} or more are needed."
        )
    teacher = Teacher.of(net, X, None, None, None)
    net = teacher.network or net
    report(0, 3, lambda: "answers of the network")
    outputs, usable = teacher.outputs(X, report)
    samples, wished = X[usable], outputs[usable]
    report(1, 3, lambda: "a few of its steps")
    best = _few_steps(net, samples, wished, wanted, seed)
    cuts = _cuts(net, samples, wished, wanted)
    report(2, 3, lambda: "its tangent kernel")
    change, fresh, share = _kernel_regime(net, samples, wished, seed)
    times = seconds_per_call({"DEQ": net, "steps": _cut(net, best.steps)}, samples[:_BATCH])
    needed = next((steps for steps, share_ in cuts.items() if share_ >= wanted), None)
    return TrainedState(
        change,
        fresh,
        share,
        best.steps,
        best.agreement,
        best.interval,
        best.cut_agreement,
        needed,
        _contraction(net, samples[:_BATCH]),
        times["DEQ"] / times["steps"],
        len(samples),
        wanted,
    )


@dataclass(frozen=True)
class _Steps:
    steps: int
    agreement: float
    interval: tuple[float, float]
    cut_agreement: float


@torch.no_grad()
def _few_steps(net: EquilibriumNet, X: Tensor, Y: Tensor, wanted: float, seed: int) -> _Steps:
    """The fewest steps that surely agree as wanted once their readout is fitted, or the most faithful.

    As many as `distill` tries.  Of classes the interval is that of a share, 90 % on either side; of a single output it
    is not known, and the value itself stands for it.
    """
    found = []
    for steps in _STEPS:
        fitted = _fitted_without(net, X, Y, steps, seed)
        cut = _agreement(_batched(_cut(net, steps), X), Y)
        agreement = _agreement(fitted, Y)
        same = round(agreement * len(X))
        interval = share_interval(same, len(X), _RISK) if Y.shape[1] > 1 else (agreement, agreement)
        found.append(_Steps(steps, agreement, interval, cut))
        if interval[0] >= wanted:
            return found[-1]
    return max(found, key=lambda one: one.agreement)


def _fitted_without(net: EquilibriumNet, X: Tensor, Y: Tensor, steps: int, seed: int) -> Tensor:
    """Outputs of a few steps, as `distill` fits them in closed form; each sample sees a fit without its part."""
    found = torch.empty_like(Y)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(Y)), _PARTS)
    for number, part in enumerate(parts):
        others = np.concatenate([one for other, one in enumerate(parts) if other != number])
        count = max(int(_CHOOSE * len(others)), 1)
        choose, fit, judge = (torch.as_tensor(one) for one in (others[:count], others[count:], part))
        student = StepsNet(net, net.plain_weights(), steps)
        fit_steps(student, Equilibria.of(net, X[fit]))
        Fitter((X[fit], Y[fit]), (X[choose], Y[choose]), seed, silent).readout(student)
        found[judge] = _batched(student, X[judge])
    return found


@torch.no_grad()
def _cuts(net: EquilibriumNet, X: Tensor, Y: Tensor, wanted: float) -> dict[int, float]:
    """How well the DEQ agrees with itself cut after some steps, until it does as wanted."""
    cuts: dict[int, float] = {}
    for steps in _CUTS:
        cuts[steps] = _agreement(_batched(_cut(net, steps), X), Y)
        if cuts[steps] >= wanted:
            break
    return cuts


def _cut(net: EquilibriumNet, steps: int) -> UnrolledCell:
    """The network stopped after some steps."""
    return UnrolledCell(DEQCell(net), steps)


def _batched(module: Callable[[Tensor], Tensor], X: Tensor) -> Tensor:
    return torch.cat([module(part) for part in torch.split(X, _BATCH)])


@torch.no_grad()
def _contraction(net: EquilibriumNet, X: Tensor) -> float:
    """How much of the distance to the equilibrium one step leaves, from the third step to the fifth."""
    end = net.features(X)
    apart = [float((_cut(net, steps).features(X) / _feature_scale(net) - end).norm()) for steps in (3, 5)]
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
    ridges = float(np.mean(np.diagonal(kernel))) * 10.0 ** np.arange(-8.0, 3.0)
    errors = np.mean(trained.left_out_residuals(ridges) ** 2, axis=(1, 2))
    return 1.0 - float(errors.min()) / max(float(outputs.var(axis=0).mean()), 1e-300)
