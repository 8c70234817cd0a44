"""Shapes: the functions themselves, each with its derivatives and its one-dimensional Gaussian moments.

A shape is an activation before scaling and shifting.  `Shape` computes every moment by quadrature; shapes with
closed forms override what they know better.  Equation numbers refer to docs/theory.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from notsodeep.gaussian import quadrature

Array = NDArray[np.float64]

MAX_ORDER = 4
# Rows × nodes held at once by the quadrature.
CHUNK = 2_000_000
TINY = 1e-300
# A Hermite degree whose panels are half as long as those of the moments.
FINER = 256


def in_chunks(function: Callable[[Array], Array], q: Array, nodes: int) -> Array:
    """Apply `function` to slices of q so that no more than CHUNK integrand values exist at a time."""
    rows = max(1, CHUNK // nodes)
    if len(q) <= rows:
        return function(q)
    return np.concatenate([function(q[i : i + rows]) for i in range(0, len(q), rows)])


class Shape:
    """A function R → R, smooth between its kinks, with moments by quadrature.

    Attributes:
        kinks: points where the function or one of its derivatives jumps.
        parity: +1 even, -1 odd, 0 neither.
        feature: length ℓ over which the function is smooth, for the grading of panels.
        dual: which evaluator knows E[φ(u)φ(v)] for all correlations.
        inaccuracy: relative error of the moments beyond rounding and quadrature, from how well the function is known.
        caveat: what error bounds take for granted about the function; empty if nothing.
        features_at_zero: away from zero the function is smooth over lengths of the distance to zero.
    """

    kinks: tuple[float, ...] = ()
    parity: int = 0
    feature: float = 1.0
    dual: str = "general"
    inaccuracy: float = 0.0
    caveat: str = ""
    features_at_zero: bool = True

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order (0 to 4), away from the kinks."""
        raise TypeError(f"{type(self).__name__} defines no values")

    # --- quadrature -----------------------------------------------------------------------------------------------

    def rule(self, scales: Array, degree: int = 0) -> tuple[Array, Array]:
        """Nodes ξ and Gaussian weights for the scales s: one row for all, or one row each."""
        return quadrature.shared_rule(float(scales.max()), self.feature, degree)

    def breakpoints(self, limit: float) -> Array:
        """Where panels of the variable x = sξ should end, up to |x| ≤ limit."""
        return quadrature.graded_edges(self.feature, np.inf, limit)

    def local_length(self, x: float) -> float:
        """Length of a panel around x on which the function is resolved by 16 nodes."""
        return max(self.feature, abs(x))

    def jumps(self, order: int) -> Array:
        """φ^(order)(κ+) - φ^(order)(κ-) at every kink κ."""
        kinks = np.array(self.kinks)
        gap = 1e-300
        right = self(np.nextafter(kinks, np.inf) + gap, order)
        left = self(np.nextafter(kinks, -np.inf) - gap, order)
        # Differences of one unit in the last place are not jumps.
        return np.where(np.abs(right - left) > 1e-12 * (np.abs(right) + np.abs(left)), right - left, 0.0)

    def expectation(self, q: Array, integrand: Callable[[Array, Array], Array]) -> Array:
        """E[integrand(ξ, sξ)] for each variance q = s²."""

        def block(part: Array) -> Array:
            scales = np.sqrt(part)
            points, weights = self.rule(scales)
            values = integrand(points, scales[:, None] * points)
            return np.asarray((values * weights).sum(axis=1))

        return in_chunks(block, q, 600)

    def quadrature_error(self, q: Array) -> Array:
        """How much S(q) changes when every panel of the rule is halved, relative to S, plus the inaccuracy."""
        finer = self._finer_second_moment(q)
        return np.asarray(np.abs(finer - self.second_moment(q)) / np.maximum(finer, TINY) + self.inaccuracy)

    def _finer_second_moment(self, q: Array) -> Array:
        points, weights = quadrature.shared_rule(2.0 * float(np.sqrt(q.max())), self.feature, FINER)
        return np.asarray((self(np.sqrt(q)[:, None] * points) ** 2 * weights).sum(axis=1))

    # --- moments --------------------------------------------------------------------------------------------------

    def mean_derivative(self, q: Array, k: int) -> Array:
        """M_k(q) = E[φ^(k)(sξ)], (2.1).

        Small scales take the derivative itself, large ones E[φ''(sξ) He_{k-2}(ξ)]/s^{k-2}: each is free of
        cancellation where the other is not.
        """
        if self.parity != 0 and (self.parity == 1) == (k % 2 == 1):
            return np.zeros_like(q)
        large = q >= 1.0
        result = np.empty_like(q)
        if large.any():
            order = min(k, 2)
            part = q[large]
            mean = self.expectation(part, lambda xi, x: self(x, order) * hermite(xi, k - order))
            result[large] = mean / part ** ((k - order) / 2) + self._jump_part(part, k, order)
        if (~large).any():
            part = q[~large]
            result[~large] = self.expectation(part, lambda xi, x: self(x, k)) + self._jump_part(part, k, k)
        return result

    def _jump_part(self, q: Array, k: int, order: int) -> Array:
        """What integrating by parts picks up at the kinks: the distributional part of φ^(order) in E[φ^(k)]."""
        total = np.zeros_like(q)
        if not self.kinks:
            return total
        scales = np.sqrt(np.maximum(q, TINY))
        for j in range(order):
            for kink, jump in zip(self.kinks, self.jumps(j), strict=True):
                if jump != 0.0:
                    place = np.clip(kink / scales, -40.0, 40.0)
                    height = np.where(np.abs(place) < 40.0, hermite(place, k - 1 - j) * bell(place), 0.0)
                    total += over_power(jump * height, scales, k - j)
        return total

    def second_moment(self, q: Array) -> Array:
        """S(q) = E[φ(sξ)²], (2.2)."""
        return self.expectation(q, lambda xi, x: self(x) ** 2)

    def second_moment_slope(self, q: Array) -> Array:
        """S'(q) = E[φφ'(sξ) ξ]/s for s ≥ 1, E[φ'² + φφ''] below, (2.3)."""
        large = q >= 1.0
        result = np.empty_like(q)
        if large.any():
            part = q[large]
            result[large] = self.expectation(part, lambda xi, x: self(x) * self(x, 1) * xi) / np.sqrt(part)
        if (~large).any():
            part = q[~large]
            result[~large] = self.expectation(part, lambda xi, x: self(x, 1) ** 2 + self(x) * self(x, 2))
            if self.kinks:
                scales = np.sqrt(np.maximum(part, TINY))[:, None]
                at_kinks = self(np.array(self.kinks)) * self.jumps(1)
                result[~large] += (at_kinks * bell(np.array(self.kinks) / scales) / scales).sum(axis=1)
        return result

    def derivative_second_moment(self, q: Array) -> Array:
        """E1(q) = E[φ'(sξ)²], (2.4)."""
        return self.expectation(q, lambda xi, x: self(x, 1) ** 2)

    def mehler(self, q: Array, terms: int) -> Array:
        """a_k(q) = E[φ(sξ) He_k(ξ)]/√k! for k < terms, (2.6), as an array (len(q), terms)."""
        octave = max(0, int(np.ceil(np.log2(np.sqrt(max(float(q.max()), TINY))))))
        points, matrix = quadrature.weighted_hermite(octave, self.feature, terms)
        return in_chunks(lambda part: self(np.sqrt(part)[:, None] * points) @ matrix, q, len(points))


