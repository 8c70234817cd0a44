"""Tasks that need a known number of steps."""

from __future__ import annotations

import numpy as np

from notsodeep.data import Preprocessing, load


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits: one step is enough."""
    data = load("digits", split="train", n=n)
    return Preprocessing.fit(data.X).apply(data.X), data.y


def chain(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences with a mark ±1 at both ends and noise between them: are the marks equal?"""
    generator = np.random.default_rng(length)
    X = 0.3 * generator.standard_normal((n, 1, length))
    X[:, 0, [0, -1]] = generator.choice([-1.0, 1.0], (n, 2))
    return X, (X[:, 0, 0] == X[:, 0, -1]).astype(int)


def paths(count: int, distance: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Disjoint paths with a mark ±1 at the first node, which is the label of the last one; others have no label.

    Each node reads the one before it, and a little of itself.

    Returns the propagation matrix, the features and the labels of all nodes.
    """
    generator, length = np.random.default_rng(distance), distance + 1
    path = 0.2 * np.eye(length) + np.eye(length, k=-1)
    features = 0.1 * generator.standard_normal((count, length, 2))
    marks = generator.choice([-1.0, 1.0], count)
    features[:, 0, 0] = marks
    labels = np.full((count, length), np.nan)
    labels[:, -1] = marks
    return np.kron(np.eye(count), path), features.reshape(-1, 2), labels.reshape(-1)
