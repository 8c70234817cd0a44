"""The population Gram matrix: the limit of Zᵀ Z/m as the width grows, docs/theory.md (8.13) and (8.14).

The assumptions of the theory on data and variances are checked here, before any work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from notsodeep.convergence.verified import UNIT, Enclosure, gamma
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep.progress import progress_bar
from notsodeep.results import KernelInfo
from notsodeep.validation import SAME_NORM, Array, as_rows, as_variance

# E[φ(ξ)²] = 1, so that σ_w² alone decides how much of the feature comes back: docs/theory.md (8.13).
NORMALISED_RELU = activation("relu").scaled(np.sqrt(2.0))
# ||W||₂ → 2√2 σ_w, which must stay below 1: docs/theory.md (8.11).
LARGEST_SIGMA_W2 = 0.125

# Unit vectors closer than this are one direction: their distance is rounding.
_SAME_DIRECTION = 1e-12


def as_sphere(X: ArrayLike, *, normalise: bool = False) -> Array:
    """Check that rows have norm √d and that no two are parallel, as docs/theory.md (8.10) requires.

    Args:
        X: samples in rows (n, d).
        normalise: scale every row to norm √d instead of refusing other norms.

    Raises:
        InputError: for norms that are not √d, rows of zeros, or rows that repeat a direction.
    """
    rows = as_rows(X)
    norm = np.sqrt(rows.shape[1])
    norms = np.linalg.norm(rows, axis=1)
    if not np.all(norms > 0):
        raise InputError(
            f"Row {int(np.argmin(norms))} of X is zero and has no direction. Remove it, or add a constant feature."
        )
    if normalise:
        rows = rows * (norm / norms)[:, None]
    elif float(np.abs(norms / norm - 1.0).max()) > SAME_NORM:
        raise InputError(
            f"The rows of X must have norm √d = {norm:.6g}; got {norms.min():.6g} to "
            f"{norms.max():.6g}. Pass normalise=True to scale each row."
        )
    _refuse_repeated(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return rows


def _refuse_repeated(units: Array) -> None:
    cosines = units @ units.T
    # A cosine cannot tell angles below √eps apart; the distance of the few candidates can.
    for i, j in zip(*np.nonzero(np.triu(cosines > 1.0 - 1e-12, 1)), strict=True):
        if np.linalg.norm(units[i] - units[j]) <= _SAME_DIRECTION:
            raise InputError(
                f"Rows {i} and {j} of X are parallel: their features agree and λ_* = 0, so no training can give them "
                "different labels. Remove one of them."
            )


def as_sigma_w2(value: Any) -> float:
    """Check that σ_w² is below 1/8, where ||W||₂ stays below 1 as the width grows."""
    variance = as_variance(value, "sigma_w2")
    if variance >= LARGEST_SIGMA_W2:
        raise InputError(
            f"sigma_w2 = {variance:g} must be below 1/8: from there on ||W||₂ → 2√2 σ_w is 1 or more and the "
            "equilibrium need not exist. Lower it (0.08 is the papers' choice)."
        )
    return variance


@dataclass(frozen=True, repr=False)
class PopulationGram(Shown):
    """The matrix K and its least eigenvalue λ_*.

    Attributes:
        matrix: K (n, n), or K^(l) at depth l.
        least: λ_* = λ_min(K) with its numerical error: of the entries, of the inner products, of the eigenvalue.
        largest: λ_max(K).
        model: the DEQ whose feature kernel K is, for inputs x/√d.
        depth: l, or None at infinite depth.
        info: how the entries were computed, with their error bound.
    """

    _shown = ("matrix", "least", "positive", "largest", "depth", "model")

    matrix: Array
    least: Enclosure
    largest: float
    model: DEQ
    depth: int | None
    info: KernelInfo

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Convert to the matrix K, for np.asarray."""
        array: NDArray[Any] = np.array(self.matrix, dtype=dtype, copy=copy)
        return array

    @property
    def positive(self) -> bool:
        """Whether λ_* > 0 beyond the numerical error."""
        return self.least.lower > 0


@progress_bar("population gram")
def population_gram(
    X: ArrayLike,
    sigma_w2: float,
    depth: int | None = None,
    *,
    normalise: bool = False,
) -> PopulationGram:
    """Compute K of docs/theory.md (8.13), or K^(l) of (8.14), and its least eigenvalue λ_* with an error bound.

    Args:
        X: samples in rows (n, d), of norm √d and no two parallel.
        sigma_w2: σ_w² < 1/8.
        depth: l, cut after this many layers whose weights are not tied; infinite if not given.
        normalise: scale the rows of X to norm √d.
    """
    rows = as_sphere(X, normalise=normalise)
    model = DEQ(NORMALISED_RELU, as_sigma_w2(sigma_w2), 1.0)
    return gram_of_model(model, rows, depth)


def gram_of_model(model: DEQ, rows: Array, depth: int | None = None) -> PopulationGram:
    """Compute the Gram matrix of a model for checked rows, with λ_* and its error."""
    n, d = rows.shape
    matrix, info = conjugate_kernel(model, rows / np.sqrt(d), depth=depth, return_info=True)
    eigenvalues = linalg.eigvalsh(matrix)
    estimate, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    # An error e of every entry moves an eigenvalue by n e at most, LAPACK's own error is of the order n u ||K||, and
    # an inner product is off by γ_d, which the kernel multiplies by at most its slope, of the order of its diagonal.
    entry = (info.error_bound + 4.0 * gamma(d + 4)) * float(matrix.diagonal().max())
    error = n * entry + 4.0 * n * UNIT * largest
    return PopulationGram(
        matrix, Enclosure(estimate - error, estimate, estimate + error), largest, model, depth, info
    )