def segment_moments(ends: Array) -> tuple[Array, Array, Array]:
    """∫ξ^r dN(ξ), r = 0, 1, 2, between neighbouring ends (last axis).

    Anchored at zero and written with erf, expm1 and the incomplete gamma function, so that narrow segments under a
    wide bell keep all their digits.
    """
    with np.errstate(over="ignore"):
        half = 0.5 * ends**2
    zeroth = 0.5 * special.erf(ends / np.sqrt(2.0))
    first = -np.expm1(-half) / quadrature.SQRT_2PI
    second = 0.5 * np.sign(ends) * special.gammainc(1.5, half)
    return np.diff(zeroth, axis=-1), np.diff(first, axis=-1), np.diff(second, axis=-1)


def over_power(value: Array, scales: Array, power: int) -> Array:
    """value / scales^power: zero where the value is, however small the scale; infinite where only the power is."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return np.where(value == 0.0, 0.0, value / scales**power)


def bell(x: Array) -> Array:
    """The density of a standard normal variable."""
    return np.asarray(np.exp(-0.5 * x**2) / quadrature.SQRT_2PI)


def hermite(x: Array, degree: int) -> Array:
    """Probabilists' Hermite polynomial He_degree."""
    return np.asarray(special.eval_hermitenorm(degree, x))


class ClosedForm(Shape):
    """A shape whose moments are formulas."""

    def quadrature_error(self, q: Array) -> Array:
        return np.zeros_like(q)


