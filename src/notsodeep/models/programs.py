"""How models of rows fill a tile of their kernels, given that tile of the Gram matrix (docs/theory.md, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.moments import second_moment
from notsodeep.gaussian.variance import solve_variance
from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import Samples
from notsodeep.pairs import near_parallel
from notsodeep.pairs.pair_solver import PairSolver
from notsodeep.pairs.sample_moments import Equation
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

NO_EVIDENCE = KernelInfo(0, 0.0, 0.0, 0)


@dataclass(frozen=True)
class DenseTile:
    """The kernels of one tile of a model of rows.

    Attributes:
        features: G, or Σ of the last layer.
        preactivations: Λ, what enters the (last) activation.
        slope: D = F'(Λ), if a tangent kernel was asked for.
        tangent: Π, the tangent kernel of the pre-activations, if asked for.
        paper: the papers' tangent kernel, if asked for.
        info: how they were obtained.
    """

    features: Array
    preactivations: Array
    slope: Array | None
    tangent: Array | None
    paper: Array | None
    info: KernelInfo

    def kernel(self, name: Kernel) -> Array:
        """The kernel of this name."""
        if name is Kernel.CK:
            return self.features
        if name is Kernel.CK_PREACTIVATIONS:
            return self.preactivations
        if self.slope is None or self.tangent is None or self.paper is None:
            raise ValueError(f"{name} was not prepared")
        if name is Kernel.NTK:
            return np.asarray(self.features + self.slope * self.tangent)
        return self.tangent if name is Kernel.NTK_PREACTIVATIONS else self.paper


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
        return near_parallel.find(c, left, right, diagonal=diagonal)


def _squares(samples: Samples) -> Array:
    squares = samples.squares
    if squares is None:
        squares = np.einsum("ij,ij->i", samples.values, samples.values)
    return np.concatenate([squares, samples.anchors])


class EntrywiseProgram(RowProgram):
    """A model whose kernels are functions of the inner product of two rows alone.

    Args:
        left: samples of the rows of the kernel.
        right: samples of its columns; None for the same.
        functions: for each kernel, its entries from those of the Gram matrix.
    """

    def __init__(
        self, left: Samples, right: Samples | None, functions: Mapping[Kernel, Callable[[Array], Array]]
    ) -> None:
        super().__init__(left, right)
        self.functions = functions

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """Every kernel of the tile."""
        return EntrywiseTile({name: function(start) for name, function in self.functions.items()})


@dataclass(frozen=True)
class EntrywiseTile:
    """Kernels by name."""

    kernels: Mapping[Kernel, Array]
    info: KernelInfo = NO_EVIDENCE

    def kernel(self, name: Kernel) -> Array:
        """The kernel of this name."""
        return self.kernels[name]


def _kinked(phi: Activation) -> bool:
    """Whether the derivative of the activation jumps somewhere."""
    return bool(phi.shape.kinks) and bool(np.any(phi.shape.jumps(1)))


def _at(function: Callable[[Array], Array], points: Array, key: Hashable) -> Array:
    """A scalar function of the variance at many points; exact zeros, which have no logarithm, on their own."""
    positive = points > 0
    result = np.empty_like(points)
    if positive.any():
        result[positive] = at_many(lambda q: function(q)[:, None], points[positive], key)[:, 0]
    if not positive.all():
        result[~positive] = function(np.zeros(1))[0]
    return result


def _equilibrium_variances(phi: Activation, equation: Equation, squares: Array) -> Array:
    """Λ_ii of a DEQ at infinite depth for samples with these squared norms, (3.4)."""
    forcing = equation.gain * squares + equation.constant
    key = "variance", phi, equation.feedback
    return _at(lambda b: np.asarray(solve_variance(phi, equation.feedback, b).q), forcing, key)


def _layer_variances(phi: Activation, equation: Equation, squares: Array, depth: int) -> list[Array]:
    """Λ_ii in every layer of a DEQ that is cut, for samples with these squared norms."""
    forcing = equation.gain * squares + equation.constant
    layers = [forcing]
    for _ in range(depth - 1):
        energy = _at(lambda q: np.asarray(second_moment(phi, q)), layers[-1], ("energy", phi))
        layers.append(equation.feedback * energy + forcing)
    return layers


class Equilibrium(RowProgram):
    """A DEQ at infinite depth: each pair solves (3.5)."""

    def __init__(
        self, phi: Activation, equation: Equation, left: Samples, right: Samples | None, tangent: bool
    ) -> None:
        super().__init__(left, right)
        self.equation = equation
        squares, others = self.squares
        rows = _equilibrium_variances(phi, equation, squares)
        columns = None if others is None else _equilibrium_variances(phi, equation, others)
        self.solver = PairSolver(phi, rows, columns, equation, want_slope=tangent)
        self.watch = tangent and _kinked(phi)
        steepest = max(float(side.slope(phi).max()) for side in (self.solver.left, self.solver.right))
        if tangent and equation.feedback * steepest >= 1.0:
            raise ConvergenceError(
                f"The tangent kernel diverges: σ_a² E[φ'²] = {equation.feedback * steepest:.4g} ≥ 1.",
                f"Lower sigma_a2 below {1.0 / steepest:.4g}, or use an activation with smaller slopes.",
            )

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> DenseTile:
        """G, Λ and, if asked for, D, Π = Λ/(1 - σ_a² D) and K = G/(1 - σ_a² D): (3.3), (3.7) to (3.10)."""
        equation = self.equation
        pairs = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        features, slope, info = self.solver.tile(c, rows, columns, diagonal=diagonal, near=pairs)
        covariance = equation.feedback * features
        covariance += equation.gain * c
        covariance += equation.constant
        if slope is None:
            return DenseTile(features, covariance, None, None, None, info)
        resolvent = 1.0 / (1.0 - equation.feedback * slope)
        return DenseTile(features, covariance, slope, covariance * resolvent, features * resolvent, info)


class Feedforward(RowProgram):
    """An explicit network: the recursion (3.11), carried out tile by tile."""

    def __init__(
        self, layers: tuple[Activation, ...], left: Samples, right: Samples | None, tangent: bool
    ) -> None:
        super().__init__(left, right)
        self.watch = tangent and any(_kinked(phi) for phi in layers)
        rows, columns = self.squares
        self.solvers: list[PairSolver] = []
        for phi in layers:
            solver = PairSolver(phi, rows, columns, Equation(), want_slope=tangent)
            self.solvers.append(solver)
            rows, columns = solver.left.value(phi), None if columns is None else solver.right.value(phi)

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> DenseTile:
        """Σ and Θ after the last layer."""
        pairs = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        covariance, features, tangent, slope, info = c, c, c, None, NO_EVIDENCE
        for number, solver in enumerate(self.solvers):
            if number and slope is not None:
                tangent = features + tangent * slope
            covariance = features
            features, slope, found = solver.tile(covariance, rows, columns, diagonal=diagonal, near=pairs)
            info = info.merge(found)
        if slope is None:
            return DenseTile(features, covariance, None, None, None, info)
        return DenseTile(features, covariance, slope, tangent, features + tangent * slope, info)


class Unrolled(RowProgram):
    """A DEQ cut at a finite depth, weights not tied: the recursion (3.12)."""

    def __init__(
        self,
        phi: Activation,
        equation: Equation,
        left: Samples,
        right: Samples | None,
        depth: int,
        tangent: bool,
    ) -> None:
        super().__init__(left, right)
        self.phi, self.equation = phi, equation
        self.watch = tangent and _kinked(phi)
        squares, columns = self.squares
        rows = _layer_variances(phi, equation, squares, depth)
        others = [None] * depth if columns is None else _layer_variances(phi, equation, columns, depth)
        self.solvers = [
            PairSolver(phi, row, column, Equation(), want_slope=tangent)
            for row, column in zip(rows, others, strict=True)
        ]

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> DenseTile:
        """G, Λ, Π and K at the given depth."""
        equation, info = self.equation, NO_EVIDENCE
        pairs = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        if pairs is not None:
            pairs.distance *= equation.gain
            if equation.constant:
                # A bias turns neither opposite rows into opposite signals nor parallel ones into parallel ones.
                pairs.keep_parallel(odd=False)
                pairs.angle = np.full_like(pairs.angle, np.nan)
        forcing = equation.gain * c + equation.constant
        covariance = tangent = forcing
        features, slope, paper = c, None, None
        for number, solver in enumerate(self.solvers):
            if number:
                covariance = equation.feedback * features + forcing
                if slope is not None:
                    tangent = covariance + equation.feedback * slope * tangent
                if pairs is not None:
                    if self.phi.parity != -1:
                        pairs.keep(pairs.rows_sign > 0)
                    pairs.distance = equation.feedback * pairs.distance + equation.gain * pairs.rows_distance
            features, slope, found = solver.tile(covariance, rows, columns, diagonal=diagonal, near=pairs)
            if slope is not None:
                paper = features if paper is None else features + equation.feedback * slope * paper
            info = info.merge(found)
        return DenseTile(features, covariance, slope, None if slope is None else tangent, paper, info)
