"""Residuals of plain iteration and of Anderson acceleration in a wide network, without a network.

The state x_k, its image f_k = φ(h_k)/√m and the residual R_k = f_k − x_k of a solver are combinations of earlier
images; the weights of a combination depend on inner products of residuals alone. Let g_i = f_i − f_{i−1}. Then

    x_{k+1} = f_k − Σ γ_i g_i,    R_{k+1} = g_{k+1} + Σ γ_i g_i,    x_{k+1} − x_k = R_k − Σ γ_i g_i

with γ = 0 for plain iteration, and the inner products ⟨g_i, g_j⟩ follow from those of earlier steps through
E[(φ(h_i) − φ(h_{i−1}))(φ(h_j) − φ(h_{j−1}))]. Residuals are never differences of large numbers: where increments are
small, this expectation is linearised instead of being computed from F at four pairs.
"""

from __future__ import annotations

import numpy as np

from notsodeep.forecasts.covariance_fields import STEP, DiagonalFields
from notsodeep.validation import Array

# Increments whose sizes, relative to the variances, have a product below this are linearised: F has 14 digits.
LINEAR = 1e-8
# The smallest residual that is followed.
SMALLEST = 1e-12
# Relative ridge of Anderson's linear system, as the solver of `nets` has it in double precision.
RIDGE = 2e-15

Pair = tuple[int, int]


