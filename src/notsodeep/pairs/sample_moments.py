"""What one sample contributes to all its pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array

# A sample of variance zero (a zero row) is given this one: all limits are reached, nothing divides by zero.
SMALLEST = 1e-200


@dataclass(frozen=True)
class Equation:
    """Λ_ij = feedback · F(Λ_ij) + gain · c_ij + constant, docs/theory.md (3.5); feedback 0 is a plain layer."""

    feedback: float = 0.0
    gain: float = 1.0
    constant: float = 0.0


class Side:
    """What one set of samples contributes: everything that depends on one sample alone, in the units of the shape."""

    def __init__(self, phi: Activation, variances: Array, equation: Equation) -> None:
        self.variances = variances
        self.inner = np.maximum(phi.gain**2 * variances, SMALLEST)
        self.root = np.sqrt(self.inner)
        self.still = variances == 0.0
        shape = phi.shape
        moments = [shape.second_moment, shape.derivative_second_moment]
        if phi.offset or shape.kinked_pieces is not None:
            moments += [partial(shape.mean_derivative, k=k) for k in (0, 1)]
        columns = at_many(
            lambda q: np.stack([moment(q) for moment in moments], axis=1),
            self.inner,
            ("moments", shape, len(moments)),
        )
        self.energy, self.slope_energy = columns.T[:2]
        # Needed for an offset and for Price's integral alone.
        self.mean, self.rise = columns.T[2:] if len(moments) > 2 else np.zeros((2, len(self.root)))
        # φ = A·shape + offset: its F is A² F_shape + e_i + e_j, and the e's join the forcing of the equation.
        self.lift = 0.5 * phi.offset**2 + phi.amplitude * phi.offset * self.mean
        self.shift = phi.gain**2 * (0.5 * equation.constant + equation.feedback * self.lift)
        # Samples without any signal, whose features vanish exactly.
        self.silent = (variances == 0.0) & (float(phi(0.0)) == 0.0)

    def means(self, shape: Shape) -> tuple[Array, Array]:
        """M_0 and M_1 of the shape."""
        table = at_many(
            lambda q: np.stack([shape.mean_derivative(q, k) for k in (0, 1)], axis=1),
            np.maximum(self.inner, 1e-100),
        )
        return table[:, 0], table[:, 1]

    def value(self, phi: Activation) -> Array:
        """S(q_i) of the scaled and shifted activation."""
        return np.where(self.silent, 0.0, phi.amplitude**2 * self.energy + 2.0 * self.lift)

    def slope(self, phi: Activation) -> Array:
        """E1(q_i) of the scaled activation: the mean squared slope at every sample."""
        return np.asarray((phi.amplitude * phi.gain) ** 2 * self.slope_energy)
