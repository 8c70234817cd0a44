"""`DEQKernelRidge` and `DEQKernelClassifier`: least squares with the exact kernels of a DEQ."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.preprocessing import label_binarize
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from notsodeep.data import Preprocessing
from notsodeep.errors import InputError
from notsodeep.estimators.scaling import checked_rows, checked_rows_and_labels, checked_rows_and_targets
from notsodeep.gaussian.activations import Activation
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.kernel_ridge import left_out_ridge, solve_ridge
from notsodeep.models import DEQ, Model, as_model
from notsodeep.validation import Array, IntArray, as_number, one_of

KERNELS = ("ck", "ntk")
# Entries of a kernel held at once while predicting: 128 MB.
_BLOCK = 1 << 24
# Training rows whose leave-one-out scores determine the temperature of the probabilities.
_CALIBRATION_ROWS = 500
# Range of log T; outside of it the probabilities of scores near ±1 are 0 and 1, or all equal, to three digits.
_RANGE = (-4.0, 7.0)


@dataclass(eq=False, repr=False)
class KernelMachine(BaseEstimator):
    """f(x) = intercept + k(x, X) dual; the parameters are those of `DEQKernelRidge`."""

    _: KW_ONLY
    kernel: str = "ntk"
    activation: str | Activation = "relu"
    sigma_a2: float = 0.2
    sigma_b2: float | None = None
    bias2: float = 0.0
    alpha: float | str = "best"
    fit_intercept: bool = True
    scale: str = "auto"
    model: Model | None = None
    image_shape: tuple[int, ...] | None = None

    def _fit_machine(self, X: Array, targets: Array, held_out: IntArray | None = None) -> Array:
        """Solve for the dual coefficients, and return the leave-one-out outputs of the rows `held_out`.

        The kernel and the intercept are those of the other rows; the scaling is that of all rows.
        """
        self._prepare()
        samples = self._shaped(X)
        self.scaling_ = Preprocessing.fit(samples, self.scale)
        self.X_fit_ = np.asarray(self.scaling_.apply(samples))
        held = np.zeros(0, dtype=np.intp) if held_out is None else held_out
        columns = targets.reshape(len(X), -1)
        kernel, own = self._between(self.X_fit_), {"intercept": self.fit_intercept}
        self.alpha_ = left_out_ridge(kernel, columns, **own) if self.alpha == "best" else float(self.alpha)
        fit = solve_ridge(kernel, columns, self.alpha_, held, **own)
        self.dual_coef_ = fit.dual.reshape(targets.shape)
        self.intercept_ = fit.intercept.reshape(targets.shape[1:])
        return np.asarray(targets[held] - fit.residuals.reshape(len(held), *targets.shape[1:]))

    def _prepare(self) -> None:
        """Check the parameters of the kernel before any work starts."""
        self.kernel_ = one_of(self.kernel, KERNELS, "kernel")
        if self.alpha != "best":
            as_number(self.alpha, "alpha")
        if self.model is None:
            self.model_: Model = DEQ(self.activation, self.sigma_a2, self.sigma_b2, self.bias2)
        else:
            self.model_ = as_model(self.model)

    def _between(self, X: Array, Y: Array | None = None) -> Array:
        """Compute the kernel between scaled samples."""
        return exact_kernel(self.model_, X, Y, kernel=self.kernel_)

    def _flattened(self, X: Any, *, fit: bool = False) -> Any:
        """Flatten images to rows; with `fit` remember their shape."""
        shape = tuple(getattr(X, "shape", ()))[1:]
        images = self.model is not None and len(shape) > 1
        if fit:
            given = self.image_shape
            self.image_shape_ = tuple(map(int, given)) if given is not None else shape if images else None
        if not images:
            return X
        if shape != self.image_shape_:
            raise InputError(f"Images of the shape {self.image_shape_} are needed; X has images of {shape}.")
        return X.reshape(len(X), -1)

    def _shaped(self, rows: Array) -> Array:
        """Give rows the shape of the samples."""
        shape = getattr(self, "image_shape_", None)
        if shape is None:
            return rows
        if int(np.prod(shape)) != rows.shape[1]:
            raise InputError(
                f"X has {rows.shape[1]} features, and image_shape {shape} needs {int(np.prod(shape))}."
            )
        return rows.reshape(-1, *shape)

    def _machine_output(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = np.asarray(self.scaling_.apply(self._shaped(checked_rows(self, self._flattened(X)))))
        output = np.empty((len(rows), *self.dual_coef_.shape[1:]))
        # Only a bounded part of the kernel is in memory at once.
        for part in gen_batches(len(rows), max(1, _BLOCK // len(self.X_fit_))):
            output[part] = self._between(rows[part], self.X_fit_) @ self.dual_coef_
        return np.asarray(output + self.intercept_)


class DEQKernelRidge(MultiOutputMixin, RegressorMixin, KernelMachine):
    """Kernel ridge regression with the exact kernel of an infinitely wide DEQ.

    The kernels are docs/theory.md (3.8) for "ntk" and (3.3) for "ck". As alpha → 0, "ntk" predicts what the DEQ
    predicts after training all of its weights (from an output of zero), "ck" after training its readout alone; with
    `fit_intercept` the readout has a bias that training does not hold back.

    Args:
        kernel: "ntk" or "ck".
        activation: of the DEQ, by name or as an `Activation`.
        sigma_a2: width times the variance of a recurrent weight; 0 is a network of one hidden layer.
        sigma_b2: variance of an input weight; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
        alpha: the ridge, which is added to the diagonal of the kernel, of order 1. "best" has the least squared error
            of training rows that are left out, in closed form; of more than 1000 rows every second, third, … chooses.
        fit_intercept: fit an intercept, which is not penalised: the bias of the readout. Without one, the kernel of
            ReLU cannot tell small rows from large ones, and an odd activation is odd in the scaled rows.
        scale: how samples are scaled, see `Preprocessing.fit`: "auto" centres them and divides by one number, or every
            column by its own if one or a few of many columns have nearly all of the variance.
        model: a model of any kind, for example `Explicit(["relu"])`; the activation and the variances above are then
            not used. With a model of images, `ConvDEQ("relu")`, X may be images (n, channels, height, width).
        image_shape: (channels, height, width) of images that come as rows, as from the steps of a pipeline.

    Attributes:
        dual_coef_: coefficients of k(x, X_fit_), of the shape of y; they add up to zero if there is an intercept.
        intercept_: the intercept of each target, or zero.
        alpha_: the ridge that was used.
        X_fit_: the training samples, scaled.
        scaling_: the fitted `Preprocessing`.
        model_: the model whose kernel is used.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Solve for the dual coefficients, O(n²p + n³).

        Args:
            X: samples in rows.
            y: one target (n,), or several (n, m).
        """
        self._fit_machine(*checked_rows_and_targets(self, self._flattened(X, fit=True), y))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Evaluate the regression function at new rows."""
        return self._machine_output(X)


