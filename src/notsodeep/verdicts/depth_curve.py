"""`depth_curve`: how accurate a model is after 1, 2, 3, … steps, and how many steps a trained network needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from notsodeep.equivalents.error import kernel_distance
from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.kernels import exact_kernel
from notsodeep.learning.labelled import Labelled
from notsodeep.learning.trained_kernel import TrainedKernel
from notsodeep.models import Model
from notsodeep.models.protocol import Unrollable
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, IntArray, as_count, as_number, frozen, one_of
from notsodeep.verdicts.depth_result import DepthCurve, curve_of_scores

STEPS = (1, 2, 3, 4, 6, 8, 12, 16)
# Ridges to choose from, relative to the mean eigenvalue of the kernel matrix.
_RIDGES = 10.0 ** np.arange(-7.0, 2.0)
_FEWEST = 8


def depth_curve(
    model: Any,
    data: Any,
    steps: Sequence[int] = STEPS,
    kernel: str = "ck",
    ridge: float | None = None,
    *,
    seed: int = 0,
    progress: bool | Report = False,
) -> DepthCurve:
    """Predict the accuracy of a model cut after k steps, or measure how many steps a trained network needs.

    For a model, every sample is left out in turn and predicted by ridge regression with the exact kernel of the k-step
    network, in closed form; nothing is trained. All steps share their weights and start from z = 0: step 1 is
    φ(σ_b B x). For a trained network, the readout of its k-step state is refitted on half of the samples, and its
    answers are compared with those at the equilibrium on the other half.

    Args:
        model: a DEQ, ConvDEQ or GraphDEQ, or any model with `unrolled(k)`; or a trained DEQNet or ConvDEQNet.
        data: for a model (X, y), or X alone to compare kernels without labels; for a network X. Whole numbers and
            words are classes, other numbers targets of a regression. Of a graph, nodes may have the label None or NaN.
        steps: numbers of steps; the equilibrium is added.
        kernel: "ck" if the readout will be trained, "ntk" if all weights will be; for a model.
        ridge: λ, added to the diagonal of the kernel matrix; if None, for each number of steps the best one of nine
            powers of ten times the mean eigenvalue, chosen by leaving samples out. For a model.
        seed: seed of the split; for a network.
        progress: True for a bar on stderr, or a function.

    Raises:
        InputError: for input that cannot be used.
        ConvergenceError: if the model or the network has no equilibrium on some sample.
    """
    numbers = sorted({as_count(one, "steps") for one in steps})
    if not numbers:
        raise InputError("steps is empty; give numbers of steps such as [1, 2, 4, 8].")
    if isinstance(data, tuple) and len(data) != 2:
        raise InputError(f"data must be (X, y), or X alone; got a tuple of {len(data)} entries.")
    X, y = data if isinstance(data, tuple) else (data, None)
    with reported(progress, "depth curve") as report:
        if isinstance(model, Unrollable) and isinstance(model, Model):
            return model_curve(model, X, y, numbers, kernel, ridge, report)
        needed("torch", "The depth curve of a trained network")
        from notsodeep.verdicts.trained_curve import network_curve

        return network_curve(model, X, numbers, seed, report)


def model_curve(
    model: Any, X: Any, y: Any, steps: Sequence[int], kernel: str, ridge: float | None, report: Report
) -> DepthCurve:
    """The curve of a model on samples, with or without labels."""
    one_of(kernel, ("ck", "ntk"), "kernel")
    samples = model.check_samples(X)
    data = None if y is None else labelled_samples(model, y, len(samples))
    whole = exact_kernel(model, samples, kernel=kernel)
    errors, scores, ridges = [], [], []
    for number, count in enumerate((*steps, None)):
        report(number, len(steps) + 1, partial("{} steps".format, count))
        cut = whole if count is None else exact_kernel(model.unrolled(count), samples, kernel=kernel)
        errors.append(kernel_distance(whole, cut).up_to_factor)
        if data is not None:
            score, best = left_out_scores(cut, *data, ridge)
            scores.append(score)
            ridges.append(best)
    words = f"{len(samples)} samples" if data is None else f"{len(data[0])} labelled samples"
    shared: dict[str, Any] = {
        "steps": frozen(np.array([*steps, np.inf])),
        "kernel_error": frozen(np.array(errors)),
        "kernel": kernel,
        "model": str(model),
        "source": words,
    }
    if data is None:
        similarity = 1.0 - np.array(errors)
        return DepthCurve(
            accuracy=frozen(similarity),
            interval=frozen(np.stack([similarity, similarity], axis=1)),
            measure="kernel similarity",
            scores=None,
            ridge=frozen(np.full(len(errors), np.nan)),
            chance=0.0,
            **shared,
        )
    codes = data[1].codes
    return curve_of_scores(
        np.array(scores),
        measure="explained variance" if codes is None else "accuracy",
        ridge=frozen(np.array(ridges)),
        chance=0.0 if codes is None else float(np.bincount(codes).max() / len(codes)),
        **shared,
    )


def labelled_samples(model: Any, y: Any, n: int) -> tuple[IntArray, Labelled]:
    """The places of the labelled samples, and their targets; only nodes of a graph may have no label."""
    labels = np.asarray(y)
    if len(labels) != n:
        raise InputError(f"X has {n} samples and y {len(labels)} labels; give one label per sample.")
    values = labels.astype(object).reshape(n, -1)
    known = np.array([all(one is not None and one == one for one in row) for row in values])
    places = np.flatnonzero(known)
    if len(places) < n and not hasattr(model, "propagation"):
        raise InputError(
            f"y has no label for {n - len(places)} of {n} samples (None or NaN). Remove these samples."
        )
    if len(places) < _FEWEST:
        raise InputError(f"{len(places)} labelled samples are too few: {_FEWEST} or more are needed.")
    # As an array of its own: None beside numbers makes an array of objects.
    return places, Labelled.of(np.asarray(labels[places].tolist()), len(places))


def left_out_scores(
    kernel: Array, places: IntArray, labelled: Labelled, ridge: float | None
) -> tuple[Array, float]:
    """What each labelled sample scores when it is left out, docs/theory.md (11.15), and the ridge.

    1 or 0 for its class; in a regression 1 less its squared error over the variance of the targets.
    """
    part = kernel if len(places) == len(kernel) else kernel[np.ix_(places, places)]
    trained = TrainedKernel.of(part, labelled.targets, intercept=True)
    ridges = float(trained.values.mean()) * _RIDGES
    if ridge is not None:
        ridges = np.array([as_number(ridge, "ridge", positive=True)])
    residuals = trained.left_out_residuals(ridges)
    squares = np.mean(residuals**2, axis=2)
    if labelled.codes is None:
        best = int(np.argmin(squares.mean(axis=1)))
        return 1.0 - squares[best] / float(labelled.targets.var(axis=0).mean()), float(ridges[best])
    outputs = labelled.targets - residuals
    # Two classes are ±1 in one column.
    classes = outputs[:, :, 0] > 0.0 if outputs.shape[2] == 1 else outputs.argmax(axis=2)
    right = np.asarray(classes == labelled.codes, dtype=np.float64)
    # The most accurate; where several are, the one with the least squared error.
    best = int(np.lexsort((squares.mean(axis=1), -right.mean(axis=1)))[0])
    return right[best], float(ridges[best])


__all__ = ["STEPS", "depth_curve"]
