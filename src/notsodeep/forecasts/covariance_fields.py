"""Covariances of the pre-activations of one sample at two steps of a solver, for rows, images and graphs.

Iterates of a sample behave like further samples of the same model. The covariance of its pre-activations at two steps
is a field: a number for a row, one number for each position of an image, a matrix over the nodes of a graph. A step of
the solver maps it to σ_a² 𝒜F(field) + forcing, docs/theory.md (13.1). Fields of rows and images are arrays
(samples, positions), those of a graph (1, nodes, nodes); several of them are stacked along the first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.duals.dual import Dual
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import derivative_second_moment, second_moment
from notsodeep.gaussian.variance import contraction_rates
from notsodeep.models import DEQ, ConvDEQ, GraphDEQ
from notsodeep.models.field_equilibrium import evaluate
from notsodeep.models.mixing import Convolution
from notsodeep.models.variances import moment_at
from notsodeep.validation import Array

# Steps and relative changes at which iterations for variances and for spectral radii end; growth that has no limit.
MAX_STEPS, TOLERANCE, RADIUS_TOLERANCE, LIMITLESS = 5000, 1e-12, 1e-7, 1e5
# The smallest variance of the input's share of a pre-activation.
SMALLEST_FORCING = 1e-290
# Factor by which the range of one `Dual` extends beyond the variances seen so far; relative steps of derivatives.
MARGIN, STEP, NORM_STEP = 4.0, 1e-3, 1e-5
# Terms of the adjoint's series that are computed; later ones follow the rate.
ADJOINT_TERMS = 64
_NONE = np.empty(0, dtype=np.intp)


@dataclass(eq=False)
class Fields:
    """Fields of rows (one position) and of images (one number for each position).

    Attributes:
        phi: the activation.
        feedback: σ_a².
        forcing: covariances that the input alone gives, a field.
        mixing: the convolution, or the propagation matrix of a graph; None for rows.
        max_steps: most steps of the search for the equilibrium.
    """

    phi: Activation
    feedback: float
    forcing: Array
    mixing: Any = None
    max_steps: int = MAX_STEPS
    _dual: Dual | None = field(default=None, init=False, repr=False)
    _range: tuple[float, float] = field(default=(np.inf, 0.0), init=False, repr=False)

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

    def outer(self, left: Array, right: Array) -> Array:
        """The field of products of two values for each position."""
        return left * right

    def dual_over(self, *variances: Array) -> Dual:
        """F and F' over a range that has these variances."""
        seen = np.concatenate([part.ravel() for part in variances])
        low, high = seen.min(where=seen > 0.0, initial=np.inf), seen.max(initial=0.0)
        if self._dual is None or low < self._range[0] or high > self._range[1]:
            self._range = min(low, self._range[0]) / MARGIN, max(high, self._range[1]) * MARGIN
            self._dual = Dual(self.phi, np.array(self._range))
        return self._dual

    def expectations(self, left: Array, right: Array, covariance: Array) -> Array:
        """F of fields whose variables have variances `left` and `right`, (samples, positions)."""
        tiles = self._tiles(left.reshape(-1, 1), right.reshape(-1, 1), covariance.reshape(-1, 1, 1))
        return np.asarray(tiles[0].reshape(covariance.shape))

    def _tiles(self, left: Array, right: Array, covariance: Array) -> Array:
        """F and F' of tiles."""
        dual, found = self.dual_over(left, right), np.empty((2, *covariance.shape))
        sides = dual.rows(left), dual.columns(right)
        evaluate(dual, *sides, np.ascontiguousarray(covariance), found[0], found[1], (_NONE, _NONE))
        return found

    def own_expectation(self, field: Array) -> Array:
        """F of a step with itself, from moments of one variable."""
        return moment_at(second_moment, self.phi, field)

    @cached_property
    def slopes(self) -> Array:
        """F' at the equilibrium."""
        return moment_at(derivative_second_moment, self.phi, self.equilibrium)

    def small_products(self, moved: Array, change: Array, other: Array) -> Array:
        """E[(φ(h + t) − φ(h))(φ(h' + t') − φ(h'))] for small increments t, t' of pre-activations at the equilibrium.

        With t = α h + a part that is independent of h (α: `change`, α': `other`, ⟨t, t'⟩: `moved`) it is
        ⟨t, t'⟩ F' + α α' (M − Λ F'), M = E[hφ'(h) h'φ'(h')].
        """
        return np.asarray(moved * self.slopes + self.outer(change, other) * self._bend)

    @cached_property
    def _bend(self) -> Array:
        """M − Λ F', M as the derivative of F in the scales of both variables."""
        limit, q, ends = self.equilibrium, self.variances(self.equilibrium), (1.0 + STEP, 1.0 - STEP)
        corners = [self.expectations(a**2 * q, b**2 * q, a * b * limit) for a in ends for b in ends]
        bend = (corners[0] - corners[1] - corners[2] + corners[3]) / (4.0 * STEP**2)
        return np.asarray(bend - limit * self.slopes)

    @cached_property
    def equilibrium(self) -> Array:
        """Covariances at the equilibrium; a ConvergenceError if variances have no stable fixed point."""
        if self.mixing is None:
            return contraction_rates(self.phi, self.feedback, self.forcing).variance
        state, limit = self.forcing, LIMITLESS * (1.0 + float(self.forcing.max()))
        for _ in range(self.max_steps):
            moved = self.step(self.own_expectation(state))
            change, state = float(np.abs(moved - state).max()), moved
            if change <= TOLERANCE * float(state.max()):
                return state
            if not float(state.max()) <= limit:
                break
        raise ConvergenceError(
            "The variance of the pre-activations has no fixed point: signals grow from step to step.",
            "Lower sigma_a2, or use an activation with smaller slopes.",
        )

    @cached_property
    def spread_rate(self) -> Array:
        """r of each sample: r² is the spectral radius of Δ ↦ σ_a² 𝒜(F'(Λ) ∘ Δ)."""
        return np.sqrt(self._radius(lambda field: self.feedback * self.mix(self.slopes * field), 1.0))

    @cached_property
    def norm_rate(self) -> Array:
        """The rate of norms, at which covariances return to the equilibrium."""
        limit = self.equilibrium
        if self.mixing is None:
            return np.abs(contraction_rates(self.phi, self.feedback, self.forcing).norm[:, 0])
        return self._radius(lambda small: self.step(self.own_expectation(limit + small)) - limit, NORM_STEP)

    def _radius(self, linear: Callable[[Array], Array], size: float) -> Array:
        """The spectral radius of a linear map of fields, by power iteration with fields of this relative size."""
        field, radius = np.array(self.equilibrium), np.zeros(len(self.forcing))
        axes = tuple(range(1, field.ndim))
        scale = size * np.sqrt((field**2).sum(axis=axes, keepdims=True))
        for _ in range(MAX_STEPS):
            field = linear(field * scale / np.sqrt((field**2).sum(axis=axes, keepdims=True))) / scale
            radius, before = np.sqrt((field**2).sum(axis=axes)), radius
            if np.all(np.abs(radius - before) <= RADIUS_TOLERANCE * radius) or not radius.all():
                break
        return radius

    @cached_property
    def adjoint_terms(self) -> Array:
        """Squared norms of the terms (Jᵀ)^j w of the adjoint for random cotangents w, (samples, terms)."""
        terms, term = [], self._random_cotangent()
        for _ in range(1 if self.mixing is None else ADJOINT_TERMS):
            terms.append(self.total(term))
            term = self.feedback * self._mix_back(self.slopes * term)
        return np.stack(terms, axis=1)

    def _random_cotangent(self) -> Array:
        """The covariance of a random cotangent, independent at all positions."""
        return np.ones_like(self.forcing)

    def _mix_back(self, field: Array) -> Array:
        """The adjoint of 𝒜, which for filters is 𝒜."""
        return self.mix(field)


