"""Targets of labelled samples: what a regression is trained on, and which class each sample has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import InputError
from notsodeep.validation import Array, IntArray, as_labels, as_right_sides

# By how much targets of a regression may vary: variances of squared errors are fourth powers, within 1e±308.
_LEAST, _LARGEST = 1e-70, 1e70


@dataclass(frozen=True, eq=False)
class Labelled:
    """Targets of samples: ±1 for two classes, one-hot for more, numbers in a regression (then `codes` is None)."""

    targets: Array
    codes: IntArray | None

    @classmethod
    def of(cls, y: ArrayLike, n: int) -> Labelled:
        """Whole numbers and strings are classes, other numbers are targets of a regression."""
        values = np.asarray(y)
        if (values.dtype.kind == "f" and not np.array_equal(values, np.round(values))) or values.ndim == 2:
            right = as_right_sides(y, n, "y")
            return cls(_usable(right[:, None] if right.ndim == 1 else right), None)
        classes, codes = np.unique(as_labels(y, n), return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y has one class only, {classes[0]}; two or more are needed.")
        if len(classes) > n // 4:
            raise InputError(
                f"y has {len(classes)} different values for {n} samples. For a regression pass y as floats that are "
                "not all whole, or of shape (n, 1)."
            )
        codes = codes.astype(np.intp)
        targets = 2.0 * codes[:, None] - 1.0 if len(classes) == 2 else np.eye(len(classes))[codes]
        return cls(np.asarray(targets, dtype=np.float64), codes)


def _usable(targets: Array) -> Array:
    """Refuse targets of a regression that are constant or whose fourth powers overflow or underflow."""
    largest = float(np.abs(targets - targets[0]).max(initial=0.0))
    if largest == 0.0:
        raise InputError(f"All {len(targets)} targets y are equal; a regression needs targets that vary.")
    if not _LEAST <= largest <= _LARGEST:
        raise InputError(
            f"The targets y vary by {largest:.3g}; variances of squared errors need {_LEAST:g} to {_LARGEST:g}. "
            "Divide y by its standard deviation."
        )
    return targets


__all__ = ["Labelled"]
