"""Covariances of the pre-activations of one sample at several steps of a solver, for rows, images and graphs.

Iterates of a sample behave like further samples of the same model. With h_i and h_j the pre-activations at two steps,
their covariance is a field: a number for a row, one number for each position of an image, a matrix over the nodes of
a graph. A step of the solver maps fields to fields, cov(h') = σ_a² 𝒜F(cov(h)) + forcing.

Fields of rows and images are arrays (samples, positions), those of a graph (1, nodes, nodes).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.duals.dual import Dual
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.moments import derivative_second_moment, second_moment, second_moment_slope
from notsodeep.models import DEQ, ConvDEQ, GraphDEQ
from notsodeep.models.field_equilibrium import evaluate
from notsodeep.models.mixing import Convolution, Propagation
from notsodeep.models.rates import contraction_rates
from notsodeep.models.variances import moment_at
from notsodeep.validation import Array

# Steps and relative change of the variances at which the search for their fixed point ends; growth that has no limit.
MAX_STEPS, TOLERANCE, LIMITLESS = 5000, 1e-13, 1e6
# Power iterations, and the relative change at which they end.
POWER_STEPS, POWER_TOLERANCE = 2000, 1e-10
# Factor by which variances of one `Dual` extend beyond those of plain iteration, and relative step of derivatives.
MARGIN, STEP = 4.0, 1e-3
# Terms of the adjoint's series that are computed; later ones follow the rate.
ADJOINT_TERMS = 64


class DiagonalFields:
    """Fields of rows (one position) and of images (one number for each position).

    Args:
        model: activation and σ_a².
        forcing: variances of what the input alone gives, (samples, positions).
        convolution: how filters mix positions; None for rows.
    """

    has_exact_tail = True

    def __init__(self, model: DEQ | ConvDEQ, forcing: Array, convolution: Convolution | None = None) -> None:
        self.phi, self.feedback = model.activation, model.sigma_a2
        self.forcing, self.convolution = forcing, convolution

    def with_feedback(self, sigma_a2: float) -> DiagonalFields:
        """The same samples with another σ_a²."""
        model = DEQ(self.phi, sigma_a2, 1.0)
        return DiagonalFields(model, self.forcing, self.convolution)

    def part(self, samples: slice) -> DiagonalFields:
        """Some of the samples."""
        return DiagonalFields(DEQ(self.phi, self.feedback, 1.0), self.forcing[samples], self.convolution)

    # --- algebra of fields ----------------------------------------------------------------------------------------

    def mix(self, field: Array) -> Array:
        """𝒜 of a field."""
        if self.convolution is None:
            return field
        return self.convolution.diagonal(np.ascontiguousarray(field.T)).T

    def step(self, field: Array) -> Array:
        """The field after a step, σ_a² 𝒜(field) + forcing."""
        return np.asarray(self.feedback * self.mix(field) + self.forcing)

    def variances(self, field: Array) -> Array:
        """Variances (samples, positions) in a field of one step with itself."""
        return field

    def transposed(self, field: Array) -> Array:
        """The field of (j, i) from that of (i, j)."""
        return field

    def total(self, field: Array) -> Array:
        """Sum over positions, (samples,): a squared norm from a field of squares."""
        return np.asarray(field.sum(axis=1))

    def on_diagonal(self, values: Array) -> Array:
        """A field from values of each position."""
        return values

    # --- Gaussian expectations ------------------------------------------------------------------------------------

    def energy(self, q: Array) -> Array:
        """S(q) = E[φ²] at many variances."""
        return moment_at(second_moment, self.phi, q)

    def slope_energy(self, q: Array) -> Array:
        """E1(q) = E[φ'²] at many variances."""
        return moment_at(derivative_second_moment, self.phi, q)

    @cached_property
    def dual(self) -> Dual:
        """F and F' over the variances that occur."""
        seen = np.concatenate([self.forcing_variances.ravel(), self.equilibrium_variances.ravel()])
        seen = seen[seen > 0.0]
        return Dual(self.phi, np.array([seen.min() / MARGIN, seen.max() * MARGIN]))

    @property
    def forcing_variances(self) -> Array:
        """Variances before the first step."""
        return self.variances(self.forcing)

    @property
    def equilibrium_variances(self) -> Array:
        """Variances at the equilibrium."""
        return self.variances(self.equilibrium)

    def expectations(self, left: Array, right: Array, covariance: Array) -> tuple[Array, Array]:
        """F and F' of a field whose variables have variances `left` and `right`, (samples, positions)."""
        shape, count = covariance.shape, covariance.size
        sides = self.dual.rows(left.reshape(count, 1)), self.dual.columns(right.reshape(count, 1))
        return self._tiles(sides, covariance.reshape(count, 1, 1), shape)

    def _tiles(self, sides: Any, covariance: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        value, slope = np.empty(covariance.shape), np.empty(covariance.shape)
        none = np.empty(0, dtype=np.intp)
        evaluate(self.dual, *sides, np.ascontiguousarray(covariance), value, slope, (none, none))
        return value.reshape(shape), slope.reshape(shape)

    def own_expectations(self, field: Array) -> tuple[Array, Array]:
        """F and F' of a step with itself."""
        return self.energy(field), self.slope_energy(field)

    # --- the equilibrium ------------------------------------------------------------------------------------------

    @cached_property
    def equilibrium(self) -> Array:
        """Variances at the equilibrium, the limit of the depth recursion.

        Raises:
            ConvergenceError: if they have none.
        """
        if self.convolution is None:
            return contraction_rates(self.phi, self.feedback, self.forcing).variance
        return fixed_point(lambda field: self.step(self.energy(field)), self.forcing)[0]

    @cached_property
    def spread_rate(self) -> Array:
        """r of each sample: r² is the spectral radius of Δ ↦ σ_a² 𝒜(E1(q) ∘ Δ)."""
        return np.sqrt(self._radius(self.slope_energy(self.equilibrium)))

    @cached_property
    def norm_rate(self) -> Array:
        """The rate of the norms: the spectral radius of δ ↦ σ_a² 𝒜(|S'(q)| ∘ δ)."""
        return self._radius(np.abs(second_moment_slope(self.phi, self.equilibrium)))

    def _radius(self, weights: Array) -> Array:
        """Spectral radius of σ_a² 𝒜 diag(weights), by power iteration with √weights on both sides of 𝒜."""
        if self.convolution is None:
            return self.feedback * weights[:, 0]
        root, radius = np.sqrt(weights), np.zeros(len(weights))
        vector = np.ones_like(weights)
        for _ in range(POWER_STEPS):
            image = root * self.feedback * self.mix(root * vector)
            size = np.sqrt((image**2).sum(axis=1))
            before, radius = radius, size / np.sqrt((vector**2).sum(axis=1))
            if np.all(np.abs(radius - before) <= POWER_TOLERANCE * radius):
                break
            vector = image / np.where(size > 0.0, size, 1.0)[:, None]
        return radius

    @cached_property
    def adjoint_terms(self) -> Array:
        """Squared norms of the terms (D Wᵀ)^j w of the adjoint, (samples, terms), w the slopes times a random readout."""
        slopes = self.slope_energy(self.equilibrium)
        terms, field = [], slopes
        for _ in range(1 if self.convolution is None else ADJOINT_TERMS):
            terms.append(self.total(field))
            field = slopes * self.feedback * self.mix(field)
        return np.stack(terms, axis=1)


class GraphFields(DiagonalFields):
    """Fields of a graph, (1, nodes, nodes): all nodes settle together and are one sample."""

    # The linearised step leaves out how norms change covariances of different nodes.
    has_exact_tail = False

    def __init__(self, model: Any, forcing: Array, propagation: Propagation) -> None:
        self.phi, self.feedback = model.activation, model.sigma_a2
        self.forcing, self.propagation, self.convolution = forcing, propagation, None

    def with_feedback(self, sigma_a2: float) -> GraphFields:
        """The same graph with another σ_a²."""
        return GraphFields(DEQ(self.phi, sigma_a2, 1.0), self.forcing, self.propagation)

    def part(self, samples: slice) -> GraphFields:
        """The graph itself, which is one sample."""
        return self

    def mix(self, field: Array) -> Array:
        """S M Sᵀ."""
        matrix = self.propagation.matrix
        return np.asarray(matrix @ field @ matrix.T)

    def variances(self, field: Array) -> Array:
        """Variances of the nodes."""
        return np.ascontiguousarray(np.diagonal(field, axis1=1, axis2=2))

    def transposed(self, field: Array) -> Array:
        """The field of (j, i) from that of (i, j)."""
        return field.swapaxes(1, 2)

    def total(self, field: Array) -> Array:
        """The trace."""
        return np.asarray(np.trace(field, axis1=1, axis2=2))[None].reshape(-1)

    def on_diagonal(self, values: Array) -> Array:
        """A diagonal matrix."""
        return np.asarray(np.eye(values.shape[1]) * values[:, None, :])

    def expectations(self, left: Array, right: Array, covariance: Array) -> tuple[Array, Array]:
        """F and F' of all pairs of nodes at two steps."""
        return self._tiles((self.dual.rows(left), self.dual.columns(right)), covariance, covariance.shape)

    def own_expectations(self, field: Array) -> tuple[Array, Array]:
        """F and F' of all pairs of nodes at one step; a node with itself has moments of one variable."""
        q = self.variances(field)
        value, slope = self.expectations(q, q, field)
        nodes = np.arange(q.shape[1])
        value[:, nodes, nodes], slope[:, nodes, nodes] = self.energy(q), self.slope_energy(q)
        return value, slope

    @cached_property
    def dual(self) -> Dual:
        """F and F' over the variances of the depth recursion, which norms of the propagation bound."""
        q, largest = self.forcing_variances, 0.0
        norm = float(np.abs(self.propagation.matrix).sum(axis=1).max()) ** 2
        for _ in range(MAX_STEPS):
            # Nodes whose features are all equal have the largest variances.
            largest, before = float(q.max()), largest
            if abs(largest - before) <= STEP * largest or not largest <= LIMITLESS * (1.0 + before):
                break
            q = self.feedback * norm * self.energy(np.full(1, largest)) + self.forcing_variances.max()
        seen = self.forcing_variances[self.forcing_variances > 0.0]
        return Dual(self.phi, np.array([seen.min() / MARGIN, min(largest, LIMITLESS) * MARGIN]))

    @cached_property
    def _fixed_point(self) -> tuple[Array, float]:
        return fixed_point(lambda field: self.step(self.own_expectations(field)[0]), self.forcing)

    @cached_property
    def equilibrium(self) -> Array:
        """Covariances of all pairs of nodes at the equilibrium."""
        return self._fixed_point[0]

    @cached_property
    def spread_rate(self) -> Array:
        """r: r² is the spectral radius of Δ ↦ σ_a² S (F'(Λ) ∘ Δ) Sᵀ."""
        slopes = self.own_expectations(self.equilibrium)[1]
        field, radius = np.array(self.equilibrium), 0.0
        for _ in range(POWER_STEPS):
            image = self.feedback * self.mix(slopes * field)
            size = float(np.linalg.norm(image))
            radius, before = size / float(np.linalg.norm(field)), radius
            if size == 0.0 or abs(radius - before) <= POWER_TOLERANCE * radius:
                break
            field = image / size
        return np.full(1, np.sqrt(radius))

    @cached_property
    def norm_rate(self) -> Array:
        """The rate at which the covariances reach their fixed point."""
        return np.full(1, self._fixed_point[1])

    @cached_property
    def adjoint_terms(self) -> Array:
        """Squared norms of the terms of the adjoint, (1, terms); nodes have independent readouts."""
        slopes, matrix = self.own_expectations(self.equilibrium)[1], self.propagation.matrix
        terms, field = [], slopes * np.eye(len(matrix))
        for _ in range(ADJOINT_TERMS):
            terms.append(self.total(field))
            field = slopes * (self.feedback * (matrix.T @ field @ matrix))
        return np.stack(terms, axis=1)


def fixed_point(step: Callable[[Array], Array], start: Array) -> tuple[Array, float]:
    """The limit of field ← step(field), and the factor by which the last changes shrank.

    Raises:
        ConvergenceError: if the fields grow without limit or do not come to rest.
    """
    field, change, rate = start, np.inf, 0.0
    limit = LIMITLESS * (1.0 + float(np.abs(start).max()))
    for _ in range(MAX_STEPS):
        moved = step(field)
        largest = float(np.abs(moved).max())
        if not largest <= limit:
            break
        before, change = change, float(np.abs(moved - field).max()) / largest
        # Smaller changes are rounding.
        rate = change / before if 1e-9 < change < before < np.inf else rate
        field = moved
        if change <= TOLERANCE:
            return field, rate
    raise ConvergenceError(
        "The variance of the pre-activations has no fixed point: signals grow from step to step.",
        "Lower sigma_a2, or use an activation with smaller slopes.",
    )


def fields_of(model: Any, X: Any) -> DiagonalFields:
    """The fields of a model on samples X.

    Raises:
        InputError: for samples that the model does not take, samples of norm zero, or a model without an equilibrium.
    """
    if isinstance(model, GraphDEQ):
        rows = model.check_samples(X)
        if len(rows) != len(model.propagation):
            raise InputError(
                f"X has {len(rows)} rows, and the graph {len(model.propagation)} nodes. Give one row for each node."
            )
        mixed = Propagation(model.propagation)
        forcing = model.sigma_b2 * mixed.pairs(rows @ rows.T) + model.bias2
        _refuse_silent(np.array([np.trace(forcing)]), "The graph has no features: all rows of X are zero")
        return GraphFields(model, forcing[None], mixed)
    if isinstance(model, ConvDEQ):
        images = model.check_samples(X)
        convolution = Convolution(tuple(images.shape[2:]), model.filter_size, model.padding)
        squares = np.ascontiguousarray(model.squared_norms(images).T)
        forcing = model.sigma_b2 * convolution.diagonal(squares).T + model.bias2
        _refuse_silent(forcing.sum(axis=1), "X has images that are zero")
        return DiagonalFields(model, np.ascontiguousarray(forcing), convolution)
    if isinstance(model, DEQ):
        forcing = model.sigma_b2 * model.squared_norms(model.check_samples(X)) + model.bias2
        _refuse_silent(forcing, "X has rows of norm zero")
        return DiagonalFields(model, forcing[:, None])
    if hasattr(model, "deq"):
        raise InputError("A DEQ cut after some layers has no equilibrium to solve. Forecast the DEQ: model.deq.")
    if hasattr(model, "layers"):
        raise InputError(
            f"{type(model).__name__} is explicit: it has no equilibrium to solve and takes its {len(model.layers)} "
            "layers, always. Forecasts are for DEQ, ConvDEQ and GraphDEQ."
        )
    raise InputError(
        f"forecast takes a DEQ, ConvDEQ or GraphDEQ, a network of them, or a torch cell with z0=…; got "
        f"{type(model).__name__}."
    )


def _refuse_silent(sizes: Array, what: str) -> None:
    silent = np.flatnonzero(sizes <= 0.0)
    if len(silent):
        raise InputError(
            f"{what} (first at index {silent[0]}): their state stays at zero, and relative residuals are not defined. "
            "Remove them, or give the model a bias (bias2 > 0)."
        )


__all__ = ["DiagonalFields", "GraphFields", "fields_of", "fixed_point"]
