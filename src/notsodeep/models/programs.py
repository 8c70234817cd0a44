"""Programs of models of rows: tiles of their kernels from tiles of the Gram matrix (docs/theory.md, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from notsodeep.duals import near_parallel
from notsodeep.duals.dual import Dual
from notsodeep.duals.methods import probes_of
from notsodeep.duals.near_parallel import PairEquation
from notsodeep.duals.sides import Side
from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_variances
from notsodeep.gaussian.moments import solve_variance
from notsodeep.gaussian.shapes import Shape
from notsodeep.kernel_names import Kernel
from notsodeep.models.newton import ROUNDING_OF_ONE, CovarianceSolution, guess_terms, solve_tile
from notsodeep.models.protocol import Samples
from notsodeep.models.spot_check import SpotCheck
from notsodeep.models.tiling import equilibrium_tile, mirror_lower
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

NO_EVIDENCE = KernelInfo(0, 0.0, 0.0, 0)
# Rounding of a covariance and of a correlation; angle between signals below which they count as parallel.
ROUNDING, CORRELATION_ROUNDING, PARALLEL = 4e-16, 8 * 2.0**-52, 1.5 * np.sqrt(ROUNDING_OF_ONE)
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


def _equilibrium_variances(phi: Activation, equation: PairEquation, squares: Array) -> Array:
    """Λ_ii of a DEQ at infinite depth for samples with these squared norms, (3.4)."""
    forcing = equation.gain * squares + equation.constant
    key = "variance", phi, equation.feedback
    return at_variances(lambda b: np.asarray(solve_variance(phi, equation.feedback, b).q), forcing, key)


class PairLayer:
    """One activation between all pairs of samples: F and F' of tiles, with or without feedback.

    Args:
        phi: the activation.
        equation: the covariance that enters it.
        rows: variances of the samples of the rows, followed by those of the anchors.
        columns: the same of the columns; None for the same samples.
        tangent: F' is needed for a kernel, not only for Newton's method.
    """

    def __init__(
        self, phi: Activation, equation: PairEquation, rows: Array, columns: Array | None, tangent: bool
    ) -> None:
        self.equation, self.symmetric, self.tangent = equation, columns is None, tangent
        others = rows if columns is None else columns
        self.dual = Dual(phi, np.concatenate([rows, others]), pairs=len(rows) * len(others))
        self.phi = self.dual.phi
        self.left = self.dual.rows(rows[None])
        self.right = self.dual.columns_like(self.left) if columns is None else self.dual.columns(others[None])
        self.condition = self._condition()
        self.guesses = [self._guess(side) for side in (self.left, self.right)]
        self.check = SpotCheck(self.phi, tangent)

    def _condition(self) -> float:
        """The largest q E[φ''²]/E1, by which F' may change faster than ρ; infinite for kinked activations."""
        if self.dual.is_constant:
            return 1.0
        return np.inf if is_kinked(self.phi) else _condition(self.phi.shape, self.dual.range)

    def _guess(self, side: Side) -> Array:
        """Terms of the first guess."""
        feedback = self.equation.feedback
        if not feedback:
            return np.zeros(0)
        terms = guess_terms(side, side.variances - feedback * side.energy)
        if feedback * self.steepest >= 1.0:
            # Next to ρ = 1 the map is no contraction: Newton's method must start from the linear part of F.
            terms[2:4] = 0.0
        return terms

    @cached_property
    def noise(self) -> float:
        """How far rounding of F may move a correlation: an offset may be nearly all of it."""
        worst = 100.0
        for side in (self.left, self.right):
            size = np.where(side.silent, 0.0, side.energy + 2.0 * self.phi.offset**2)
            worst = max(worst, self.equation.feedback * float((size / side.variances).max()))
        return 10.0 * 2.0**-52 * worst

    def _evidence(self, solution: CovarianceSolution, turned: float) -> KernelInfo:
        """How far F and F' may be off: errors of F, of the solution and of rounding, `turned` that of F'."""
        evidence, rate = solution.evidence, self.equation.feedback * self.steepest
        if rate >= 1.0:
            # Where the bound on all correlations is not a contraction, those of these pairs may be.
            rate = self.equation.feedback * float(np.abs(solution.slope).max(initial=0.0))
        margin = max(1.0 - rate, 1e-9)
        error = (evidence.error + solution.residual + ROUNDING + turned / margin) / margin
        info = KernelInfo(solution.steps, solution.residual, error, evidence.fallback_pairs, evidence.methods)
        return info.with_caveat(self.phi.caveat, self.phi.shape.inaccuracy / margin)

    @cached_property
    def steepest(self) -> float:
        """The largest E1."""
        return float(max(self.left.steep.max(), self.right.steep.max()))

    def tile(
        self,
        c: Array,
        rows: slice,
        columns: slice,
        *,
        diagonal: bool = False,
        near: near_parallel.NearPairs | None = None,
    ) -> tuple[Array, Array, KernelInfo]:
        """F, F' and the evidence, for the entries c of what enters these rows and columns.

        Args:
            c: entries of the Gram matrix, or of the kernel of the layer below.
            rows: which samples of the left side.
            columns: which samples of the right side.
            diagonal: the tile is on the diagonal of a symmetric matrix: its lower triangle is computed and mirrored,
                and its diagonal has closed moments.
            near: nearly parallel pairs, whose slope needs more digits than c has; their distances are moved on to
                the next layer.
        """
        equation, left, right = self.equation, self.left[rows], self.right[columns]
        forcing = c if equation.gain == 1.0 else equation.gain * c
        if equation.constant:
            forcing = forcing + equation.constant
        parts = zip(self.guesses, (rows, columns), strict=True)
        guesses = [np.ascontiguousarray(terms[..., part]) for terms, part in parts]
        solution = solve_tile(
            self.dual, left, right, forcing, equation.feedback, guesses, lower=diagonal, condition=self.condition,
            noise=self.noise,
        )  # fmt: skip
        value, slope, turned = solution.value, solution.slope, 0.0
        if self.tangent and is_kinked(self.phi) and self.phi.shape.pieces is None:
            # Nearly parallel pairs of straight pieces are known by their distance.
            turned = slope_rounding(self.dual, left, right, solution.covariance[None], diagonal=diagonal)
        info = self._evidence(solution, turned)
        if near is not None:
            near.correct(self.phi, equation, left, right, slope)
        number = rows.start + 3 * columns.start
        self.check.add(left, right, solution.covariance[None], value[None], slope[None], number)
        if diagonal:
            for part, own in ((value, left.energy[0]), (slope, left.steep[0])):
                mirror_lower(part)
                np.fill_diagonal(part, own)
        # A sample of variance zero is independent of every other.
        for side, lines, others in ((left, value, right), (right, value.T, left)):
            if side.silent.any():
                lines[side.silent[0]] = side.still * others.mean[0]
        return value, slope, info


