"""Centring and scaling, learnt from the training part and applied to every part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import InputError
from notsodeep.validation import Array, as_rows, frozen, one_of, root_mean_square_norm

Norm = Literal["mean_square", "mean"]


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """x ↦ (x - shift) · scale, with one scalar for all features, so that angles between samples are kept.

    Attributes:
        shift: the mean of the training samples, or zeros.
        scale: brings the training samples to mean squared norm 1, or mean norm 1.
    """

    shift: Array
    scale: float

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
        return ((samples - self.shift) * self.scale).astype(dtype, copy=False)
