"""Predicted accuracies of DEQ, twin and plain layer from labelled samples: exact kernels, or networks that are drawn.

Every sample is left out in turn, in closed form (docs/theory.md (11.15)), with the ridge that suits each model best.
At infinite width the kernels are exact.  At the width that was asked for, networks are really drawn, and their own
kernels stand in: that of the features if the readout is trained, that of the gradients if all weights are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from notsodeep.kernels import exact_kernel
from notsodeep.learning.labelled import Labelled
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.models import Model
from notsodeep.nets import compute_features, empirical_kernels
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.modules import network_of
from notsodeep.progress import Report
from notsodeep.validation import Array
from notsodeep.verdicts.findings import Gap
from notsodeep.verdicts.rules import is_settled

# Ridges to choose from, relative to the mean of the diagonal.
_RIDGES = 10.0 ** np.arange(-7.0, 3.1, 0.5)
# Networks drawn of each model: at least so many, and at most so many while it is open what they say.
_DRAWS = 3, 9


def kernel_gap(models: Mapping[str, Model], samples: Array, labels: Any, kernel: str, report: Report) -> Gap:
    """The gap with exact kernels; models are named "DEQ", "twin" and "plain"."""
    labelled = Labelled.of(labels, len(samples))
    figures = {}
    for number, (name, model) in enumerate(models.items()):
        report(number, len(models), partial("exact kernel: {}".format, name))
        figures[name] = left_out(exact_kernel(model, samples, kernel=kernel), labelled)[None]
    return _gap("kernels", figures, labelled)


def network_gap(
    models: Mapping[str, Model], net: EquilibriumNet, samples: Array, labels: Any, seed: int, report: Report
) -> Gap:
    """The gap of networks of the size of `net` with their hidden weights as they are drawn."""
    labelled = Labelled.of(labels, len(samples))
    figures: dict[str, list[Array]] = {name: [] for name in models}
    rows = torch.as_tensor(samples, dtype=net.readout.dtype, device=net.readout.device)
    fewest, most = _DRAWS
    for draw in range(most):
        for name, model in models.items():
            report(draw, most, partial("network {}: {}".format, draw + 1, name))
            drawn = network_of(
                model, net.sample_shape, net.units, 1, **{**net.shared_options, "seed": seed + draw}
            )
            figures[name].append(left_out(_own_kernel(drawn, rows), labelled))
        found = _gap("networks", {name: np.array(parts) for name, parts in figures.items()}, labelled)
        if draw + 1 >= fewest and is_settled(found):
            break
    return found


def _own_kernel(net: Any, rows: torch.Tensor) -> Array:
    """The kernel that training follows: of the features, or of the gradients of all weights."""
    if net.train_mode == "readout":
        features = compute_features(net, rows).double()
        return np.asarray((features @ features.mT).cpu())
    return np.asarray(empirical_kernels(net, rows).ntk.double().cpu())


def left_out(kernel: Array, labelled: Labelled) -> Array:
    """What each sample scores when it is left out: 1 or 0 for its class, or its squared error; at the best ridge."""
    # In double precision a kernel of a network in single precision is not quite symmetric or positive.
    trained = TrainedKernel.of((kernel + kernel.T) / 2.0, labelled.targets, intercept=True)
    size = float(np.mean(np.diagonal(kernel)))
    found = [trained.left_out(size * ridge) for ridge in _RIDGES]
    best = min(found, key=lambda scores: float(scores.squared_errors(labelled.targets).mean()))
    if labelled.codes is None:
        return best.squared_errors(labelled.targets)
    return best.hits(labelled.codes)


def _gap(source: str, figures: Mapping[str, Array], labelled: Labelled) -> Gap:
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
    )


def _chance(labelled: Labelled) -> float:
    if labelled.codes is None:
        return float(labelled.targets.var(axis=0).mean())
    return float(np.bincount(labelled.codes).max() / len(labelled.codes))


def _standard_error(difference: Array) -> float:
    """Of the mean over samples and draws; samples on which nothing differs still leave room for one that does."""
    draws, samples = difference.shape
    over_samples = float(difference.mean(axis=0).var()) / samples + 1.0 / samples**2
    over_draws = float(difference.mean(axis=1).var(ddof=1)) / draws if draws > 1 else 0.0
    return float(np.sqrt(over_samples + over_draws))
