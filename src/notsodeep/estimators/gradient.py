"""How the exact kernels of a DEQ change with its parameters: implicit derivatives of the fixed point.

Write a = σ_a² and let a dot be the derivative along a change of a and of the forcing σ_b² c. From docs/theory.md (3.4),

    q̇ = (ȧ S + ḟ)/(1 - a S'),

and from (3.5), with F_1 = ∂F/∂q_i at fixed covariance and D = F',

    λ̇ = (ȧ G + a H + ḟ)/(1 - a D),   H = F_1 q̇_i + F_2 q̇_j,   Ġ = H + D λ̇ .

The tangent kernel (3.8) needs Ḋ as well. ∂²F/∂c² = F'' is singular where two rows are parallel and the activation has a
kink, so Ḋ is split into what moves at fixed correlation, which is regular, and the motion of the correlation:

    Ḋ = R_1 q̇_i + R_2 q̇_j + F'' (λ̇ - λ (q̇_i/2q_i + q̇_j/2q_j)),   R_1 = ∂D/∂q_i at fixed λ/√(q_i q_j).

By the heat equation (section 2) F_1 = ½ E[φ''(u)φ(v)]. For a piecewise-linear φ all of this is closed, because φ'' is a
sum of point masses; for the others it comes from Mehler's series (3.13). That converges fast for smooth activations
whatever the correlation. Where φ' or φ'' jumps and φ is not piecewise linear (elu, softsign, a callable with kinks),
pairs that are almost parallel and not equal lose digits, down to three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.moments import mehler, second_moment, second_moment_slope
from notsodeep.gaussian.shapes import bell
from notsodeep.kernel_names import Kernel
from notsodeep.models import DEQ, Samples
from notsodeep.validation import Array

# Correlations closer to ±1 are those of parallel rows, up to rounding; there the correlation does not move.
_PARALLEL = 1e-10
_NARROWEST = 1e-9
# A variance below this fraction of the largest is one of a zero row: nothing may be divided by it.
_SMALLEST = 1e-10
# Lengths of Mehler's series that are tried in turn, and what may be left out at the end.
_TERMS = (32, 64, 128, 256, 512, 1024)
_TAIL = 1e-14


@dataclass(frozen=True)
class Change:
    """A direction: the change of σ_a², and that of the factor σ_b² of the inner products."""

    recurrent: float
    injected: float


def kernel_and_gradients(
    model: DEQ, X: Array, kernel: str, changes: Sequence[Change]
) -> tuple[Array, list[Array]]:
    """The kernel ("ck" or "ntk") of the rows, and its derivative along each change."""
    point = _FixedPoint.of(model, X)
    return point.kernel(kernel), [point.derivative(kernel, change) for change in changes]


@dataclass(frozen=True, eq=False)
class _FixedPoint:
    """The solution of all pairs: G, Λ and D of docs/theory.md (3.3) and (3.7)."""

    model: DEQ
    gram: Array
    features: Array
    covariance: Array
    slope: Array

    @classmethod
    def of(cls, model: DEQ, X: Array) -> _FixedPoint:
        everything = slice(0, len(X))
        program = model.prepare(Samples(X), None, (Kernel.NTK,))
        gram = program.start()
        block = program.tile(gram.copy(), everything, everything, diagonal=True)
        return cls(model, gram, block.features, block.preactivations, np.asarray(block.slope))

    @property
    def variances(self) -> Array:
        """q_i, none so small that nothing may be divided by it."""
        q = self.covariance.diagonal()
        return np.maximum(q, max(_SMALLEST * float(q.max()), np.finfo(np.float64).tiny))

    @property
    def remaining(self) -> Array:
        """1 - σ_a² D."""
        return 1.0 - self.model.sigma_a2 * self.slope

    @cached_property
    def pairs(self) -> _Hinges | _Series:
        """The derivatives of F and D for all pairs: in closed form where φ is piecewise linear, else by series."""
        phi = self.model.activation
        kind = _Series if phi.shape.pieces is None else _Hinges
        return kind(phi, self.variances, self.covariance)

    def kernel(self, name: str) -> Array:
        """G, or Θ = G + D Λ/(1 - σ_a² D)."""
        if name == "ck":
            return self.features
        return self.features + self.slope * self.covariance / self.remaining

    @cached_property
    def repeated(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of equal rows off the diagonal."""
        q = self.variances
        same = self.covariance > (1.0 - _PARALLEL) * np.maximum(q[:, None], q)
        np.fill_diagonal(same, False)
        first, second = np.nonzero(same)
        return first, second

    def derivative(self, name: str, change: Change) -> Array:
        """The derivative of the kernel: see the top of the module."""
        found = self._off_and_on_diagonal(name, change)
        # Two equal rows are a diagonal entry, which needs no series at ρ = 1.
        first, second = self.repeated
        found[first, second] = 0.5 * (found[first, first] + found[second, second])
        return found

    def _off_and_on_diagonal(self, name: str, change: Change) -> Array:
        sigma_a2, slope, remaining = self.model.sigma_a2, self.slope, self.remaining
        moved, energy_slope = self._variance_change(change)
        relative = moved / (2.0 * self.variances)
        at_fixed_covariance = _both_sides(relative, self.pairs.by_scale)
        covariance = change.recurrent * self.features + change.injected * self.gram
        covariance = (covariance + sigma_a2 * at_fixed_covariance) / remaining
        np.fill_diagonal(covariance, moved)
        features = at_fixed_covariance + slope * covariance
        np.fill_diagonal(features, energy_slope * moved)
        if name == "ck":
            return features
        turned = covariance - self.covariance * (relative[:, None] + relative)
        slopes = _both_sides(relative, self.pairs.slope_by_scale) + self.pairs.curvature * turned
        tangent = self.covariance * slope / remaining
        tangent *= change.recurrent * slope + sigma_a2 * slopes
        return features + (slopes * self.covariance + slope * covariance + tangent) / remaining

    def _variance_change(self, change: Change) -> tuple[Array, Array]:
        """The derivative of q_i, from docs/theory.md (3.4), and S'(q_i)."""
        phi, q = self.model.activation, self.variances
        energy_slope = np.asarray(second_moment_slope(phi, q))
        moved = change.recurrent * np.asarray(second_moment(phi, q)) + change.injected * self.gram.diagonal()
        return moved / (1.0 - self.model.sigma_a2 * energy_slope), energy_slope


