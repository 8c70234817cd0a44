"""Leave-one-out residuals of a ridge regression in closed form, docs/theory.md (11.15) and (11.27)."""

from __future__ import annotations

import numpy as np

from notsodeep.validation import Array


def leave_one_out_residuals(
    targets: Array, solved: Array, diagonal: Array, ones: Array | None = None, others: Array | float = 0.0
) -> Array:
    """Each sample's target minus its prediction by the regression from all other samples.

    B = (K + λI)⁻¹, or a multiple of it. All arrays have samples in the second last axis and outputs in the last.

    Args:
        targets: t, their mean taken out if the regression has an intercept.
        solved: B t.
        diagonal: of B.
        ones: B 1, if a mean was taken out: it has to be that of the other targets.
        others: number of other samples, n - 1; with weights, the weight of the others relative to the sample's own.
    """
    if ones is None:
        return np.asarray(solved / diagonal)
    # Where there is no other sample, there is no other mean either.
    shift = np.divide(ones, others, out=np.zeros_like(ones), where=np.asarray(others) > 0.0)
    return np.asarray((solved + targets * shift) / diagonal)


__all__ = ["leave_one_out_residuals"]