# --- shapes with closed-form moments ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PiecewiseLinear(ClosedForm):
    """Continuous, with slopes[i] between knots[i-1] and knots[i], and φ(0) = value."""

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    value: float = 0.0

    @property
    def kinks(self) -> tuple[float, ...]:  # type: ignore[override]
        return self.knots

    @property
    def parity(self) -> int:  # type: ignore[override]
        mirrored = tuple(-k for k in self.knots[::-1])
        if mirrored != self.knots:
            return 0
        if self.slopes == self.slopes[::-1] and self.value == 0.0:
            return -1
        return 1 if self.slopes == tuple(-s for s in self.slopes[::-1]) else 0

    @property
    def dual(self) -> str:  # type: ignore[override]
        return "homogeneous" if self.knots in ((), (0.0,)) and self.value == 0.0 else "piecewise"

    @property
    def weights(self) -> Array:
        """Slope jumps w_k at the knots."""
        return np.diff(np.array(self.slopes))

    @property
    def intercepts(self) -> Array:
        """φ(x) = slopes[i] x + intercepts[i] on segment i."""
        steps = np.concatenate([[0.0], np.cumsum(-self.weights * np.array(self.knots))])
        segment = int(np.searchsorted(np.array(self.knots), 0.0))
        return np.asarray(steps - steps[segment] + self.value)

    def __call__(self, x: Array, order: int = 0) -> Array:
        if order > 1:
            return np.zeros_like(x)
        segment = np.searchsorted(np.array(self.knots), x)
        slope = np.array(self.slopes)[segment]
        return slope if order == 1 else np.asarray(slope * x + self.intercepts[segment])

    def _segments(self, q: Array) -> tuple[Array, Array, Array, Array]:
        """Scales (n) and ∫ξ^r dN(ξ), r = 0, 1, 2, over each segment (n × segments)."""
        scales = np.sqrt(np.maximum(q, TINY))
        far = np.full((len(q), 1), np.inf)
        with np.errstate(over="ignore"):
            ends = np.concatenate([-far, np.array(self.knots) / scales[:, None], far], axis=1)
        return scales, *segment_moments(ends)

    def mean_derivative(self, q: Array, k: int) -> Array:
        scales, zeroth, _, _ = self._segments(q)
        if k == 0:
            # φ is linear around zero and every knot adds a hinge that opens outwards: terms without cancellation.
            away = np.abs(np.array(self.knots)) / scales[:, None]
            tail = quadrature.SQRT_2PI**-1 - 0.5 * away * special.erfcx(away / np.sqrt(2.0))
            hinges = np.where(away < 40, np.exp(-0.5 * np.minimum(away, 40) ** 2) * tail, 0.0)
            return np.asarray(self.value + np.sqrt(q) * (self.weights * hinges).sum(axis=1))
        if k == 1:
            return np.asarray((np.array(self.slopes) * zeroth).sum(axis=1))
        with np.errstate(over="ignore"):
            position = np.array(self.knots) / scales[:, None]
        terms = self.weights * np.where(
            np.abs(position) < 40, hermite(np.clip(position, -40, 40), k - 2), 0.0
        )
        total = (terms * bell(np.clip(position, -40, 40))).sum(axis=1)
        return over_power(total, scales, k - 1)

    def second_moment(self, q: Array) -> Array:
        _, zeroth, first, second = self._segments(q)
        slopes, intercepts = np.array(self.slopes), self.intercepts
        quadratic = (slopes**2 * second).sum(axis=1) * q
        linear = 2.0 * (slopes * intercepts * first).sum(axis=1) * np.sqrt(q)
        return np.asarray(quadratic + linear + (intercepts**2 * zeroth).sum(axis=1))

    def second_moment_slope(self, q: Array) -> Array:
        scales, _, first, second = self._segments(q)
        slopes = np.array(self.slopes)
        return np.asarray(
            (slopes**2 * second).sum(axis=1) + (slopes * self.intercepts * first).sum(axis=1) / scales
        )

    def derivative_second_moment(self, q: Array) -> Array:
        _, zeroth, _, _ = self._segments(q)
        return np.asarray((np.array(self.slopes) ** 2 * zeroth).sum(axis=1))

    def mehler(self, q: Array, terms: int) -> Array:
        """a_k = s Σ w He_{k-2}(κ/s) bell(κ/s)/√k! for k ≥ 2: k - 2 integrations by parts of a slope jump."""
        result = np.empty((len(q), terms))
        scales = np.sqrt(np.maximum(q, TINY))
        for k in range(min(terms, 2)):
            result[:, k] = self.mean_derivative(q, k) * scales**k
        if terms > 2:
            with np.errstate(over="ignore"):
                position = np.clip(np.array(self.knots) / scales[:, None], -40, 40)
            heights = np.where(np.abs(position) < 40, bell(position), 0.0) * self.weights
            functions = quadrature.hermite_functions(position, terms - 2)
            orders = np.arange(2.0, terms)
            sums = np.einsum("kns,ns->nk", functions, heights)
            result[:, 2:] = scales[:, None] * sums / np.sqrt(orders * (orders - 1.0))
        return result