def _both_sides(relative: Array, by_scale: Array) -> Array:
    """Σ over the two samples of a pair of q̇/2q times the derivative in the scale of that sample."""
    one = relative[:, None] * by_scale
    return one + one.T


class _Hinges:
    """Piecewise-linear φ = b + m x + Σ_k w_k (x - κ_k)_+: everything in closed form.

    φ'' has the mass w_k at κ_k, and given u = κ_k the other variable is v ~ N(λ κ_k/q_i, q_j - λ²/q_i), so that

        2 q_i F_1 = s_i Σ_k w_k g(κ_k/s_i) E[φ(v) | u = κ_k]
        2 q_i R_1 = Σ_k w_k (κ_k/s_i) g(κ_k/s_i) E[φ'(v) | u = κ_k]
        F'' = Σ_kl w_k w_l p(κ_k, κ_l) with p the joint density of (u, v).
    """

    def __init__(self, phi: Activation, variances: Array, covariance: Array) -> None:
        pieces = phi.shape.pieces
        if pieces is None or phi.gain == 0.0:
            self.kinks, self.jumps, self.first_slope, self.start = np.empty(0), np.empty(0), 0.0, 0.0
        else:
            self.kinks = np.array(pieces.knots) / phi.gain
            self.jumps = phi.amplitude * abs(phi.gain) * pieces.weights
            # Left of all kinks φ is a line; with a negative gain that is the shape's last piece.
            left = float(min(self.kinks.min(initial=0.0), 0.0) - 1.0)
            self.first_slope = float(phi.derivative(left))
            self.start = float(phi(left)) - self.first_slope * left
        self.scales = np.sqrt(variances)
        self.correlation: Array = np.clip(covariance / (self.scales[:, None] * self.scales), -1.0, 1.0)

    @cached_property
    def spread(self) -> Array:
        """√(1 - ρ²), never so small that rounding in the mean of v, divided by it, would count."""
        return np.sqrt(np.maximum((1.0 - self.correlation) * (1.0 + self.correlation), _NARROWEST**2))

    def _given_kinks(self) -> Iterator[tuple[float, float, Array, Array]]:
        """Each kink of φ with its jump of the slope, and the mean and standard deviation of v given u = kink."""
        for kink, jump in zip(self.kinks, self.jumps, strict=True):
            mean = self.correlation * (kink / self.scales)[:, None] * self.scales
            yield kink, jump, mean, self.spread * self.scales

    @cached_property
    def by_scale(self) -> Array:
        """2 q_i ∂F/∂q_i at fixed covariance for all pairs (i, j), off the diagonal; the transpose is that in q_j."""
        total = np.zeros_like(self.correlation)
        for kink, jump, mean, deviation in self._given_kinks():
            expected = self.start + self.first_slope * mean
            for other, opening in zip(self.kinks, self.jumps, strict=True):
                place = (mean - other) / deviation
                expected += opening * ((mean - other) * special.ndtr(place) + deviation * bell(place))
            total += (self.scales * jump * bell(kink / self.scales))[:, None] * expected
        return total

    @cached_property
    def slope_by_scale(self) -> Array:
        """2 q_i ∂D/∂q_i at fixed correlation for all pairs (i, j); the transpose is that in q_j."""
        total = np.zeros_like(self.correlation)
        for kink, jump, mean, deviation in self._given_kinks():
            expected = np.full_like(mean, self.first_slope)
            for other, opening in zip(self.kinks, self.jumps, strict=True):
                expected += opening * special.ndtr((mean - other) / deviation)
            place = kink / self.scales
            total += (jump * place * bell(place))[:, None] * expected
        return total

    @cached_property
    def curvature(self) -> Array:
        """F'', the second derivative of F in the covariance, for all pairs; zero where the correlation is ±1."""
        total = np.zeros_like(self.correlation)
        for kink, jump, mean, deviation in self._given_kinks():
            density = jump * bell(kink / self.scales) / self.scales
            for other, opening in zip(self.kinks, self.jumps, strict=True):
                total += density[:, None] * opening * bell((mean - other) / deviation) / deviation
        total[np.abs(self.correlation) > 1.0 - _PARALLEL] = 0.0
        return total


