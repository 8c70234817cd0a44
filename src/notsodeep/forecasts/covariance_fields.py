"""Covariances of the pre-activations of one sample at two steps of a solver, for rows, images and graphs.

Iterates of a sample behave like further samples of the same model. The covariance of its pre-activations at two steps
is a field: a number for a row, one number for each position of an image, a matrix over the nodes of a graph. A step of
the solver maps it to σ_a² 𝒜F(field) + forcing. Fields of rows and images are arrays (samples, positions), those of a
graph (1, nodes, nodes); several of them are stacked along the first axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.duals.dual import Dual, Side
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import derivative_second_moment, second_moment, second_moment_slope
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ, ConvDEQ, GraphDEQ
from notsodeep.models.field_equilibrium import evaluate
from notsodeep.models.mixing import Convolution
from notsodeep.models.rates import contraction_rates
from notsodeep.models.variances import moment_at
from notsodeep.validation import Array

# Steps and relative changes at which iterations for variances and for spectral radii end; growth that has no limit.
MAX_STEPS, TOLERANCE, RADIUS_TOLERANCE, LIMITLESS = 5000, 1e-12, 1e-9, 1e6
# Factor by which the variances of one `Dual` extend beyond those of plain iteration, and relative step of derivatives.
MARGIN, STEP = 4.0, 1e-3
# Terms of the adjoint's series that are computed; later ones follow the rate.
ADJOINT_TERMS = 64
_NONE = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Fields:
    """Fields of rows (one position) and of images (one number for each position).

    Attributes:
        phi: the activation.
        feedback: σ_a².
        forcing: covariances that the input alone gives, a field.
        mixing: the convolution; None for rows; of a graph the model and its features.
    """

    phi: Activation
    feedback: float
    forcing: Array
    mixing: Any = None
    # Whether the linearised step is right for all covariances.
    has_exact_tail = True

    def mix(self, field: Array) -> Array:
        """𝒜 of a field."""
        return field if self.mixing is None else self.mixing.diagonal(np.ascontiguousarray(field.T)).T

    def step(self, field: Array) -> Array:
        """The covariances after a step with inner products `field`."""
        return np.asarray(self.feedback * self.mix(field) + self.forcing)

    def variances(self, field: Array) -> Array:
        """Variances (samples, positions) in a field of a step with itself."""
        return field

    def transposed(self, field: Array) -> Array:
        """The field of steps (j, i) from that of (i, j)."""
        return field

    def total(self, field: Array) -> Array:
        """The sum over positions, (samples,): squared norms from a field of squares."""
        return np.asarray(field.sum(axis=1))

    def on_diagonal(self, values: Array) -> Array:
        """A field from one value for each position."""
        return values

    @cached_property
    def dual(self) -> Dual:
        """F and F' over the variances that occur."""
        seen = np.concatenate([self.variances(field).ravel() for field in (self.forcing, self.equilibrium)])
        seen = seen[seen > 0.0]
        return Dual(self.phi, np.array([seen.min() / MARGIN, seen.max() * MARGIN]))

    def expectations(self, left: Array, right: Array, covariance: Array) -> tuple[Array, Array]:
        """F and F' of fields whose variables have variances `left` and `right`, (samples, positions)."""
        sides = self.dual.rows(left.reshape(-1, 1)), self.dual.columns(right.reshape(-1, 1))
        value, slope = self._tiles(*sides, covariance.reshape(-1, 1, 1))
        return value.reshape(covariance.shape), slope.reshape(covariance.shape)

    def _tiles(self, left: Side, right: Side, covariance: Array) -> Array:
        found = np.empty((2, *covariance.shape))
        evaluate(self.dual, left, right, np.ascontiguousarray(covariance), found[0], found[1], (_NONE, _NONE))
        return found

    def own_expectations(self, field: Array) -> tuple[Array, Array]:
        """F and F' of a step with itself, from moments of one variable."""
        return moment_at(second_moment, self.phi, field), self.slope_energy(field)

    def slope_energy(self, q: Array) -> Array:
        """E[φ'²] at many variances."""
        return moment_at(derivative_second_moment, self.phi, q)

    @cached_property
    def equilibrium(self) -> Array:
        """Covariances at the equilibrium.

        Raises:
            ConvergenceError: if the variance of the pre-activations has no stable fixed point.
        """
        if self.mixing is None:
            return contraction_rates(self.phi, self.feedback, self.forcing).variance
        field, limit = self.forcing, LIMITLESS * (1.0 + float(self.forcing.max()))
        for _ in range(MAX_STEPS):
            moved = self.step(self.own_expectations(field)[0])
            change, field = float(np.abs(moved - field).max()), moved
            if change <= TOLERANCE * float(field.max()):
                return field
            if not float(field.max()) <= limit:
                break
        raise ConvergenceError(
            "The variance of the pre-activations has no fixed point: signals grow from step to step.",
            "Lower sigma_a2, or use an activation with smaller slopes.",
        )

    @cached_property
    def spread_rate(self) -> Array:
        """r of each sample: r² is the spectral radius of Δ ↦ σ_a² 𝒜(F'(Λ) ∘ Δ)."""
        return np.sqrt(self._radius(self.own_expectations(self.equilibrium)[1]))

    @cached_property
    def norm_rate(self) -> Array:
        """The rate of norms, the spectral radius of δ ↦ σ_a² 𝒜(|S'(q)| ∘ δ)."""
        return self._radius(np.abs(second_moment_slope(self.phi, self.equilibrium)))

    def _radius(self, weights: Array) -> Array:
        """The spectral radius of field ↦ σ_a² 𝒜(weights ∘ field), by power iteration."""
        field, radius = np.array(self.equilibrium), np.zeros(len(weights))
        axes = tuple(range(1, field.ndim))
        for _ in range(MAX_STEPS):
            field = field / np.sqrt((field**2).sum(axis=axes, keepdims=True))
            field = self.feedback * self.mix(weights * field)
            radius, before = np.sqrt((field**2).sum(axis=axes)), radius
            if np.all(np.abs(radius - before) <= RADIUS_TOLERANCE * radius) or not radius.all():
                break
        return radius

    @cached_property
    def adjoint_terms(self) -> Array:
        """Squared norms of the terms (Jᵀ)^j w of the adjoint for random cotangents w, (samples, terms)."""
        slopes, terms = self.own_expectations(self.equilibrium)[1], []
        field = self.on_diagonal(np.ones_like(self.variances(self.equilibrium)))
        for _ in range(1 if self.mixing is None else ADJOINT_TERMS):
            terms.append(self.total(field))
            field = self.feedback * self._mix_back(slopes * field)
        return np.stack(terms, axis=1)

    def _mix_back(self, field: Array) -> Array:
        """The adjoint of 𝒜, which for filters is 𝒜."""
        return self.mix(field)


