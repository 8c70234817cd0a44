"""Residuals of plain iteration and of Anderson acceleration in a wide network, without a network.

Residuals are never differences of large numbers. A step multiplies the distance of two states by σ_a A, and where the
pre-activations h, h' are close, E[(φ(h) − φ(h'))²] is linearised instead of being computed from F at three pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from notsodeep.forecasts.covariance_fields import Fields
from notsodeep.validation import Array

# Squared distances of pre-activations, relative to their variances, below which φ is linearised: F has 14 digits.
LINEAR = 1e-8
# Relative step of numerical derivatives.
STEP = 1e-3
# The residual at which curves end, and the smallest that is stated: below it there is only rounding.
SMALLEST, FLOOR = 1e-12, 1e-13
# Memory of Anderson acceleration, and the ridge of its linear system, as the solver of `nets` has them by default.
MEMORY, RIDGE = 5, 2e-15


def residual_curve(fields: Fields, steps: int) -> Array:
    """‖z_{k+1} − z_k‖/‖z_{k+1}‖ of plain iteration from z_0 = 0, (samples, steps)."""
    return _pair_curve(fields, steps, None)


def error_curve(fields: Fields, steps: int) -> Array:
    """‖z_k − z*‖/‖z*‖ of plain iteration from z_0 = 0, (samples, steps)."""
    return _pair_curve(fields, steps, fields.equilibrium)


def _pair_curve(fields: Fields, steps: int, limit: Array | None) -> Array:
    """Relative distances of states from their successors, or from their limit; 1 at k = 0, where the state is zero."""
    first = cross = fields.forcing
    second = fields.step(fields.own_expectations(first)[0]) if limit is None else limit
    moved = fields.feedback * fields.mix(fields.own_expectations(first if limit is None else limit)[0])
    curve = [np.ones(len(first))]
    while len(curve) < steps and curve[-1].max() > SMALLEST:
        q, q_second = fields.variances(first), fields.variances(second)
        value, (value_second, slope) = fields.own_expectations(first)[0], fields.own_expectations(second)
        value_cross = fields.expectations(q, q_second, cross)[0]
        square = value - value_cross - fields.transposed(value_cross) + value_second
        size = fields.variances(moved) / np.maximum(q_second, 1e-300)
        change = 0.5 * (q / np.maximum(q_second, 1e-300) - 1.0)
        square = _increments(fields, square, size, moved, second, slope, (q_second, q_second), (change, change))
        curve.append(_root(fields.total(square) / fields.total(value_second)))
        first, cross = fields.step(value), fields.step(value_cross)
        second = fields.step(value_second) if limit is None else limit
        moved = fields.feedback * fields.mix(square)
    return np.stack(curve, axis=1)


def _root(square: Array) -> Array:
    return np.sqrt(np.maximum(square, FLOOR**2))


def _increments(
    fields: Fields,
    exact: Array,
    size: Array,
    moved: Array,
    covariance: Array,
    slope: Array,
    q: tuple[Array, Array],
    change: tuple[Array, Array],
) -> Array:
    """E[(φ(h + t) − φ(h))(φ(h' + t') − φ(h'))] for increments t, t' of pre-activations h, h'.

    A small increment is α h plus a part that is independent of h, which gives ⟨t, t'⟩ F' + α α' (M − cov(h, h') F')
    with M = E[hφ'(h) h'φ'(h')], a second derivative of F in the scales of h and h'.

    Args:
        fields: the model.
        exact: the expectation as a difference of values of F, for increments that are not small.
        size: of the increments, squared and relative to the variances, (samples, positions).
        moved: ⟨t, t'⟩.
        covariance: cov(h, h').
        slope: F' there.
        q: variances of h and h'.
        change: relative changes α and α' of the norms.
    """
    small = size.max(axis=1) < LINEAR
    if not small.any():
        return exact
    ends = []
    for one in (STEP, -STEP):
        for other in (STEP, -STEP):
            scaled = (1.0 + one) ** 2 * q[0], (1.0 + other) ** 2 * q[1]
            ends.append(fields.expectations(*scaled, (1.0 + one) * (1.0 + other) * covariance)[0])
    bend = (ends[0] - ends[1] - ends[2] + ends[3]) / (4.0 * STEP**2)
    linear = moved * slope + fields.outer(*change) * (bend - covariance * slope)
    return np.where(small.reshape(-1, *[1] * (exact.ndim - 1)), linear, exact)


class Anderson:
    """Anderson acceleration (type II), from inner products alone.

    Let f_k be the image of the state x_k, R_k = f_k − x_k, and g_k = f_k − f_{k−1}, g_0 = f_0. The next state is
    x_{k+1} = f_k − Σ γ_i g_i, where Σ γ_i (R_i − R_{i−1}) is closest to R_k. All of these are combinations of the
    increments g, so that their inner products and the covariances of pre-activations follow from those of the g.

    Args:
        fields: the model with its samples.
        steps: evaluations of the cell.
    """

    def __init__(self, fields: Fields, steps: int) -> None:
        self.fields, shape = fields, fields.forcing.shape
        # Inner products ⟨g_i, g_j⟩ as fields, and coefficients of x_k in the g, for each sample.
        self.gram = np.zeros((steps, steps, *shape))
        self.states = np.zeros((steps + 1, steps, shape[0]))
        self.variances: list[Array] = []
        self.sizes: list[Array] = []
        self.values: list[Array] = []

    def run(self) -> Array:
        """Relative residuals ‖f_k − x_k‖/‖f_k‖, (samples, steps)."""
        residuals: list[Array] = []
        for k in range(len(self.gram)):
            norm = self._evaluate(k)
            images = np.zeros_like(self.states[0])
            images[: k + 1] = 1.0
            square = self._inner(images - self.states[k], images - self.states[k])
            residuals.append(_root(square / norm))
            if residuals[-1].max() <= SMALLEST:
                break
            self.states[k + 1] = images
            # As the solver of `nets`, which starts at x_1: R_1 is its first residual.
            self._combine(k)
        return np.stack(residuals, axis=1)

    def _products(self, weights: Array, others: Array) -> Array:
        """Fields ⟨Σ weights_i g_i, Σ others_ji g_i⟩ for several j, stacked."""
        onto = np.einsum("is,ijs...->js...", weights, self.gram)
        return np.einsum("kjs,js...->ks...", others, onto)

    def _inner(self, left: Array, right: Array) -> Array:
        return self.fields.total(self._products(left, right[None])[0])

    def _evaluate(self, k: int) -> Array:
        """Add the inner products of g_k; returns ‖f_k‖²."""
        fields = self.fields
        covariance = [fields.step(field) for field in self._products(self.states[k], self.states[: k + 1])]
        q = fields.variances(covariance[k])
        self.variances.append(q)
        value, slope = (part[None] for part in fields.own_expectations(covariance[k]))
        if k:
            right = np.concatenate(self.variances[:k])
            pairs = fields.expectations(np.concatenate([q] * k), right, np.concatenate(covariance[:k]))
            value, slope = (
                np.concatenate([part.reshape(k, *fields.forcing.shape), own])
                for part, own in zip(pairs, (value, slope), strict=True)
            )
        steps = np.diff(self.states[: k + 1], axis=0, prepend=0.0)
        moved = [fields.feedback * fields.mix(field) for field in self._products(steps[k], steps)]
        self.sizes.append(np.maximum(fields.variances(moved[k]), 0.0) / np.maximum(q, 1e-300))
        products = [value[j] - (value[j - 1] if j else 0.0) - self._earlier(k, j, value) for j in range(k + 1)]
        # Earlier increments have no weight in residuals.
        recent = slice(max(1, k - 2 * MEMORY - 2), k + 1)
        steps_back = range(k + 1)[recent]
        if len(steps_back):
            count = len(steps_back)
            size = np.concatenate([np.sqrt(self.sizes[k] * self.sizes[j]) for j in steps_back])
            scales = np.concatenate([q] * count), np.concatenate(self.variances[recent])
            change = (
                np.concatenate([self._change(k)] * count),
                np.concatenate([self._change(j) for j in steps_back]),
            )
            fine = [np.concatenate(list(fields_of_pairs[recent])) for fields_of_pairs in (products, moved, covariance, slope)]
            products[recent] = np.split(_increments(fields, fine[0], size, *fine[1:], scales, change), count)
        for j, product in enumerate(products):
            self.gram[k, j], self.gram[j, k] = product, fields.transposed(product)
        self.values = list(value)
        return fields.total(value[k])

    def _change(self, k: int) -> Array:
        """The relative change of the norm of pre-activations at step k."""
        return np.asarray(0.5 - 0.5 * self.variances[k - 1] / np.maximum(self.variances[k], 1e-300))

    def _earlier(self, k: int, j: int, value: Array) -> Any:
        """⟨f_{k−1}, g_j⟩ before step k, with f_{−1} = 0."""
        if not k:
            return 0.0
        if j == k:
            return self.fields.transposed(value[k - 1]) - self.values[k - 1]
        return self.values[j] - (self.values[j - 1] if j else 0.0)

    def _combine(self, k: int) -> None:
        """Subtract Σ γ_i g_i from the next state."""
        rows = range(max(2, k - MEMORY + 1), k + 1)
        if not len(rows):
            return
        residuals = np.tril(np.ones(self.gram.shape[:2]))[:, :, None] - self.states[:-1]
        changes = np.stack([residuals[i] - residuals[i - 1] for i in rows])
        matrix = np.stack([self._totals(change, changes) for change in changes], axis=1).transpose(2, 0, 1)
        right = self._totals(residuals[k], changes).T
        size = np.maximum(np.diagonal(matrix, axis1=1, axis2=2).max(axis=1), 1e-300)
        system = matrix / size[:, None, None] + RIDGE * np.eye(len(rows))
        gamma = np.linalg.solve(system, (right / size[:, None])[:, :, None])[:, :, 0]
        for place, i in enumerate(rows):
            self.states[k + 1, i] -= gamma[:, place]

    def _totals(self, weights: Array, others: Array) -> Array:
        return np.stack([self.fields.total(field) for field in self._products(weights, others)])


__all__ = ["MEMORY", "Anderson", "error_curve", "residual_curve"]