class Recursion:
    """The covariances of all recent steps of a solver.

    Args:
        fields: the model with its samples.
        memory: number of earlier steps that Anderson acceleration combines; 0 for plain iteration.
    """

    def __init__(self, fields: DiagonalFields, memory: int) -> None:
        self.fields, self.memory, self.count = fields, memory, 0
        # Fields of pairs of steps: covariances of h, F and F' of them, and of pairs of increments of h and of f.
        self.covariance: dict[Pair, Array] = {}
        self.value: dict[Pair, Array] = {}
        self.slope: dict[Pair, Array] = {}
        self.moved: dict[Pair, Array] = {}
        self.gram: dict[Pair, Array] = {}
        # Coefficients of x_k in the images f_i, and of R_k and x_k − x_{k−1} in the increments g_i, for each sample.
        self.states: list[dict[int, Array]] = [{}]
        self.residual: list[dict[int, Array]] = []
        self.change: list[dict[int, Array]] = []
        self.gamma: dict[int, Array] = {}

    def run(self, steps: int) -> Array:
        """Relative residuals ‖f_k − x_k‖/‖f_k‖ of steps k = 0, 1, …, (samples, steps); all 1 at k = 0, where x = 0."""
        samples = len(self.fields.forcing)
        self._add_first()
        residuals = [np.ones(samples)]
        while len(residuals) < steps and residuals[-1].max() > SMALLEST:
            self._advance()
            k = self.count - 1
            square = self._inner(self.residual[k], self.residual[k])
            norm = self.fields.total(self.value[k, k])
            residuals.append(np.sqrt(np.maximum(square, 0.0) / norm))
        return np.stack(residuals, axis=1)

    def _add_first(self) -> None:
        fields = self.fields
        self.covariance[0, 0] = fields.forcing
        self.value[0, 0], self.slope[0, 0] = fields.own_expectations(fields.forcing)
        self.residual.append({})
        self.change.append({})
        self.count = 1

    def _advance(self) -> None:
        """One evaluation of the cell, at x_k."""
        k, fields = self.count, self.fields
        recent = range(0 if self.memory else k - 1, k)
        images = self._image_weights()
        # ⟨x_k, f_l⟩, from which ⟨x_k, x_j⟩; x_0 = 0.
        onto = {step: self._product(images, step) for step in range(max(0, recent.start - 1), k)}
        self.states.append(images)
        for j in (*recent, k):
            product = np.zeros_like(fields.forcing)
            for step, weight in self.states[j].items():
                product += _by_sample(weight, product) * onto[step]
            self._store(self.covariance, k, j, fields.step(product))
        q = {j: fields.variances(self.covariance[j, j]) for j in (*recent, k)}
        left, right = np.concatenate([q[k] for _ in recent]), np.concatenate([q[j] for j in recent])
        pairs = fields.expectations(left, right, np.concatenate([self.covariance[k, j] for j in recent]))
        for table, values in ((self.value, pairs[0]), (self.slope, pairs[1])):
            for j, field in zip(recent, np.split(values, len(recent)), strict=True):
                self._store(table, k, j, field)
        self.value[k, k], self.slope[k, k] = fields.own_expectations(self.covariance[k, k])
        self._add_increment(k, q)
        self.residual.append({k: np.ones(len(q[k])), **self.gamma})
        self.count = k + 1
        self._mix()
        self._forget(recent.start)

    def _product(self, weights: dict[int, Array], step: int) -> Array:
        """The field of inner products of a combination of images with the image of a step."""
        result = np.zeros_like(self.fields.forcing)
        for i, weight in weights.items():
            result += _by_sample(weight, result) * self.value[i, step]
        return result

    def _image_weights(self) -> dict[int, Array]:
        """Coefficients of the new state x_k in the images f_i."""
        k = self.count
        weights = {k - 1: np.ones(len(self.fields.forcing))}
        for i, gamma in self.gamma.items():
            weights[i] = weights.get(i, 0.0) - gamma
            weights[i - 1] = weights.get(i - 1, 0.0) + gamma
        return weights

    def _add_increment(self, k: int, q: dict[int, Array]) -> None:
        """Products of the increments of h and of f at step k with those of recent steps."""
        self.change.append(self._change_weights())
        first = 1 if self.memory else k
        for j in range(first, k + 1):
            if k == 1:
                # h_1 − h_0 = σ_a A f_0.
                moved = self.fields.feedback * self.fields.mix(self.value[0, 0])
            elif j == 1:
                moved = self._moved_with_first(k)
            else:
                moved = self.fields.feedback * self.fields.mix(self._field(self.change[k], self.change[j]))
            self._store(self.moved, k, j, moved)
        for j in range(first, k + 1):
            self._store(self.gram, k, j, self._increment_product(k, j, q))

    def _moved_with_first(self, k: int) -> Array:
        """⟨h_k − h_{k−1}, h_1 − h_0⟩, h_1 − h_0 = σ_a A f_0."""
        field = np.zeros_like(self.fields.forcing)
        for i, weight in self.change[k].items():
            field += _by_sample(weight, field) * (self.value[i, 0] - self.value[i - 1, 0])
        return self.fields.feedback * self.fields.mix(field)

    def _change_weights(self) -> dict[int, Array]:
        """x_k − x_{k−1} = R_{k−1} − Σ γ_i g_i in the increments g; x_1 − x_0 = f_0 is no combination of them."""
        weights = dict(self.residual[self.count - 1])
        for i, gamma in self.gamma.items():
            weights[i] = weights.get(i, 0.0) - gamma
        return weights

    def _increment_product(self, i: int, j: int, q: dict[int, Array]) -> Array:
        """E[(φ(h_i) − φ(h_{i−1}))(φ(h_j) − φ(h_{j−1}))] as a field."""
        fields, value = self.fields, self.value
        exact = value[i, j] - value[i - 1, j] - value[i, j - 1] + value[i - 1, j - 1]
        sizes = [fields.variances(self.moved[step, step]) / np.maximum(q[step], 1e-300) for step in (i, j)]
        small = np.sqrt(np.maximum(sizes[0] * sizes[1], 0.0)).max(axis=1) < LINEAR
        if not small.any():
            return exact
        linear = linear_increments(
            fields, self.moved[i, j], self.slope[i, j], q[i], 0.5 * (q[i] - q[i - 1]), 0.5 * (q[j] - q[j - 1])
        )
        return np.where(_by_sample(small, exact), linear, exact)

    # --- inner products, and what the solver makes of them --------------------------------------------------------

    def _field(self, left: dict[int, Array], right: dict[int, Array]) -> Array:
        """The field of inner products of two combinations of increments."""
        result = np.zeros_like(self.fields.forcing)
        for i, a in left.items():
            for j, b in right.items():
                result += _by_sample(a * b, result) * self.gram[i, j]
        return result

    def _inner(self, left: dict[int, Array], right: dict[int, Array]) -> Array:
        """The inner products of two combinations of increments, one for each sample."""
        return self.fields.total(self._field(left, right))

    def _mix(self) -> None:
        """Anderson's coefficients γ for the next state: least squares on the last changes of the residual."""
        k = self.count - 1
        steps = range(max(2, k - self.memory + 1), k + 1) if self.memory else range(0)
        if not len(steps):
            self.gamma = {}
            return
        changes = []
        for i in steps:
            weights = dict(self.residual[i])
            for j, weight in self.residual[i - 1].items():
                weights[j] = weights.get(j, 0.0) - weight
            changes.append(weights)
        matrix = np.stack([np.stack([self._inner(a, b) for b in changes], axis=-1) for a in changes], axis=-2)
        right = np.stack([self._inner(a, self.residual[k]) for a in changes], axis=-1)
        size = np.maximum(np.diagonal(matrix, axis1=1, axis2=2).max(axis=1), 1e-300)
        system = matrix / size[:, None, None] + RIDGE * np.eye(len(changes))
        found = np.linalg.solve(system, (right / size[:, None])[..., None])[..., 0]
        self.gamma = {i: found[:, place] for place, i in enumerate(steps)}

    def _store(self, table: dict[Pair, Array], i: int, j: int, field: Array) -> None:
        table[i, j] = field
        if i != j:
            table[j, i] = self.fields.transposed(field)

    def _forget(self, first: int) -> None:
        for table in (self.covariance, self.value, self.slope, self.moved, self.gram):
            for pair in [pair for pair in table if min(pair) < first]:
                del table[pair]