class GraphFields(Fields):
    """Fields of a graph, (1, nodes, nodes): all nodes settle together and are one sample."""

    # Left out: how a change of norms changes the covariance of different nodes.
    has_exact_tail = False

    @property
    def _matrix(self) -> Array:
        return np.asarray(self.mixing[0].propagation)

    def mix(self, field: Array) -> Array:
        """S M Sᵀ."""
        return np.asarray(self._matrix @ field @ self._matrix.T)

    def _mix_back(self, field: Array) -> Array:
        return np.asarray(self._matrix.T @ field @ self._matrix)

    def variances(self, field: Array) -> Array:
        """Variances of the nodes."""
        return np.ascontiguousarray(np.diagonal(field, axis1=1, axis2=2))

    def transposed(self, field: Array) -> Array:
        """The field of steps (j, i) from that of (i, j)."""
        return field.swapaxes(1, 2)

    def total(self, field: Array) -> Array:
        """The trace."""
        return np.asarray(self.variances(field).sum(axis=1))

    def on_diagonal(self, values: Array) -> Array:
        """A diagonal matrix."""
        return np.asarray(np.eye(values.shape[1]) * values[:, None, :])

    def expectations(self, left: Array, right: Array, covariance: Array) -> tuple[Array, Array]:
        """F and F' of all pairs of nodes at two steps."""
        value, slope = self._tiles(self.dual.rows(left), self.dual.columns(right), covariance)
        return value, slope

    def own_expectations(self, field: Array) -> tuple[Array, Array]:
        """F and F' of all pairs of nodes at one step; a node with itself has moments of one variable."""
        q, nodes = self.variances(field), np.arange(field.shape[1])
        value, slope = self.expectations(q, q, field)
        value[:, nodes, nodes], slope[:, nodes, nodes] = super().own_expectations(q)
        return value, slope

    @cached_property
    def equilibrium(self) -> Array:
        """Covariances of all pairs of nodes at the equilibrium."""
        model, features = self.mixing
        model = GraphDEQ(model.propagation, self.phi, self.feedback, model.sigma_b2, model.bias2)
        return np.asarray(conjugate_kernel(model, features, of="preactivations"))[None]

    @cached_property
    def norm_rate(self) -> Array:
        """The rate at which covariances return to the equilibrium."""
        limit = self.equilibrium
        field, distance, rate = 1.01 * limit, 0.01 * float(np.linalg.norm(limit)), 0.0
        while distance > 1e-7 * float(np.linalg.norm(limit)):
            field = self.step(self.own_expectations(field)[0])
            before, distance = distance, float(np.linalg.norm(field - limit))
            rate, last = distance / before, rate
            if abs(rate - last) <= STEP * rate**2:
                break
        return np.full(1, rate)


