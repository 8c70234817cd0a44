"""Targets of labelled samples: what a regression is trained on, and which class each sample has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import InputError
from notsodeep.validation import Array, IntArray, as_labels, as_right_sides, label_codes

# By how much targets of a regression may vary: variances of squared errors are fourth powers, within 1e±308.
_LEAST, _LARGEST = 1e-70, 1e70


@dataclass(frozen=True, eq=False)
class Labelled:
    """Targets of samples: ±1 for two classes, one-hot for more, numbers in a regression (then `codes` is None)."""

    targets: Array
    codes: IntArray | None
    classes: NDArray[Any] | None = None

    @classmethod
    def of(cls, y: ArrayLike, n: int, *, one_hot: bool = False) -> Labelled:
        """Whole numbers and words are classes, other numbers are targets of a regression; `one_hot` for two as well."""
        values = np.asarray(y)
        if (values.dtype.kind == "f" and not np.array_equal(values, np.round(values))) or values.ndim == 2:
            right = as_right_sides(y, n, "y")
            return cls(_usable(right[:, None] if right.ndim == 1 else right), None)
        classes, codes = np.unique(as_labels(y, n), return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y has one class only, {classes[0]}; two or more are needed.")
        if len(classes) > n // 4:
            raise InputError(
                f"y has {len(classes)} different values for {n} samples. For a regression give y as floats that are "
                "not all whole, or of shape (n, 1)."
            )
        codes = codes.astype(np.intp)
        one_column = len(classes) == 2 and not one_hot
        targets = 2.0 * codes[:, None] - 1.0 if one_column else np.eye(len(classes))[codes]
        return cls(np.asarray(targets, dtype=np.float64), codes, classes)

    def matching(self, y: ArrayLike, n: int) -> Labelled:
        """The labels of other samples, with the classes and the coding of these."""
        if self.codes is None or self.classes is None:
            right = as_right_sides(y, n, "y")
            return Labelled(right[:, None] if right.ndim == 1 else right, None)
        codes = label_codes(y, self.classes, n)
        table = np.zeros((len(self.classes), self.targets.shape[1]))
        table[self.codes] = self.targets
        return Labelled(table[codes], codes, self.classes)

    def required_codes(self) -> IntArray:
        """The classes as numbers from 0 on."""
        if self.codes is None:
            raise InputError("These are targets of a regression: there is no class to count hits of.")
        return self.codes


def _usable(targets: Array) -> Array:
    """Targets of a regression, unless they are constant or their fourth powers leave the range of numbers."""
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
