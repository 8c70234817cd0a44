"""The population Gram matrix: what Zᵀ Z/m tends to as the width grows, docs/theory.md (8.13) and (8.14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from notsodeep.convergence.assumptions import as_sigma_w2, as_sphere
from notsodeep.convergence.verified import UNIT, Enclosure, gamma
from notsodeep.display import Shown
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, as_variance

# E[φ(ξ)²] = 1, so that σ_w² alone decides how much of the feature comes back: docs/theory.md (8.13).
NORMALISED_RELU = activation("relu").scaled(np.sqrt(2.0))


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

    matrix: Array
    least: Enclosure
    largest: float
    model: DEQ
    depth: int | None
    info: KernelInfo

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """What np.asarray makes of it: the matrix K."""
        array: NDArray[Any] = np.array(self.matrix, dtype=dtype, copy=copy)
        return array

    @property
    def positive(self) -> bool:
        """Whether λ_* > 0 beyond the numerical error."""
        return self.least.lower > 0

    def _facts(self) -> dict[str, Any]:
        return {
            "matrix": self.matrix,
            "least": self.least.estimate,
            "positive": self.positive,
            "largest": self.largest,
            "depth": "infinite" if self.depth is None else self.depth,
            "model": self.model,
        }


def population_gram(
    X: ArrayLike,
    sigma_w2: float,
    depth: int | None = None,
    activation: Activation | str | None = None,
    *,
    normalise: bool = False,
) -> PopulationGram:
    """K of docs/theory.md (8.13), or K^(l) of docs/theory.md (8.14), with λ_* and its error.

    Args:
        X: samples in rows (n, d), of norm √d and no two parallel.
        sigma_w2: σ_w²; below 1/8 for the ReLU of the theorems, for other activations as far as K exists.
        depth: l, cut after this many layers whose weights are not tied; infinite if not given.
        activation: another φ than √2·ReLU; K is then E[φ(u)φ(v)] with the same recursion.
        normalise: scale the rows of X to norm √d.
    """
    rows = as_sphere(X, normalise=normalise)
    if activation is None:
        model = DEQ(NORMALISED_RELU, as_sigma_w2(sigma_w2), 1.0)
    else:
        model = DEQ(activation, as_variance(sigma_w2, "sigma_w2"), 1.0)
    return gram_of_model(model, rows, depth)


def gram_of_model(model: DEQ, rows: Array, depth: int | None = None) -> PopulationGram:
    """The Gram matrix of a model for checked rows, with λ_* and its error."""
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
