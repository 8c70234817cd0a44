"""Predicted accuracies of DEQ, twin and plain layer from labelled samples: exact kernels, or networks that are drawn.

Every sample is left out in turn, in closed form (docs/theory.md (11.15)), with the ridge that suits each model best.
At infinite width the kernels are exact.  At the width that was asked for, networks are really drawn, and their own
kernels stand in: that of the features if the readout is trained, that of the gradients if all weights are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.kernels import exact_kernel
from notsodeep.learning.labelled import Labelled
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.models import Model
from notsodeep.nets import compute_features, empirical_kernels
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.nets.modules import network_of
from notsodeep.progress import Report
from notsodeep.validation import Array
from notsodeep.verdicts.findings import SURE, Gap

# Ridges to choose from, relative to the mean of the diagonal.
_RIDGES = 10.0 ** np.arange(-7.0, 3.1, 0.5)
# An equilibrium that takes more steps than by default is still one.
PATIENT = SolverOptions(max_steps=1000)
# Networks drawn of each model: at least so many, and more while it is open what they say. Narrow networks differ most
# from draw to draw and cost least.
_FEWEST, _MOST, _MOST_NARROW, _NARROW = 4, 16, 40, 128
# Samples on which networks are compared: features of narrow networks cost little, gradients much.
_SAMPLES, _SAMPLES_NARROW = 500, 1000


def kernel_gap(models: Mapping[str, Model], samples: Array, labels: Any, kernel: str, report: Report) -> Gap:
    """The gap with exact kernels; models are named "DEQ", "twin" and "plain"."""
    labelled = Labelled.of(labels, len(samples))
    figures = {}
    for number, (name, model) in enumerate(models.items()):
        report(number, len(models), partial("exact kernel: {}".format, name))
        trained = TrainedKernel.of(
            exact_kernel(model, samples, kernel=kernel), labelled.targets, intercept=True
        )
        figures[name] = held_out(trained, labelled)[None]
    return _gap("kernels", figures, labelled)


def network_gap(
    models: Mapping[str, Model],
    net: EquilibriumNet,
    samples: Array,
    labels: Any,
    seed: int,
    is_enough: Callable[[Gap], bool],
    report: Report,
) -> Gap:
    """The gap of networks of the size of `net` with their hidden weights as they are drawn.

    Draws of the DEQ that have no equilibrium on some sample are left out, and said.

    Args:
        models: "DEQ", "twin" and "plain".
        net: a network of the DEQ.
        samples: rows or images.
        labels: of the samples.
        seed: of the first draw.
        is_enough: whether a gap says enough to stop drawing.
        report: of progress.

    Raises:
        ConvergenceError: if most draws have no equilibrium.
    """
    narrow = net.width <= _NARROW
    count = _SAMPLES_NARROW if narrow and net.train_mode == "readout" else _SAMPLES
    samples, labels = samples[:count], labels[:count]
    labelled = Labelled.of(labels, len(samples))
    figures: dict[str, list[Array]] = {name: [] for name in models}
    rows = torch.as_tensor(samples, dtype=net.readout.dtype, device=net.readout.device)
    most, failed, found = _MOST_NARROW if narrow else _MOST, 0, None
    for draw in range(most):
        options = {**net.shared_options, "solver": PATIENT, "seed": seed + draw}
        deq: Any = network_of(net.spec, net.sample_shape, net.units, 1, **options)
        drawn = {
            name: deq if model is net.spec else deq.counterpart(model, seed=seed + draw)
            for name, model in models.items()
        }
        scores = {}
        try:
            for name, one in drawn.items():
                report(draw, most, partial("network {}: {}".format, draw + 1, name))
                scores[name] = held_out(_trained_kernel(one, rows, labelled), labelled)
        except ConvergenceError as error:
            failed += 1
            if failed > most // 2 or (found is None and failed >= 2 * _FEWEST):
                raise error
            continue
        for name, score in scores.items():
            figures[name].append(score)
        found = _gap("networks", {name: np.array(parts) for name, parts in figures.items()}, labelled, failed)
        if len(figures["DEQ"]) >= _FEWEST and is_enough(found):
            break
    if found is None:
        raise InputError("No network was drawn.")
    return found


def _trained_kernel(net: Any, rows: torch.Tensor, labelled: Labelled) -> TrainedKernel:
    """The kernel that training follows, diagonalised: that of the features, or of all gradients."""
    if net.train_mode == "readout":
        features = np.asarray(compute_features(net, rows).double().cpu())
        if 2 * features.shape[1] <= len(features):
            return TrainedKernel.of_features(features, labelled.targets, intercept=True)
        # Much quicker than singular values, and the smallest ridge is far above what squaring loses.
        kernel = features @ features.T
    else:
        kernel = np.asarray(empirical_kernels(net, rows).ntk.double().cpu())
    # In single precision it is not quite symmetric.
    return TrainedKernel.of((kernel + kernel.T) / 2.0, labelled.targets, intercept=True)


def held_out(trained: TrainedKernel, labelled: Labelled) -> Array:
    """What each sample scores when it is left out: 1 or 0 for its class, or its squared error; at the best ridge."""
    residuals = trained.left_out_residuals(float(trained.values.mean()) * _RIDGES)
    best = labelled.targets - residuals[int(np.argmin(np.mean(residuals**2, axis=(1, 2))))]
    if labelled.codes is None:
        return np.asarray(np.mean((best - labelled.targets) ** 2, axis=1))
    # Two classes are ±1 in one column.
    classes = best[:, 0] > 0.0 if best.shape[1] == 1 else best.argmax(axis=1)
    return np.asarray(classes == labelled.codes, dtype=np.float64)


def _gap(source: str, figures: Mapping[str, Array], labelled: Labelled, failed: int = 0) -> Gap:
    """From figures of every sample, one row for each network drawn."""
    means = {name: float(values.mean()) for name, values in figures.items()}
    regression = labelled.codes is None
    gaps = {}
    for name in ("twin", "plain"):
        if regression:
            difference = (figures[name] - figures["DEQ"]) / max(means["DEQ"], 1e-300)
        else:
            difference = figures["DEQ"] - figures[name]
        gaps[name] = float(difference.mean()), _standard_error(difference)
    return Gap(
        source,
        means["DEQ"],
        means["twin"],
        means["plain"],
        *gaps["twin"],
        *gaps["plain"],
        _chance(labelled),
        regression,
        figures["DEQ"].shape[1],
        figures["DEQ"].shape[0],
        failed,
    )


def _chance(labelled: Labelled) -> float:
    if labelled.codes is None:
        return float(labelled.targets.var(axis=0).mean())
    return float(np.bincount(labelled.codes).max() / len(labelled.codes))


def _standard_error(difference: Array) -> float:
    """Of the mean over samples and draws; samples on which nothing differs still leave room for one that does.

    The spread of a few draws is itself uncertain: Student's distribution makes it as wide as it has to be for `SURE`.
    """
    draws, samples = difference.shape
    over_samples = float(difference.mean(axis=0).var()) / samples + 1.0 / samples**2
    over_draws = 0.0
    if draws > 1:
        widened = float(stdtrit(draws - 1, 0.9)) / SURE
        over_draws = widened**2 * float(difference.mean(axis=1).var(ddof=1)) / draws
    return float(np.sqrt(over_samples + over_draws))
