"""Nearly parallel rows, where the slope F' of a kinked activation needs more digits than an inner product has.

Near ρ = 1, F' falls like the angle √(2(1-ρ)) between u and v: a rounding error of 1e-16 in the inner product of two
equal rows would be an error of 1e-8 in F'.  For these pairs the distance of the rows is computed from the rows
themselves, carried through the equation to first order, and F' taken from its expansion in the angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from notsodeep.kernels.pairs import PairSolver

Array = NDArray[np.float64]

# The expansion leaves an error of about the square of the angle: 1 - ρ = 1e-11.  Above it rounding is harmless.
CLOSE = 1e-11


@dataclass
class NearPairs:
    """Pairs (i, j) of a tile that are parallel (sign +1) or antiparallel (-1) to eleven digits.

    Attributes:
        distance: E|u ∓ v|² of the signals that enter the next layer, in their own units.
        angle: the angle of the directions, which homogeneous activations keep.
    """

    i: NDArray[np.intp]
    j: NDArray[np.intp]
    sign: Array
    distance: Array
    angle: Array

    def correct(self, solver: PairSolver, slope: Array, rows: slice, columns: slice) -> None:
        """Replace F' of these pairs, and move their distances through the activation."""
        phi, shape = solver.phi, solver.phi.shape
        q1, q2 = solver.left.inner[rows][self.i], solver.right.inner[columns][self.j]
        steep = np.sqrt(solver.left.slope_energy[rows][self.i] * solver.right.slope_energy[columns][self.j])
        spread = phi.gain**2 * solver.equation.gain * self.distance / np.maximum(1.0 - solver.feedback * steep, 1e-3)
        angle = _angle(q1, q2, spread)
        if shape.dual == "homogeneous" and not phi.offset and not solver.equation.constant:
            angle = self.angle
        known = (self.sign > 0) | ((shape.parity != 0) & (phi.offset == 0.0) & (solver.equation.constant == 0.0))
        jumps = shape.jumps(1)
        kinks = np.array(shape.kinks)
        drop = (jumps**2 * np.exp(-0.5 * kinks**2 / np.sqrt(q1 * q2)[:, None])).sum(axis=1)
        # An odd function has an even derivative, an even one an odd derivative.
        turned = np.where(self.sign > 0, 1.0, -float(shape.parity))
        exact = turned * (steep - angle / (2.0 * np.pi) * drop)
        use = known & (angle < np.sqrt(2.0 * CLOSE) * 1.5)
        i, j = self.i[use], self.j[use]
        slope[i, j] = (phi.amplitude * phi.gain) ** 2 * exact[use]
        self.distance = phi.amplitude**2 * steep * spread


def _angle(q1: Array, q2: Array, spread: Array) -> Array:
    """The angle whose cosine is ρ, from |u - v|² = (s1 - s2)² + 2 s1 s2 (1 - ρ)."""
    roots = np.sqrt(q1), np.sqrt(q2)
    apart = np.maximum(spread - (roots[0] - roots[1]) ** 2, 0.0)
    return np.asarray(np.sqrt(apart / (roots[0] * roots[1])))


def find(c: Array, left: Array, right: Array, *, diagonal: bool) -> NearPairs | None:
    """The nearly parallel pairs of a tile with Gram entries c between the rows `left` and `right`."""
    norms = np.sqrt(np.einsum("ij,ij->i", left, left)), np.sqrt(np.einsum("ij,ij->i", right, right))
    close = np.abs(c) >= (1.0 - CLOSE) * norms[0][:, None] * norms[1]
    if diagonal:
        np.fill_diagonal(close, False)
    if not close.any():
        return None
    i, j = np.nonzero(close)
    kept = (norms[0][i] > 0) & (norms[1][j] > 0)
    i, j = i[kept], j[kept]
    if not len(i):
        return None
    sign = np.sign(c[i, j])
    gaps = left[i] - sign[:, None] * right[j]
    turned = left[i] / norms[0][i, None] - sign[:, None] * right[j] / norms[1][j, None]
    # Rounding of the normalised rows is not an angle.
    square = np.einsum("ij,ij->i", turned, turned)
    square[square < 1e-30 * left.shape[1]] = 0.0
    return NearPairs(i, j, sign, np.einsum("ij,ij->i", gaps, gaps), np.sqrt(square))
