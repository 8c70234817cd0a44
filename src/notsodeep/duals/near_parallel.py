"""Nearly parallel rows, where the slope F' of a kinked activation needs more digits than an inner product has.

Near ρ = 1, F' falls like the angle √(2(1-ρ)) between u and v: a rounding error of 1e-16 in the inner product of two
equal rows would be an error of 1e-8 in F'.  For these pairs the distance of the rows is computed from the rows
themselves, carried through the equation to first order, and F' taken from its expansion in the angle.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import special

from notsodeep.duals.sides import Side
from notsodeep.duals.strips import OPTIONS
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.piecewise import PiecewiseLinear
from notsodeep.gaussian.shapes import segment_moments
from notsodeep.validation import Array


@dataclass(frozen=True)
class PairEquation:
    """Λ_ij = feedback · F(Λ_ij) + gain · c_ij + constant, docs/theory.md (3.5); feedback 0 is a plain layer."""

    feedback: float = 0.0
    gain: float = 1.0
    constant: float = 0.0


# The expansion leaves an error of about the square of the angle: 1 - ρ = 1e-11.  Above it rounding is harmless.
CLOSE = 1e-11
# Largest E|u ∓ v|²/(s s') that is carried through a smooth function to first order.
APART = 1e-10
# Width of a segment that a Gauss-Legendre rule integrates to all digits.
NARROW = 1e-2
NARROW_POINTS, NARROW_WEIGHTS = np.polynomial.legendre.leggauss(5)


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

    def enter(self, weight: float, inject: float, constant: float) -> None:
        """Move distances into a layer that reads signals with variance `weight` and the rows with `inject`."""
        if inject:
            # Signals that an even function made parallel are not: their inputs are still opposite.
            self.keep(self.sign == self.rows_sign)
        self.distance = weight * self.distance + inject * self.rows_distance
        if constant:
            # A bias turns neither opposite rows into opposite signals nor parallel ones into parallel ones.
            self.keep_parallel(odd=False)
            self.angle = np.full_like(self.angle, np.nan)

    def correct(
        self,
        phi: Activation,
        equation: PairEquation,
        left: Side,
        right: Side,
        slope: Array,
    ) -> None:
        """Replace F' of these pairs, and move their distances and signs through the activation.

        Args:
            phi: the activation, without a level of its own.
            equation: what enters it.
            left: the rows of the tile.
            right: its columns.
            slope: F' of the tile.
        """
        shape, pieces, parity = phi.shape, phi.shape.pieces, phi.parity
        feedback = (phi.gain * phi.amplitude) ** 2 * equation.feedback
        if feedback > 0.0 or equation.constant:
            self.keep_parallel(parity == -1 and not equation.constant)
        gain = abs(phi.gain)
        s1, s2 = gain * left.root[0, self.i], gain * right.root[0, self.j]
        # Nothing but the product of the scales enters: parallel rows of different length count as well.
        keeps_angles = shape.is_homogeneous and not phi.offset and not equation.constant
        if pieces is None:
            # Only here for its distances, whose first order is enough where they are small: parallel rows of
            # different norms are parallel no longer.
            near = self.distance <= APART * left.root[0, self.i] * right.root[0, self.j]
            self.keep(near)
            steep = np.sqrt(left.steep[0, self.i] * right.steep[0, self.j])
            self.angle = np.full_like(self.angle, np.nan)
            self.distance = steep * self.distance
        else:
            source = phi.gain**2 * equation.gain * self.distance
            exact, moved, angle = _expanded(pieces, s1, s2, source, feedback)
            if keeps_angles and np.all(np.isfinite(self.angle)):
                exact = _homogeneous_slope(pieces, self.sign, self.angle)
                known = np.ones(len(self.i), dtype=bool)
            else:
                self.angle = np.full_like(self.angle, np.nan)
                # An odd function has an even derivative, an even one an odd derivative; one kink at zero is closed.
                turned = np.where(self.sign > 0, 1.0, -float(shape.parity)) * exact
                if shape.is_homogeneous:
                    turned = np.where(self.sign > 0, exact, _homogeneous_slope(pieces, self.sign, angle))
                understood = (self.sign > 0) | (shape.parity != 0) | (shape.is_homogeneous)
                exact, known = turned, understood & (angle < 1.5 * np.sqrt(2.0 * CLOSE))
            slope[self.i[known], self.j[known]] = (phi.amplitude * phi.gain) ** 2 * exact[known]
            self.distance = phi.amplitude**2 * moved
        if parity == 1:
            self.sign = np.ones_like(self.sign)
        else:
            self.keep_parallel(parity == -1)


def _homogeneous_slope(shape: PiecewiseLinear, sign: Array, angle: Array) -> Array:
    """(3.20) with arcsin ρ = ±(π/2 - angle)."""
    mean, half = (shape.slopes[-1] + shape.slopes[0]) / 2.0, (shape.slopes[-1] - shape.slopes[0]) / 2.0
    return np.asarray(mean**2 + sign * half**2 * (1.0 - 2.0 * angle / np.pi))


def _expanded(
    shape: PiecewiseLinear, s1: Array, s2: Array, source: Array, feedback: float
) -> tuple[Array, Array, Array]:
    """F', E|φ(u) - φ(v)|² and the angle of nearly equal u and v, to first order in e = s1 s2 - Λ.

    |u - v|² = (s1 - s2)² + 2e is also source + feedback E|φ(u) - φ(v)|², where source is what the inputs contribute,
    and E|φ(u) - φ(v)|² = E(φ(s1 ξ) - φ(s2 ξ))² + 2eF'.  Every term is relatively accurate; e gives the angle.
    """
    level, apart = _along(shape, s1, s2)
    excess = source + feedback * apart - (s1 - s2) ** 2
    half = np.maximum(excess, 0.0) / (2.0 * np.maximum(1.0 - feedback * level, 1e-3))
    angle = np.maximum(np.sqrt(2.0 * half / (s1 * s2)), 1e-150)[:, None]
    knots = np.array(shape.knots)
    shift = np.abs(knots / s1[:, None] - knots / s2[:, None])
    ratio = np.minimum(shift / angle, 40.0)
    # ∫ exp(-shift²/2δ²) dδ from 0 to the angle: how much of each kink the angle opens.
    opened = angle * np.exp(-0.5 * ratio**2) - shift * np.sqrt(np.pi / 2.0) * special.erfc(
        ratio / np.sqrt(2.0)
    )
    heights = shape.weights**2 * np.exp(-0.5 * np.minimum(knots**2 / (s1 * s2)[:, None], 1400.0))
    slope = level - (heights * opened).sum(axis=1) / (2.0 * np.pi)
    return slope, apart + 2.0 * level * half, angle[:, 0]


def _along(shape: PiecewiseLinear, s1: Array, s2: Array) -> tuple[Array, Array]:
    """E[φ'(s1 ξ) φ'(s2 ξ)] and E(φ(s1 ξ) - φ(s2 ξ))²: the same ξ, so piecewise polynomials in it."""
    knots, slopes, intercepts = np.array(shape.knots), np.array(shape.slopes), shape.intercepts
    scales = s1[:, None], s2[:, None]
    inner = np.sort(np.concatenate([knots / scale for scale in scales], axis=1), axis=1)
    far = np.full((len(s1), 1), np.inf)
    ends = np.concatenate([-far, inner, far], axis=1)
    bounded = np.clip(ends, -1e150, 1e150)
    middle = 0.5 * (bounded[:, 1:] + bounded[:, :-1])
    segments = [np.searchsorted(knots, middle * scale) for scale in scales]
    zeroth, first, second = segment_moments(ends)
    rise = slopes[segments[0]] * scales[0] - slopes[segments[1]] * scales[1]
    step = intercepts[segments[0]] - intercepts[segments[1]]
    level = (slopes[segments[0]] * slopes[segments[1]] * zeroth).sum(axis=1)
    squares = rise**2 * second + 2.0 * rise * step * first + step**2 * zeroth
    # Between the two images of a knot the terms cancel: there the square itself is integrated.
    width = bounded[:, 1:] - bounded[:, :-1]
    inside = np.where(width < NARROW, np.clip(middle, -40.0, 40.0), 0.0)
    points = inside[..., None] + 0.5 * np.minimum(width, NARROW)[..., None] * NARROW_POINTS
    values = (rise[..., None] * points + step[..., None]) ** 2 * np.exp(-0.5 * points**2)
    narrow = 0.5 * np.minimum(width, NARROW) * (values @ NARROW_WEIGHTS) / np.sqrt(2.0 * np.pi)
    return level, np.where(width < NARROW, narrow, squares).sum(axis=1)


def find(
    c: Array, left: Array, right: Array, norms: tuple[Array, Array], *, diagonal: bool
) -> NearPairs | None:
    """The nearly parallel pairs of a tile with Gram entries c between the rows `left` and `right` of these norms."""
    if not any_close(c, (1.0 - CLOSE) * norms[0], norms[1], diagonal):
        return None
    close = np.abs(c) >= (1.0 - CLOSE) * norms[0][:, None] * norms[1]
    if diagonal:
        close = np.tril(close, -1)
    i, j = np.nonzero(close & (norms[0] > 0)[:, None] & (norms[1] > 0))
    if not len(i):
        return None
    sign, rows, others = np.sign(c[i, j]), left[i], right[j]
    gaps = rows - sign[:, None] * others
    # To all their digits: the norms that were given may be off by the rounding of a product.
    lengths = [np.sqrt(np.einsum("ij,ij->i", part, part))[:, None] for part in (rows, others)]
    turned = rows / lengths[0] - sign[:, None] * others / lengths[1]
    # Rounding of the normalised rows is not an angle.
    square = np.einsum("ij,ij->i", turned, turned)
    square[square < 1e-30 * left.shape[1]] = 0.0
    distance = np.einsum("ij,ij->i", gaps, gaps)
    return NearPairs(i, j, sign, distance, np.sqrt(square), sign.copy(), distance.copy())


@njit(**OPTIONS)
def any_close(c, left, right, lower):  # type: ignore[no-untyped-def]
    """Whether |c_ij| ≥ left_i right_j for any pair, or any below the diagonal."""
    rows, columns = c.shape
    for i in range(rows):
        if lower:
            columns = i
        close = 0
        for j in range(columns):
            close += abs(c[i, j]) >= left[i] * right[j]
        if close > 0:
            return True
    return False
