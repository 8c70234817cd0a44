"""Programs of models of rows: tiles of their kernels from tiles of the Gram matrix (docs/theory.md, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.variance import solve_variance
from notsodeep.kernel_names import Kernel
from notsodeep.models.protocol import Samples
from notsodeep.pairs import near_parallel
from notsodeep.pairs.compiled_tiles import equilibrium_tile
from notsodeep.pairs.pair_solver import PairSolver
from notsodeep.pairs.sample_moments import Equation
from notsodeep.pairs.table_lookup import has_table
from notsodeep.pairs.tiles import TILE
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, IntArray

# Rows that are looked at to see whether tables will be used, and cosines up to which the series will do.
LOOKED_AT, FAR_FROM_PARALLEL = 64, 0.3
NO_EVIDENCE = KernelInfo(0, 0.0, 0.0, 0)


@dataclass(frozen=True)
class DenseTile:
    """The kernels of one tile of a model of rows.

    Attributes:
        features: G, or Σ of the last layer.
        preactivations: Λ, the covariance of what enters the (last) activation.
        slope: D = F'(Λ), if a tangent kernel was asked for.
        tangent: Π, the tangent kernel of the pre-activations, if asked for.
        paper: the papers' tangent kernel, if asked for.
        info: how the kernels were obtained.
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
        squares, others = self.squares
        norms = np.sqrt(squares[rows]), np.sqrt((squares if others is None else others)[columns])
        return near_parallel.find(c, left, right, norms, diagonal=diagonal)


def order_by_norm(samples: Samples, activations: Iterable[Activation]) -> IntArray | None:
    """The order of the samples in which tiles have similar norms, where solution tables will be used; else None."""
    values = samples.values
    # One tile has all norms in any order.
    if len(values) <= TILE or not any(has_table(phi.shape) for phi in activations):
        return None
    # Rows that are far from parallel are left to the series, whatever their order.
    some = values[:: max(1, len(values) // LOOKED_AT)][:LOOKED_AT]
    norms = np.sqrt(np.einsum("ij,ij->i", some, some))
    cosines = np.abs(some @ some.T) / np.maximum(np.outer(norms, norms), 1e-300)
    if np.mean(cosines > FAR_FROM_PARALLEL) <= 1.0 / len(some) + 1e-3:
        return None
    squares = np.einsum("ij,ij->i", values, values) if samples.squares is None else samples.squares
    if squares.max() <= (1.0 + 1e-12) * squares.min():
        return None
    return np.argsort(squares, kind="stable")


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
        """The tile of every kernel."""
        return EntrywiseTile({name: function(start) for name, function in self.functions.items()})


@dataclass(frozen=True)
class EntrywiseTile:
    """The kernels of one tile in a dictionary."""

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

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> EquilibriumTile:
        """G and, if asked for, D: the other kernels follow from them."""
        pairs = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        features, slope, info = self.solver.tile(c, rows, columns, diagonal=diagonal, near=pairs)
        return EquilibriumTile(self.equation, c, features, slope, info)


@dataclass(frozen=True)
class EquilibriumTile:
    """The kernels of one tile of a DEQ at infinite depth.

    Attributes:
        equation: its variances.
        gram: C, the Gram matrix of the inputs.
        features: G.
        slope: D = F'(Λ), if a tangent kernel was asked for.
        info: how they were obtained.
    """

    equation: Equation
    gram: Array
    features: Array
    slope: Array | None
    info: KernelInfo

    @property
    def preactivations(self) -> Array:
        """Λ, the covariance of what enters the activation, (3.3)."""
        return self.kernel(Kernel.CK_PREACTIVATIONS)

    def kernel(self, name: Kernel) -> Array:
        """The kernel of this name: (3.3), (3.8), (3.9) or (3.10)."""
        if name is Kernel.CK:
            return self.features
        slope = self.slope
        if name.is_tangent and slope is None:
            raise ValueError(f"{name} was not prepared")
        equation, result = self.equation, np.empty_like(self.features)
        equilibrium_tile(
            self.gram,
            self.features,
            self.features if slope is None else slope,
            equation.feedback,
            equation.gain,
            equation.constant,
            name is Kernel.NTK_PREACTIVATIONS,
            name is Kernel.NTK,
            name is Kernel.NTK_PAPER,
            result,
        )
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
        tangent: whether a tangent kernel is asked for.
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
        self.watch = tangent and any(_kinked(layer.phi) for layer in layers)
        inputs = self.squares
        rows, columns = inputs
        self.solvers: list[PairSolver] = []
        for layer in layers:
            phi = layer.phi
            rows = layer.enter(rows, inputs[0])
            columns = None if columns is None or inputs[1] is None else layer.enter(columns, inputs[1])
            solver = PairSolver(phi, rows, columns, Equation(), want_slope=tangent)
            self.solvers.append(solver)
            rows, columns = solver.left.value(phi), None if columns is None else solver.right.value(phi)

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> DenseTile:
        """The kernels after the last layer."""
        pairs = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        covariance, features, tangent, info = c, c, c, NO_EVIDENCE
        slope, paper = None, np.zeros(1)
        for layer, solver in zip(self.layers, self.solvers, strict=True):
            # Θ of the layers so far; the Gram matrix before the first.
            tangent = c if slope is None else features + slope * tangent
            covariance, tangent = layer.enter(features, c), layer.enter(tangent, c)
            if pairs is not None:
                layer.carry(pairs)
            features, slope, found = solver.tile(covariance, rows, columns, diagonal=diagonal, near=pairs)
            if slope is not None and self.sum_of_features:
                paper = features + layer.weight * slope * paper
            info = info.merge(found)
        if slope is None:
            return DenseTile(features, covariance, None, None, None, info)
        network = paper if self.sum_of_features else features + slope * tangent
        return DenseTile(features, covariance, slope, tangent, network, info)
