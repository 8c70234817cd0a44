"""A look at samples before anything is computed: are they on the scale of the theory, and if not, what helps?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.validation import as_rows, root_mean_square_norm

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
    """What matters of samples for the kernels.

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
        """Whether one of several columns that vary has nearly all of the variance."""
        return self.widest_share > _ALONE and self.columns - self.constant > 1

    @property
    def is_narrow(self) -> bool:
        """Whether a few of many columns decide all distances."""
        return self.has_one_wide_column or (self.effective < _FEW and self.columns >= _MANY)

    @property
    def findings(self) -> tuple[str, ...]:
        """What is unusual, each as a part of a sentence; the remedy is that of `advice`."""
        found = []
        if not 1.0 / _NORM_FACTOR < self.norm < _NORM_FACTOR:
            found.append(f"their norm is {self.norm:.3g} and not near 1")
        if self.common > _PARALLEL:
            found.append(f"they are nearly parallel (their mean has {self.common:.0%} of their norm)")
        elif self.common > _COMMON:
            found.append(f"they are not centred (their mean has {self.common:.0%} of their norm)")
        if self.has_one_wide_column:
            found.append(f"column {self.widest} has {self.widest_share:.1%} of the variance")
        elif self.is_narrow:
            found.append(
                f"about {self.effective:.0f} of {self.columns} columns have nearly all of the variance"
            )
        return tuple(found)

    @property
    def advice(self) -> str:
        """One sentence on what is unusual and which scaling helps; empty if nothing is."""
        found = self.findings
        if not found:
            return ""
        remedy = (
            "scale 'standard' gives every column the same weight"
            if self.is_narrow
            else "scale 'auto' centres them and brings them to norm 1"
        )
        return f"The rows are unusual: {' and '.join(found)}; {remedy}."

    @property
    def summary(self) -> str:
        """Norm, mean and constant columns in a few words."""
        constant = f", {self.constant} of {self.columns} columns constant" if self.constant else ""
        return f"norm {self.norm:.3g}, {self.common:.0%} of it their mean{constant}"


def inspect_rows(X: ArrayLike) -> RowInspection:
    """Look at samples in rows (n, p): their norm, their common mean, columns that do not vary or vary alone."""
    rows = as_rows(X)
    norm = root_mean_square_norm(rows)
    mean = rows.mean(axis=0)
    variances = np.square(rows - mean).mean(axis=0)
    constant = variances <= np.square(1e-12 * np.abs(rows).max(axis=0))
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
