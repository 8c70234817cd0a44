"""Inspect samples, and centre and scale them with numbers learnt from the training part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import InputError
from notsodeep.validation import Array, as_rows, frozen, one_of, root_mean_square_norm

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

# Norms within this factor of 1 are near 1: the scalars of the kernels hardly notice.
_NORM_FACTOR = 3.0
# A mean row longer than this share of a typical row makes the cosine of typical pairs more than its square, 0.09.
_COMMON = 0.3
# Above this share of a typical row the cosines are above 0.8: rows are nearly parallel.
_PARALLEL = 0.9
# Where fewer columns than this have nearly all of the variance, and there are many, they decide all distances.
_FEW, _MANY = 3.0, 6
# A column with more than this share of the variance decides nearly all distances: most likely it has another unit.
_ALONE = 0.9


@dataclass(frozen=True)
class RowInspection:
    """Properties of samples that matter for kernels.

    Attributes:
        norm: the root mean square of their norms.
        common: norm of the mean row, relative to `norm`: near 1 the rows are nearly parallel.
        constant: number of columns that do not vary.
        effective: number of columns that have nearly all of the variance, (Σ v)²/Σ v² of the variances v.
        columns: number of columns.
        widest: number of the column with the largest variance, from 1 on.
        widest_share: its share of the variance.
    """

    norm: float
    common: float
    constant: int
    effective: float
    columns: int
    widest: int
    widest_share: float

    @property
    def has_one_wide_column(self) -> bool:
        """Whether one of several columns has nearly all of the variance."""
        return self.widest_share > _ALONE and self.columns - self.constant > 1

    @property
    def is_narrow(self) -> bool:
        """Whether a few of many columns decide all distances."""
        return self.has_one_wide_column or (self.effective < _FEW and self.columns >= _MANY)

    @property
    def advice(self) -> str:
        """A sentence on what is unusual and which scaling helps; empty if nothing is unusual."""
        unusual = []
        if not 1.0 / _NORM_FACTOR < self.norm < _NORM_FACTOR:
            unusual.append(f"their norm is {self.norm:.3g} instead of about 1")
        if self.common > _PARALLEL:
            unusual.append(f"they are nearly parallel (their mean has {self.common:.0%} of their norm)")
        elif self.common > _COMMON:
            unusual.append(f"they are not centred (their mean has {self.common:.0%} of their norm)")
        if self.has_one_wide_column:
            unusual.append(f"column {self.widest} has {self.widest_share:.1%} of the variance")
        elif self.is_narrow:
            unusual.append(
                f"about {self.effective:.0f} of {self.columns} columns have nearly all of the variance"
            )
        if not unusual:
            return ""
        remedy = (
            "scale 'standard' gives every column the same weight"
            if self.is_narrow
            else "scale 'auto' centres them and brings them to norm 1"
        )
        return f"The rows are unusual: {', '.join(unusual)}; {remedy}."


def inspect_rows(X: ArrayLike) -> RowInspection:
    """Measure the norm and the mean of samples in rows (n, p), and find columns that are constant or dominate."""
    rows = as_rows(X)
    norm = root_mean_square_norm(rows)
    mean = rows.mean(axis=0)
    variances = np.square(rows - mean).mean(axis=0)
    constant = variances <= np.square(_CONSTANT * np.abs(rows).max(axis=0))
    # Shares of the variance, not variances: the squares of these may overflow.
    shares = np.where(constant, 0.0, variances)
    shares = shares / (shares.sum() or 1.0)
    squares = float(np.square(shares).sum())
    return RowInspection(
        norm,
        float(np.linalg.norm(mean)) / norm if norm else 0.0,
        int(np.count_nonzero(constant)),
        1.0 / squares if squares else 0.0,
        rows.shape[1],
        int(shares.argmax()) + 1,
        float(shares.max()),
    )


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """The map x ↦ (x - shift) · scale; with one scale for all features it keeps angles between centred samples.

    Attributes:
        shift: the mean of the training samples, or zeros.
        scale: one number, or one for each column.
        unit: whether each sample is then divided by its own norm.
    """

    shift: Array
    scale: float | Array
    unit: bool = False

    @classmethod
    def named(cls, how: str, X_train: ArrayLike) -> Preprocessing:
        """Learn the scaling with this name from the training samples.

        Args:
            how: "auto" (centre, one scale to mean squared norm 1, as in `fit`; "standard" if one column has nearly all
                of the variance), "none", "center" (subtract the mean), "standard" (centre, each column to
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
                raise InputError("No column of the samples varies, so nothing can be scaled. Check the file.")
            scale = np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0) / np.sqrt(varies.sum())
            return cls(frozen(mean), frozen(scale))
        return cls(frozen(mean if how == "center" else nothing), 1.0, unit=how == "unit")

    @staticmethod
    def words(how: str) -> str:
        """Describe what the scaling with this name does to rows, as the end of a sentence."""
        return _DONE[how]

    @staticmethod
    def note(how: str, X_train: ArrayLike) -> str:
        """Describe in a sentence what the scaling with this name does to these samples."""
        seen = inspect_rows(X_train)
        chosen, why = how, ""
        if how == "auto" and seen.has_one_wide_column:
            chosen = "standard"
            why = f" as 'standard', because column {seen.widest} has {seen.widest_share:.1%} of the variance"
        constant = f", {seen.constant} of {seen.columns} columns constant" if seen.constant else ""
        before = f"norm {seen.norm:.3g}, {seen.common:.0%} of it their mean{constant}"
        return f"Rows {_DONE[chosen]} (scale {how!r}{why}; before: {before})."

    @classmethod
    def fit(cls, X_train: ArrayLike) -> Preprocessing:
        """Learn the mean and one scale from training samples in rows, so that the mean of ||x||² is 1 and τ0 ≈ 1."""
        samples = as_rows(X_train)
        mean = samples.mean(axis=0)
        typical = root_mean_square_norm(samples - mean, mean=mean)
        if typical == 0.0:
            raise InputError(
                "The training samples are all equal (or all zero) and cannot be scaled. "
                "Check the features, and give more than one sample."
            )
        return cls(frozen(mean), 1.0 / typical)

    def apply(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Shift and scale samples in rows; float32 stays float32, everything else becomes float64."""
        samples = as_rows(X, columns=len(self.shift))
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        scaled = (samples - self.shift) * self.scale
        if self.unit:
            norms = np.linalg.norm(scaled, axis=1, keepdims=True)
            if not norms.all():
                raise InputError(f"Row {int(np.argmin(norms)) + 1} is zero and cannot be scaled to norm 1.")
            scaled = scaled / norms
        return scaled.astype(dtype, copy=False)