@lru_cache(maxsize=256)
def _condition(shape: Shape, logs: tuple[float, float]) -> float:
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
    return worst if is_kinked(phi) else min(worst, delta * _condition(phi.shape, dual.range))


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


class Equilibrium(RowProgram):
    """A DEQ at infinite depth: each pair solves (3.5)."""

    def __init__(
        self,
        phi: Activation,
        equation: PairEquation,
        left: Samples,
        right: Samples | None,
        kernels: tuple[Kernel, ...],
    ) -> None:
        super().__init__(left, right)
        self.equation, self.kernels = equation, kernels
        tangent = any(kernel.is_tangent for kernel in kernels)
        squares, others = self.squares
        rows = _equilibrium_variances(phi, equation, squares)
        columns = None if others is None else _equilibrium_variances(phi, equation, others)
        self.layer = PairLayer(phi, equation, rows, columns, tangent)
        self.checks = [self.layer.check]
        self.watch = tangent and is_kinked(phi)
        rate = equation.feedback * self.layer.steepest
        if tangent and rate >= 1.0:
            raise ConvergenceError(
                f"The tangent kernel diverges: σ_a² E[φ'²] = {rate:.4g} ≥ 1.",
                f"Lower sigma_a2 below {equation.feedback / rate:.4g}, or use an activation with smaller slopes.",
            )

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair by quadrature."""
        self.layer.dual.careful = True

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels, which all follow from G and D = F'(Λ)."""
        pairs = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        features, slope, info = self.layer.tile(c, rows, columns, diagonal=diagonal, near=pairs)
        return EntrywiseTile({name: self._kernel(name, c, features, slope) for name in self.kernels}, info)

    def _kernel(self, name: Kernel, c: Array, features: Array, slope: Array) -> Array:
        """The kernel of this name: (3.3), (3.8), (3.9) or (3.10)."""
        if name is Kernel.CK:
            return features
        equation, result = self.equation, np.empty_like(features)
        flags = [name is kernel for kernel in (Kernel.NTK_PREACTIVATIONS, Kernel.NTK, Kernel.NTK_PAPER)]
        parts = equation.feedback, equation.gain, equation.constant
        equilibrium_tile(c, features, slope, *parts, *flags, result)
        return result


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

    def carry(self, pairs: near_parallel.NearPairs) -> None:
        """Distances of nearly parallel pairs on their way into this layer."""
        if self.inject:
            # Signals that an even function made parallel are not: their inputs are still opposite.
            pairs.keep(pairs.sign == pairs.rows_sign)
        pairs.distance = self.weight * pairs.distance + self.inject * pairs.rows_distance
        if self.constant:
            # A bias turns neither opposite rows into opposite signals nor parallel ones into parallel ones.
            pairs.keep_parallel(odd=False)
            pairs.angle = np.full_like(pairs.angle, np.nan)