class GraphFields(Fields):
    """Fields of a graph, (1, nodes, nodes): all nodes settle together and are one sample."""

    def mix(self, field: Array) -> Array:
        """S M Sᵀ."""
        return np.asarray(self.mixing @ field @ self.mixing.T)

    def _mix_back(self, field: Array) -> Array:
        return np.asarray(self.mixing.T @ field @ self.mixing)

    def _random_cotangent(self) -> Array:
        return np.eye(len(self.mixing))[None]

    def variances(self, field: Array) -> Array:
        """Variances of the nodes."""
        return np.ascontiguousarray(np.diagonal(field, axis1=1, axis2=2))

    def transposed(self, field: Array) -> Array:
        """The field of steps (j, i) from that of (i, j)."""
        return field.swapaxes(1, 2)

    def total(self, field: Array) -> Array:
        """Sum the variances over all nodes."""
        return np.asarray(self.variances(field).sum(axis=1))

    def outer(self, left: Array, right: Array) -> Array:
        """All products of values of two nodes."""
        return left[:, :, None] * right[:, None, :]

    def expectations(self, left: Array, right: Array, covariance: Array) -> Array:
        """F of all pairs of nodes at two steps."""
        return np.asarray(self._tiles(left, right, covariance)[0])

    def own_expectation(self, field: Array) -> Array:
        """F of all pairs of nodes at one step."""
        q = self.variances(field)
        value = self.expectations(q, q, field)
        np.fill_diagonal(value[0], super().own_expectation(q))
        return value

    @cached_property
    def slopes(self) -> Array:
        """F' of all pairs of nodes at the equilibrium."""
        q = self.variances(self.equilibrium)
        slopes = self._tiles(q, q, self.equilibrium)[1]
        np.fill_diagonal(slopes[0], moment_at(derivative_second_moment, self.phi, q))
        return np.asarray(slopes)


def has_fields(model: Any) -> bool:
    """Whether a forecast of the model itself is available."""
    return isinstance(model, DEQ | ConvDEQ | GraphDEQ)


def fields_of(model: Any, X: Any) -> Fields:
    """The fields of a model on samples X; an InputError for samples of norm zero and models without equilibrium."""
    if hasattr(model, "layers") or hasattr(model, "deq"):
        raise InputError(
            f"{type(model).__name__} is explicit: it solves no equilibrium and always takes its layers, one after the "
            "other. Forecasts are for DEQ, ConvDEQ and GraphDEQ; of a DEQ cut at a depth take model.deq."
        )
    if not has_fields(model):
        raise InputError(
            "forecast takes a DEQ, ConvDEQ or GraphDEQ, a network of one, or a torch cell with z0=…; got "
            f"{type(model).__name__}."
        )
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
        fields = GraphFields(*variances, forcing[None], S)
    # Ratios of subnormal numbers have no digits: such samples count as zero.
    silent = np.flatnonzero(fields.total(fields.forcing) < SMALLEST_FORCING)
    if len(silent):
        raise InputError(
            f"{len(silent)} of {len(samples)} samples have norm zero, the first at index {silent[0]}: their state is "
            "zero, where relative residuals are not defined. Remove them, or give the model a bias (bias2 > 0)."
        )
    return fields


__all__ = ["Fields", "GraphFields", "fields_of", "has_fields"]
