"""`race`: train a deep equilibrium model, its explicit twin and a plain network alike, and compare them.

The twin is designed for the kernel that training follows: the conjugate kernel where only the readout is trained, the
tangent kernel where all weights are. The plain network has the twin's depth and the DEQ's own activation, centred: what
one would take without a design. A convolutional DEQ is compared with its convolutional twin on images; its activations
are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from notsodeep.data import Preprocessing
from notsodeep.designs import Design, design
from notsodeep.designs.families import plain_layers
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.fingerprint import fingerprint
from notsodeep.models import DEQ, ConvDEQ, Model
from notsodeep.nets.checkpoints import checkpoint_path
from notsodeep.nets.history import History
from notsodeep.nets.measure import inference_seconds
from notsodeep.nets.modules import Net, network_of
from notsodeep.nets.samples import evaluation_rows
from notsodeep.nets.training import fit
from notsodeep.progress import Report, reported
from notsodeep.validation import as_count, as_labels, as_number, one_of, unknown_labels

MODELS = ("deq", "twin", "plain")
KERNEL = {"readout": "ck", "all": "ntk"}

Labels = NDArray[np.intp]
Part = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, eq=False, repr=False)
class Run(Shown):
    """The training of one model from one seed.

    Attributes:
        model: "deq", "twin" or "plain".
        seed: random seed of weights and shuffling.
        accuracy: share of the test samples classified correctly.
        predictions: the predicted class of every test sample.
        history: the record of the training.
        inference_seconds: seconds per 1000 samples.
    """

    model: str
    seed: int
    accuracy: float
    predictions: Labels
    history: History
    inference_seconds: float


@dataclass(frozen=True, repr=False)
class Standing(Shown):
    """The results of one model over all seeds.

    Attributes:
        model: "deq", "twin" or "plain".
        network: the model in words.
        fingerprint: hash that identifies the model (`notsodeep.fingerprint`).
        accuracy: on the test samples, mean over seeds.
        accuracy_sd: its standard deviation over seeds; None with one seed.
        agreement: share of the test samples with the class that the DEQ of the same seed predicts, mean over seeds.
            For the DEQ itself: with DEQs of other seeds, the most that can be expected of any other model.
        seconds_per_epoch: median over epochs and seeds; with a cache of features, without computing them.
        feature_seconds: time to compute that cache, median over seeds; None when all weights are trained.
        inference_seconds: per 1000 samples, median over seeds (`measure.inference_seconds`).
        stopped: why a training ended early, for the first one that did.
    """

    model: str
    network: str
    fingerprint: str
    accuracy: float
    accuracy_sd: float | None
    agreement: float | None
    seconds_per_epoch: float | None
    feature_seconds: float | None
    inference_seconds: float
    stopped: str | None


@dataclass(frozen=True, eq=False, repr=False)
class Race(Shown):
    """The result of a race: one standing per model, the runs behind them, and what all runs share.

    Attributes:
        standings: one per model, in the order of `RaceSettings.models`.
        runs: one per model and seed.
        design: the design of the twin.
        lr: the learning rate of all runs.
        tau0: root mean square norm of the training samples, after preprocessing.
    """

    standings: tuple[Standing, ...]
    runs: tuple[Run, ...]
    design: Design
    lr: float
    tau0: float

    def as_dicts(self) -> list[dict[str, Any]]:
        """The standings as plain dictionaries."""
        return [asdict(standing) for standing in self.standings]


@dataclass(frozen=True)
class RaceSettings:
    """How the models of a race are built and trained.

    Attributes:
        models: which of "deq", "twin", "plain".
        width: width of all networks; the number of channels of convolutional ones.
        mode: "readout" or "all": what is trained.
        seeds: the number of seeds; 0, 1, … are the seeds of weights and shuffling.
        epochs: passes over the training samples.
        lr: one rate for all, of stochastic gradient descent; by default that of the first model.
        contractive: as in `DEQNet`.
        scale: how samples are preprocessed, see `Preprocessing.fit`; fitted to the training samples.
    """

    models: Sequence[str] = MODELS
    width: int = 1024
    mode: str = "readout"
    seeds: int = 3
    epochs: int = 20
    lr: float | None = None
    contractive: bool | float = False
    scale: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in self.models:
            one_of(name, MODELS, "models")
        if not self.models or len(set(self.models)) < len(self.models):
            raise InputError(
                f"models lists each model once, at least one of {', '.join(MODELS)}; got {self.models!r}."
            )
        one_of(self.mode, tuple(KERNEL), "mode")
        as_count(self.seeds, "seeds")
        as_count(self.epochs, "epochs")
        if self.lr is not None:
            as_number(self.lr, "lr", positive=True)


def race(
    deq: DEQ | ConvDEQ,
    train: Part,
    test: Part,
    settings: RaceSettings | None = None,
    *,
    checkpoint_dir: str | Path | None = None,
    progress: bool | Report = True,
) -> Race:
    """Train several models on the same data, in the same way, from several seeds.

    Samples are centred and scaled by the statistics of the training samples; a DEQ of rows is centred at their norm,
    docs/theory.md (2.11).

    Args:
        deq: the model; the other two are derived from it.
        train: (X, y): samples before any scaling, rows or for a `ConvDEQ` images, and their labels.
        test: (X, y) of the test samples; their labels must occur in `train`.
        settings: how the models are built and trained.
        checkpoint_dir: an existing folder for a checkpoint of each training; a second call continues from them.
        progress: a bar on a terminal after two seconds; False for none, or a function to report to.
    """
    settings = settings or RaceSettings()
    starts = [(model, seed) for seed in range(settings.seeds) for model in settings.models]
    folder = None if checkpoint_dir is None else Path(checkpoint_dir)
    files = [checkpoint_path(folder and folder / f"{model}-{seed}.pt") for model, seed in starts]
    names, y_train = np.unique(as_labels(train[1], None), return_inverse=True)
    y_test = _renumbered(as_labels(test[1], None), names)
    scaling = Preprocessing.fit(deq.check_samples(train[0]), settings.scale)
    X_train, X_test = scaling.apply(train[0]), scaling.apply(deq.check_samples(test[0]))
    tau0 = sqrt(float(np.mean(deq.squared_norms(X_train.astype(np.float64)))))
    centred = deq.centred(tau0) if isinstance(deq, DEQ) else deq
    designed = design(centred, tau0, KERNEL[settings.mode], X=X_train)
    plain = plain_layers(centred, len(designed.network.layers), tau0)
    specs = {"deq": centred, "twin": designed.network, "plain": plain}
    parts = [
        (torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y))
        for X, y in ((X_train, y_train), (X_test, y_test))
    ]
    lr = settings.lr
    runs: list[Run] = []
    options: dict[str, Any] = {"train": settings.mode, "contractive": settings.contractive}
    with reported(progress, "") as report:
        for (model, seed), file in zip(starts, files, strict=True):
            net = network_of(
                specs[model], X_train.shape[1:], settings.width, len(names), seed=seed, **options
            )
            part = _part_of(report, len(runs), len(starts), f"{model}, seed {seed},")
            how: dict[str, Any] = {"optimizer": "sgd", "lr": lr, "epochs": settings.epochs, "seed": seed}
            history = fit(net, *parts, **how, checkpoint=file, progress=part)
            lr = history.lr
            runs.append(_measured(model, seed, net, history, *parts[1]))
    largest_norm = max(float(X.norm(dim=1).max()) for X, _ in parts)
    standings = [_standing(model, specs[model], largest_norm, runs) for model in settings.models]
    return Race(tuple(standings), tuple(runs), designed, runs[0].history.lr, tau0)


@torch.no_grad()
def _measured(model: str, seed: int, net: Net, history: History, X: Tensor, y: Tensor) -> Run:
    """The run of a trained network, with its accuracy and speed on the test samples."""
    rows = evaluation_rows(net)
    predictions = torch.cat([net(block).argmax(dim=1) for block in X.split(rows)])  # type: ignore[no-untyped-call]
    accuracy = float((predictions == y).double().mean())
    seconds = inference_seconds(net, X[:rows])
    return Run(model, seed, accuracy, predictions.numpy().astype(np.intp), history, seconds)


def _renumbered(labels: NDArray[Any], names: NDArray[Any]) -> Labels:
    if len(names) < 2:
        raise InputError("The training samples have one class only; at least two are needed.")
    unknown = unknown_labels(labels, names)
    if len(unknown):
        raise InputError(
            f"The test samples have the labels {unknown.tolist()}, which do not occur in the training samples."
        )
    return np.searchsorted(names, labels)


def _part_of(report: Report, number: int, count: int, title: str) -> Report:
    """A report on one of several runs of the same length, as a report on all of them."""

    def part(done: int, total: int, message: Any) -> None:
        report(number * total + done, count * total, lambda: f"{title} {message()}")

    return part


def _standing(model: str, spec: Model, largest_norm: float, runs: Sequence[Run]) -> Standing:
    own = [run for run in runs if run.model == model]
    deqs = {run.seed: run.predictions for run in runs if run.model == "deq"}
    pairs = (
        list(combinations(deqs.values(), 2))
        if model == "deq"
        else [(run.predictions, deqs[run.seed]) for run in own if run.seed in deqs]
    )
    accuracies = [run.accuracy for run in own]
    epochs = [row.seconds for run in own for row in run.history.rows]
    features = [run.history.feature_seconds for run in own if run.history.feature_seconds is not None]
    stopped = [f"seed {run.seed}, {run.history.stopped}" for run in own if run.history.stopped is not None]
    return Standing(
        model=model,
        network=str(spec),
        fingerprint=fingerprint(spec, largest_norm),
        accuracy=fmean(accuracies),
        accuracy_sd=stdev(accuracies) if len(own) > 1 else None,
        agreement=fmean(float(np.mean(one == other)) for one, other in pairs) if pairs else None,
        seconds_per_epoch=median(epochs) if epochs else None,
        feature_seconds=median(features) if features else None,
        inference_seconds=median([run.inference_seconds for run in own]),
        stopped=stopped[0] if stopped else None,
    )