class Feedforward(RowProgram):
    """An explicit network: the recursions (3.11) and (7.9), carried out tile by tile.

    Args:
        layers: what enters each layer.
        left: samples of the rows of the kernel.
        right: samples of its columns; None for the same.
        tangent: whether a tangent kernel is computed.
        sum_of_features: the papers' tangent kernel is a sum over layers of features, as for a DEQ that is cut (3.12);
            otherwise it is the tangent kernel of the network.
    """

    def __init__(
        self,
        layers: tuple[LayerInput, ...],
        left: Samples,
        right: Samples | None,
        tangent: bool,
        *,
        sum_of_features: bool = False,
    ) -> None:
        super().__init__(left, right)
        self.layers, self.sum_of_features = layers, sum_of_features
        self.tangent = tangent
        self.watch = tangent and any(is_kinked(layer.phi) for layer in layers)
        inputs = self.squares
        rows, columns = inputs
        self.steps: list[PairLayer] = []
        for layer in layers:
            rows = layer.enter(rows, inputs[0])
            columns = None if columns is None or inputs[1] is None else layer.enter(columns, inputs[1])
            step = PairLayer(layer.phi, PairEquation(), rows, columns, tangent)
            self.steps.append(step)
            rows, columns = step.left.energy[0], None if columns is None else step.right.energy[0]

    @property
    def checks(self) -> list[SpotCheck]:
        """The checks of all layers."""
        return [step.check for step in self.steps]

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair by quadrature."""
        for step in self.steps:
            step.dual.careful = True

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels after the last layer."""
        pairs = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        covariance, features, tangent, info = c, c, c, NO_EVIDENCE
        slope, paper = None, np.zeros(1)
        for layer, step in zip(self.layers, self.steps, strict=True):
            # Θ of the layers so far; the Gram matrix before the first.
            tangent = c if slope is None else features + slope * tangent
            covariance, tangent = layer.enter(features, c), layer.enter(tangent, c)
            if pairs is not None:
                layer.carry(pairs)
            features, slope, step_info = step.tile(covariance, rows, columns, diagonal=diagonal, near=pairs)
            if self.sum_of_features:
                paper = features + layer.weight * slope * paper
            info = info.merge(step_info)
        kernels = {Kernel.CK: features, Kernel.CK_PREACTIVATIONS: covariance}
        if slope is not None and self.tangent:
            network = features + slope * tangent
            kernels |= {Kernel.NTK: network, Kernel.NTK_PREACTIVATIONS: tangent}
            kernels[Kernel.NTK_PAPER] = paper if self.sum_of_features else network
        return EntrywiseTile(kernels, info)
