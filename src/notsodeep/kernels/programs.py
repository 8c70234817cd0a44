"""What a model does to one tile of the Gram matrix: a `Program` for each kind of model (docs/theory.md, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.moments import second_moment
from notsodeep.gaussian.variance import solve_variance
from notsodeep.kernels import near
from notsodeep.kernels.pairs import PairSolver
from notsodeep.kernels.sides import Equation
from notsodeep.models import DEQ, Explicit
from notsodeep.results import KernelInfo

Array = NDArray[np.float64]

NO_EVIDENCE = KernelInfo(0, 0.0, 0.0, 0)


@dataclass(frozen=True)
class Samples:
    """Rows and their squared norms."""

    rows: Array
    squares: Array


@dataclass(frozen=True)
class Block:
    """The kernels of one tile.

    Attributes:
        features: G, or Σ of the last layer.
        preactivations: Λ, what enters the (last) activation.
        slope: D = F'(Λ), if asked for.
        tangent: Π, the tangent kernel of the pre-activations, if asked for.
        paper: the papers' tangent kernel, if asked for.
    """

    features: Array
    preactivations: Array
    slope: Array | None
    tangent: Array | None
    paper: Array | None
    info: KernelInfo

    def reading(self, name: str) -> Array:
        """A kernel by the name it has in `kernels.api`."""
        if name == "features":
            return self.features
        if name == "preactivations":
            return self.preactivations
        if self.slope is None or self.tangent is None or self.paper is None:
            raise ValueError(f"{name} was not prepared")
        if name == "network":
            return np.asarray(self.features + self.slope * self.tangent)
        return self.tangent if name == "tangent" else self.paper


class Program(Protocol):
    """A model prepared for two sets of samples."""

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> Block:
        """The kernels of the pairs with Gram entries c."""


def prepare(
    model: DEQ | Explicit, left: Samples, right: Samples | None, depth: int | None, tangent: bool
) -> Program:
    """The program of a model; `tangent` asks for slopes and tangent kernels as well."""
    if isinstance(model, Explicit):
        return Feedforward(model, left, right, tangent)
    if depth is not None:
        return Unrolled(model, left, right, depth, tangent)
    return Equilibrium(model, left, right, tangent)


def _kinked(phi: Activation) -> bool:
    return bool(phi.shape.kinks) and bool(np.any(phi.shape.jumps(1)))


def _near(
    watch: bool, c: Array, sides: tuple[Samples, Samples], rows: slice, columns: slice, diagonal: bool
) -> near.NearPairs | None:
    return near.find(c, sides[0].rows[rows], sides[1].rows[columns], diagonal=diagonal) if watch else None


def _at(function: Callable[[Array], Array], points: Array, key: Hashable) -> Array:
    """A scalar function of the variance at many points; exact zeros, which have no logarithm, on their own."""
    positive = points > 0
    result = np.empty_like(points)
    if positive.any():
        result[positive] = at_many(lambda q: function(q)[:, None], points[positive], key)[:, 0]
    if not positive.all():
        result[~positive] = function(np.zeros(1))[0]
    return result


class Equilibrium:
    """A DEQ at infinite depth: each pair solves (3.5)."""

    def __init__(self, model: DEQ, left: Samples, right: Samples | None, tangent: bool) -> None:
        self.model, self.tangent = model, tangent
        self.sides = left, right or left
        variances = self._variances(left), None if right is None else self._variances(right)
        equation = Equation(model.sigma_a2, model.sigma_b2, model.bias2)
        self.solver = PairSolver(model.activation, *variances, equation, want_slope=tangent)
        self.watch = tangent and _kinked(model.activation)
        steepest = max(
            float(side.slope(model.activation).max()) for side in (self.solver.left, self.solver.right)
        )
        if tangent and model.sigma_a2 * steepest >= 1.0:
            raise ConvergenceError(
                f"The tangent kernel diverges: σ_a² E[φ'²] = {model.sigma_a2 * steepest:.4g} ≥ 1.",
                f"Lower sigma_a2 below {1.0 / steepest:.4g}, or use an activation with smaller slopes.",
            )

    def _variances(self, samples: Samples) -> Array:
        model = self.model
        forcing = model.sigma_b2 * samples.squares + model.bias2
        key = "variance", model.activation, model.sigma_a2
        return _at(lambda b: np.asarray(solve_variance(model.activation, model.sigma_a2, b).q), forcing, key)

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> Block:
        """G, Λ and, if asked for, D, Π = Λ/(1 - σ_a² D) and K = G/(1 - σ_a² D): (3.3), (3.7) to (3.10)."""
        model = self.model
        pairs = _near(self.watch, c, self.sides, rows, columns, diagonal)
        features, slope, info = self.solver.tile(c, rows, columns, diagonal=diagonal, near=pairs)
        covariance = model.sigma_a2 * features
        covariance += model.sigma_b2 * c
        covariance += model.bias2
        if slope is None:
            return Block(features, covariance, None, None, None, info)
        resolvent = 1.0 / (1.0 - model.sigma_a2 * slope)
        return Block(features, covariance, slope, covariance * resolvent, features * resolvent, info)


class Feedforward:
    """An explicit network: the recursion (3.11), carried out tile by tile."""

    def __init__(self, model: Explicit, left: Samples, right: Samples | None, tangent: bool) -> None:
        self.tangent = tangent
        self.sides = left, right or left
        self.watch = tangent and any(_kinked(phi) for phi in model.layers)
        rows, columns = left.squares, None if right is None else right.squares
        self.solvers: list[PairSolver] = []
        for phi in model.layers:
            solver = PairSolver(phi, rows, columns, Equation(), want_slope=tangent)
            self.solvers.append(solver)
            rows, columns = solver.left.value(phi), None if right is None else solver.right.value(phi)

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> Block:
        """Σ and Θ after the last layer."""
        pairs = _near(self.watch, c, self.sides, rows, columns, diagonal)
        covariance, features, tangent, slope, info = c, c, c, None, NO_EVIDENCE
        for number, solver in enumerate(self.solvers):
            if number and slope is not None:
                tangent = features + tangent * slope
            covariance = features
            features, slope, found = solver.tile(covariance, rows, columns, diagonal=diagonal, near=pairs)
            info = info.merge(found)
        if slope is None:
            return Block(features, covariance, None, None, None, info)
        return Block(features, covariance, slope, tangent, features + tangent * slope, info)


class Unrolled:
    """A DEQ cut at a finite depth, weights not tied: the recursion (3.12)."""

    def __init__(self, model: DEQ, left: Samples, right: Samples | None, depth: int, tangent: bool) -> None:
        self.model, self.tangent = model, tangent
        self.sides = left, right or left
        self.watch = tangent and _kinked(model.activation)
        rows = self._variances(left, depth)
        columns = [None] * depth if right is None else self._variances(right, depth)
        self.solvers = [
            PairSolver(model.activation, row, column, Equation(), want_slope=tangent)
            for row, column in zip(rows, columns, strict=True)
        ]

    def _variances(self, samples: Samples, depth: int) -> list[Array]:
        """Λ_ii of every layer."""
        model = self.model
        forcing = model.sigma_b2 * samples.squares + model.bias2
        layers = [forcing]
        for _ in range(depth - 1):
            energy = _at(
                lambda q: np.asarray(second_moment(model.activation, q)),
                layers[-1],
                ("energy", model.activation),
            )
            layers.append(model.sigma_a2 * energy + forcing)
        return layers

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> Block:
        """G, Λ, Π and K at the given depth."""
        model, info = self.model, NO_EVIDENCE
        pairs = _near(self.watch, c, self.sides, rows, columns, diagonal)
        if pairs is not None:
            pairs.distance *= model.sigma_b2
            if model.bias2:
                # A bias turns neither opposite rows into opposite signals nor parallel ones into parallel ones.
                pairs.keep_parallel(odd=False)
                pairs.angle = np.full_like(pairs.angle, np.nan)
        forcing = model.sigma_b2 * c + model.bias2
        covariance = tangent = forcing
        features, slope, paper = c, None, None
        for number, solver in enumerate(self.solvers):
            if number:
                covariance = model.sigma_a2 * features + forcing
                if slope is not None:
                    tangent = covariance + model.sigma_a2 * slope * tangent
                if pairs is not None:
                    if near.phi_parity(model.activation) != -1:
                        pairs.keep(pairs.rows_sign > 0)
                    pairs.distance = model.sigma_a2 * pairs.distance + model.sigma_b2 * pairs.rows_distance
            features, slope, found = solver.tile(covariance, rows, columns, diagonal=diagonal, near=pairs)
            if slope is not None:
                paper = features if paper is None else features + model.sigma_a2 * slope * paper
            info = info.merge(found)
        return Block(features, covariance, slope, None if slope is None else tangent, paper, info)
