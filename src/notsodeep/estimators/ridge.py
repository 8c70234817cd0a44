"""`DEQKernelRidge` and `DEQKernelClassifier`: least squares with the exact kernels of a DEQ."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.preprocessing import label_binarize

from notsodeep.errors import InputError
from notsodeep.estimators.machine import KernelMachine
from notsodeep.estimators.probabilities import probabilities, temperature
from notsodeep.estimators.scaling import checked_rows_and_labels, checked_rows_and_targets, checked_weights
from notsodeep.validation import Array

# Training rows that are left out in turn to fit the temperature of the probabilities.
_CALIBRATION_ROWS = 500


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
    factorisation and nothing is iterated. Probabilities are the scores over one temperature, through a softmax; the
    temperature is fitted to the scores that training rows get when they are left out, which the factorisation gives
    as well. They order as the scores do. For a model of probabilities give scikit-learn's `GaussianProcessClassifier` a
    `DEQKernel`.

    The parameters, and the attributes not listed, are those of `DEQKernelRidge`.

    Attributes:
        classes_: the labels.
        dual_coef_: (n,) for two classes, else a column for each class.
        intercept_: the mean target of each column.
        temperature_: what scores are divided by in `predict_proba`.
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
        weights = checked_weights(sample_weight, rows)
        held = _spread_out(np.arange(len(rows)) if weights is None else np.flatnonzero(weights))
        signs = label_binarize(index, classes=np.arange(len(self.classes_)), neg_label=-1).astype(np.float64)
        # One column for two classes, else one for each.
        targets = signs[:, 0] if signs.shape[1] == 1 else signs
        scores = self._fit_machine(rows, targets, weights, held)
        self.temperature_ = temperature(scores, index[held], None if weights is None else weights[held])
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores: (n,), positive for `classes_[1]`, with two classes; else (n, classes), the largest wins."""
        return self._machine_output(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest score."""
        scores = self.decision_function(X)
        index = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    def predict_proba(self, X: ArrayLike) -> Array:
        """The probability of each class, (n, classes), in the order of `classes_`; the largest is that of `predict`."""
        return probabilities(self.decision_function(X) / self.temperature_)


def _spread_out(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """At most `_CALIBRATION_ROWS` of these, evenly spaced."""
    places = np.linspace(0, len(rows) - 1, min(len(rows), _CALIBRATION_ROWS))
    return np.asarray(rows[np.round(places).astype(np.intp)])
