"""Rows as the theory wants them (docs/theory.md, section 4), and as scikit-learn checks them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from notsodeep.data import Preprocessing
from notsodeep.validation import (
    Array,
    IntArray,
    as_labels,
    check_real,
    check_row_shape,
    to_numpy,
)

# Kinds of dtypes that scikit-learn turns into numbers without a word: words, dates, lengths of time.
_NO_NUMBERS = "USMm"


@dataclass(eq=False, repr=False)
class RowScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """`Preprocessing` as a step of a pipeline.

    The estimators here do this to their rows first; a Gaussian process with `DEQKernel` wants it in a pipeline.

    Args:
        scale: "auto", "factor", "standard", "center", "unit" or "none", see `Preprocessing.fit`.

    Attributes:
        scaling_: the fitted `Preprocessing`.
    """

    _: KW_ONLY
    scale: str = "auto"

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn mean and scale.

        Args:
            X: samples in rows.
            y: not used.
        """
        self.scaling_ = Preprocessing.fit(checked_rows(self, X, reset=True), self.scale)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """The rows, shifted and scaled."""
        check_is_fitted(self)
        return np.asarray(self.scaling_.apply(checked_rows(self, X)))


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
