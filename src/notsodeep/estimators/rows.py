"""Rows as the theory wants them: around zero, of norm about one (docs/theory.md, section 4)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from notsodeep.errors import InputError

Array = NDArray[np.float64]

# Rounding in the mean of equal rows leaves norms of this order beside the norm of the mean.
_NO_SPREAD = 1e-13


class RowScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """x ↦ (x - mean)/scale with one scale for all features, so that angles between samples are kept.

    The estimators of this room do this to their rows first; a Gaussian process with `DEQKernel` wants it in a
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

    def __init__(self, *, center: bool = True, scale: float | str | None = "auto") -> None:
        self.center = center
        self.scale = scale

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn mean and scale.

        Args:
            X: samples in rows.
            y: not used.
            sample_weight: a weight of 2 is a row that occurs twice.
        """
        rows = validate_data(self, X, dtype=np.float64)
        weights = checked_weights(sample_weight, rows)
        self.mean_ = np.average(rows, axis=0, weights=weights) if self.center else np.zeros(rows.shape[1])
        self.scale_ = self._chosen_scale(rows - self.mean_, weights)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """The rows, shifted and scaled."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray((rows - self.mean_) / self.scale_)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Rows as they were before `transform`."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X, dtype=np.float64) * self.scale_ + self.mean_)

    def _chosen_scale(self, centred: Array, weights: Array | None) -> float:
        if self.scale is None:
            return 1.0
        if isinstance(self.scale, str):
            if self.scale != "auto":
                raise InputError(f"scale={self.scale!r} is not known: 'auto', a positive number, or None.")
            return self._typical_norm(centred, weights)
        return positive(self.scale, "scale")

    def _typical_norm(self, centred: Array, weights: Array | None) -> float:
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", centred, centred)
        typical = float(np.sqrt(np.average(squares, weights=weights)))
        if not np.isfinite(typical):
            raise InputError("X has entries whose squares overflow. Scale the data down.")
        return typical if typical > _NO_SPREAD * float(np.linalg.norm(self.mean_)) else 1.0


def checked_weights(sample_weight: ArrayLike | None, X: Array) -> Array | None:
    """Weights of the samples, none negative, not all zero; None stays None."""
    if sample_weight is None:
        return None
    weights: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise InputError("sample_weight is zero for every sample: nothing is left to learn from.")
    return weights


def positive(value: Any, name: str, *, or_zero: bool = False) -> float:
    """A finite number above zero, or from zero on."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}.") from None
    if not np.isfinite(number) or number < 0.0 or (number == 0.0 and not or_zero):
        wanted = "not negative" if or_zero else "positive"
        raise InputError(f"{name} must be finite and {wanted}; got {value!r}.")
    return number
