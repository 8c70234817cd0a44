"""The assumptions of the theory on data and variances, checked before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import InputError
from notsodeep.validation import SAME_NORM, Array, as_rows, as_variance

# ||W||₂ → 2√2 σ_w, which must stay below 1: docs/theory.md (8.11).
LARGEST_SIGMA_W2 = 0.125

# Unit vectors closer than this are one direction: their distance is rounding.
_SAME_DIRECTION = 1e-12


def as_sphere(X: ArrayLike, *, normalise: bool = False) -> Array:
    """Rows of norm √d, no two of one direction, as docs/theory.md (8.10) wants them.

    Args:
        X: samples in rows (n, d).
        normalise: scale every row to norm √d instead of refusing other norms.

    Raises:
        InputError: for norms that are not √d, rows of zeros, or rows that repeat a direction.
    """
    rows = as_rows(X)
    wanted = np.sqrt(rows.shape[1])
    norms = np.linalg.norm(rows, axis=1)
    if not np.all(norms > 0):
        raise InputError(
            f"Row {int(np.argmin(norms))} of X is zero and has no direction. Leave it out, or add a constant feature."
        )
    if normalise:
        rows = rows * (wanted / norms)[:, None]
    elif float(np.abs(norms / wanted - 1.0).max()) > SAME_NORM:
        raise InputError(
            f"The rows of X must have norm √d = {wanted:.6g}; theirs are from {norms.min():.6g} to "
            f"{norms.max():.6g}. Give normalise=True to scale each row."
        )
    _refuse_repeated(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return rows


def _refuse_repeated(units: Array) -> None:
    cosines = units @ units.T
    # A cosine cannot tell angles below √eps apart; the distance of the few candidates can.
    for i, j in zip(*np.nonzero(np.triu(cosines > 1.0 - 1e-12, 1)), strict=True):
        if np.linalg.norm(units[i] - units[j]) <= _SAME_DIRECTION:
            raise InputError(
                f"Rows {i} and {j} of X are parallel, so that their features agree and λ_* = 0: no training can give "
                "them different labels. Remove one of them."
            )


def as_sigma_w2(value: Any) -> float:
    """σ_w² below 1/8, where ||W||₂ stays below 1 as the width grows."""
    variance = as_variance(value, "sigma_w2")
    if variance >= LARGEST_SIGMA_W2:
        raise InputError(
            f"sigma_w2 = {variance:g} must be below 1/8: from there on ||W||₂ → 2√2 σ_w is 1 or more and the "
            "equilibrium need not exist. Lower it (0.08 is the papers' choice)."
        )
    return variance
