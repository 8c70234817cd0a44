"""The pair equation of two sets of samples, in the units of the activation's shape."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs.sample_moments import Side
from notsodeep.validation import Array

# Samples of a tile: neighbours, or any.
Where = slice | NDArray[np.intp]


def all_but(values: Array, share: float) -> float:
    """The value that all but this share of the values do not exceed."""
    flat = values.reshape(-1)
    left_out = int(share * len(flat))
    if not left_out:
        return float(flat.max())
    return float(np.partition(flat, len(flat) - 1 - left_out)[len(flat) - 1 - left_out])


@dataclass(frozen=True)
class PairProblem:
    """Λ_ij = feedback · F(Λ_ij) + kappa · c_ij + shift_i + shift_j for rows i and columns j.

    Attributes:
        phi: the activation; F is that of its shape.
        left: what the samples of the rows contribute.
        right: what the samples of the columns contribute; the same object for a symmetric problem.
        feedback: factor of F.
        kappa: factor of the Gram entries.
        want_slope: F' is wanted too.
    """

    phi: Activation
    left: Side
    right: Side
    feedback: float
    kappa: float
    want_slope: bool

    def sides(self, rows: Where, columns: Where) -> tuple[Array, Array, Array, Array]:
        """Shifts of the rows and of the columns, then their scales √q."""
        left, right = self.left, self.right
        return left.shift[rows], right.shift[columns], left.root[rows], right.root[columns]

    def cosines(self, c: Array, rows: Where, columns: Where) -> Array:
        """About the correlations at the solution: the cosines of what enters, with the constant."""
        shift_left, shift_right, root_left, root_right = self.sides(rows, columns)
        own = [
            np.sqrt(np.maximum(1.0 - self.feedback * side.energy[part] / side.inner[part], 1e-6))
            for side, part in ((self.left, rows), (self.right, columns))
        ]
        cosines = self.kappa * c
        cosines += shift_left[:, None]
        cosines += shift_right
        cosines /= (own[0] * root_left)[:, None]
        cosines /= own[1] * root_right
        return np.clip(cosines, -1.0, 1.0)

    def roots(self, rows: Where, columns: Where) -> tuple[Array, Array, Array, Array]:
        """√S of the rows and of the columns, then √E1."""
        sides = (self.left, rows), (self.right, columns)
        energy = [np.sqrt(side.energy[part]) for side, part in sides]
        steep = [np.sqrt(side.slope_energy[part]) for side, part in sides]
        return energy[0], energy[1], steep[0], steep[1]

    @cached_property
    def margin(self) -> float:
        """1 - σ_a² max|F'|: what an error of F is divided by on its way through the equation."""
        steepest = float(np.sqrt(self.left.slope_energy.max() * self.right.slope_energy.max()))
        return max(1.0 - self.feedback * steepest, 1e-3)
