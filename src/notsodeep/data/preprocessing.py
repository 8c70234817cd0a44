"""Centring and scaling, learnt from the training part and applied to every part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.data.row_inspection import inspect_rows
from notsodeep.errors import InputError
from notsodeep.validation import Array, as_rows, frozen, one_of, root_mean_square_norm

Norm = Literal["mean_square", "mean"]
# A column whose spread is below this share of its largest entry is constant up to rounding.
_CONSTANT = 1e-12
Scale = Literal["auto", "none", "center", "standard", "unit"]
SCALES: tuple[str, ...] = get_args(Scale)
_DONE = {
    "auto": "centred and scaled by one number to norm 1",
    "none": "taken as they are",
    "center": "centred",
    "standard": "centred, each column scaled to the same variance, norm 1",
    "unit": "each scaled to norm 1",
}


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """x ↦ (x - shift) · scale; with one scalar for all features, angles between centred samples are kept.

    Attributes:
        shift: the mean of the training samples, or zeros.
        scale: brings the training samples to mean squared norm 1, or mean norm 1; one number for each column where
            columns are scaled apart.
        unit: whether each sample is then divided by its own norm.
    """

    shift: Array
    scale: float | Array
    unit: bool = False

    @classmethod
    def named(cls, how: str, X_train: ArrayLike) -> Preprocessing:
        """The scaling of this name, learnt from the training samples.

        Args:
            how: "auto" (centre, one number to mean squared norm 1: that of `fit`; "standard" where one column has
                nearly all of the variance), "none", "center" (subtract the mean), "standard" (centre, each column to
                the same variance, mean squared norm 1; columns that do not vary become zero) or "unit" (each sample to
                norm 1).
            X_train: the training samples, in rows.
        """
        samples = as_rows(X_train)
        if one_of(how, SCALES, "scale") == "auto":
            if not inspect_rows(samples).has_one_wide_column:
                return cls.fit(samples)
            how = "standard"
        nothing, mean = np.zeros(samples.shape[1]), samples.mean(axis=0)
        if how == "standard":
            spread = samples.std(axis=0)
            varies = spread > _CONSTANT * np.abs(samples).max(axis=0)
            if not varies.any():
                raise InputError("No column of the samples varies: nothing is left to scale. Check the file.")
            scale = np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0) / np.sqrt(varies.sum())
            return cls(frozen(mean), frozen(scale))
        return cls(frozen(mean if how == "center" else nothing), 1.0, unit=how == "unit")

    @staticmethod
    def words(how: str) -> str:
        """What the scaling of this name does to rows, as the end of a sentence."""
        return _DONE[how]

    @staticmethod
    def note(how: str, X_train: ArrayLike) -> str:
        """What the scaling of this name does to these samples, and how they came, in a sentence."""
        seen = inspect_rows(X_train)
        chosen, why = how, ""
        if how == "auto" and seen.has_one_wide_column:
            chosen = "standard"
            why = f" as 'standard', because column {seen.widest} has {seen.widest_share:.1%} of the variance"
        return f"Rows {_DONE[chosen]} (scale {how!r}{why}; as they came: {seen.summary})."

    @classmethod
    def fit(cls, X_train: ArrayLike, *, centre: bool = True, norm: Norm = "mean_square") -> Preprocessing:
        """Learn shift and scale from the training part; what is tested later must not be part of it.

        Args:
            X_train: the training samples, in rows.
            centre: subtract the training mean. The equivalents of docs/theory.md (4.7) expect it.
            norm: "mean_square" makes the mean of ||x||² one (so that τ0 ≈ 1), "mean" the mean of ||x||.
        """
        one_of(norm, get_args(Norm), "norm")
        samples = as_rows(X_train)
        mean = samples.mean(axis=0)
        shift = mean if centre else np.zeros_like(mean)
        samples = samples - shift
        typical = root_mean_square_norm(samples, mean=mean)
        if typical == 0.0:
            raise InputError(
                "The training samples are all equal (or all zero): nothing is left to scale. "
                "Check that the features were read rightly and that more than one sample was given."
            )
        if norm == "mean":
            typical = float(np.linalg.norm(samples, axis=1).mean())
        return cls(frozen(shift), 1.0 / typical)

    def apply(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """The samples in rows, shifted and scaled; float32 stays float32, everything else becomes float64."""
        samples = as_rows(X, columns=len(self.shift))
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        scaled = (samples - self.shift) * self.scale
        if self.unit:
            norms = np.linalg.norm(scaled, axis=1, keepdims=True)
            if not norms.all():
                raise InputError(
                    f"Row {int(np.argmin(norms)) + 1} is zero and has no direction: it cannot be scaled to norm 1."
                )
            scaled = scaled / norms
        return scaled.astype(dtype, copy=False)
