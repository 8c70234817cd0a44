"""Centring and scaling, learnt from the training part and applied to every part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.data.validation import FloatArray, frozen, rows
from notsodeep.errors import InputError

Norm = Literal["mean_square", "mean"]

# Rounding in the mean of equal rows leaves norms of order eps ||mean||, far below this fraction of it.
_NO_SPREAD = 1e-13


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """x ↦ (x - shift) · scale, with one scalar for all features, so that angles between samples are kept.

    Attributes:
        shift: the mean of the training samples, or zeros.
        scale: brings the training samples to mean squared norm 1, or mean norm 1.
    """

    shift: FloatArray
    scale: float

    @classmethod
    def fit(cls, X_train: ArrayLike, *, centre: bool = True, norm: Norm = "mean_square") -> Preprocessing:
        """Learn shift and scale from the training part; what is tested later must not be part of it.

        Args:
            X_train: the training samples, in rows.
            centre: subtract the training mean. The equivalents of docs/theory.md (4.7) expect it.
            norm: "mean_square" makes the mean of ||x||² one (so that τ0 ≈ 1), "mean" the mean of ||x||.
        """
        if norm not in get_args(Norm):
            raise InputError(f"norm must be one of {get_args(Norm)}; it came as {norm!r}.")
        samples = rows(X_train)
        mean = samples.mean(axis=0)
        shift = mean if centre else np.zeros_like(mean)
        return cls(frozen(shift), 1.0 / _typical_norm(samples - shift, float(np.linalg.norm(mean)), norm))

    def apply(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """The samples in rows, shifted and scaled; float32 stays float32, everything else becomes float64."""
        samples = rows(X, columns=len(self.shift))
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        return ((samples - self.shift) * self.scale).astype(dtype, copy=False)


def _typical_norm(samples: FloatArray, reference: float, norm: Norm) -> float:
    norms = np.linalg.norm(samples, axis=1)
    typical = float(np.sqrt(np.mean(norms**2)) if norm == "mean_square" else np.mean(norms))
    if typical <= _NO_SPREAD * reference:
        raise InputError(
            "The training samples are all equal (or all zero): nothing is left to scale. "
            "Check that the features were read rightly and that more than one sample was given."
        )
    return typical
