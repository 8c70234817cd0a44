"""`DEQKernelRidge` and `DEQKernelClassifier`: least squares with the exact kernels of a DEQ."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin

from notsodeep.errors import InputError
from notsodeep.estimators.machine import KernelMachine
from notsodeep.estimators.scaling import checked_rows_and_labels, checked_rows_and_targets
from notsodeep.validation import Array


class DEQKernelRidge(MultiOutputMixin, RegressorMixin, KernelMachine):
    """Kernel ridge regression with the exact kernel of an infinitely wide DEQ.

    The kernels are docs/theory.md (3.8) for "ntk" and (3.3) for "ck". As alpha → 0 the first is the DEQ after training
    all of its weights (from an output of zero), the second after training its readout alone.

    Args:
        kernel: "ntk" or "ck".
        activation: of the DEQ, by name or as an `Activation`.
        sigma_a2: variance of the recurrent weights; 0 is a network of one hidden layer.
        sigma_b2: variance of the input weights; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
        alpha: the ridge. The diagonal of the kernel is of order 1, with which it compares.
        fit_intercept: take out the mean of the targets first. Kernels of odd activations hold no constants.
        center: subtract the mean of the training rows, as in `RowScaler`.
        scale: "auto" divides by the root mean square norm of the training rows, as in `RowScaler`.
        model: a model of any kind, for example `Explicit(["relu"])`; the activation and the variances above are then
            not used. With a model of images, `ConvDEQ("relu")`, X may be images (n, channels, height, width).
        image_shape: (channels, height, width) of images that come as rows, as from the steps of a pipeline. With
            scale="auto" images get |x(s)|² = 1 on average over positions.

    Attributes:
        dual_coef_: (K + alpha I)⁻¹(y - intercept), of the shape of y.
        intercept_: the mean of y, or zero.
        X_fit_: the training rows, scaled.
        rows_: the fitted `RowScaler`; `rows_.scale_` is what the rows were divided by.
        model_: the model whose kernel is used.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve for the dual coefficients, O(n²p + n³).

        Args:
            X: samples in rows.
            y: one target (n,), or several (n, m).
            sample_weight: a weight of 2 is a row that occurs twice.
        """
        self._fit_machine(*checked_rows_and_targets(self, self._flattened(X, fit=True), y), sample_weight)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The regression function at new rows."""
        return self._machine_output(X)


class DEQKernelClassifier(ClassifierMixin, KernelMachine):
    """Classification with the exact kernel of an infinitely wide DEQ.

    By least squares on targets ±1, one class against the rest, as `RidgeClassifier` does it: all classes share one
    factorisation and nothing is iterated. The decision function is not a probability; for probabilities give
    scikit-learn's `GaussianProcessClassifier` a `DEQKernel`.

    The parameters, and the attributes not listed, are those of `DEQKernelRidge`.

    Attributes:
        classes_: the labels.
        dual_coef_: (n,) for two classes, else a column for each class.
        intercept_: the mean target of each column.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve for the dual coefficients, O(n²p + n³).

        Args:
            X: samples in rows.
            y: labels (n,).
            sample_weight: a weight of 2 is a row that occurs twice.
        """
        rows, self.classes_, index = checked_rows_and_labels(self, self._flattened(X, fit=True), y)
        if len(self.classes_) < 2:
            raise InputError(f"y has one class only, {self.classes_[0]}; a classifier needs two or more.")
        self._fit_machine(rows, _signs(index, len(self.classes_)), sample_weight)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores: (n,), positive for `classes_[1]`, with two classes; else (n, classes), the largest wins."""
        return self._machine_output(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest score."""
        scores = self.decision_function(X)
        index = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])


def _signs(index: NDArray[np.intp], classes: int) -> Array:
    """Targets ±1: one column for two classes, else one for each."""
    if classes == 2:
        return np.asarray(2.0 * index - 1.0, dtype=np.float64)
    targets = np.full((len(index), classes), -1.0)
    targets[np.arange(len(index)), index] = 1.0
    return targets
