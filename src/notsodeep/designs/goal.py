"""The equations of a design at unit scale: docs/theory.md (7.1) and (7.2) without units.

Energies are measured in the variance of the inputs and of the outputs, so that neither τ0 nor the amplitude of a
hidden layer (the gauge of docs/theory.md (7.7)) is left in them. docs/designs.md derives this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from notsodeep.designs.units import Layer
from notsodeep.equivalents.coefficients import Coefficients

Array = NDArray[np.float64]

# The names of the four equations, in the order of `Goal.as_array` and docs/theory.md (7.1).
EQUATIONS = ("diagonal", "linear", "norm", "trace")
# A coefficient below this fraction of the diagonal is zero: what the moments of an odd function leave of rounding.
NEGLIGIBLE = 1e-13


@dataclass(frozen=True)
class Goal:
    """What a design has to reach, as energies.

    Attributes:
        diagonal: γ² or κ².
        linear: α₁τ0², the energy at order 1 in the inner product.
        norm: 2α₂τ0⁴, of the fluctuations of the norms; one layer at order 2 makes it equal to `trace`.
        trace: α₃τ0⁴, the energy at order 2.
        tangent: whether the explicit network's tangent kernel is meant, or its conjugate kernel.
    """

    diagonal: float
    linear: float
    norm: float
    trace: float
    tangent: bool

    @classmethod
    def of(cls, target: Coefficients) -> Goal:
        """The energies of these coefficients; what is negligible is set to zero."""
        square = target.tau0**2
        linear, norm, trace = (
            target.linear * square,
            2.0 * target.norm * square**2,
            target.trace * square**2,
        )
        floor = NEGLIGIBLE * target.diagonal
        linear, norm, trace = (0.0 if value < floor else value for value in (linear, norm, trace))
        return cls(target.diagonal, linear, norm, trace, target.kernel != "ck")

    @property
    def is_odd(self) -> bool:
        """No energy at order 2: one layer can do, docs/theory.md (7.3)."""
        return self.norm == 0.0 and self.trace == 0.0

    @property
    def one_layer(self) -> bool:
        """The ratio of norm to trace is that of one layer, docs/theory.md (7.3); the tangent kernel has a third."""
        return math.isclose(self.trace, (3.0 if self.tangent else 1.0) * self.norm, rel_tol=1e-11)

    @property
    def norm_to_trace(self) -> float:
        """2α₂/α₃, the ratio of the two second-order energies; infinite where only the trace's is zero."""
        return self.norm / self.trace if self.trace else math.inf

    def as_array(self) -> Array:
        """The four numbers in the order of `EQUATIONS`."""
        return np.array([self.diagonal, self.linear, self.norm, self.trace])

    def scales(self) -> Array:
        """What each residual is relative to: the number itself, or the diagonal where it is zero."""
        values = self.as_array()
        return np.where(values > 0.0, values, self.diagonal)


def reached(layers: Sequence[Layer], *, tangent: bool, multipliers: Sequence[float] | None = None) -> Array:
    """The four energies of layers at unit scale with output energy one, docs/theory.md (4.14) and (4.15).

    With `multipliers`, one for the weights of each layer and one for the readout, the tangent kernel is that of
    training with these learning rates: docs/matching_both.md.
    """
    rates = [1.0] * (len(layers) + 1) if multipliers is None else multipliers
    linear, norm, trace, slope = 1.0, 0.0, 0.0, 1.0
    tangent_linear, tangent_norm, tangent_trace, tangent_diagonal = rates[0], 0.0, 0.0, rates[0]
    for layer, rate in zip(layers, rates[1:], strict=True):
        first, second = layer.slope2, layer.curvature2
        tangent_trace = first * tangent_trace + 2.0 * second * tangent_linear * linear
        linear, before = first * linear, linear
        norm = first * norm + second * slope**2
        trace = first * trace + second * before**2
        tangent_linear = rate * linear + first * tangent_linear
        tangent_norm = rate * norm + first * tangent_norm
        tangent_trace += rate * trace
        tangent_diagonal = rate + layer.roughness * tangent_diagonal
        slope *= layer.energy_slope
    if tangent:
        return np.array([tangent_diagonal, tangent_linear, tangent_norm, tangent_trace])
    return np.array([1.0, linear, norm, trace])
