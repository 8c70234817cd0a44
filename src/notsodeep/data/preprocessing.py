"""Inspect samples, and centre and scale them with numbers learnt from the training part.

The one scaling of the library: the estimators and the command line scale their samples with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import InputError
from notsodeep.validation import Array, as_rows, frozen, one_of, root_mean_square_norm

# A column whose spread is below this share of its largest entry is constant up to rounding.
_CONSTANT = 1e-12
Scale = Literal["auto", "factor", "standard", "center", "unit", "none"]
SCALES: tuple[str, ...] = get_args(Scale)
_DONE = {
    "auto": "centred and scaled to norm 1",
    "factor": "centred and scaled by one number to norm 1",
    "standard": "centred, each column scaled to the same variance, norm 1",
    "center": "centred",
    "none": "taken as they are",
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
# Up to so many do if another column has less than this share of the largest variance: most likely it has another unit.
_SEVERAL, _FAINT = 6.0, 0.01
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
        faintest: the smallest variance of a column that varies, relative to the largest.
    """

    norm: float
    common: float
    constant: int
    effective: float
    columns: int
    widest: int
    widest_share: float
    faintest: float

    @property
    def narrow(self) -> str:
        """Say in words that one or a few of several columns decide all distances; empty if none do."""
        if self.widest_share > _ALONE and self.columns - self.constant > 1:
            return f"column {self.widest} has {self.widest_share:.1%} of the variance"
        many = self.effective < _FEW and self.columns >= _MANY
        if many or (self.effective < _SEVERAL and self.faintest < _FAINT):
            return f"about {self.effective:.0f} of {self.columns} columns have nearly all of the variance"
        return ""

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
        if self.narrow:
            unusual.append(self.narrow)
        if not unusual:
            return ""
        remedy = (
            "scale 'standard' gives every column the same weight"
            if self.narrow
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
        float(shares[~constant].min() / shares.max()) if squares else 1.0,
    )


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """The map x ↦ (x - shift) · scale; with one scale for all features it keeps angles between centred samples.

    Attributes:
        shift: the mean of the training samples, or zeros.
        scale: one number, or one for each column.
        unit: whether each sample is then divided by its own norm.
        positions: number of positions of an image, whose samples are brought to |x(s)|² = 1 on average over positions;
            1 for rows.
        note: what is done to the training samples, in a sentence.
    """

    shift: Array
    scale: float | Array
    unit: bool = False
    positions: int = 1
    note: str = ""

    @classmethod
    def fit(cls, X_train: ArrayLike, how: str = "auto") -> Preprocessing:
        """Learn the scaling from training samples.

        Args:
            X_train: samples in rows (n, p), or images and sequences (n, channels, …).
            how: "factor" (centre, then one number, so that the mean of ||x||² is 1 and τ0 ≈ 1), "standard" (centre,
                each column to the same variance, mean squared norm 1; columns that do not vary become zero), "auto"
                ("standard" if a few columns have nearly all of the variance, else "factor"; always for images),
                "center" (subtract the mean), "unit" (each sample to norm 1) or "none".
        """
        one_of(how, SCALES, "scale")
        flat, positions = _flat(X_train)
        samples = as_rows(flat)
        seen = inspect_rows(samples)
        chosen, why = how, ""
        if how == "auto":
            narrow = "" if _is_image(X_train) else seen.narrow
            chosen, why = ("standard", f" as 'standard', because {narrow}") if narrow else ("factor", "")
        shift = np.zeros(samples.shape[1]) if chosen in ("none", "unit") else samples.mean(axis=0)
        constant = f", {seen.constant} of {seen.columns} columns constant" if seen.constant else ""
        return cls(
            frozen(shift),
            _scale(chosen, samples, shift),
            chosen == "unit",
            1 if chosen == "none" else positions,
            f"Rows {_DONE[chosen]} (scale {how!r}{why}; before: norm {seen.norm:.3g}, {seen.common:.0%} of it their "
            f"mean{constant}).",
        )

    def apply(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Shift and scale samples; float32 stays float32, everything else becomes float64."""
        rows, _ = _flat(X)
        samples = as_rows(rows, columns=len(self.shift))
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        scaled = (samples - self.shift) * self.scale
        if self.unit:
            norms = np.linalg.norm(scaled, axis=1, keepdims=True)
            if not norms.all():
                raise InputError(f"Row {int(np.argmin(norms)) + 1} is zero and cannot be scaled to norm 1.")
            scaled = scaled / norms
        shape = np.shape(X) if _is_image(X) else scaled.shape
        scaled = np.asarray(np.sqrt(self.positions) * scaled, dtype=dtype)
        return scaled.reshape(shape)


def _is_image(X: Any) -> bool:
    return len(getattr(X, "shape", ())) in (3, 4) and 0 not in X.shape


def _flat(X: Any) -> tuple[Any, int]:
    """Samples as rows, and the number of positions of an image."""
    return (X.reshape(len(X), -1), prod(X.shape[2:])) if _is_image(X) else (X, 1)


def _scale(how: str, samples: Array, mean: Array) -> float | Array:
    """One number, or one for each column."""
    if how == "standard":
        spread = samples.std(axis=0)
        varies = spread > _CONSTANT * np.abs(samples).max(axis=0)
        if varies.any():
            return frozen(np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0) / np.sqrt(varies.sum()))
    elif how != "factor":
        return 1.0
    elif typical := root_mean_square_norm(samples - mean, mean=mean):
        return 1.0 / typical
    raise InputError(
        "The training samples are all equal (or all zero) and cannot be scaled. Check the features, and give more than "
        "one sample."
    )
