"""Rows of the experiments that train networks: accuracy of readouts, races, gradient descent on all weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from notsodeep.convergence import PaperNetwork, tangent_spectrum
from notsodeep.data import Preprocessing, UnitSphere
from notsodeep.designs import design
from notsodeep.fingerprint import fingerprint
from notsodeep.models import DEQ, Explicit
from notsodeep.nets.modules import network_of
from notsodeep.nets.samples import compute_features
from notsodeep.nets.training import fit
from notsodeep.validation import Array
from notsodeep_lab.papers.data_files import load
from notsodeep_lab.papers.experiment import Row
from notsodeep_lab.papers.gradient_descent import gradient_descent
from notsodeep_lab.papers.measures import leaky_layer_for
from notsodeep_lab.papers.row_statistics import six_digits


@dataclass(frozen=True, eq=False)
class Parts:
    """Training and test data, preprocessed by the statistics of the training data."""

    X: Tensor
    y: Tensor
    X_test: Tensor
    y_test: Tensor
    tau0: float

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


# Tasks are ordered by data set, and reading one takes seconds.
@lru_cache(maxsize=1)
def parts_of(data: str, samples: int | None, data_dir: Path | None) -> Parts:
    """Load a data set, centred and scaled to mean squared norm 1."""
    train = load(data, split="train", n=samples, data_dir=data_dir)
    test = load(data, split="test", data_dir=data_dir)
    scaling = Preprocessing.fit(train.X)
    inputs = [torch.as_tensor(scaling.apply(part.X), dtype=torch.float32) for part in (train, test)]
    labels = [torch.as_tensor(np.asarray(part.y), dtype=torch.int64) for part in (train, test)]
    tau0 = sqrt(float(inputs[0].double().square().sum(dim=1).mean()))
    return Parts(inputs[0], labels[0], inputs[1], labels[1], tau0)


def three_networks(name: str, sigma_a2: float, tau0: float, designed: str) -> dict[str, DEQ | Explicit]:
    """Return the DEQ, its twin, and a plain network of the same depth with the DEQ's activation.

    Args:
        name: name of the DEQ's activation.
        sigma_a2: variance of its recurrent weights.
        tau0: typical norm of the data.
        designed: "leaky" for ICLR's one Leaky-ReLU layer, or the kernel to match, "ck" or "ntk".
    """
    deq = DEQ(name, sigma_a2).centred(tau0)
    twin = (
        leaky_layer_for(deq, tau0, "features") if designed == "leaky" else design(deq, tau0, designed).network
    )
    plain = Explicit([deq.activation] * len(twin.layers)).centred(tau0)
    return {"deq": deq, "twin": twin, "plain": plain}


def accuracy_rows(
    models: dict[str, DEQ | Explicit], parts: Parts, width: int, training: dict[str, Any]
) -> Iterator[Row]:
    """Train the readout of each network by SGD, and compare them on test data."""
    predicted: dict[str, NDArray[np.intp]] = {}
    seed = training["seed"]
    for number, (model, spec) in enumerate(models.items()):
        # Different seeds, so that the networks share nothing but the design.
        sizes = (parts.X.shape[1:], width, parts.classes)
        net = network_of(spec, *sizes, train="readout", seed=1000 * number + seed)
        history = fit(net, (parts.X, parts.y), (parts.X_test, parts.y_test), **training)
        with torch.no_grad():
            predicted[model] = net.outputs(compute_features(net, parts.X_test)).argmax(dim=1).numpy()
        last = history.last
        yield {
            "kind": "accuracy",
            "width": width,
            "seed": seed,
            "model": model,
            "network": str(spec),
            "fingerprint": fingerprint(spec, float(parts.X.norm(dim=1).max())),
            "layers": 1 if isinstance(spec, DEQ) else len(spec.layers),
            "accuracy": float(np.mean(predicted[model] == parts.y_test.numpy())),
            "train_accuracy": None if last is None else last.accuracy,
            "agreement": None if model == "deq" else float(np.mean(predicted[model] == predicted["deq"])),
            "stopped": history.stopped,
            "classes": parts.classes,
            "samples": len(parts.X),
            "epochs": training["epochs"],
            "lr": training["lr"],
        }


# --- gradient descent on all weights -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Regression:
    """A regression problem: rows of norm √d, and one label per row."""

    X: Array
    y: Array


@lru_cache(maxsize=1)
def regression(data: str, n: int, d: int, data_dir: Path | None) -> Regression:
    """Load the data of AISTATS: a sphere with N(0, 1) labels, or classes 0 and 1 of a real data set with labels ∓1."""
    if data == "sphere":
        labels = np.random.default_rng(1).standard_normal(n)
        return Regression(sqrt(d) * UnitSphere(d).sample(n, 0), labels)
    read = load(data, classes=(0, 1), n=n, data_dir=data_dir)
    rows = read.X * (sqrt(read.X.shape[1]) / np.linalg.norm(read.X, axis=1, keepdims=True))
    return Regression(rows, np.where(read.y == 0, -1.0, 1.0))


def stable_step(problem: Regression, width: int, sigma_w2: float, seed: int) -> float:
    """Return the step size 1/λ_max(H) of the initial network, docs/theory.md (8.30)."""
    network = PaperNetwork.draw(width, problem.X.shape[1], sigma_w2, seed=seed)
    return tangent_spectrum(network, torch.as_tensor(problem.X)).step


def descent_row(
    problem: Regression, width: int, sigma_w2: float, *, lr: float | None, steps: int, every: int, seed: int
) -> Row:
    """Train by gradient descent; if `lr` is None, the step size is chosen automatically."""
    options: dict[str, Any] = {"lr": lr, "every": every, "seed": seed, "dtype": "float32"}
    descent = gradient_descent(problem.X, problem.y, width, sigma_w2, steps, **options)
    return {
        "kind": "training",
        "width": width,
        "seed": seed,
        "n": problem.X.shape[0],
        "d": problem.X.shape[1],
        "lr": descent.lr,
        "halvings": descent.halvings,
        "steps": [row.step for row in descent.rows],
        "losses": six_digits([row.loss for row in descent.rows]),
        "norms": six_digits([row.recurrent_norm for row in descent.rows]),
        "least": six_digits([row.least / width for row in descent.rows]),
        "first_loss": descent.losses[0],
        "last_loss": descent.losses[-1],
        "largest_norm": max(row.recurrent_norm for row in descent.rows),
        "stopped": descent.stopped,
    }
