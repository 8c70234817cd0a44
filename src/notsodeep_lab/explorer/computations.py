"""Compute what the page shows: the forecast, the depth curve beside plain networks, and the twin.

Streamlit runs the page again whenever a control moves, so each result is cached by the values it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from notsodeep.designs import Design, design
from notsodeep.equivalents import KernelDistance
from notsodeep.equivalents.equivalent import kernel_distance
from notsodeep.errors import InputError
from notsodeep.forecasts import Forecast, forecast
from notsodeep.intervals import paired_difference
from notsodeep.kernels import exact_kernel
from notsodeep.validation import Array
from notsodeep.verdicts import DepthCurve, depth_curve
from notsodeep.verdicts.depth_curve import ALIKE, POINT, labelled_samples, left_out_scores
from notsodeep_lab.explorer.choice import Choice, PageData
from notsodeep_lab.explorer.offered_networks import KINDS, Network

STEPS = (1, 2, 3, 4, 6)
LAYERS = (1, 2, 3, 4)


def labels_of(data: PageData) -> Any:
    """The labels of the samples; None if there are none, or only one class.

    Raises:
        InputError: for a column with too many classes, such as numbers of the samples.
    """
    labels = data.samples.labels
    kinds = 0 if labels is None else len(np.unique(labels))
    whole = labels is not None and (labels.dtype.kind != "f" or np.array_equal(labels, np.round(labels)))
    if labels is not None and whole and kinds > len(labels) // 4:
        raise InputError(
            f"The label column has {kinds} different values in {len(labels)} samples, too many for classes. Name "
            "another label column. Targets of a regression need decimals in at least one row."
        )
    return None if kinds < 2 else labels


def forecast_of(choice: Choice) -> Forecast:
    """Forecast what a solver does with each sample."""
    return _forecast(choice.network, choice.data)


@lru_cache(maxsize=64)
def _forecast(network: Network, data: PageData) -> Forecast:
    return forecast(network.model, data.samples.rows)


# --- steps and layers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Behind:
    """How far a network is behind the best number of steps.

    Attributes:
        score: its accuracy, or explained variance; without labels 1 less its kernel error.
        low: lower bound of how far it is behind, one-sided, 95 %.
        high: upper bound of how far it is behind, one-sided, 95 %.
        limit: how far a network may be behind that is good enough.
    """

    score: float
    low: float
    high: float
    limit: float

    @property
    def is_enough(self) -> bool:
        """Whether the network is certain to be good enough."""
        return self.high <= self.limit

    @property
    def is_better(self) -> bool:
        """Whether the network is certain to be better by more than the limit."""
        return self.high < -self.limit

    @property
    def is_worse(self) -> bool:
        """Whether the network is certain not to be good enough."""
        return self.low > self.limit


@dataclass(frozen=True, eq=False)
class Depths:
    """A network cut after 1, 2, … steps and at its equilibrium, beside plain networks of 1, 2, … layers.

    Attributes:
        curve: the depth curve.
        steps: one entry for each number of steps; the last is the equilibrium.
        plain: one entry for each number of layers; none without labels.
    """

    curve: DepthCurve
    steps: tuple[Behind, ...]
    plain: dict[int, Behind]


def depths_of(choice: Choice) -> Depths:
    """Predict the accuracy after each number of steps, and that of plain networks, on the same samples."""
    return _depths(choice.network, choice.data, choice.kernel)


@lru_cache(maxsize=64)
def _depths(network: Network, data: PageData, kernel: str) -> Depths:
    model, rows, labels = network.model, data.samples.rows, labels_of(data)
    if labels is None:
        curve = depth_curve(model, rows, STEPS, kernel)
        steps = tuple(Behind(1.0 - error, error, error, ALIKE) for error in curve.kernel_error)
        return Depths(curve, steps, {})
    curve = depth_curve(model, (rows, labels), STEPS, kernel)
    of_steps: Any = curve.scores
    known, best = labelled_samples(model, labels, len(rows)), of_steps[curve.best_place]
    steps = tuple(
        Behind(float(score.mean()), 0.0, 0.0, POINT) if is_alike(curve, place) else _behind(best, score)
        for place, score in enumerate(of_steps)
    )
    kernels = {layers: exact_kernel(network.plain(layers), rows, kernel=kernel) for layers in LAYERS}
    scores = {layers: left_out_scores(matrix, *known, None)[0] for layers, matrix in kernels.items()}
    return Depths(curve, steps, {layers: _behind(best, score) for layers, score in scores.items()})


def is_alike(curve: DepthCurve, place: int) -> bool:
    """Whether a number of steps is the best one, or has its kernel to 0.1 % and its accuracy to a point."""
    best = curve.best_place
    if place == best:
        return True
    errors = curve.kernel_error[min(place, best) : max(place, best) + 1]
    return bool(errors.max() <= ALIKE and abs(curve.accuracy[best] - curve.accuracy[place]) <= POINT)


def _behind(best: Array, score: Array) -> Behind:
    return Behind(float(score.mean()), *paired_difference(best, score), POINT)


# --- twin -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Twin:
    """A designed explicit network, and kernels of the samples.

    Attributes:
        design: the design; its model is the DEQ, for most designs with a centred activation.
        kernels: kernels of the DEQ, of the twin and of 1 plain layer, the latter two times their best factors.
        errors: kernel errors of the twin and of 1 plain layer.
        centred: whether the mean of the activation was subtracted, in all three networks.
    """

    design: Design
    kernels: dict[str, Array]
    errors: dict[str, KernelDistance]
    centred: bool


def twin_of(choice: Choice) -> Twin:
    """Design the twin of a DEQ, and compare their kernels.

    Raises:
        InputError: for a cell.
    """
    if choice.network.kind != "deq":
        raise InputError(
            "Twins are designed for a DEQ here: choose DEQ above. For a cell use nsd.design in Python."
        )
    return _twin(choice.network, choice.data, choice.kernel)


@lru_cache(maxsize=16)
def _twin(network: Network, data: PageData, kernel: str) -> Twin:
    rows = data.samples.rows
    made = design(network.model, kernel=kernel, X=rows)
    model: Any = made.model
    centred = model != network.model
    plain = network.plain(1).centred(made.tau0) if centred else network.plain(1)
    own = exact_kernel(model, rows, kernel=kernel)
    others = {"twin": made.network, "1 plain layer": plain}
    kernels = {name: exact_kernel(one, rows, kernel=kernel) for name, one in others.items()}
    errors = {name: kernel_distance(own, matrix) for name, matrix in kernels.items()}
    scaled = {name: errors[name].factor * matrix for name, matrix in kernels.items()}
    return Twin(made, {"DEQ": own, **scaled}, errors, centred)


def warm_up() -> None:
    """Compile what the first page and a change of the network need."""
    for kind in KINDS:
        for activation in ("gelu", "relu"):
            choice = Choice(Network(kind, activation), data=PageData(n=60))
            forecast_of(choice), depths_of(choice)
    twin_of(Choice(Network("deq"), data=PageData(n=60)))
