"""The result of HLD on the unit sphere: an equivalent without centring, and one quadratic layer that has it.

All samples have norm 1, so that every kernel is a function g of the inner product c alone, and off the diagonal
g(c) ≃ g(0) + g'(0) c + g''(0) E[c²]/2, docs/theory.md (8.5) to (8.9):

    K ≃ constant · 11ᵀ + linear · XXᵀ + identity · I.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from notsodeep.equivalents.expansion import exact_diagonal, expand
from notsodeep.equivalents.operators import StructuredOperator, gram, low_rank
from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array


@dataclass(frozen=True)
class SphereCoefficients:
    """The scalars of a kernel on the unit sphere, docs/theory.md (8.5).

    Attributes:
        constant: α = g(0) + g''(0)/(2d), off-diagonal and independent of the data.
        linear: β = g'(0), in front of XXᵀ.
        identity: μ = g(1) - g(0) - g'(0).
    """

    constant: float
    linear: float
    identity: float


def sphere_coefficients(model: Model, dimension: int, kernel: str) -> SphereCoefficients:
    """Compute the scalars of a kernel of a DEQ or an explicit network, centred or not, on the unit sphere.

    What the paper calls the CK and NTK of a DEQ are "ck_preactivations" and "ntk_preactivations".
    """
    square = np.ones(1)
    value, slope, half_curvature = expand(model, square, square, kernel, 2, 0.0)[:, 0, 0]
    diagonal = float(exact_diagonal(model, square, kernel)[0])
    return SphereCoefficients(
        constant=float(value + half_curvature / dimension),
        linear=float(slope),
        identity=float(diagonal - value - slope),
    )


def sphere_equivalent(model: Model, X: Array, kernel: str) -> StructuredOperator:
    """The equivalent α 11ᵀ + β XXᵀ + μ I of a kernel on rows of norm 1, docs/theory.md (8.5)."""
    scalars = sphere_coefficients(model, X.shape[1], kernel)
    constant = low_rank(np.ones((len(X), 1)), np.array([[scalars.constant]]))
    return StructuredOperator(scalars.identity, [gram(X, scalars.linear), constant], size=len(X))


def sphere_design(sigma_a2: float, dimension: int, kernel: str) -> tuple[DEQ, Explicit]:
    """The √2·ReLU DEQ of HLD and the quadratic layer a₂t² + a₁t + a₀ with the same scalars (Corollary 1).

    Args:
        sigma_a2: width times the variance of a recurrent weight; the variance of an input weight is 1 - sigma_a2.
        dimension: the number of features.
        kernel: "ck" for docs/theory.md (8.8), "ntk" for (8.9); of the DEQ that of the pre-activations.
    """
    model = DEQ(activation("relu", amplitude=math.sqrt(2.0)), sigma_a2)
    target = sphere_coefficients(model, dimension, f"{kernel}_preactivations")
    # Paths from the weights to the output: (8.7) counts order 1 twice and order 2 three times.
    first, second = (1.0, 1.0) if kernel == "ck" else (2.0, 3.0)
    quadratic = math.sqrt(target.identity / (2.0 * second))
    coefficients = [
        math.sqrt(target.constant - target.identity / dimension) - quadratic,
        math.sqrt(target.linear / first),
        quadratic,
    ]
    return model, Explicit([activation("polynomial", coefficients=coefficients)])
