"""Finite width without data: networks of width m whose readout is trained by ridge, on Gaussian mixtures.

A DEQ (σ_a² = 0.2) and its twin (two layers that see the input again, designed without data, for the conjugate kernel),
with ReLU on the mixture "two" of the table above and with tanh on "four"; n = 250 and 500, p/n = 0.8; m/n = 0.25, 0.5,
1 and 2; ridges 0.001, 0.1 and 1. Each measurement draws a training set and all weights anew: 12 times at n = 250, six
times at n = 500; 2000 test samples each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from harness import Row, markdown_table
from scipy.linalg import cho_factor, cho_solve

from learning.journal import Array, Part, chosen, gaps
from learning.mixtures import class_targets, mixture_of
from notsodeep.data import GaussianMixture
from notsodeep.designs import design
from notsodeep.kernels import random_features
from notsodeep.learning import learning_curve
from notsodeep.models import DEQ, Explicit

SIGMA_A2, TEST, RATIO = 0.2, 2000, 0.8
RIDGES = (0.001, 0.1, 1.0)
DRAWS = {250: 12, 500: 6}
SHARES = (0.25, 0.5, 1.0, 2.0)
NETWORKS = ("DEQ", "twin")


def tasks() -> list[Row]:
    return [
        {"n": n, "mixture": mixture, "activation": activation, "network": network, "share": share}
        for n in DRAWS
        for share in SHARES
        for mixture, activation in (("two", "relu"), ("four", "tanh"))
        for network in NETWORKS
    ]


def model_of(task: Row, mixture: GaussianMixture) -> DEQ | Explicit:
    square = sum(w * mixture.trace(a) for a, w in enumerate(mixture.weights)) / mixture.p
    deq = DEQ(task["activation"], SIGMA_A2)
    if task["network"] == "DEQ":
        return deq
    return design(deq, math.sqrt(square), "ck", family="injected", layers=2).network


def rows(task: Row) -> Iterator[Row]:
    n, width = task["n"], round(task["share"] * task["n"])
    mixture = mixture_of(task["mixture"], round(RATIO * n))
    model = model_of(task, mixture)
    number = DRAWS[n]
    found = np.array([draw(model, mixture, n, width, seed) for seed in range(number)])
    for place, ridge in enumerate(RIDGES):
        curve = learning_curve(model, mixture, n, ridge, width)
        accuracy, mse = found[:, place].T
        low, high = curve.interval[0]
        centre = float(curve.accuracy[0])
        noise = 1.645 * math.sqrt(centre * (1.0 - centre) / TEST)
        inside = (accuracy >= centre - math.hypot(centre - low, noise)) & (
            accuracy <= centre + math.hypot(high - centre, noise)
        )
        yield {
            "width": width,
            "ridge": ridge,
            "measured": float(accuracy.mean()),
            "error": float(accuracy.std(ddof=1) / math.sqrt(number)),
            "predicted": centre,
            "measured_mse": float(mse.mean()),
            "error_mse": float(mse.std(ddof=1) / math.sqrt(number)),
            "predicted_mse": float(curve.mse[0]),
            "inside": float(np.mean(inside)),
            "draws": number,
        }


def draw(
    model: DEQ | Explicit, mixture: GaussianMixture, n: int, width: int, seed: int
) -> list[tuple[float, float]]:
    """Accuracy and squared error at each ridge, for one training set and one network."""
    X, y = mixture.sample(n, seed=seed)
    Z, t = mixture.sample(TEST, seed=10_000 + seed)
    features = random_features(model, np.vstack([X, Z]), width, np.random.default_rng([seed, width]))
    return [_trained(features[:n], features[n:], y, t, mixture.classes, ridge) for ridge in RIDGES]


def _trained(own: Array, new: Array, y: Array, t: Array, classes: int, ridge: float) -> tuple[float, float]:
    targets = class_targets(classes)
    mean = targets[y].mean(axis=0)
    wide = own.shape[1] > len(own)
    system = own @ own.T if wide else own.T @ own
    factor = cho_factor(system + ridge * np.eye(len(system)), lower=True, overwrite_a=True)
    right = targets[y] - mean
    weights = own.T @ cho_solve(factor, right) if wide else cho_solve(factor, own.T @ right)
    scores = new @ weights + mean
    guess = scores.argmax(axis=1) if classes > 2 else (scores[:, 0] > 0).astype(int)
    return float(np.mean(guess == t)), float(np.mean((scores - targets[t]) ** 2))


def page(found: list[Row]) -> str:
    about = "\n".join((__doc__ or "").split("\n")[2:]).strip()
    by_share, by_network = [], []
    for n in DRAWS:
        for share in SHARES:
            some = chosen(found, n=n, share=share)
            if some:
                by_share.append(_line(some, {"n": n, "m/n": share}))
        for network in NETWORKS:
            some = chosen(found, n=n, network=network)
            if some:
                by_network.append(_line(some, {"n": n, "network": network}))
    worst = sorted(found, key=lambda row: -abs(row["predicted"] - row["measured"]))[:6]
    listed = [
        {
            **{name: row[name] for name in ("n", "width", "network", "mixture", "activation", "ridge")},
            "measured, %": f"{100 * row['measured']:.2f} ± {100 * row['error']:.2f}",
            "predicted, %": f"{100 * row['predicted']:.2f}",
            "mse measured, predicted": f"{row['measured_mse']:.3g}, {row['predicted_mse']:.3g}",
        }
        for row in worst
    ]
    return "\n".join(
        [
            f"### Finite width, without data\n\n{about}\n",
            markdown_table(by_network),
            markdown_table(by_share),
            "The largest differences:\n",
            markdown_table(listed),
        ]
    )


def _line(some: list[Row], first: Row) -> Row:
    relative = [abs(row["predicted_mse"] / row["measured_mse"] - 1.0) for row in some]
    return {
        **first,
        "cases": len(some),
        "median, points": float(np.median(gaps(some))),
        "worst, points": float(gaps(some).max()),
        "standard error of the measurement, median": f"{100 * np.median([row['error'] for row in some]):.2f}",
        "mse, median": f"{100 * np.median(relative):.1f} %",
        "in the 90 % band": f"{100 * np.mean([row['inside'] for row in some]):.0f} %",
    }


PART = Part("widths", tasks, rows, page)
