"""The data of the atlas: a training part, which the verdict may see, and a test part, which it may not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from atlas_settings import Setting
from sklearn import datasets as tables

import notsodeep as nsd
from notsodeep.data import Preprocessing, as_images, load

TRAIN, TEST = 1500, 1500
# Test samples of the later rounds, where there are as many.
MANY = 4000


@dataclass(frozen=True, eq=False)
class Parts:
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def halves(self) -> tuple[Parts, np.ndarray]:
        """Half of the training part, and the rows of the other half: a trained network is surer of its own rows."""
        own, others = np.array_split(np.random.default_rng(0).permutation(len(self.X)), 2)
        return Parts(self.X[own], self.y[own], self.X_test, self.y_test), self.X[others]


def parts_of(setting: Setting, folder: Path | None) -> Parts:
    """Training and test part, scaled by what the training part says."""
    name, *rest = setting.data.split()
    if name in ("chain", "corners"):
        draw, length = {"chain": chain, "corners": corners}[name], int(rest[0])
        n = setting.n or (1200 if setting.kind == "trained" else 600)
        return Parts(*draw(n, length, 0), *draw(TEST if setting.round == 1 else MANY, length, 1))
    if setting.data in SMALL:
        return _split(*SMALL[setting.data](), setting.n)
    n = setting.n or (1400 if name == "digits" else 2 * TRAIN if setting.kind == "trained" else TRAIN)
    train = load(name, split="train", n=n, data_dir=folder)
    test = load(name, split="test", data_dir=folder)
    count = TEST if setting.round == 1 else MANY
    rows, others = train.X, test.X[:count]
    if rest:
        size = int(rest[0].split("x")[0])
        rows, others = (_smaller(as_images(name, one), size) for one in (rows, others))
    scaling = Preprocessing.fit(rows)
    X, X_test = scaling.apply(rows), scaling.apply(others)
    if setting.kind == "images":
        if rest:
            X, X_test = (one.reshape(-1, 1, size, size) for one in (X, X_test))
        else:
            X, X_test = (as_images(name, one) for one in (X, X_test))
        scale = math.sqrt(np.prod(X.shape[2:]))
        X, X_test = scale * X, scale * X_test
    return Parts(X, train.y, X_test, test.y[:count])


def _smaller(images: np.ndarray, size: int) -> np.ndarray:
    """Means over blocks, as rows."""
    block = images.shape[-1] // size
    means = images.reshape(len(images), size, block, size, block).mean(axis=(2, 4))
    return means.reshape(len(images), -1)


def chain(n: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A mark ±2 at either end of a sequence of small noise; are they alike?"""
    generator = np.random.default_rng([length, seed])
    x = 0.02 * generator.standard_normal((n, 1, length))
    ends = generator.choice([-2.0, 2.0], (n, 2))
    x[:, 0, 0], x[:, 0, -1] = ends.T
    # Two marks carry all the energy: |x(s)|² = 1 on average.
    return x * math.sqrt(length / 8.0), (ends[:, 0] == ends[:, 1]).astype(np.intp)


