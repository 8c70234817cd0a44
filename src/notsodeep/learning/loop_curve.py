"""`loop_curve`: test error of a network that was trained with K steps and runs with k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.forecasts.covariance_fields import fields_of
from notsodeep.learning.labelled import Labelled
from notsodeep.learning.loop_kernels import step_kernel, step_variances
from notsodeep.models import GraphDEQ
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, IntArray, as_count, as_number, frozen, label_codes


@dataclass(frozen=True, eq=False, repr=False)
class LoopCurve(Shown):
    """Test error and accuracy against the number of steps at run time.

    Attributes:
        steps: numbers of steps k, as they were given.
        mse: mean squared error on the test samples, averaged over outputs. Targets: ±1 for two classes, else one-hot.
        accuracy: share of test samples classified correctly; NaN in a regression.
        train_steps: K, the steps after which the readout was trained.
        ridge: λ, added to the diagonal of the kernel matrix.
        width: of the network; None for the limit of infinite width.
        trusted_width: the median prediction was within 5 % of networks of this width and wider, for rates like that of
            the model; single networks vary by more.
        model: the model in words.
        source: the samples in words.
    """

    steps: IntArray
    mse: Array
    accuracy: Array
    train_steps: int
    ridge: float
    width: int | None
    trusted_width: int
    model: str
    source: str

    def plot(self, ax: Any = None, measured: Any = None) -> Any:
        """Draw the error, with measured points (steps, mse[, spread]) in rows; returns the Axes."""
        from notsodeep.figures import plot_loop_curve

        return plot_loop_curve(self, ax=ax, measured=measured)

    def explain(self) -> str:
        """The curve as a table, and from which width on it may be trusted."""
        lines = [f"{self.model}, readout trained after {self.train_steps} steps; {self.source}"]
        for steps, mse, accuracy in zip(self.steps, self.mse, self.accuracy, strict=True):
            share = "" if np.isnan(accuracy) else f", accuracy {accuracy:.1%}"
            lines.append(f"  {steps:>4} steps: mse {mse:.4g}{share}")
        return "\n".join([*lines, f"To be trusted for networks of width {self.trusted_width} and wider."])

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain JSON values; the accuracy is None in a regression."""
        arrays = {name: np.asarray(getattr(self, name)).tolist() for name in ("steps", "mse", "accuracy")}
        arrays["accuracy"] = None if np.isnan(self.accuracy).any() else arrays["accuracy"]
        names = ("train_steps", "ridge", "width", "trusted_width", "model", "source")
        return {"kind": "LoopCurve", **arrays, **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        return self.explain()

    def _facts(self) -> dict[str, Any]:
        shown = {"steps": self.steps.tolist(), "mse": np.round(self.mse, 4).tolist()}
        return shown | {"train_steps": self.train_steps, "width": self.width, "model": self.model}


def loop_curve(
    model: Any,
    data: tuple[Any, Any],
    *,
    test: tuple[Any, Any],
    train_steps: int,
    steps: Sequence[int],
    ridge: float = 0.1,
    center: bool = False,
    width: int | None = None,
    progress: bool | Report = False,
) -> LoopCurve:
    """Predict the test error of a looped network that runs with more or fewer steps than it was trained with.

    The readout is trained by ridge regression on the features after `train_steps` steps, all other weights are
    random, and the network then runs with each number of `steps`. Step 1 is φ(σ_b B x); all steps share their weights.

    Args:
        model: a DEQ, ConvDEQ or GraphDEQ: the step that is repeated.
        data: (X, y), training samples. Whole numbers and words are classes, other numbers targets of a regression.
            Of a graph X has all nodes, and nodes that are not trained on have the label None or NaN.
        test: (X_test, y_test). Of a graph the same X, and labels of the test nodes.
        train_steps: K.
        steps: numbers of steps k at run time.
        ridge: λ, added to the diagonal of the kernel matrix, as in `learning_curve`.
        center: subtract the mean of the targets before training.
        width: predict a network of this width, docs/theory.md (15.4); the limit of infinite width if None.
        progress: True for a bar on stderr when it takes longer than two seconds, or a function.

    Raises:
        InputError: for input that cannot be used.
    """
    trained, numbers = as_count(train_steps, "train_steps"), [as_count(one, "steps") for one in steps]
    if not numbers:
        raise InputError("steps is empty; give numbers of steps such as [1, 2, 4, 8].")
    penalty, size = as_number(ridge, "ridge"), None if width is None else as_count(width, "width")
    task = _Task.of(model, data, test)
    mean = task.targets.mean(axis=0) if center else np.zeros(task.targets.shape[1])
    own = step_kernel(model, task.X, task.X, trained, trained)[np.ix_(task.train, task.train)]
    readout = Readout.of(own, task.targets - mean, penalty, size)
    errors, shares = [], []
    with reported(progress, "loop curve") as report:
        for place, count in enumerate(numbers):
            report(place, len(numbers), partial("{} steps".format, count))
            cross = step_kernel(model, task.X_test, task.X, count, trained)[np.ix_(task.test, task.train)]
            outputs, variance = readout.outputs(cross), np.zeros((1, 1))
            if size is not None:
                variance = readout.variance(cross, step_variances(model, task.X_test, count)[task.test])
            errors.append(float(np.mean((outputs + mean - task.test_targets) ** 2 + variance)))
            shares.append(task.accuracy(outputs + mean))
    return LoopCurve(
        steps=frozen(np.array(numbers, dtype=np.intp)),
        mse=frozen(np.array(errors)),
        accuracy=frozen(np.array(shares)),
        train_steps=trained,
        ridge=penalty,
        width=size,
        trusted_width=_trusted_width(model, task.X, size),
        model=str(model),
        source=f"{len(task.train)} training samples, {len(task.test)} test samples",
    )


@dataclass(frozen=True, eq=False)
class Readout:
    """Ridge regression on the features of a wide network, at infinite or at finite width.

    Attributes:
        values: eigenvalues of the kernel matrix K of the training samples.
        vectors: its eigenvectors.
        weights: (K + κ)⁻¹ y.
        ridge: κ; the ridge λ itself at infinite width.
        freedom: m - tr[(K(K + κ)⁻¹)²] at width m.
    """

    values: Array
    vectors: Array
    weights: Array
    ridge: float
    freedom: float

    @classmethod
    def of(cls, kernel: Array, targets: Array, ridge: float, width: int | None) -> Readout:
        """Train on a kernel matrix; at width m, κ solves λ = κ (1 - tr[K (K + κ)⁻¹]/m), (15.3)."""
        values, vectors = eigh(kernel)
        values = np.maximum(values, 0.0)
        effective, freedom = ridge, np.inf
        if width is not None:
            effective = _effective_ridge(values, ridge, width)
            freedom = width - float(np.sum((values / (values + effective)) ** 2))
        if effective <= 0.0 and values[0] <= len(values) * 2.0**-52 * values[-1]:
            raise InputError(
                "ridge = 0 and the kernel matrix is singular: samples repeat, or are too many. Give ridge > 0."
            )
        weights = vectors @ ((vectors.T @ targets) / (values + effective)[:, None])
        return cls(values, vectors, np.asarray(weights), effective, freedom)

    def outputs(self, cross: Array) -> Array:
        """The mean output, from inner products with the training samples."""
        return np.asarray(cross @ self.weights)

    def variance(self, cross: Array, squares: Array) -> Array:
        """The variance of the output over networks, (test samples, outputs), (15.4)."""
        known = (cross @ self.vectors) ** 2
        shrunk = self.values + self.ridge
        left = squares - known @ ((self.values + 2.0 * self.ridge) / shrunk**2)
        sizes = np.sum((self.vectors.T @ self.weights) ** 2 * self.values[:, None], axis=0)
        return np.asarray(np.maximum(left, 0.0)[:, None] * sizes / self.freedom)


def _effective_ridge(values: Array, ridge: float, width: int) -> float:
    """The κ of (15.3)."""

    def gap(logarithm: float) -> float:
        kappa = float(np.exp(logarithm))
        return kappa * (1.0 - float(np.sum(values / (values + kappa))) / width) - ridge

    smallest, largest = 1e-14 * values[-1], ridge + values.sum() / width
    if gap(np.log(smallest)) >= 0.0:
        return max(ridge, 0.0)
    return float(np.exp(brentq(gap, np.log(smallest), np.log(largest) + 1.0, xtol=1e-12)))


@dataclass(frozen=True, eq=False)
class _Task:
    """Checked samples with their targets, and the places of those that are trained on and tested."""

    X: Array
    X_test: Array
    train: IntArray
    test: IntArray
    targets: Array
    test_targets: Array
    test_codes: IntArray | None

    @classmethod
    def of(cls, model: Any, data: Any, test: Any) -> _Task:
        """Check the arguments of `loop_curve`."""
        (X, y), (X_test, y_test) = _pair(data, "data"), _pair(test, "test")
        if step_kernel.dispatch(type(model)) is step_kernel.dispatch(object):
            step_kernel(model, X, X, 1, 1)
        X, X_test = model.check_samples(X), model.check_samples(X_test, "X_test")
        if X.shape[1:] != X_test.shape[1:]:
            raise InputError(
                f"X has samples of shape {X.shape[1:]}, X_test of shape {X_test.shape[1:]}. Give the same features."
            )
        (y, train), (y_test, tested) = _known(y, X, "y", model), _known(y_test, X_test, "y_test", model)
        if isinstance(model, GraphDEQ) and (
            not np.array_equal(X, X_test)
            or len(X) != len(model.propagation)
            or np.intersect1d(train, tested).size
        ):
            raise InputError(
                f"The graph has {len(model.propagation)} nodes: X and X_test are the same array with a row for each "
                "node, and no node has a label in both y and y_test; the others are None or NaN."
            )
        labelled = Labelled.of(y, len(train))
        if labelled.codes is None:
            goals: Array = np.asarray(y_test, dtype=np.float64).reshape(len(tested), -1)
            codes = None
            if goals.shape[1] != labelled.targets.shape[1]:
                raise InputError(
                    f"y_test has {goals.shape[1]} targets a sample, y {labelled.targets.shape[1]}."
                )
        else:
            classes = np.unique(y)
            codes = label_codes(y_test, classes, len(tested), "y_test")
            goals = np.asarray(
                2.0 * codes[:, None] - 1.0 if len(classes) == 2 else np.eye(len(classes))[codes]
            )
        return cls(X, X_test, train, tested, labelled.targets, goals, codes)

    def accuracy(self, outputs: Array) -> float:
        """Share of test samples whose class is right; NaN in a regression."""
        if self.test_codes is None:
            return float("nan")
        classes = outputs[:, 0] > 0.0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        return float(np.mean(classes == self.test_codes))


def _pair(value: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"{name} must be labelled samples (X, y); got {type(value).__name__}.")
    return value[0], value[1]


def _known(y: Any, samples: Array, name: str, model: Any) -> tuple[Any, IntArray]:
    """The labels that are known, and where; only nodes of a graph may have none."""
    labels, n = np.asarray(y), len(samples)
    if labels.ndim == 0 or len(labels) != n:
        raise InputError(f"{name} has shape {labels.shape} for {n} samples. Give one label for each sample.")
    rows = labels.astype(object).reshape(n, -1)
    places = np.flatnonzero([all(one is not None and one == one for one in row) for row in rows])
    if not len(places) or (len(places) < n and not isinstance(model, GraphDEQ)):
        raise InputError(f"{name} has no label for {n - len(places)} of {n} samples. Remove these samples.")
    return np.asarray(labels[places].tolist()), places


# Widths from which on the limit, and the form at finite width, had a median deviation below 5 % from networks, by the
# largest rate that was measured: `notsodeep reproduce loops --size full`.
TRUSTED = {0.5: (1024, 512), np.inf: (8192, 4096)}


def _trusted_width(model: Any, X: Array, width: int | None) -> int:
    """The width from which on a prediction may be trusted, by the contraction rate of the model on these samples."""
    try:
        rate = float(fields_of(model, X).spread_rate.max())
    except (ConvergenceError, InputError):
        rate = np.inf
    return next(widths for most, widths in TRUSTED.items() if rate <= most + 0.01)[width is not None]


__all__ = ["LoopCurve", "Readout", "loop_curve"]
