"""What every activation function can do: values and derivatives, Gaussian moments, its form in torch.

A shape is an activation before scaling and shifting.  A new one is a class with `evaluate`: from it `Shape` computes
the moments by quadrature, the form in torch and the Lipschitz constant, and the class overrides what it knows better.
Equation numbers refer to docs/theory.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special

from notsodeep.gaussian import quadrature
from notsodeep.validation import Array

MAX_ORDER = 2
# Rows × nodes held at once by the quadrature.
CHUNK = 2_000_000
TINY = 1e-300


def in_chunks(function: Callable[[Array], Array], q: Array, nodes: int) -> Array:
    """Apply `function` to slices of q so that no more than CHUNK integrand values exist at a time."""
    rows = max(1, CHUNK // nodes)
    if len(q) <= rows:
        return function(q)
    return np.concatenate([function(q[i : i + rows]) for i in range(0, len(q), rows)])


# Elementwise functions that NumPy and torch, SciPy's and torch's special functions have by the same names.
_ELEMENTWISE = (
    "abs", "arctan", "clip", "cos", "cosh", "exp", "expm1", "full_like", "log", "log1p", "logaddexp", "maximum", "sin",
    "sinh", "tanh", "where", "zeros_like",
)  # fmt: skip
_SPECIAL = ("erf", "expit", "ndtr")


def _namespace(elementwise: Any, special: Any) -> SimpleNamespace:
    functions = {name: getattr(elementwise, name) for name in _ELEMENTWISE}
    return SimpleNamespace(**functions, **{name: getattr(special, name) for name in _SPECIAL})


NUMPY = _namespace(np, special)


@lru_cache(maxsize=1)
def torch_backend(torch: Any) -> SimpleNamespace:
    """The functions of tensors, from the module `torch` that the caller imported: this package works without it."""
    functions = _namespace(torch, torch.special)
    # Takes numbers too; where both are equal, its derivative is that of the second.
    functions.maximum = lambda left, right: torch.where(left > right, left, right)
    return functions


@dataclass(frozen=True)
class TorchForm:
    """A function of torch tensors with its slope.

    Attributes:
        value: the function, differentiable by autograd.
        slope: its derivative, differentiable too; at a kink that on its left.
    """

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]


class Shape:
    """A function R → R, smooth between its kinks.

    A subclass defines `evaluate` and sets the attributes that differ from those here.

    Attributes:
        kinks: points where the function or one of its derivatives jumps.
        parity: +1 even, -1 odd, 0 neither.
        feature: length ℓ over which the function is smooth, for the grading of panels.
        features_anywhere: the function may change quickly anywhere, not only around zero.
        pieces: the function as a `piecewise.PiecewiseLinear`, if it consists of straight pieces.
        is_homogeneous: φ(t x) = t φ(x) for t > 0.
        series_terms: number of terms after which the Mehler series ends, if it does; two or more.
        inaccuracy: relative error of the moments beyond rounding and quadrature, from how well the function is known.
        caveat: what error bounds take for granted about the function; empty if nothing.
        quarter: number of quarter periods by which the function is ahead of the sine, if it is a wave.
        is_gelu: the function is x P(ξ ≤ x), whose pairs have a closed form.
        torch_name: the function in torch, if it has one; faster than `evaluate`.
    """

    kinks: tuple[float, ...] = ()
    parity: int = 0
    feature: float = 1.0
    features_anywhere: bool = False
    pieces: Any = None
    is_homogeneous: bool = False
    series_terms: int | None = None
    inaccuracy: float = 0.0
    caveat: str = ""
    quarter: int | None = None
    is_gelu: bool = False
    torch_name: str = ""

    def without_level(self) -> tuple[Shape, float]:
        """A shape and a number that add up to this one; the shape may be odd or homogeneous where this one is not."""
        return self, 0.0

    # --- values ---------------------------------------------------------------------------------------------------

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        """The derivative of the given order (0 to 2), away from the kinks.

        Args:
            x: an array or a tensor.
            order: 0 for the function itself.
            xp: the functions of arrays or of tensors: NUMPY or `torch_backend(torch)`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define evaluate.")

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order (0 to 2) on an array, away from the kinks."""
        return np.asarray(self.evaluate(x, order, NUMPY))

    def torch_form(self, torch: Any) -> TorchForm | None:
        """The function and its slope for tensors, from the module `torch`; None if it only takes arrays."""
        xp = torch_backend(torch)
        value = attrgetter(self.torch_name)(torch) if self.torch_name else lambda x: self.evaluate(x, 0, xp)
        return TorchForm(value, lambda x: self.evaluate(x, 1, xp))

    def lipschitz(self) -> float:
        """sup |φ'|, docs/theory.md (1.5): the largest slope on `slope_grid`, then a search around it."""
        from scipy.optimize import minimize_scalar

        points = np.unique(self.slope_grid())
        steepness = np.abs(self(points, 1))
        best = int(np.argmax(steepness))
        found = minimize_scalar(
            lambda x: -abs(float(self(np.array([x]), 1)[0])),
            bounds=(points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)]),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return max(float(steepness.max()), -float(found.fun))

    def slope_grid(self, reach: float = 1e9) -> Array:
        """Points among which the steepest is close to the steepest of all: near zero, at all scales, at the kinks."""
        near = np.arange(0.0, 40.0 * self.feature, 0.02 * self.feature)
        far = np.geomspace(self.feature, reach, 2000)
        kinks = np.array(self.kinks)
        return np.concatenate([-far, -near, kinks, np.nextafter(kinks, np.inf), near, far])

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

    def shortest_panels(self, low: Array, high: Array) -> Array:
        """The shortest length from `low` to `high` on which the function is resolved, for each of these intervals."""
        return np.maximum(self.feature, np.maximum(low, -high))

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

    # --- moments --------------------------------------------------------------------------------------------------

    def pair_moments(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array] | None:
        """E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for variances q1, q2 and covariances c, (3.1) and (3.2), in closed form.

        None where there is none: `bivariate` then takes two-dimensional quadrature.
        """
        return None

    def mean_derivative(self, q: Array, k: int) -> Array:
        """M_k(q) = E[φ^(k)(sξ)], k = 0, 1, 2, with the distributional part at the kinks, (2.1)."""
        if self.parity != 0 and (self.parity == 1) == (k % 2 == 1):
            return np.zeros_like(q)
        mean = self.expectation(q, lambda xi, x: self(x, k))
        scales = np.sqrt(np.maximum(q, TINY))
        # A jump of φ^(j) at κ adds jump · He_{k-1-j}(κ/s) bell(κ/s)/s^{k-j}.
        for j in range(k if self.kinks else 0):
            for kink, jump in zip(self.kinks, self.jumps(j), strict=True):
                if jump != 0.0:
                    place = np.clip(kink / scales, -40.0, 40.0)
                    height = np.where(
                        np.abs(place) < 40.0, special.eval_hermitenorm(k - 1 - j, place) * bell(place), 0.0
                    )
                    mean = mean + over_power(jump * height, scales, k - j)
        return mean

    def second_moment(self, q: Array) -> Array:
        """Second moment S(q) = E[φ(sξ)²], (2.2)."""
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
        """Second moment of the slope E1(q) = E[φ'(sξ)²], (2.4)."""
        return self.expectation(q, lambda xi, x: self(x, 1) ** 2)

    def mehler(self, q: Array, terms: int) -> Array:
        """a_k(q) = E[φ(sξ) He_k(ξ)]/√k! for k < terms, (2.6), as an array (len(q), terms)."""
        octave = max(0, int(np.ceil(np.log2(np.sqrt(max(float(q.max()), TINY))))))
        points, matrix = quadrature.weighted_hermite(octave, self.feature, terms)
        return in_chunks(lambda part: self(np.sqrt(part)[:, None] * points) @ matrix, q, len(points))


