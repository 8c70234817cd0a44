"""Nearly parallel rows, where the slope F' of a kinked activation needs more digits than an inner product has.

Near ρ = 1, F' falls like the angle √(2(1-ρ)) between u and v: a rounding error of 1e-16 in the inner product of two
equal rows would be an error of 1e-8 in F'.  For these pairs the distance of the rows is computed from the rows
themselves, carried through the equation to first order, and F' taken from its expansion in the angle.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import PiecewiseLinear, Shape
from notsodeep.kernels.sides import Equation, Side

Array = NDArray[np.float64]

# The expansion leaves an error of about the square of the angle: 1 - ρ = 1e-11.  Above it rounding is harmless.
CLOSE = 1e-11


@dataclass
class NearPairs:
    """Pairs (i, j) of a tile that are parallel (sign +1) or opposite (-1) to eleven digits.

    Attributes:
        i: row within the tile.
        j: column within the tile.
        sign: +1 or -1.
        distance: E|u ∓ v|² of the signals that enter the next layer, in their own units.
        angle: the angle of the directions, which homogeneous activations keep; NaN once something else came between.
        rows_sign: the sign of the rows themselves.
        rows_distance: |x ∓ y|² of the rows themselves.
    """

    i: NDArray[np.intp]
    j: NDArray[np.intp]
    sign: Array
    distance: Array
    angle: Array
    rows_sign: Array
    rows_distance: Array

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Drop the other pairs: they are no longer near ρ = ±1."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[mask])

    def keep_parallel(self, odd: bool) -> None:
        """Opposite signals stay opposite through odd functions only."""
        if not odd:
            self.keep(self.sign > 0)

    def correct(
        self,
        phi: Activation,
        equation: Equation,
        sides: tuple[Side, Side],
        slope: Array,
        rows: slice,
        columns: slice,
    ) -> None:
        """Replace F' of these pairs, and move their distances and signs through the activation."""
        shape, parity = phi.shape, phi_parity(phi)
        feedback = (phi.gain * phi.amplitude) ** 2 * equation.feedback
        if feedback > 0.0 or equation.constant:
            self.keep_parallel(parity == -1 and not equation.constant)
        q1, q2 = sides[0].inner[rows][self.i], sides[1].inner[columns][self.j]
        steep = np.sqrt(sides[0].slope_energy[rows][self.i] * sides[1].slope_energy[columns][self.j])
        spread = phi.gain**2 * equation.gain * self.distance / np.maximum(1.0 - feedback * steep, 1e-3)
        # Nothing but the product of the scales enters: parallel rows of different length count as well.
        keeps_angles = shape.dual == "homogeneous" and not phi.offset and not equation.constant
        if isinstance(shape, PiecewiseLinear) and keeps_angles and np.all(np.isfinite(self.angle)):
            exact, use = _homogeneous_slope(shape, self.sign, self.angle), np.ones(len(self.i), dtype=bool)
        else:
            self.angle = np.full_like(self.angle, np.nan)
            angle = _angle(q1, q2, spread)
            # An odd function has an even derivative, an even one an odd derivative.
            turned = np.where(self.sign > 0, 1.0, -float(shape.parity))
            exact = turned * (steep - angle / (2.0 * np.pi) * _drop(shape, np.sqrt(q1 * q2)))
            # The expansion is for equal variances; where they differ by as much as the signals do, c has the digits.
            equal = (np.sqrt(q1) - np.sqrt(q2)) ** 2 <= 1e-8 * spread
            use = equal & (angle < 1.5 * np.sqrt(2.0 * CLOSE)) & (turned != 0.0)
        slope[self.i[use], self.j[use]] = (phi.amplitude * phi.gain) ** 2 * exact[use]
        self.distance = phi.amplitude**2 * steep * spread
        if parity == 1:
            self.sign = np.ones_like(self.sign)
        else:
            self.keep_parallel(parity == -1)


def phi_parity(phi: Activation) -> int:
    """+1 even, -1 odd, 0 neither: an offset spoils oddness but not evenness."""
    return 0 if phi.shape.parity == -1 and phi.offset else phi.shape.parity


def _homogeneous_slope(shape: PiecewiseLinear, sign: Array, angle: Array) -> Array:
    """(3.20) with arcsin ρ = ±(π/2 - angle)."""
    mean, half = (shape.slopes[-1] + shape.slopes[0]) / 2.0, (shape.slopes[-1] - shape.slopes[0]) / 2.0
    return np.asarray(mean**2 + sign * half**2 * (1.0 - 2.0 * angle / np.pi))


def _drop(shape: Shape, q: Array) -> Array:
    """2π times how fast F' falls with the angle: every kink counts with the square of its jump."""
    if not shape.kinks:
        return np.zeros_like(q)
    heights = np.exp(-0.5 * np.array(shape.kinks) ** 2 / q[:, None])
    return np.asarray((shape.jumps(1) ** 2 * heights).sum(axis=1))


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
    distance = np.einsum("ij,ij->i", gaps, gaps)
    return NearPairs(i, j, sign, distance, np.sqrt(square), sign.copy(), distance.copy())
