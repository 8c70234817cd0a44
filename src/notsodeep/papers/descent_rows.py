"""Rows of the experiments on gradient descent: AISTATS' data, and trainings with the theorem's quantities recorded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path

import numpy as np
import torch

from notsodeep.convergence import DescentSettings, PaperNetwork, gradient_descent, tangent_spectrum
from notsodeep.data import UnitSphere, load
from notsodeep.papers.experiment import Row
from notsodeep.papers.row_statistics import six_digits
from notsodeep.validation import Array


@dataclass(frozen=True, eq=False)
class Regression:
    """Rows of norm √d and one label for each."""

    X: Array
    y: Array


@lru_cache(maxsize=1)
def regression(data: str, n: int, d: int, data_dir: Path | None) -> Regression:
    """AISTATS' data: a sphere with N(0, 1) labels, or the classes 0 and 1 of a real data set with labels ∓1."""
    if data == "sphere":
        labels = np.random.default_rng(1).standard_normal(n)
        return Regression(sqrt(d) * UnitSphere(d).sample(n, 0), labels)
    read = load(data, classes=(0, 1), n=n, data_dir=data_dir)
    rows = read.X * (sqrt(read.X.shape[1]) / np.linalg.norm(read.X, axis=1, keepdims=True))
    return Regression(rows, np.where(read.y == 0, -1.0, 1.0))


def stable_step(problem: Regression, width: int, sigma_w2: float, seed: int) -> float:
    """1/λ_max(H) of the initial network, docs/theory.md (8.30)."""
    network = PaperNetwork.draw(width, problem.X.shape[1], sigma_w2, seed=seed)
    return tangent_spectrum(network, torch.as_tensor(problem.X)).step


def descent_row(
    problem: Regression, width: int, sigma_w2: float, *, lr: float | None, steps: int, every: int, seed: int
) -> Row:
    """One training by gradient descent; without a step size it finds one."""
    settings = DescentSettings(steps, lr=lr, every=every, dtype="float32")
    found = gradient_descent(problem.X, problem.y, width, sigma_w2, settings, seed=seed)
    return {
        "kind": "training",
        "width": width,
        "seed": seed,
        "n": problem.X.shape[0],
        "d": problem.X.shape[1],
        "lr": found.lr,
        "halvings": found.halvings,
        "steps": [row.step for row in found.rows],
        "losses": six_digits([row.loss for row in found.rows]),
        "norms": six_digits([row.recurrent_norm for row in found.rows]),
        "least": six_digits([row.least / width for row in found.rows]),
        "first_loss": float(found.losses[0]),
        "last_loss": float(found.losses[-1]),
        "largest_norm": max(row.recurrent_norm for row in found.rows),
        "stopped": found.stopped,
    }
