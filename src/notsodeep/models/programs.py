"""Programs of models of rows: tiles of their kernels from tiles of the Gram matrix (docs/theory.md, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from notsodeep.duals import near_parallel
from notsodeep.duals.dual import Dual
from notsodeep.duals.methods import probes_of
from notsodeep.duals.sides import Side
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import Shape
from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import Samples
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

NO_EVIDENCE = KernelInfo(0, 0.0, 0.0, 0)
# Closer to ±1 than this, a correlation is ±1: rounding must not move equal positions apart.
ROUNDING_OF_ONE = 1e-14
# Rounding of a covariance and of a correlation; angle between signals below which they count as parallel.
ROUNDING, CORRELATION_ROUNDING, PARALLEL = 4e-16, 8 * 2.0**-52, 1.5 * np.sqrt(ROUNDING_OF_ONE)
# Angles from a kink beyond which it is not felt.
KINK_REACH = 10.0
# Standard deviations over which the variation of φ' is taken, and the number of points.
VARIED, POINTS = 9.0, 4001


class RowProgram:
    """Base of the programs for models of rows: the Gram matrix, by one call of BLAS, and the squared norms.

    Attributes:
        sides: the samples of the rows and of the columns of the kernel.
        squares: their squared norms, followed by the anchors; the second is None for a symmetric kernel.
    """

    def __init__(self, left: Samples, right: Samples | None) -> None:
        self.sides = left, right or left
        self._gram = left.values @ self.sides[1].values.T
        if right is None and left.squares is None:
            # As the Gram matrix has them, so that a pair of equal rows is a diagonal entry to the last bit.
            left = replace(left, squares=self._gram.diagonal().copy())
        self.squares = _squares(left), None if right is None else _squares(right)

    def start(self) -> Array:
        """The Gram matrix c_ij = ⟨x_i, x_j⟩."""
        return self._gram

    def near_parallel(
        self, c: Array, rows: slice, columns: slice, diagonal: bool
    ) -> near_parallel.NearPairs | None:
        """The nearly parallel pairs of a tile."""
        left, right = self.sides[0].values[rows], self.sides[1].values[columns]
        squares, others = self.squares
        norms = np.sqrt(squares[rows]), np.sqrt((squares if others is None else others)[columns])
        return near_parallel.find(c, left, right, norms, diagonal=diagonal)


def _squares(samples: Samples) -> Array:
    squares = samples.squares
    if squares is None:
        squares = np.einsum("ij,ij->i", samples.values, samples.values)
    return np.concatenate([squares, samples.anchors])


@dataclass(frozen=True)
class EntrywiseTile:
    """The kernels of one tile in a dictionary."""

    kernels: Mapping[Kernel, Array]
    info: KernelInfo = NO_EVIDENCE

    def kernel(self, name: Kernel) -> Array:
        """The kernel of this name."""
        return self.kernels[name]


def guess_terms(side: Side) -> Array:
    """Terms of a first guess of F: M_0, M_1, and the roots of what they leave of S and of q E1."""
    q, mean, rise = side.variances, side.mean, side.rise
    rest = np.sqrt(np.maximum(side.energy - mean**2 - q * rise**2, 0.0))
    steep = np.sqrt(np.maximum(side.steep - rise**2, 0.0) * q)
    return np.stack([mean, rise, rest, steep])


@lru_cache(maxsize=256)
def slope_condition(shape: Shape, logs: tuple[float, float]) -> float:
    """The largest q E[φ''²]/E1 over a range of log variances."""
    q = probes_of(logs)
    steep = np.maximum(shape.derivative_second_moment(q), 1e-300)
    return float(np.max(q * shape.expectation(q, lambda xi, x: shape(x, 2) ** 2) / steep))


def slope_rounding(dual: Dual, left: Side, right: Side, covariance: Array, *, diagonal: bool) -> float:
    """How much rounding of the inner products may change F' of a tile, relative to √(E1 E1').

    The density of (u, v) is at most 1/(2π√(qq' - c²)), so that |∂F'/∂c| is at most the square of the variation of φ'
    times this; without kinks it is at most √(E[φ''(u)²] E[φ''(v)²]) as well.

    Args:
        dual: F and F'.
        left: the rows.
        right: the columns.
        covariance: covariances (stack, n, m); those of a diagonal tile with themselves are exact.
        diagonal: the tile is on the diagonal of a symmetric kernel.
    """
    phi, delta = dual.phi, CORRELATION_ROUNDING
    if dual.is_constant:
        return 0.0
    rho = np.abs(covariance) / (left.root[:, :, None] * right.root[:, None, :])
    if diagonal:
        place = np.arange(rho.shape[1])
        rho[:, place, place] = 0.0
    width = np.sqrt(np.maximum((1.0 - rho) * (1.0 + rho), 0.0))
    angle = np.where(width <= PARALLEL, PARALLEL, delta / np.maximum(width, PARALLEL))
    reach = np.exp2(np.ceil(np.log2(VARIED * np.sqrt(max(np.exp(dual.range[1]), 1e-300)))))
    variation = (phi.amplitude * phi.gain * _slope_variation(phi.shape, float(reach))) ** 2 / (2.0 * np.pi)
    speed = np.sqrt(np.maximum(left.steep[:, :, None] * right.steep[:, None, :], 1e-300))
    silent = left.silent[:, :, None] | right.silent[:, None, :]
    worst = float(np.where(silent, 0.0, variation * angle / speed).max(initial=0.0))
    return worst if is_kinked(phi) else min(worst, delta * slope_condition(phi.shape, dual.range))


def straight_rounding(
    dual: Dual, noted: Array, covariance: Array, near: near_parallel.NearPairs | None, left: Side, right: Side
) -> float:
    """The same for straight pieces, whose nearly parallel pairs are known by their distance: from a few extreme pairs.

    Args:
        dual: F and F'.
        noted: variances, covariances, F and F' of pairs with extreme variances and correlations, (5, pairs).
        covariance: covariances (n, m) of all pairs that are needed, zero for the others.
        near: the pairs that are known by their distance.
        left: the rows.
        right: the columns.
    """
    phi, pieces = dual.phi, dual.phi.shape.pieces
    if dual.is_constant or pieces is None:
        return 0.0
    jumps = (float(np.abs(pieces.weights).sum()) * phi.amplitude * phi.gain) ** 2 / (2.0 * np.pi)
    steep = [part.steep[0][~part.silent[0]].min(initial=np.inf) for part in (left, right)]
    largest, turned = float(np.abs(noted[2] / np.sqrt(np.maximum(noted[0] * noted[1], 1e-300))).max()), 0.0
    if near is not None and len(near.i):
        one, two = left.root[0], right.root[0]
        turned = _lost_angle(phi, one[near.i], two[near.j], near.angle)
        others = np.abs(covariance) / (one[:, None] * two)
        others[near.i, near.j] = 0.0
        largest = float(others.max())
    if phi.shape.is_homogeneous or near is not None:
        # Of kinks away from zero only beside nearly parallel pairs: elsewhere they are hardly felt.
        rho = min(largest, 1.0 - near_parallel.CLOSE)
        turned += CORRELATION_ROUNDING / np.sqrt((1.0 - rho) * (1.0 + rho))
    return float(jumps * turned / max(np.sqrt(steep[0] * steep[1]), 1e-300))


def _lost_angle(phi: Activation, one: Array, two: Array, known: Array) -> float:
    """How far rounding may turn pairs with standard deviations `one` and `two` whose distance is known.

    Their distance contains (√q - √q')². A kink counts if both see it within the angle; angles that are known are exact.
    """
    knots = np.array(phi.kinks)[:, None]
    lost = np.sqrt(
        CORRELATION_ROUNDING * (2.0 * np.abs(one - two) + CORRELATION_ROUNDING * one) / np.minimum(one, two)
    )
    seen = (np.abs(knots / one - knots / two) <= KINK_REACH * lost).any(axis=0) & ~np.isfinite(known)
    return float(np.where(seen, lost, 0.0).max(initial=0.0))


@lru_cache(maxsize=256)
def _slope_variation(shape: Shape, reach: float) -> float:
    """The total variation of φ' up to this distance from zero."""
    if shape.pieces is not None:
        return float(np.abs(shape.pieces.weights).sum())
    steps = np.sinh(np.linspace(0.0, np.arcsinh(reach / shape.feature), POINTS)) * shape.feature
    kinks = np.array(shape.kinks)
    sides = [np.nextafter(kinks, end) for end in (-np.inf, np.inf)]
    x = np.sort(np.concatenate([-steps, steps, *sides]))
    return float(np.abs(np.diff(shape(x[np.abs(x) <= reach], 1))).sum())


@lru_cache(maxsize=256)
def is_kinked(phi: Activation) -> bool:
    """Whether the derivative of the activation jumps somewhere."""
    constant = phi.amplitude == 0.0 or phi.gain == 0.0
    return not constant and bool(phi.shape.kinks) and bool(np.any(phi.shape.jumps(1)))


@dataclass(frozen=True)
class LayerInput:
    """What enters one layer of an explicit network: Λ_l = weight · Σ_{l-1} + inject · C + constant, (7.9).

    Attributes:
        phi: the activation of the layer.
        weight: variance of the weights that read the layer before; of the first layer, those that read the input.
        inject: variance of the weights that read the input again; 0 in the first layer.
        constant: variance of a bias.
    """

    phi: Activation
    weight: float = 1.0
    inject: float = 0.0
    constant: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether the weights have variance 1, and neither the input nor a bias enters beside them."""
        return (self.weight, self.inject, self.constant) == (1.0, 0.0, 0.0)

    def enter(self, signal: Array, gram: Array) -> Array:
        """What the layer is given, from a kernel of the layer before and the Gram matrix of the inputs.

        The same for covariances and for tangent kernels: Λ_l from Σ_{l-1}, and Π_l from Θ_{l-1}.
        """
        entered = signal if self.weight == 1.0 else self.weight * signal
        if self.inject:
            entered = entered + self.inject * gram
        return entered + self.constant if self.constant else entered