class DEQKernelClassifier(ClassifierMixin, KernelMachine):
    """Classification with the exact kernel of an infinitely wide DEQ.

    Fits targets ±1 by least squares, one class against the rest, as `RidgeClassifier` does: all classes share one
    factorisation. `predict_proba` is the softmax of the scores divided by one temperature, which is fitted to the
    leave-one-out scores of training rows. For a probabilistic model use scikit-learn's `GaussianProcessClassifier` with
    a `DEQKernel`.

    The parameters, and the attributes not listed, are those of `DEQKernelRidge`.

    Attributes:
        classes_: the labels.
        dual_coef_: (n,) for two classes, else a column for each class.
        intercept_: the intercept of each column.
        temperature_: the divisor of the scores in `predict_proba`.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Solve for the dual coefficients, O(n²p + n³).

        Args:
            X: samples in rows.
            y: labels (n,).
        """
        rows, self.classes_, index = checked_rows_and_labels(self, self._flattened(X, fit=True), y)
        if len(self.classes_) < 2:
            raise InputError(f"y has one class only, {self.classes_[0]}; a classifier needs two or more.")
        places = np.linspace(0, len(rows) - 1, min(len(rows), _CALIBRATION_ROWS))
        held = np.round(places).astype(np.intp)
        signs = label_binarize(index, classes=np.arange(len(self.classes_)), neg_label=-1).astype(np.float64)
        # One column for two classes, else one for each.
        targets = signs[:, 0] if signs.shape[1] == 1 else signs
        self.temperature_ = temperature(self._fit_machine(rows, targets, held), index[held])
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Compute the scores: (n,), positive for `classes_[1]`, with two classes, else (n, classes)."""
        return self._machine_output(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label with the highest score for each row."""
        scores = self.decision_function(X)
        index = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of each class, (n, classes), in the order of `classes_`."""
        return probabilities(self.decision_function(X) / self.temperature_)


def probabilities(scores: Array) -> Array:
    """Compute the softmax of scores (n, classes); two classes may have one score (n,), positive for the second."""
    if scores.ndim == 1:
        second = special.expit(scores)
        return np.column_stack([1.0 - second, second])
    return np.asarray(special.softmax(scores, axis=1))


def temperature(scores: Array, index: IntArray) -> float:
    """Compute the temperature T that maximises the likelihood of the labels under the softmax of scores/T.

    One temperature for all classes keeps the order of the scores, so the most probable class is the predicted one.

    Labels are smoothed by one in (number of rows + classes), Laplace's rule, so that separable classes do not give
    probabilities of 0 and 1.

    Args:
        scores: leave-one-out scores, (n,) for two classes, (n, classes) for more.
        index: the class of each row.
    """
    both = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    rows, classes = both.shape
    doubt = 1.0 / (rows + classes)
    target = np.full((rows, classes), doubt)
    target[np.arange(rows), index] += 1.0 - classes * doubt

    def loss(log_temperature: float) -> float:
        logarithms = special.log_softmax(both * np.exp(-log_temperature), axis=1)
        return -float(np.sum(target * logarithms))

    return float(np.exp(optimize.minimize_scalar(loss, bounds=_RANGE, method="bounded").x))
