"""Arrays that come from outside, refused early and in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


def float_array(values: ArrayLike, *, name: str, ndim: int) -> FloatArray:
    """`values` as a finite float64 array with `ndim` axes."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as reason:
        raise InputError(f"{name} must be an array of real numbers: {reason}.") from reason
    if array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} axes; it came with shape {array.shape}.")
    if not np.isfinite(array).all():
        bad = int(array.size - np.isfinite(array).sum())
        raise InputError(f"{name} holds {bad} values that are NaN or infinite; remove or impute them first.")
    return array


def rows(X: ArrayLike, *, columns: int | None = None) -> FloatArray:
    """Samples in rows: a finite, non-empty (n, p) array, p equal to `columns` when that is given."""
    samples = float_array(X, name="X", ndim=2)
    if samples.size == 0:
        raise InputError(f"X is empty (shape {samples.shape}): at least one sample in a row is needed.")
    if columns is not None and samples.shape[1] != columns:
        raise InputError(f"X has {samples.shape[1]} columns where {columns} are needed; samples go in rows.")
    return samples


def label_array(y: ArrayLike, *, length: int) -> NDArray[Any]:
    """One label per row of X."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InputError(f"y must be a vector, one label per row of X; it came with shape {labels.shape}.")
    if len(labels) != length:
        raise InputError(f"y has {len(labels)} labels for {length} rows of X; give one label per row.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("y holds labels that are NaN or infinite; remove those rows or name their class.")
    return labels


def codes_of(y: ArrayLike, classes: NDArray[Any], *, length: int) -> IntArray:
    """The position in the sorted `classes` of each label, refusing labels that are not there."""
    labels = label_array(y, length=length)
    unknown = np.setdiff1d(labels, classes)
    if unknown.size:
        raise InputError(
            f"y holds labels {unknown[:5].tolist()} that are not among the classes {classes[:10].tolist()}; "
            "name every class when the statistics are set up, or drop those rows."
        )
    return np.searchsorted(classes, labels).astype(np.intp)


def count(value: int, *, name: str, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; it came as {value!r}.")
    return int(value)


def nonnegative_number(value: float, *, name: str) -> float:
    """A finite number that is not negative."""
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{name} must be finite and not negative; it came as {value!r}.")
    return float(value)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that cannot be written to, so that a frozen specification stays what it was."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy
