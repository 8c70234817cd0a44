"""Covariances of the pre-activations of one sample at two steps of a solver, for rows, images and graphs.

Iterates of a sample behave like further samples of the same model. The covariance of its pre-activations at two steps
is a field: a number for a row, one number for each position of an image, a matrix over the nodes of a graph. A step of
the solver maps it to σ_a² 𝒜F(field) + forcing, docs/theory.md (13.1). Fields of rows and images are arrays
(samples, positions), those of a graph (1, nodes, nodes); several of them are stacked along the first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
from scipy.special import ndtri

from notsodeep.duals.dual import Dual
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import contraction_rates, derivative_second_moment, second_moment
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, GraphDEQ, GraphExplicit, UnrolledDEQ
from notsodeep.models.explicit import FeedforwardModel
from notsodeep.models.field_equilibrium import evaluate
from notsodeep.models.mixing import Convolution
from notsodeep.models.variances import moment_at
from notsodeep.validation import Array

# Steps and relative changes at which iterations for variances and for spectral radii end; growth that has no limit.
MAX_STEPS, TOLERANCE, RADIUS_TOLERANCE, LIMITLESS = 5000, 1e-12, 1e-7, 1e5
# The smallest variance of the input's share of a pre-activation: ratios of subnormal numbers have no digits.
SMALLEST_FORCING = 1e-290
# Factor by which the range of one `Dual` extends beyond the variances seen so far; relative steps of derivatives.
MARGIN, STEP, NORM_STEP = 4.0, 1e-3, 1e-5
# Terms of the adjoint's series that are computed; later ones follow the rate.
ADJOINT_TERMS = 64
# Points for moments of φ'⁴ of one variable; random ones for the nodes of a graph, and most numbers in them.
POINTS, GRAPH_POINTS, GRAPH_NUMBERS = ndtri((np.arange(2000) + 0.5) / 2000), 2000, 1 << 24
_NONE = np.empty(0, dtype=np.intp)


@dataclass(eq=False)
class Fields:
    """Fields of rows (one position) and of images (one number for each position).

    Attributes:
        phi: the activation.
        feedback: σ_a².
        forcing: covariances that the input alone gives, a field.
        mixing: the convolution, or the propagation matrix of a graph; None for rows.
        loop_steps: number of steps of an explicit loop; None for a model that is solved.
    """

    phi: Activation
    feedback: float
    forcing: Array
    mixing: Any = None
    loop_steps: int | None = None
    _dual: Dual | None = field(default=None, init=False, repr=False)
    _range: tuple[float, float] = field(default=(np.inf, 0.0), init=False, repr=False)

    def __post_init__(self) -> None:
        silent = np.flatnonzero(self.total(self.forcing) < SMALLEST_FORCING)
        if len(silent) and self.phi(np.zeros(1))[0]:
            # The activation starts the state by itself.
            self.forcing = self.forcing.copy()
            self.forcing[silent] += SMALLEST_FORCING
        elif len(silent):
            raise InputError(
                f"{len(silent)} of {len(self.forcing)} samples have norm zero, the first at index {silent[0]}: their "
                "state is zero, where relative residuals are not defined. Remove them, or give the model a bias "
                "(bias2 > 0)."
            )

    def mix(self, field: Array) -> Array:
        """𝒜 of a field."""
        return field if self.mixing is None else self.mixing.diagonal(np.ascontiguousarray(field.T)).T

    def mix_back(self, field: Array) -> Array:
        """The adjoint of 𝒜, which for filters is 𝒜."""
        return self.mix(field)

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

    def expectations(self, left: Array, right: Array, covariance: Array) -> Array:
        """F of fields whose variables have variances `left` and `right`, (samples, positions)."""
        tiles = self._tiles(left.reshape(-1, 1), right.reshape(-1, 1), covariance.reshape(-1, 1, 1))
        return np.asarray(tiles[0].reshape(covariance.shape))

    def _tiles(self, left: Array, right: Array, covariance: Array) -> Array:
        """F and F' of tiles, from one `Dual` over the range of all variances so far."""
        seen = np.concatenate([left.ravel(), right.ravel()])
        low, high = seen.min(where=seen > 0.0, initial=np.inf), seen.max(initial=0.0)
        if self._dual is None or low < self._range[0] or high > self._range[1]:
            self._range = min(low, self._range[0]) / MARGIN, max(high, self._range[1]) * MARGIN
            self._dual = Dual(self.phi, np.array(self._range))
        found, sides = np.empty((2, *covariance.shape)), (self._dual.rows(left), self._dual.columns(right))
        evaluate(self._dual, *sides, np.ascontiguousarray(covariance), found[0], found[1], (_NONE, _NONE))
        return found

    def own_expectation(self, field: Array) -> Array:
        """F of a step with itself, from moments of one variable."""
        return self._own(0, field)

    @cached_property
    def slopes(self) -> Array:
        """F' at the equilibrium."""
        return self._own(1, self.equilibrium)

    def _own(self, order: int, field: Array) -> Array:
        """F or F' of a step with itself."""
        return moment_at((second_moment, derivative_second_moment)[order], self.phi, field)

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
        for _ in range(MAX_STEPS):
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
        return np.sqrt(self.feedback * self._mode[0])

    @cached_property
    def _mode(self) -> tuple[Array, Array]:
        """The spectral radius of Δ ↦ 𝒜(F'(Λ) ∘ Δ) and its field."""
        return self._leading(lambda field: self.mix(self.slopes * field), 1.0)

    @cached_property
    def norm_rate(self) -> Array:
        """The rate of norms, at which covariances return to the equilibrium."""
        limit = self.equilibrium
        if self.mixing is None:
            return np.abs(contraction_rates(self.phi, self.feedback, self.forcing).norm[:, 0])
        step = self._leading(lambda small: self.step(self.own_expectation(limit + small)) - limit, NORM_STEP)
        return step[0]

    def _leading(self, linear: Callable[[Array], Array], size: float) -> tuple[Array, Array]:
        """The spectral radius of a linear map of fields and its field, by power iteration at this relative size."""
        field, radius = np.array(self.equilibrium), np.zeros(len(self.forcing))
        axes = tuple(range(1, field.ndim))
        scale = size * np.sqrt((field**2).sum(axis=axes, keepdims=True))
        for _ in range(MAX_STEPS):
            field = linear(field * scale / np.sqrt((field**2).sum(axis=axes, keepdims=True))) / scale
            radius, before = np.sqrt((field**2).sum(axis=axes)), radius
            if np.all(np.abs(radius - before) <= RADIUS_TOLERANCE * radius) or not radius.all():
                break
        return radius, field

    @cached_property
    def concentration(self) -> Array:
        """κ of each sample: m units fluctuate like a Gaussian matrix of size m/κ, docs/theory.md (13.5)."""
        # 𝒜 of filters is its own adjoint.
        weight, fourth = self._mode[1] ** 2, moment_at(_slope_fourth_moment, self.phi, self.equilibrium)
        return np.asarray((weight**2 * fourth).sum(axis=1) / (weight * self.slopes).sum(axis=1) ** 2)

    @cached_property
    def adjoint_terms(self) -> Array:
        """Squared norms of the terms (Jᵀ)^j w of the adjoint for random cotangents w, (samples, terms)."""
        # Cotangents are independent at all positions: the identity.
        rows = self.forcing.ndim == 2
        terms, term = [], np.ones_like(self.forcing) if rows else np.eye(len(self.mixing))[None]
        for _ in range(1 if self.mixing is None else ADJOINT_TERMS):
            terms.append(self.total(term))
            term = self.feedback * self.mix_back(self.slopes * term)
        return np.stack(terms, axis=1)