def segment_moments(ends: Array) -> tuple[Array, Array, Array]:
    """∫ξ^r dN(ξ), r = 0, 1, 2, between neighbouring ends (last axis).

    Anchored at zero and written with erf, expm1 and the incomplete gamma function, so that narrow segments under a
    wide bell keep all their digits; beyond one standard deviation anchored at infinity, so that tails keep theirs.
    """
    with np.errstate(over="ignore"):
        half = 0.5 * ends**2
    sign = np.sign(ends)
    near = (
        0.5 * special.erf(ends / np.sqrt(2.0)),
        -np.expm1(-half) / quadrature.SQRT_2PI,
        0.5 * sign * special.gammainc(1.5, half),
    )
    size = np.abs(ends)
    height, rest = np.exp(-half) / quadrature.SQRT_2PI, 0.5 * special.erfc(size / np.sqrt(2.0))
    beyond = -sign * rest, -height, -sign * (np.where(height > 0.0, size, 0.0) * height + rest)
    tail = (ends[..., 1:] < -1.0) | (ends[..., :-1] > 1.0)
    moments = (
        np.where(tail, np.diff(far, axis=-1), np.diff(close, axis=-1))
        for close, far in zip(near, beyond, strict=True)
    )
    zeroth, first, second = moments
    return zeroth, first, second


def over_power(value: Array, scales: Array, power: int) -> Array:
    """value / scales^power: zero where the value is, however small the scale; infinite where only the power is."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return np.where(value == 0.0, 0.0, value / scales**power)


def bell(x: Array) -> Array:
    """The density of a standard normal variable."""
    return np.asarray(np.exp(-0.5 * x**2) / quadrature.SQRT_2PI)