def _by_sample(weights: Array, field: Array) -> Array:
    """One number for each sample, in a form that multiplies a field."""
    return np.asarray(weights).reshape(-1, *[1] * (field.ndim - 1))


def linear_increments(
    fields: DiagonalFields, moved: Array, slope: Array, q: Array, own: Array, other: Array
) -> Array:
    """E[tφ'(h) t'φ'(h)] of small increments t, t' of h: ⟨t, t'⟩ E[φ'²] + 2 cov(t, h) cov(t', h) dE[φ'²]/dq.

    Args:
        fields: the model.
        moved: ⟨t, t'⟩.
        slope: E[φ'φ'] of the field.
        q: variances of h.
        own: cov(t, h).
        other: cov(t', h).
    """
    ends = [fields.slope_energy(q * (1.0 + side * STEP)) for side in (1.0, -1.0)]
    bend = (ends[0] - ends[1]) / np.maximum(2.0 * STEP * q, 1e-300)
    return np.asarray(moved * slope + fields.on_diagonal(2.0 * own * other * bend))


def error_curve(fields: DiagonalFields, steps: int) -> Array:
    """‖z_k − z*‖/‖z*‖ of plain iteration from z_0 = 0, (samples, steps); all 1 at k = 0."""
    limit = fields.equilibrium
    q_limit = fields.variances(limit)
    value_limit, slope_limit = fields.own_expectations(limit)
    total = fields.total(value_limit)
    own, cross = fields.forcing, fields.forcing
    distance = fields.feedback * fields.mix(value_limit)
    errors = [np.ones(len(total))]
    while len(errors) < steps and errors[-1].max() > SMALLEST:
        q = fields.variances(own)
        value = fields.own_expectations(own)[0]
        value_cross = fields.expectations(q, q_limit, cross)[0]
        exact = value - value_cross - fields.transposed(value_cross) + value_limit
        small = (fields.variances(distance) / np.maximum(q_limit, 1e-300)).max(axis=1) < LINEAR
        if small.any():
            along = 0.5 * (q - q_limit)
            linear = linear_increments(fields, distance, slope_limit, q_limit, along, along)
            exact = np.where(_by_sample(small, exact), linear, exact)
        errors.append(np.sqrt(np.maximum(fields.total(exact), 0.0) / total))
        own, cross, distance = fields.step(value), fields.step(value_cross), fields.feedback * fields.mix(exact)
    return np.stack(errors, axis=1)


__all__ = ["Recursion", "error_curve", "linear_increments"]
