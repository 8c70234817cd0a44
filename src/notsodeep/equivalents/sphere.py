"""Equivalents on a sphere, where the activation need not be centred: docs/theory.md (8.5)–(8.7).

All samples have the same norm, so that every kernel is a function g of the inner product alone, and
g(c) ≃ g(0) + g'(0) c + g''(0) E[c²]/2 off the diagonal:

    K ≃ constant · 11ᵀ + linear · XXᵀ + identity · I.

The derivatives are those of `expansion`, exact for every activation; for √2·ReLU, docs/theory.md (8.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.equivalents.expansion import exact_diagonal, expand, refuse_uncovered
from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.equivalents.terms import Term, gram, low_rank
from notsodeep.kernel_names import as_kernel
from notsodeep.models import Model, as_tau
from notsodeep.validation import as_count, as_rows, common_norm


@dataclass(frozen=True)
class SphereCoefficients:
    """The scalars of constant · 11ᵀ + linear · XXᵀ + identity · I, docs/theory.md (8.5).

    Attributes:
        constant: α = g(0) + g''(0) r⁴/(2d), off-diagonal and independent of the data.
        linear: β = g'(0), in front of XXᵀ.
        identity: μ = g(r²) - g(0) - r² g'(0).
        dimension: d.
        radius: r, the norm of the samples.
        kernel: which kernel they belong to.
    """

    constant: float
    linear: float
    identity: float
    dimension: int
    radius: float
    kernel: str


def sphere_coefficients(
    model: Model, dimension: int, kernel: str = "ck", *, radius: float = 1.0
) -> SphereCoefficients:
    """The scalars of a model's kernel on the sphere of the given dimension and radius.

    Args:
        model: a `DEQ` or an `Explicit`, centred or not.
        dimension: d, the number of features.
        kernel: as in `coefficients`. What the paper (HLD) calls the CK and NTK of a DEQ are
            "ck_preactivations" and "ntk_preactivations"; an explicit network has "ck" and "ntk".
        radius: the norm of the samples.
    """
    refuse_uncovered(model, str(as_kernel(kernel)))
    dimension = as_count(dimension, "dimension")
    square = np.array([as_tau(radius) ** 2])
    value, slope, half_curvature = expand(model, square, square, kernel, 2, 0.0)[:, 0, 0]
    diagonal = float(exact_diagonal(model, square, kernel)[0])
    return SphereCoefficients(
        constant=float(value + half_curvature * square[0] ** 2 / dimension),
        linear=float(slope),
        identity=float(diagonal - value - slope * square[0]),
        dimension=dimension,
        radius=float(radius),
        kernel=kernel,
    )


def sphere_equivalent(model: Model, X: ArrayLike, kernel: str = "ck") -> StructuredOperator:
    """The equivalent α 11ᵀ + β XXᵀ + μ I of a kernel on samples of one norm, docs/theory.md (8.5)."""
    rows = as_rows(X)
    radius = common_norm(rows, "Divide each row by its norm, or use equivalent(..., form='refined').")
    scalars = sphere_coefficients(model, rows.shape[1], kernel, radius=radius)
    ones = np.ones((len(rows), 1))
    terms: list[Term] = [gram(rows, scalars.linear), low_rank(ones, np.array([[scalars.constant]]))]
    return StructuredOperator(scalars.identity, terms, size=len(rows))
