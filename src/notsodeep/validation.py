"""Input checked once, at the door: what came, what is needed, what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError

Array = NDArray[np.float64]

# Norms that differ by more than this, relatively, are not those of a sphere written in single precision.
SAME_NORM = 1e-6


def as_rows(X: Any, name: str = "X") -> Array:
    """Samples in rows as a C-contiguous float64 array; accepts any array-like, torch tensors included."""
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    try:
        array = np.asarray(X)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as an array: {error}.") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold real numbers, not {array.dtype}. Convert it first.")
    if array.ndim != 2:
        raise InputError(
            f"{name} must be a matrix with samples in rows (n, p); got shape {array.shape}. "
            "One sample x goes in as x[None, :], one feature as x[:, None]."
        )
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise InputError(
            f"{name} is empty: shape {array.shape}. At least one sample and one feature are needed."
        )
    rows = np.ascontiguousarray(array, dtype=np.float64)
    # The sum is not finite if any entry is not, and cheaper than a mask; overflow of the sum alone is re-checked.
    if not np.isfinite(rows.sum()) and not np.all(np.isfinite(rows)):
        bad = int(np.count_nonzero(~np.isfinite(rows).all(axis=1)))
        raise InputError(
            f"{name} has NaN or infinite entries in {bad} of {len(rows)} rows. Remove or impute them."
        )
    if max(float(rows.max()), -float(rows.min())) > 1e100:
        raise InputError(f"{name} has entries above 1e100, whose squares overflow. Scale the data down.")
    return rows


def as_rows_like(Y: Any, X: Array, name: str = "Y") -> Array:
    """Rows with as many features as X."""
    rows = as_rows(Y, name)
    if rows.shape[1] != X.shape[1]:
        raise InputError(
            f"{name} has {rows.shape[1]} features and X has {X.shape[1]}; they must be the same."
        )
    return rows


def as_targets(y: Any, length: int, name: str = "y") -> Array:
    """One finite real number for each of `length` samples."""
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold real numbers: {error}.") from None
    if targets.shape != (length,):
        raise InputError(
            f"{name} must be a vector with one number for each of the {length} rows of X; its shape is {targets.shape}."
        )
    finite = np.isfinite(targets)
    if not finite.all():
        raise InputError(
            f"{name} has {int(np.count_nonzero(~finite))} NaN or infinite entries. Remove those rows."
        )
    return targets


def as_variance(value: Any, name: str) -> float:
    """A finite number that is not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}.") from None
    if not np.isfinite(number) or number < 0:
        raise InputError(f"{name} is a variance and must be finite and not negative; got {number}.")
    return number


def as_number(value: Any, name: str, *, positive: bool = False) -> float:
    """A finite number that is not negative, or with `positive` not zero either."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}.") from None
    if not math.isfinite(number) or number < 0.0 or (positive and number == 0.0):
        raise InputError(
            f"{name} must be finite and {'positive' if positive else 'not negative'}; got {value!r}."
        )
    return number


def as_count(value: Any, name: str, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number from {least} on; got {value!r}.")
    return int(value)


def one_of(value: str, choices: tuple[str, ...], name: str) -> str:
    """One of the listed words."""
    if value not in choices:
        raise InputError(f"{name}={value!r} is not known. Choose one of: {', '.join(choices)}.")
    return value