def corners(n: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A mark ±2 in two opposite corners of a square of small noise; are they alike?"""
    generator = np.random.default_rng([size, seed, 2])
    x = 0.02 * generator.standard_normal((n, 1, size, size))
    ends = generator.choice([-2.0, 2.0], (n, 2))
    x[:, 0, 0, 0], x[:, 0, -1, -1] = ends.T
    return x * size / math.sqrt(8.0), (ends[:, 0] == ends[:, 1]).astype(np.intp)


def _table(read: Callable[[], Any]) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    return lambda: (np.asarray(read().data, dtype=np.float64), np.asarray(read().target))


def _friedman() -> tuple[np.ndarray, np.ndarray]:
    return tables.make_friedman1(n_samples=1200, noise=0.5, random_state=0)


def _ripples() -> tuple[np.ndarray, np.ndarray]:
    """A wave in two dimensions: low-dimensional rows, a target that is not smooth at their scale."""
    generator = np.random.default_rng(2)
    X = generator.standard_normal((1200, 2))
    return X, np.sin(4.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.05 * generator.standard_normal(1200)


def _deq() -> tuple[np.ndarray, np.ndarray]:
    """A function drawn from a DEQ with strong feedback, without noise."""
    X = np.random.default_rng(3).standard_normal((1200, 10)) / math.sqrt(10.0)
    net = nsd.nets.DEQNet(nsd.DEQ("tanh", 0.9, 1.0), 10, 2000, 1, seed=0, dtype=torch.float64)
    with torch.no_grad():
        outputs = net(torch.as_tensor(X)).numpy()[:, 0]
    return X, outputs / outputs.std() + 1e-6


def _deq_classes() -> tuple[np.ndarray, np.ndarray]:
    """The largest of four outputs of a DEQ with strong feedback."""
    X = np.random.default_rng(5).standard_normal((6000, 12)) / math.sqrt(12.0)
    net = nsd.nets.DEQNet(nsd.DEQ("tanh", 0.9, 4.0), 12, 500, 4, seed=1, dtype=torch.float64)
    with torch.no_grad():
        return X, net(torch.as_tensor(X)).numpy().argmax(axis=1)


def _strong_deq() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(6).standard_normal((2400, 6)) / math.sqrt(6.0)
    net = nsd.nets.DEQNet(nsd.DEQ("erf", 0.9, 4.0), 6, 1000, 1, seed=1, dtype=torch.float64)
    with torch.no_grad():
        outputs = net(torch.as_tensor(X)).numpy()[:, 0]
    return X, outputs / outputs.std() + 1e-6


def _spirals() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    turn, arm = generator.uniform(0.5, 3.0, 6000), generator.integers(0, 2, 6000)
    angle = 2.0 * turn + math.pi * arm
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1)
    return points + 0.15 * generator.standard_normal(points.shape), arm


def _parity() -> tuple[np.ndarray, np.ndarray]:
    """The sign of the product of two of eight coordinates: to be learnt by features, or from many samples."""
    X = np.random.default_rng(8).standard_normal((6000, 8))
    return X, (X[:, 0] * X[:, 1] > 0.0).astype(np.intp)


def _sinc() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(9)
    X = generator.uniform(-3.0, 3.0, (2400, 1))
    return X, np.sinc(X[:, 0]) + 0.1 * generator.standard_normal(2400)


def _swiss_roll() -> tuple[np.ndarray, np.ndarray]:
    return tables.make_swiss_roll(2400, noise=0.3, random_state=0)


def _checkers() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(10).uniform(-1.0, 1.0, (6000, 2))
    return X, ((np.floor(2.0 * X[:, 0]) + np.floor(2.0 * X[:, 1])) % 2).astype(np.intp)


def _rings() -> tuple[np.ndarray, np.ndarray]:
    """Three spheres around each other in three dimensions."""
    generator = np.random.default_rng(11)
    ring = generator.integers(0, 3, 6000)
    X = generator.standard_normal((6000, 3))
    X *= ((1.0 + ring + 0.2 * generator.standard_normal(6000)) / np.linalg.norm(X, axis=1))[:, None]
    return X, ring


def _outputs_of_a_teacher(features: int, outputs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A shallow network with random weights."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((6000, features))
    hidden = np.tanh(2.0 * X @ generator.standard_normal((features, 30)) / math.sqrt(features))
    return X, hidden @ generator.standard_normal((30, outputs)) / math.sqrt(30.0)


def _teacher() -> tuple[np.ndarray, np.ndarray]:
    X, outputs = _outputs_of_a_teacher(15, 5, 12)
    return X, outputs.argmax(axis=1)


def _numbers_of_a_teacher() -> tuple[np.ndarray, np.ndarray]:
    X, outputs = _outputs_of_a_teacher(8, 1, 13)
    return X, outputs[:, 0]


def _informative() -> tuple[np.ndarray, np.ndarray]:
    return tables.make_classification(6000, 40, n_informative=8, n_redundant=4, n_classes=3, random_state=0)


def _stairs() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(14)
    X = generator.uniform(-2.0, 2.0, (2400, 1))
    return X, np.floor(1.5 * X[:, 0]) + 0.1 * generator.standard_normal(2400)


def _bowl() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(15)
    X = generator.standard_normal((2400, 3))
    return X, np.sum(X**2, axis=1) + 0.5 * generator.standard_normal(2400)


def _waves() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(16)
    X = generator.standard_normal((2400, 4))
    return X, np.sin(2.0 * X).sum(axis=1) + 0.2 * generator.standard_normal(2400)


SMALL: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "breast_cancer": _table(tables.load_breast_cancer),
    "moons": lambda: tables.make_moons(2000, noise=0.25, random_state=0),
    "blobs": lambda: tables.make_blobs(2000, 5, centers=8, cluster_std=3.0, random_state=0),
    "diabetes": _table(tables.load_diabetes),
    "friedman": _friedman,
    "ripples": _ripples,
    "deq": _deq,
    "circles": lambda: tables.make_circles(6000, noise=0.2, factor=0.5, random_state=0),
    "spirals": _spirals,
    "quantiles": lambda: tables.make_gaussian_quantiles(
        n_samples=6000, n_features=10, n_classes=3, random_state=0
    ),
    "hastie": lambda: tables.make_hastie_10_2(6000, random_state=0),
    "wine": _table(tables.load_wine),
    "deq classes": _deq_classes,
    "parity": _parity,
    "sinc": _sinc,
    "friedman2": lambda: tables.make_friedman2(2400, noise=50.0, random_state=0),
    "friedman3": lambda: tables.make_friedman3(2400, noise=0.1, random_state=0),
    "swiss roll": _swiss_roll,
    "strong deq": _strong_deq,
    "checkers": _checkers,
    "rings": _rings,
    "teacher": _teacher,
    "informative": _informative,
    "stairs": _stairs,
    "bowl": _bowl,
    "waves": _waves,
    "numbers of a teacher": _numbers_of_a_teacher,
}


def _split(X: np.ndarray, y: np.ndarray, wanted: int) -> Parts:
    """Two thirds to train with, or as many as wanted."""
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    n = min(wanted or len(X), 2 * len(X) // 3)
    spread = X[:n].std(axis=0)
    rows = (X - X[:n].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    rows /= math.sqrt(np.mean(np.sum(rows[:n] ** 2, axis=1)))
    if y.dtype.kind == "f" and not np.array_equal(y, np.round(y)):
        y = (y - y[:n].mean()) / y[:n].std()
    elif len(np.unique(y)) > 20:
        y = (y - y[:n].mean()) / y[:n].std() + 1e-6
    return Parts(rows[:n], y[:n], rows[n:], y[n:])


__all__ = ["Parts", "parts_of"]
