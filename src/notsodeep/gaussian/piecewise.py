"""Piecewise-linear activations: ReLU and its relatives, hard tanh, and any other with straight pieces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import special

from notsodeep.errors import InputError
from notsodeep.gaussian import quadrature
from notsodeep.gaussian.shapes import TINY, Shape, TorchForm, bell, over_power, segment_moments
from notsodeep.validation import Array

# Standard deviations from which on a variable is in the tail.
TAIL = 3.0


@dataclass(frozen=True)
class PiecewiseLinear(Shape):
    """Continuous, with slopes[i] between knots[i-1] and knots[i], and φ(0) = value."""

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    value: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        ends, rates = np.asarray(self.knots, dtype=float), np.asarray(self.slopes, dtype=float)
        if ends.ndim != 1 or rates.ndim != 1 or len(rates) != len(ends) + 1:
            raise InputError(
                f"piecewise_linear needs one more slope than knots; got {ends.size} knots and {rates.size} slopes."
            )
        if not (np.all(np.isfinite(ends)) and np.all(np.isfinite(rates)) and np.isfinite(self.value)):
            raise InputError("piecewise_linear needs finite knots, slopes and value.")
        if np.any(np.diff(ends) <= 0):
            raise InputError(f"piecewise_linear needs increasing knots, got {ends.tolist()}.")
        # + 0.0 turns -0.0 into 0.0, so that equal functions compare equal.
        object.__setattr__(self, "knots", tuple((ends + 0.0).tolist()))
        object.__setattr__(self, "slopes", tuple((rates + 0.0).tolist()))
        object.__setattr__(self, "value", float(self.value))

    @property
    def kinks(self) -> tuple[float, ...]:  # type: ignore[override]
        """The kinks are the knots."""
        return self.knots

    @property
    def pieces(self) -> PiecewiseLinear:
        """The function consists of straight pieces: its own."""
        return self

    @property
    def parity(self) -> int:  # type: ignore[override]
        """+1 even, -1 odd, 0 neither, from the symmetry of knots and slopes."""
        mirrored = tuple(-k for k in self.knots[::-1])
        if mirrored != self.knots:
            return 0
        if self.slopes == self.slopes[::-1] and self.value == 0.0:
            return -1
        return 1 if self.slopes == tuple(-s for s in self.slopes[::-1]) else 0

    @property
    def is_homogeneous(self) -> bool:  # type: ignore[override]
        """No kink but at zero, where the value is zero."""
        return self.knots in ((), (0.0,)) and self.value == 0.0

    @property
    def silent_reach(self) -> float:
        """Distance from zero up to which the function is zero; 0 for none, and for a function that is constant."""
        place = int(np.searchsorted(np.array(self.knots), 0.0))
        flat = self.value == self.slopes[place] == 0.0
        return min(map(abs, self.knots)) if flat and any(self.slopes) else 0.0

    def without_level(self) -> tuple[Shape, float]:
        """The same pieces through the origin, and the value at zero."""
        return (replace(self, value=0.0), self.value) if self.value else (self, 0.0)

    @property
    def weights(self) -> Array:
        """Jumps w_k of the slope at the knots."""
        return np.diff(np.array(self.slopes))

    @property
    def intercepts(self) -> Array:
        """φ(x) = slopes[i] x + intercepts[i] on segment i."""
        steps = np.concatenate([[0.0], np.cumsum(-self.weights * np.array(self.knots))])
        segment = int(np.searchsorted(np.array(self.knots), 0.0))
        return np.asarray(steps - steps[segment] + self.value)

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order; at a knot the slope on its left."""
        if order > 1:
            return np.zeros_like(x)
        segment = np.searchsorted(np.array(self.knots), x)
        slope = np.array(self.slopes)[segment]
        return slope if order == 1 else np.asarray(slope * x + self.intercepts[segment])

    def torch_form(self, torch: Any) -> TorchForm:
        """A sum of slope · clip(x, low, high) over the pieces: terms that do not cancel far out."""
        ends = zip((-np.inf, *self.knots), (*self.knots, np.inf), strict=True)
        pieces = [(slope, *end) for slope, end in zip(self.slopes, ends, strict=True) if slope]
        level = self.value - sum(slope * min(max(0.0, low), high) for slope, low, high in pieces)

        def value(x: Any) -> Any:
            y = torch.full_like(x, level)
            for slope, low, high in pieces:
                # At a knot autograd takes the slope on its left; NaN stays NaN.
                part = x if high == np.inf else torch.where(x > high, high, x)
                y = y + slope * (part if low == -np.inf else torch.where(x <= low, low, part))
            return y

        def slope(x: Any) -> Any:
            y = torch.full_like(x, self.slopes[0])
            for knot, weight in zip(self.knots, self.weights.tolist(), strict=True):
                y = y + weight * (x > knot).to(x.dtype)
            return y

        return TorchForm(torch.relu if self == relu() else value, slope)

    def lipschitz(self) -> float:
        """sup |φ'|: the steepest slope."""
        return max(abs(slope) for slope in self.slopes)

    def _segments(self, q: Array) -> tuple[Array, Array, Array, Array]:
        """Scales (n) and ∫ξ^r dN(ξ), r = 0, 1, 2, over each segment (n × segments)."""
        scales = np.sqrt(np.maximum(q, TINY))
        far = np.full((len(q), 1), np.inf)
        with np.errstate(over="ignore"):
            ends = np.concatenate([-far, np.array(self.knots) / scales[:, None], far], axis=1)
        return scales, *segment_moments(ends)

    def pair_moments(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
        """F and F': the arc-cosine kernel of m x + e |x|, (3.20), or Price's integral, (3.17) and (3.18)."""
        if not self.is_homogeneous:
            from notsodeep.gaussian.price import price_integral

            means = [self.mean_derivative(q, k) for k in (0, 1) for q in (q1, q2)]
            return price_integral(np.array(self.knots), self.weights, np.sqrt(q1), np.sqrt(q2), c, means)
        mean, half = (self.slopes[-1] + self.slopes[0]) / 2.0, (self.slopes[-1] - self.slopes[0]) / 2.0
        bound = np.sqrt(q1) * np.sqrt(q2)
        rho = c / bound
        angle = np.arcsin(rho)
        curved = bound * (np.sqrt((1.0 - rho) * (1.0 + rho)) + rho * angle)
        value = mean**2 * c + half**2 * (2.0 / np.pi) * curved
        return value, mean**2 + half**2 * (2.0 / np.pi) * angle

    def mean_derivative(self, q: Array, k: int) -> Array:
        """M_k(q) from the segments for k = 0 and 1, from the jumps at the knots for k = 2, (2.9)."""
        if k == 1:
            return np.asarray((np.array(self.slopes) * self._segments(q)[1]).sum(axis=1))
        scales = np.sqrt(np.maximum(q, TINY))
        if k == 0:
            # φ is linear around zero and every knot adds a hinge that opens outwards: terms without cancellation.
            away = np.abs(np.array(self.knots)) / scales[:, None]
            tail = quadrature.SQRT_2PI**-1 - 0.5 * away * special.erfcx(away / np.sqrt(2.0))
            hinges = np.where(away < 40, np.exp(-0.5 * np.minimum(away, 40) ** 2) * tail, 0.0)
            return np.asarray(self.value + np.sqrt(q) * (self.weights * hinges).sum(axis=1))
        with np.errstate(over="ignore"):
            position = np.clip(np.array(self.knots) / scales[:, None], -40, 40)
        heights = np.where(np.abs(position) < 40, self.weights * bell(position), 0.0)
        return over_power(heights.sum(axis=1), scales, 1)

    def second_moment(self, q: Array) -> Array:
        """S(q), summed over the segments between knots, (2.2); by Price's integral where only tails are not zero."""
        _, zeroth, first, second = self._segments(q)
        slopes, intercepts = np.array(self.slopes), self.intercepts
        quadratic = (slopes**2 * second).sum(axis=1) * q
        linear = 2.0 * (slopes * intercepts * first).sum(axis=1) * np.sqrt(q)
        result = np.asarray(quadratic + linear + (intercepts**2 * zeroth).sum(axis=1))
        # There the terms would cancel.
        floored = np.maximum(q, TINY)
        tail = self.silent_reach > TAIL * np.sqrt(floored)
        result[tail] = self.pair_moments(*[floored[tail]] * 3)[0]
        return result

    def second_moment_slope(self, q: Array) -> Array:
        """S'(q), summed over the segments between knots, (2.3)."""
        scales, _, first, second = self._segments(q)
        slopes = np.array(self.slopes)
        return np.asarray(
            (slopes**2 * second).sum(axis=1) + (slopes * self.intercepts * first).sum(axis=1) / scales
        )

    def derivative_second_moment(self, q: Array) -> Array:
        """E1(q): the squared slopes, weighted by the probability of their segments, (2.4)."""
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


# --- by name --------------------------------------------------------------------------------------------------------


def relu() -> PiecewiseLinear:
    """The rectified linear unit max(x, 0)."""
    return PiecewiseLinear((0.0,), (0.0, 1.0))


def leaky_relu(a: float = 1.0, b: float = 0.1) -> PiecewiseLinear:
    """The leaky rectified linear unit max(a x, b x)."""
    return PiecewiseLinear((0.0,), (min(a, b), max(a, b)))


def hard_tanh(a: float = 1.0, c: float = 1.0) -> PiecewiseLinear:
    """The hard tanh a · clip(x, -c, c)."""
    if not c > 0:
        raise InputError(f"hard_tanh clips at ±c and needs c > 0, got {c}.")
    return PiecewiseLinear((-c, c), (0.0, a, 0.0))
