"""Rows as the theory wants them: around zero, of norm about one (docs/theory.md, section 4)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from notsodeep.errors import InputError
from notsodeep.validation import (
    Array,
    IntArray,
    as_labels,
    as_number,
    check_real,
    check_row_shape,
    root_mean_square_norm,
    to_numpy,
)

# Kinds of dtypes that scikit-learn turns into numbers without a word: words, dates, lengths of time.
_NO_NUMBERS = "USMm"


@dataclass(eq=False, repr=False)
class RowScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """x ↦ (x - mean)/scale with one scale for all features, so that angles between samples are kept.

    The estimators here do this to their rows first; a Gaussian process with `DEQKernel` wants it in a
    pipeline. `StandardScaler` would give every feature the same variance and rows of norm √p instead.

    Args:
        center: subtract the mean of the training rows. The kernel of a DEQ without a bias depends on the angles
            seen from the origin, which should therefore lie among the samples.
        scale: "auto" for the root mean square norm of the (centred) training rows, a positive number, or
            None for 1.

    Attributes:
        mean_: what is subtracted, shape (p,).
        scale_: what the rows are divided by; 1 where "auto" finds rows without any spread.
    """

    _: KW_ONLY
    center: bool = True
    scale: float | str | None = "auto"

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn mean and scale.

        Args:
            X: samples in rows.
            y: not used.
        """
        rows = checked_rows(self, X, reset=True)
        self.mean_ = rows.mean(axis=0) if self.center else np.zeros(rows.shape[1])
        self.scale_ = self._chosen_scale(rows - self.mean_)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """The rows, shifted and scaled."""
        check_is_fitted(self)
        rows = checked_rows(self, X)
        return np.asarray((rows - self.mean_) / self.scale_)

    def _chosen_scale(self, centred: Array) -> float:
        if self.scale is None:
            return 1.0
        if isinstance(self.scale, str):
            if self.scale != "auto":
                raise InputError(f"scale={self.scale!r} is not known: 'auto', a positive number, or None.")
            return root_mean_square_norm(centred, mean=self.mean_) or 1.0
        return as_number(self.scale, "scale", positive=True)


def checked_rows(estimator: BaseEstimator, X: Any, *, reset: bool = False) -> Array:
    """Rows as scikit-learn checks them; with `reset` the estimator remembers the number and names of the features."""
    rows: Array = validate_data(estimator, _plain(X, "X"), reset=reset, dtype=np.float64)
    return rows


def checked_rows_and_targets(estimator: BaseEstimator, X: Any, y: Any, **options: Any) -> tuple[Array, Array]:
    """Rows and real targets, one (n,) or several (n, m), as scikit-learn checks them."""
    rows, targets = validate_data(
        estimator,
        _plain(X, "X"),
        _plain(y, "y"),
        dtype=np.float64,
        multi_output=True,
        y_numeric=True,
        **options,
    )
    return rows, np.asarray(targets, dtype=np.float64)


def checked_rows_and_labels(estimator: BaseEstimator, X: Any, y: Any) -> tuple[Array, NDArray[Any], IntArray]:
    """Rows, the classes in order, and the position of each label among them."""
    # Words and numbers have no common order; scikit-learn would make words of all, or fail to sort them.
    of_objects = isinstance(y, list | tuple) or getattr(y, "dtype", None) == np.dtype(object)
    labels = as_labels(y, None) if of_objects else _plain(y, "y")
    rows, labels = validate_data(estimator, _plain(X, "X"), labels, dtype=np.float64)
    check_classification_targets(labels)
    classes, index = np.unique(labels, return_inverse=True)
    return rows, classes, index


def _plain(values: Any, name: str) -> Any:
    """Tensors as arrays, masked entries refused; the rest is left to scikit-learn, which keeps the names of columns.

    scikit-learn would drop the mask, take words and dates for numbers, and cannot read a tensor of 16 bits or one that
    requires gradients.
    """
    odd = isinstance(values, np.ma.MaskedArray | list | tuple) or hasattr(values, "detach")
    plain = to_numpy(values, name) if odd else values
    if isinstance(plain, np.ndarray) and name == "X":
        if plain.dtype.kind in _NO_NUMBERS:
            check_real(plain.dtype, name)
        if plain.ndim > 2:
            check_row_shape(plain.shape, name)
    return plain
