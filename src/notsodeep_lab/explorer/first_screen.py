"""The results of the first screen: the verdict, predicted learning curves, and the time of a call.

All three are computed on a subset of the samples, so that the page responds quickly; the page says how large it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.data import GaussianMixture
from notsodeep.designs import Design
from notsodeep.designs.families import plain_layers
from notsodeep.extras import needed
from notsodeep.learning import Comparison, LearningCurve, compare_models, learning_curve
from notsodeep.validation import Array
from notsodeep_lab.explorer.choice import FORMULA, MODES, VERDICT_KERNELS, Choice, PageData
from notsodeep_lab.explorer.computations import (
    Started,
    design_of,
    images_of,
    in_other_process,
    judged_model,
    samples_for,
    samples_of,
)

if TYPE_CHECKING:
    from notsodeep.verdicts import Verdict

# Largest number of samples of the verdict. Training of all weights is judged by gradients, which are slower; so are
# networks and kernels of a typed formula.
MOST_ROWS, MOST_WITH_FORMULA, MOST_WITH_GRADIENTS, MOST_IMAGES = 150, 100, 80, 64
_FEWEST_TO_LEARN = 20
_POINTS, _BEYOND = 6, 8
_BATCH, _ROUNDS = 256, 3


@dataclass(frozen=True, eq=False)
class Part:
    """The subset of the samples on which the first screen is computed.

    Attributes:
        samples: rows or images.
        labels: classes or numbers; None if the data have none, or a single class.
        total: number of all samples.
    """

    samples: Array
    labels: NDArray[Any] | None
    total: int

    @property
    def labelled(self) -> tuple[Array, Any]:
        """Samples and labels."""
        return self.samples, self.labels

    @property
    def words(self) -> str:
        """The size of the subset in words."""
        count = len(self.samples)
        return f"all {count} samples" if count == self.total else f"{count} of the {self.total} samples"


def part_of(choice: Choice) -> Part:
    """Draw the subset on which the first screen is computed."""
    most = MOST_ROWS if MODES[choice.kernel] == "readout" else MOST_WITH_GRADIENTS
    if choice.images:
        most = min(most, MOST_IMAGES)
    elif choice.activation == FORMULA:
        most = min(most, MOST_WITH_FORMULA)
    return _part(choice.data, most, choice.images)


@lru_cache(maxsize=16)
def _part(data: PageData, most: int, images: bool) -> Part:
    samples = images_of(data) if images else samples_of(data)
    total = len(samples.rows)
    chosen = np.sort(np.random.default_rng(0).permutation(total)[:most])
    labels = None if samples.labels is None else np.asarray(samples.labels)[chosen]
    if labels is not None and len(np.unique(labels)) < 2:
        labels = None
    return Part(samples.rows[chosen], labels, total)


# --- the verdict --------------------------------------------------------------------------------------


def verdict_of(choice: Choice) -> Verdict:
    """Judge on a subset of the samples whether a few explicit layers can replace the DEQ."""
    return _verdict(judged_model(choice), choice)


@lru_cache(maxsize=64)
def _verdict(model: Any, choice: Choice) -> Verdict:
    from notsodeep.verdicts import verdict

    part = part_of(choice)
    count = max(len(part.samples), 20)
    return verdict(model, part.samples, part.labels, kernel=VERDICT_KERNELS[choice.kernel], samples=count)


# --- learning curves ----------------------------------------------------------------------------------


def models_of(choice: Choice) -> dict[str, Any]:
    """Return the DEQ, its twin and one plain layer with its activation."""
    return {"deq": judged_model(choice), "twin": design_of(choice).network, "plain": _plain(choice)}


def _plain(choice: Choice) -> Any:
    return plain_layers(judged_model(choice), 1, samples_for(choice).tau0)


def curves_of(choice: Choice) -> dict[str, LearningCurve] | None:
    """Predict the learning curves of the three models; None without labels.

    Predictions use the distribution of the data if it is known, else the subset, extrapolated beyond its size.
    """
    if not has_labels(choice):
        return None
    return {name: _started(model, choice).result() for name, model in models_of(choice).items()}


def start_curves(choice: Choice) -> None:
    """Start computing the curves in another process; `curves_of` waits for them."""
    if has_labels(choice):
        # First those that need no design, which is computed meanwhile.
        for model in (judged_model(choice), _plain(choice), design_of(choice).network):
            _started(model, choice)


def has_labels(choice: Choice) -> bool:
    """Whether there are labels to learn."""
    part = part_of(choice)
    return part.labels is not None and len(part.samples) >= _FEWEST_TO_LEARN


@lru_cache(maxsize=96)
def _started(model: Any, choice: Choice) -> Started[LearningCurve]:
    part, law = part_of(choice), samples_of(choice.data).law
    if isinstance(law, GaussianMixture):
        source: Any = law
        sizes = _sizes(part.total)
    else:
        source = part.labelled
        sizes = _sizes(len(part.samples), _BEYOND)
    return in_other_process(learning_curve, model, source, sizes, "best", kernel=choice.shown_kernel)


def comparison_of(choice: Choice) -> Comparison | None:
    """Compare the three models on the same samples, each with its best ridge; None without labels."""
    return _comparison(choice) if has_labels(choice) else None


@lru_cache(maxsize=32)
def _comparison(choice: Choice) -> Comparison:
    part = part_of(choice)
    return compare_models(models_of(choice), part.labelled, kernel=choice.shown_kernel)


def _sizes(count: int, beyond: int = 1) -> tuple[int, ...]:
    """Numbers of training samples up to `beyond` times `count`, evenly spaced on a logarithmic axis."""
    sizes = np.unique(np.geomspace(min(10, count // 2), beyond * count, _POINTS).astype(int))
    return tuple(int(size) for size in sizes)


# --- time of a call -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallTimes:
    """Processor time in milliseconds of one call of each network with a batch."""

    milliseconds: Mapping[str, float]
    batch: int
    width: int


def times_of(choice: Choice) -> CallTimes:
    """Measure the time that networks of the chosen width take for one batch, on this machine."""
    return _times(judged_model(choice), design_of(choice), choice)


@lru_cache(maxsize=64)
def _times(model: Any, designed: Design, choice: Choice) -> CallTimes:
    needed("torch", "The time of a call")
    import torch

    from notsodeep.nets.measure import work_time
    from notsodeep.nets.modules import network_of

    batch = torch.tensor(samples_for(choice).rows[:_BATCH], dtype=torch.float32)
    networks = {
        name: network_of(one, tuple(batch.shape[1:]), choice.units, 1, train="readout", seed=0)
        for name, one in models_of(choice).items()
    }
    fastest = dict.fromkeys(networks, inf)
    with torch.no_grad():
        for _ in range(_ROUNDS):
            for name, network in networks.items():
                began = work_time(batch.device)
                network(batch)
                fastest[name] = min(fastest[name], work_time(batch.device) - began)
    return CallTimes({name: 1e3 * value for name, value in fastest.items()}, len(batch), choice.units)
