"""Residuals of plain iteration and of Anderson acceleration in a wide network, docs/theory.md (13.1) and (13.2).

Residuals are never differences of large numbers. A step multiplies the distance of two states by σ_a A, and where the
pre-activations h, h' are close, E[(φ(h) − φ(h'))²] is linearised instead of being computed from F at three pairs.
"""

from __future__ import annotations

import numpy as np

from notsodeep.forecasts.covariance_fields import Fields
from notsodeep.validation import Array

# Squared distances of pre-activations, relative to their variances, below which φ is linearised: F has 14 digits.
LINEAR = 1e-8
# The residual at which curves end, and the smallest that is stated: below it there is only rounding.
SMALLEST, FLOOR = 1e-12, 1e-13
# Memory of Anderson acceleration, and the ridge of its linear system, as the solver of `nets` has them by default.
MEMORY, RIDGE = 5, 2e-15


def distance_curve(fields: Fields, steps: int, to_limit: bool = False) -> Array:
    """Relative residuals of plain iteration from z_0 = 0, or errors (`to_limit`), (samples, steps).

    ‖z_{k+1} − z_k‖/‖z_{k+1}‖, or ‖z_k − z*‖/‖z*‖; both are 1 at k = 0, where the state is zero.
    """
    limit = fields.equilibrium if to_limit else None
    first = cross = fields.forcing
    value = fields.own_expectation(first)
    second = fields.step(value) if limit is None else limit
    moved = fields.feedback * fields.mix(value if limit is None else fields.own_expectation(limit))
    curve = [np.ones(len(first))]
    while len(curve) < steps and curve[-1].max() > SMALLEST:
        q, q_second = fields.variances(first), fields.variances(second)
        value_second = fields.own_expectation(second)
        small = (fields.variances(moved) / np.maximum(q_second, 1e-300)).max(axis=1) < LINEAR
        square = np.zeros_like(first)
        if not small.all():
            product = fields.expectations(q, q_second, cross)
            cross = fields.step(product)
            square = value - product - fields.transposed(product) + value_second
        if small.any():
            change = 0.5 * (q / np.maximum(q_second, 1e-300) - 1.0)
            square = _chosen(small, fields.small_products(moved, change, change), square)
        curve.append(_root(fields.total(square) / fields.total(value_second)))
        moved = fields.feedback * fields.mix(square)
        first = fields.step(value)
        if limit is None:
            second, value = fields.step(value_second), value_second
        else:
            value = fields.own_expectation(first)
    return np.stack(curve, axis=1)


def _root(square: Array) -> Array:
    return np.sqrt(np.maximum(square, FLOOR**2))


def _chosen(small: Array, linear: Array, exact: Array) -> Array:
    """Fields of samples with small increments from `linear`, others from `exact`."""
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
        # Of each step: variances of h, squared relative size of the increment of h, and ⟨f_k, f_j⟩ for all j ≤ k.
        self.variances: list[Array] = []
        self.sizes: list[Array] = []
        self.values = np.zeros((steps + 1, steps + 1, *shape))

    def run(self) -> Array:
        """Relative residuals ‖f_k − x_k‖/‖f_k‖, (samples, steps)."""
        residuals: list[Array] = []
        for k in range(len(self.gram)):
            self._evaluate(k)
            images = np.zeros_like(self.states[0])
            images[: k + 1] = 1.0
            square = self._totals(images - self.states[k], (images - self.states[k])[None])[0]
            residuals.append(_root(square / self.fields.total(self.values[k, k])))
            if residuals[-1].max() <= SMALLEST:
                break
            self.states[k + 1] = images
            self._combine(k)
        return np.stack(residuals, axis=1)

    def _products(self, weights: Array, others: Array) -> Array:
        """Fields ⟨Σ weights_i g_i, Σ others_ji g_i⟩ for several j, stacked."""
        onto = np.einsum("is,ijs...->js...", weights, self.gram)
        return np.asarray(np.einsum("kjs,js...->ks...", others, onto))

    def _totals(self, weights: Array, others: Array) -> Array:
        """The same as numbers, summed over positions."""
        return np.stack([self.fields.total(field) for field in self._products(weights, others)])

    def _evaluate(self, k: int) -> None:
        """Evaluate the cell at x_k: add the inner products of f_k and of g_k."""
        fields, values = self.fields, self.values
        covariance = [fields.step(field) for field in self._products(self.states[k], self.states[: k + 1])]
        q = fields.variances(covariance[k])
        self.variances.append(q)
        values[k, k] = fields.own_expectation(covariance[k])
        if k:
            left, right = np.concatenate([q] * k), np.concatenate(self.variances[:k])
            found = fields.expectations(left, right, np.concatenate(covariance[:k]))
            for j, field in enumerate(np.split(found, k)):
                values[k, j], values[j, k] = field, fields.transposed(field)
        steps = np.diff(self.states[: k + 1], axis=0, prepend=0.0)
        moved = [fields.feedback * fields.mix(field) for field in self._products(steps[k], steps)]
        self.sizes.append(np.maximum(fields.variances(moved[k]), 0.0) / np.maximum(q, 1e-300))
        for j in range(k + 1):
            # f_{−1} = 0: the row and column after the last are still zero.
            exact = values[k, j] - values[k - 1, j] - values[k, j - 1] + values[k - 1, j - 1]
            small = np.sqrt(self.sizes[k] * self.sizes[j]).max(axis=1) < LINEAR
            if j and small.any():
                linear = fields.small_products(moved[j], self._change(k), self._change(j))
                exact = _chosen(small, linear, exact)
            self.gram[k, j], self.gram[j, k] = exact, fields.transposed(exact)

    def _change(self, k: int) -> Array:
        """The relative change of the norm of pre-activations at step k."""
        return np.asarray(0.5 - 0.5 * self.variances[k - 1] / np.maximum(self.variances[k], 1e-300))

    def _combine(self, k: int) -> None:
        """Subtract Σ γ_i g_i from the next state; R_1 is the first residual that the solver of `nets` remembers."""
        rows = range(max(2, k - MEMORY + 1), k + 1)
        if not len(rows):
            return
        residuals = np.tril(np.ones(self.gram.shape[:2]))[:, :, None] - self.states[:-1]
        changes = np.stack([residuals[i] - residuals[i - 1] for i in rows])
        matrix = np.stack([self._totals(change, changes) for change in changes]).transpose(2, 0, 1)
        right = self._totals(residuals[k], changes).T
        size = np.maximum(np.diagonal(matrix, axis1=1, axis2=2).max(axis=1), 1e-300)
        system = matrix / size[:, None, None] + RIDGE * np.eye(len(rows))
        gamma = np.linalg.solve(system, (right / size[:, None])[:, :, None])[:, :, 0]
        for place, i in enumerate(rows):
            self.states[k + 1, i] -= gamma[:, place]


__all__ = ["Anderson", "distance_curve"]