@dataclass(frozen=True)
class Polynomial(ClosedForm):
    """Σ coefficients[j] x^j; its Mehler series is finite."""

    coefficients: tuple[float, ...]
    dual: ClassVar[str] = "polynomial"  # type: ignore[misc]

    @property
    def parity(self) -> int:  # type: ignore[override]
        if not any(self.coefficients[0::2]):
            return -1
        return 1 if not any(self.coefficients[1::2]) else 0

    def __call__(self, x: Array, order: int = 0) -> Array:
        series = np.polynomial.Polynomial(self.coefficients)
        return np.asarray((series.deriv(order) if order else series)(x)) + np.zeros_like(x)

    def _mean_of(self, coefficients: ArrayLike, q: Array) -> Array:
        """E[Σ c_j (sξ)^j] = Σ c_2j (2j-1)!! q^j."""
        even = np.asarray(coefficients, dtype=np.float64)[0::2]
        moments = np.array([special.factorial2(2 * j - 1) if j else 1.0 for j in range(len(even))])
        return np.asarray(np.polynomial.polynomial.polyval(q, even * moments))

    def mean_derivative(self, q: Array, k: int) -> Array:
        series = np.polynomial.Polynomial(self.coefficients)
        return self._mean_of((series.deriv(k) if k else series).coef, q)

    def second_moment(self, q: Array) -> Array:
        return self._mean_of((np.polynomial.Polynomial(self.coefficients) ** 2).coef, q)

    def second_moment_slope(self, q: Array) -> Array:
        return 0.5 * self._mean_of((np.polynomial.Polynomial(self.coefficients) ** 2).deriv(2).coef, q)

    def derivative_second_moment(self, q: Array) -> Array:
        return self._mean_of((np.polynomial.Polynomial(self.coefficients).deriv() ** 2).coef, q)

    def mehler(self, q: Array, terms: int) -> Array:
        result = np.zeros((len(q), terms))
        for k in range(min(terms, len(self.coefficients))):
            result[:, k] = self.mean_derivative(q, k) * q ** (k / 2) / np.sqrt(special.factorial(k))
        return result


@dataclass(frozen=True)
class Wave(ClosedForm):
    """sin x or cos x."""

    sine: bool
    dual: ClassVar[str] = "wave"  # type: ignore[misc]

    @property
    def parity(self) -> int:  # type: ignore[override]
        return -1 if self.sine else 1

    def __call__(self, x: Array, order: int = 0) -> Array:
        turn = (order + (0 if self.sine else 1)) % 4
        return np.asarray((np.sin, np.cos)[turn % 2](x) * (1.0 if turn < 2 else -1.0))

    def mean_derivative(self, q: Array, k: int) -> Array:
        turn = (k + (0 if self.sine else 1)) % 4
        return (0.0, 1.0, 0.0, -1.0)[turn] * np.exp(-0.5 * q)

    def second_moment(self, q: Array) -> Array:
        return -0.5 * np.expm1(-2.0 * q) if self.sine else 0.5 + 0.5 * np.exp(-2.0 * q)

    def second_moment_slope(self, q: Array) -> Array:
        return np.exp(-2.0 * q) * (1.0 if self.sine else -1.0)

    def derivative_second_moment(self, q: Array) -> Array:
        return 0.5 + 0.5 * np.exp(-2.0 * q) if self.sine else -0.5 * np.expm1(-2.0 * q)

    def mehler(self, q: Array, terms: int) -> Array:
        k = np.arange(terms)
        signs = np.array([(0.0, 1.0, 0.0, -1.0)[(j + (0 if self.sine else 1)) % 4] for j in k])
        log_root = 0.5 * np.log(np.maximum(q, TINY))[:, None]
        return np.asarray(signs * np.exp(-0.5 * q[:, None] + k * log_root - 0.5 * special.gammaln(k + 1.0)))
