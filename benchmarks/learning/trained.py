"""What is really trained on real data: kernel ridge regression and random networks whose readout is trained by ridge.

One task is a data set, a cut of its rows, an activation and a width (none: the exact kernels, conjugate and tangent).
σ_a² = 0.2, ridges 0.001, 0.03 and 1. Up to eight disjoint training sets for each n (24 up to n = 300, and 56 further
ones of MNIST and VGG-19 features at n = 100, where accuracies differ most); networks of width 128, 512 and 4096, six,
four and two of them, take the training sets in turn. Their equilibria are solved to 1e-6 in float32, the regressions in
float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from harness import Row
from scipy.linalg import cho_factor, cho_solve, lapack

from learning.journal import Array, Part
from learning.real_data import CUTS, DATA, FURTHER_DATA, Cut, cut_of, training_sets
from notsodeep.kernels import both_kernels
from notsodeep.models import DEQ

ACTIVATIONS = ("relu", "tanh")
SIGMA_A2 = 0.2
RIDGES = (0.001, 0.03, 1.0)
NETWORKS = {128: 6, 512: 4, 4096: 2}
WIDE = 1000


def widths(cut: int) -> list[int]:
    """Wide networks are trained on the first cut alone."""
    return [width for width in NETWORKS if width <= WIDE or cut == 0]


def tasks() -> list[Row]:
    """Kernels of all data sets first, then networks, the narrow ones before the wide ones."""
    found: list[Row] = []
    for width in (None, *NETWORKS):
        for activation in ACTIVATIONS:
            for data in DATA:
                names = {"data": data, "activation": activation, "width": width}
                cuts = [cut for cut in range(CUTS[data][2]) if width is None or width in widths(cut)]
                found += [names | {"cut": cut, "further": None} for cut in cuts]
                if data in FURTHER_DATA and width != max(NETWORKS):
                    found.append(names | {"cut": 0, "further": True})
    return found


def rows(task: Row) -> Iterator[Row]:
    cut, model = cut_of(task["data"], task["cut"]), DEQ(task["activation"], SIGMA_A2)
    sets = training_sets(task["data"], further=bool(task["further"]))
    if task["width"] is None:
        yield from _kernels(cut, model, sets)
    else:
        yield from _networks(cut, model, task["width"], sets)


Sets = dict[tuple[int, int], Array]


def _kernels(cut: Cut, model: DEQ, sets: Sets) -> Iterator[Row]:
    own = both_kernels(model, cut.X)
    new = both_kernels(model, cut.X_test, cut.X) if len(cut.X_test) else (None, None)
    for name, kernel, cross in zip(("ck", "ntk"), own, new, strict=True):
        for (n, number), used in sets.items():
            for ridge in RIDGES:
                scores = _kernel_scores(kernel, cross, used, cut, ridge)
                yield {"kernel": name, "n": n, "set": number, "ridge": ridge, **figures(scores, cut)}


def targets_of(cut: Cut, used: Array) -> tuple[Array, Array]:
    """One-hot targets with their mean taken out, and that mean."""
    targets = np.eye(cut.classes)[cut.y[used]]
    mean = targets.mean(axis=0)
    return targets - mean, mean


def _kernel_scores(kernel: Array, cross: Array | None, used: Array, cut: Cut, ridge: float) -> Array:
    """Scores of the test rows, or of all other rows with the training rows left out in turn."""
    targets, mean = targets_of(cut, used)
    system = kernel[np.ix_(used, used)]
    system[np.diag_indices(len(used))] += ridge
    factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
    solved = cho_solve(factor, targets, check_finite=False)
    if cross is not None:
        return np.asarray(cross[:, used] @ solved + mean)
    scores = kernel[:, used] @ solved + mean
    # The mean of the others' targets differs from that of all by the sample's own, over n - 1: (11.27).
    ones = cho_solve(factor, np.ones(len(used)), check_finite=False)
    inverse, failed = lapack.dpotri(factor[0], lower=1, overwrite_c=1)
    if failed:
        raise RuntimeError("the inverse of a kernel matrix could not be formed")
    solved += targets * (ones / (len(used) - 1))[:, None]
    scores[used] = targets - solved / inverse.diagonal()[:, None] + mean
    return np.asarray(scores)


def _networks(cut: Cut, model: DEQ, width: int, sets: Sets) -> Iterator[Row]:
    for network in range(NETWORKS[width]):
        features = deq_features(model, np.vstack([cut.X, cut.X_test]), width, network)
        own, new = features[: len(cut.X)], features[len(cut.X) :]
        for (n, number), used in sets.items():
            if number % NETWORKS[width] != network and (n, 1) in sets:
                continue
            for ridge in RIDGES:
                scores = _network_scores(own, new if len(new) else None, used, cut, ridge)
                found = {"kernel": "ck", "n": n, "set": number, "network": network, "ridge": ridge}
                yield found | figures(scores, cut)


def deq_features(model: DEQ, X: Array, width: int, seed: int) -> Array:
    """Equilibria of one random network over √m, in float32, solved until no entry moves by 1e-6."""
    rng = np.random.default_rng([seed, width])
    recurrent = rng.standard_normal((width, width), dtype=np.float32) * np.float32(
        math.sqrt(model.sigma_a2 / width)
    )
    drive = X.astype(np.float32) @ rng.standard_normal((X.shape[1], width), dtype=np.float32)
    drive *= np.float32(math.sqrt(model.sigma_b2))
    state = np.asarray(model.activation(drive), dtype=np.float32)
    for _ in range(100):
        fresh = np.asarray(model.activation(state @ recurrent.T + drive), dtype=np.float32)
        moved = float(np.abs(fresh - state).max())
        state = fresh
        if moved <= 1e-6 * max(1.0, float(np.abs(state).max())):
            return np.asarray(state / np.float32(math.sqrt(width)))
    raise RuntimeError(f"the equilibrium of width {width} did not converge: {moved:.1e}")


def _network_scores(own: Array, new: Array | None, used: Array, cut: Cut, ridge: float) -> Array:
    """As `_kernel_scores`, for the features of one network; the smaller of the two systems is solved."""
    targets, mean = targets_of(cut, used)
    features = own[used].astype(np.float64)
    wide = features.shape[1] > len(used)
    system = features @ features.T if wide else features.T @ features
    system[np.diag_indices(len(system))] += ridge
    factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
    if wide:
        weights = features.T @ cho_solve(factor, targets, check_finite=False)
    else:
        weights = cho_solve(factor, features.T @ targets, check_finite=False)
    if new is not None:
        return np.asarray(new @ weights + mean)
    scores = own @ weights + mean
    # λB = λ(K + λI)⁻¹, its diagonal and its sums of rows.
    if wide:
        inverse = ridge * cho_solve(factor, np.eye(len(used)), check_finite=False)
        left, ones = inverse.diagonal(), inverse.sum(axis=1)
    else:
        solved = cho_solve(factor, features.T, check_finite=False)
        left, ones = 1.0 - np.sum(features * solved.T, axis=1), 1.0 - features @ solved.sum(axis=1)
    residuals = targets - features @ weights + targets * (ones / (len(used) - 1))[:, None]
    scores[used] = targets - residuals / left[:, None] + mean
    return np.asarray(scores)


def figures(scores: Array, cut: Cut) -> Row:
    wanted = cut.y_test if len(cut.y_test) else cut.y
    return {
        "accuracy": float(np.mean(scores.argmax(axis=1) == wanted)),
        "mse": float(np.mean((scores - np.eye(cut.classes)[wanted]) ** 2)),
        "test_rows": len(wanted),
    }


def page(_: list[Row]) -> str:
    """Nothing of its own: the part `samples` shows these beside predictions."""
    return ""


PART = Part("trained", tasks, rows, page)