class GraphFields(Fields):
    """Fields of a graph, (1, nodes, nodes): all nodes settle together and are one sample."""

    def mix(self, field: Array) -> Array:
        """S M Sᵀ."""
        return np.asarray(self.mixing @ field @ self.mixing.T)

    def mix_back(self, field: Array) -> Array:
        """Sᵀ M S."""
        return np.asarray(self.mixing.T @ field @ self.mixing)

    @cached_property
    def concentration(self) -> Array:
        """E tr[(DΔDΓ)²]/(E tr DΔDΓ)² with D = diag φ'(h), h ~ N(0, Λ), by random draws of h."""
        adjoint = self._leading(lambda field: self.mix_back(self.slopes * field), 1.0)[1]
        values, vectors = np.linalg.eigh(self.equilibrium[0])
        draws = max(32, min(GRAPH_POINTS, GRAPH_NUMBERS // self.mixing.size))
        normal = np.random.default_rng(0).standard_normal((draws, len(values)))
        slopes = self.phi.derivative(normal * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
        product = self.outer(slopes, slopes) * self._mode[1] @ adjoint
        squares = (product * product.swapaxes(1, 2)).sum(axis=(1, 2))
        return np.array([squares.mean() / np.trace(product, axis1=1, axis2=2).mean() ** 2])

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

    def _own(self, order: int, field: Array) -> Array:
        """F or F' of all pairs of nodes at one step."""
        q = self.variances(field)
        values = np.asarray(self._tiles(q, q, field)[order])
        np.fill_diagonal(values[0], super()._own(order, q))
        return values


def _slope_fourth_moment(phi: Activation, q: Array) -> Array:
    """Compute the fourth moment of the slope, E[φ'(√q ξ)⁴]."""
    return np.asarray((phi.derivative(np.sqrt(q)[:, None] * POINTS) ** 4).mean(axis=1))


@singledispatch
def fields_of(model: Any, X: Any) -> Fields:
    """The fields of a model on samples X. A new class of models registers its own function here."""
    raise InputError(
        "forecast takes a DEQ, ConvDEQ or GraphDEQ, a loop of one (model.unrolled(steps)), a network of one, or a "
        f"torch cell with z0=…; got {type(model).__name__}."
    )


@fields_of.register
def _(model: DEQ, X: Any) -> Fields:
    squares = model.squared_norms(model.check_samples(X))
    return Fields(model.activation, model.sigma_a2, model.sigma_b2 * squares[:, None] + model.bias2)


@fields_of.register
def _(model: ConvDEQ, X: Any) -> Fields:
    samples = model.check_samples(X)
    mixing = Convolution(tuple(samples.shape[2:]), model.filter_size, model.padding)
    squares = mixing.diagonal(np.ascontiguousarray(model.squared_norms(samples).T)).T
    return Fields(model.activation, model.sigma_a2, model.sigma_b2 * squares + model.bias2, mixing)


@fields_of.register
def _(model: GraphDEQ, X: Any) -> Fields:
    samples, S = model.check_samples(X), model.propagation
    if len(samples) != len(S):
        raise InputError(f"X has {len(samples)} rows and the graph {len(S)} nodes. Give a row for each node.")
    forcing = model.sigma_b2 * (S @ (samples @ samples.T) @ S.T) + model.bias2
    return GraphFields(model.activation, model.sigma_a2, forcing[None], S)


@fields_of.register
def _(model: UnrolledDEQ, X: Any) -> Fields:
    return replace(fields_of(model.deq, X), loop_steps=model.depth)


@fields_of.register
def _(model: FeedforwardModel, X: Any) -> Fields:
    phi, first, later = model.layers[0], model.weights[0], model.weights[1:]
    if not later or {*model.layers, *later, *model.inject} != {phi, later[0], first}:
        raise InputError(
            f"{type(model).__name__} is not a loop: its layers differ, or do not all read the input with the variance "
            "of the first. It always takes its layers one after the other, so that there is nothing to forecast."
        )
    variances: Any = phi, later[0], first, model.bias2
    if isinstance(model, ConvExplicit):
        loop: Any = ConvDEQ(*variances, filter_size=model.filter_size, padding=model.padding)
    else:
        loop = (
            GraphDEQ(model.propagation, *variances) if isinstance(model, GraphExplicit) else DEQ(*variances)
        )
    return replace(fields_of(loop, X), loop_steps=len(model.layers))


__all__ = ["Fields", "GraphFields", "fields_of"]