class _Series:
    """Smooth φ: Mehler's series with the coefficients a_k(q) of docs/theory.md (2.6).

    2 q_i F_1 = Σ_k √((k+1)(k+2)) a_{k+2,i} a_{k,j} ρ^k
    2 q_i R_1 = Σ_k (k+1) √((k+2)(k+3)) a_{k+3,i} a_{k+1,j} ρ^k/(s_i s_j) + λ F''
    F'' = Σ_k (k+1)(k+2) a_{k+2,i} a_{k+2,j} ρ^k/(q_i q_j)
    """

    def __init__(self, phi: Activation, variances: Array, covariance: Array) -> None:
        self.phi, self.variances, self.covariance = phi, variances, covariance
        self.lengths = np.sqrt(variances[:, None] * variances)
        self.correlation = np.clip(covariance / self.lengths, -1.0, 1.0)
        # The diagonal, where ρ = 1, would ask for many more terms than the rest; it is summed by itself.
        np.fill_diagonal(self.correlation, 0.0)

    @cached_property
    def coefficients(self) -> Array:
        """a_k(q_i), shape (n, terms), with as many terms as the largest correlation asks for."""
        largest = float(np.abs(self.correlation).max())
        for terms in _TERMS:
            table = at_many(partial(mehler, self.phi, terms=terms), self.variances)
            sizes = np.abs(table).max(axis=0) ** 2
            orders = np.arange(terms)
            weighed = sizes * (orders + 1.0) ** 2 * largest**orders
            if weighed[-8:].max() <= _TAIL * weighed.max():
                break
        return table

    @cached_property
    def by_scale(self) -> Array:
        """2 q_i ∂F/∂q_i at fixed covariance for all pairs (i, j), off the diagonal; the transpose is that in q_j."""
        table = self.coefficients
        k = np.arange(table.shape[1] - 2)
        return _power_series(np.sqrt((k + 1.0) * (k + 2.0)) * table[:, 2:], table[:, :-2], self.correlation)

    @cached_property
    def slope_by_scale(self) -> Array:
        """2 q_i ∂D/∂q_i at fixed correlation for all pairs (i, j); the transpose is that in q_j."""
        table = self.coefficients
        k = np.arange(table.shape[1] - 3)
        left = (k + 1.0) * np.sqrt((k + 2.0) * (k + 3.0)) * table[:, 3:]
        total = _power_series(left, table[:, 1:-2], self.correlation) / self.lengths
        total += self.covariance * self.curvature
        np.fill_diagonal(total, self._energy_change())
        return total

    def _energy_change(self) -> Array:
        """q dE1/dq = ½ E[φ'(sξ)² (ξ² - 1)], by parts as in docs/theory.md (2.3): no series at ρ = 1."""
        phi = self.phi
        inner = phi.gain**2 * self.variances
        mean = phi.shape.expectation(inner, lambda xi, x: phi.shape(x, 1) ** 2 * (xi**2 - 1.0))
        return np.asarray(0.5 * (phi.amplitude * phi.gain) ** 2 * mean)

    @cached_property
    def curvature(self) -> Array:
        """F'', the second derivative of F in the covariance, for all pairs; zero where the correlation is ±1."""
        table = self.coefficients
        k = np.arange(table.shape[1] - 2)
        total = _power_series((k + 1.0) * (k + 2.0) * table[:, 2:], table[:, 2:], self.correlation)
        total /= self.lengths**2
        np.fill_diagonal(total, 0.0)
        return total


def _power_series(left: Array, right: Array, x: Array) -> Array:
    """Σ_k left_ik right_jk x_ij^k by Horner's rule."""
    total = np.zeros_like(x)
    for k in range(left.shape[1] - 1, -1, -1):
        total *= x
        total += left[:, k, None] * right[:, k]
    return total