def fields_of(model: Any, X: Any) -> Fields:
    """The fields of a model on samples X.

    Raises:
        InputError: for samples that the model does not take, samples of norm zero, or a model without an equilibrium.
    """
    if not isinstance(model, DEQ | ConvDEQ | GraphDEQ):
        _refuse_model(model)
    samples, variances = model.check_samples(X), (model.activation, model.sigma_a2)
    if isinstance(model, ConvDEQ):
        convolution = Convolution(tuple(samples.shape[2:]), model.filter_size, model.padding)
        squares = convolution.diagonal(np.ascontiguousarray(model.squared_norms(samples).T)).T
        fields = Fields(*variances, np.asarray(model.sigma_b2 * squares + model.bias2), convolution)
    elif isinstance(model, DEQ):
        forcing = model.sigma_b2 * model.squared_norms(samples) + model.bias2
        fields = Fields(*variances, forcing[:, None])
    else:
        S = model.propagation
        if len(samples) != len(S):
            raise InputError(
                f"X has {len(samples)} rows and the graph {len(S)} nodes. Give a row for each node."
            )
        forcing = model.sigma_b2 * (S @ (samples @ samples.T) @ S.T) + model.bias2
        fields = GraphFields(*variances, forcing[None], (model, samples))
    silent = np.flatnonzero(fields.total(fields.forcing) <= 0.0)
    if len(silent):
        raise InputError(
            f"Sample {silent[0]} of X and {len(silent) - 1} others have norm zero: their state stays at zero, where "
            "relative residuals are not defined. Remove them, or give the model a bias (bias2 > 0)."
        )
    return fields


def _refuse_model(model: Any) -> None:
    if hasattr(model, "deq"):
        raise InputError(
            "A DEQ cut after some layers solves no equilibrium. Forecast the DEQ itself: model.deq."
        )
    if hasattr(model, "layers"):
        raise InputError(
            f"{type(model).__name__} is explicit: it solves no equilibrium and always takes its {len(model.layers)} "
            "layers. Forecasts are for DEQ, ConvDEQ and GraphDEQ."
        )
    raise InputError(
        f"forecast takes a DEQ, ConvDEQ or GraphDEQ, a network of one, or a torch cell with z0=…; not "
        f"{type(model).__name__}."
    )


__all__ = ["Fields", "GraphFields", "fields_of"]
