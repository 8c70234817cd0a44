"""Smooth activations, each a class with its first two derivatives; softsign and ELU have a kink at zero.

Moments come from quadrature, those of polynomials (finite sums), sine and cosine (exponentials) are in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from notsodeep.errors import InputError
from notsodeep.gaussian.shapes import TINY, Shape
from notsodeep.validation import Array

_SQRT_2PI = math.sqrt(2.0 * math.pi)
# sin at 0, π/2, π and 3π/2.
_SINE_AT_QUARTERS = (0.0, 1.0, 0.0, -1.0)


@dataclass(frozen=True)
class Tanh(Shape):
    """The activation tanh x."""

    parity = -1

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        if order == 0:
            return xp.tanh(x)
        decay = xp.exp(-2.0 * xp.abs(x))
        slope = 4.0 * decay / (1.0 + decay) ** 2
        if order == 1:
            return slope
        return slope * (-2.0 * xp.tanh(x))


@dataclass(frozen=True)
class Erf(Shape):
    """The activation erf x, the error function."""

    parity = -1
    feature = 0.7

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        if order == 0:
            return xp.erf(x)
        slope = 2.0 / math.sqrt(math.pi) * xp.exp(-(x**2))
        return slope if order == 1 else slope * (-2.0 * x)

    def pair_moments(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
        """F and F' of erf: the arcsine kernel, (3.21)."""
        bound = np.sqrt(q1) * np.sqrt(q2)
        root = np.sqrt(1.0 + 2.0 * (q1 + q2) + 4.0 * (bound - c) * (bound + c))
        return (2.0 / np.pi) * np.arctan2(2.0 * c, root), (4.0 / np.pi) / root


@dataclass(frozen=True)
class Arctan(Shape):
    """The activation arctan x."""

    parity = -1
    feature = 0.7

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        if order == 0:
            return xp.arctan(x)
        slope = 1.0 / (1.0 + x**2)
        return slope if order == 1 else -2.0 * x * slope**2


@dataclass(frozen=True)
class Softplus(Shape):
    """The activation log(1 + e^x)."""

    feature = 2.0

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        return xp.logaddexp(xp.zeros_like(x), x) if order == 0 else logistic(x, order - 1, xp)


@dataclass(frozen=True)
class Swish(Shape):
    """The activation x/(1 + e^-x), also known as SiLU."""

    feature = 2.0
    torch_name = "nn.functional.silu"

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        value = x * logistic(x, order, xp)
        return value + order * logistic(x, order - 1, xp) if order else value


@dataclass(frozen=True)
class Gelu(Shape):
    """The activation x P(ξ ≤ x) with ξ ~ N(0, 1): the exact GELU, not its approximation by tanh."""

    is_gelu = True
    torch_name = "nn.functional.gelu"

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        value = x * _normal_cdf(x, order, xp)
        return value + order * _normal_cdf(x, order - 1, xp) if order else value


@dataclass(frozen=True)
class Mish(Shape):
    """The activation x tanh(log(1 + e^x))."""

    feature = 1.5
    torch_name = "nn.functional.mish"

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        inner = [_SOFTPLUS.evaluate(x, k, xp) for k in range(order + 1)]
        # Derivatives of tanh at the softplus, then of the two composed.
        gate = [_TANH.evaluate(inner[0], k, xp) for k in range(order + 1)]
        if order == 0:
            return x * gate[0]
        slope = gate[1] * inner[1]
        if order == 1:
            return x * slope + gate[0]
        return x * (gate[2] * inner[1] ** 2 + gate[1] * inner[2]) + 2.0 * slope


@dataclass(frozen=True)
class Softsign(Shape):
    """The activation x/(1 + |x|)."""

    parity = -1
    kinks = (0.0,)

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        r = 1.0 / (1.0 + xp.abs(x))
        if order == 0:
            return x * r
        return r**2 if order == 1 else xp.where(x > 0, -2.0, 2.0) * r**3


@dataclass(frozen=True)
class Elu(Shape):
    """The activation that is x above zero and alpha (e^x - 1) below."""

    alpha: float = field(default=1.0, kw_only=True)
    kinks = (0.0,)

    def __post_init__(self) -> None:
        if not np.isfinite(self.alpha):
            raise InputError(f"elu needs finite numbers, but alpha = {self.alpha}.")
        object.__setattr__(self, "alpha", float(self.alpha))

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        below = xp.clip(x, None, 0.0)
        if order == 0:
            return xp.where(x > 0, x, self.alpha * xp.expm1(below))
        return xp.where(x > 0, 1.0 if order == 1 else 0.0, self.alpha * xp.exp(below))


_TANH, _SOFTPLUS = Tanh(), Softplus()


@dataclass(frozen=True)
class Polynomial(Shape):
    """Σ coefficients[j] x^j; its Mehler series is finite."""

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        series = np.atleast_1d(np.asarray(self.coefficients, dtype=float))
        if series.ndim != 1 or not len(series) or not np.all(np.isfinite(series)):
            raise InputError("polynomial needs a list of finite coefficients [c0, c1, ...].")
        object.__setattr__(self, "coefficients", tuple(series.tolist()))

    @property
    def series_terms(self) -> int:  # type: ignore[override]
        """The degree plus one; an odd polynomial, such as zero, has its first term at k = 1."""
        return max(len(self.coefficients), 2)

    @property
    def parity(self) -> int:  # type: ignore[override]
        """-1 if no even power occurs, +1 if no odd one does, else 0."""
        if not any(self.coefficients[0::2]):
            return -1
        return 1 if not any(self.coefficients[1::2]) else 0

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        """The derivative of the given order, by Horner's rule."""
        series = list(self.coefficients)
        for _ in range(order):
            series = [k * c for k, c in enumerate(series)][1:] or [0.0]
        value = xp.full_like(x, series[-1])
        for coefficient in reversed(series[:-1]):
            value = value * x + coefficient
        return value

    def lipschitz(self) -> float:
        """sup |φ'|: finite for straight lines only."""
        degree = max((k for k, c in enumerate(self.coefficients) if c != 0.0), default=0)
        return abs(self.coefficients[1]) if degree == 1 else np.inf if degree > 1 else 0.0

    def pair_moments(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
        """F and F' by the Mehler series, which is finite, (3.23)."""
        polyval = np.polynomial.polynomial.polyval
        bound = np.sqrt(q1) * np.sqrt(q2)
        products = (self.mehler(q1, self.series_terms) * self.mehler(q2, self.series_terms)).T
        rho = c / bound
        orders = np.arange(1.0, self.series_terms)
        slope = polyval(rho, (products[1:].T * orders).T, tensor=False)
        return polyval(rho, products, tensor=False), slope / bound

    def _mean_of(self, coefficients: ArrayLike, q: Array) -> Array:
        """E[Σ c_j (sξ)^j] = Σ c_2j (2j-1)!! q^j."""
        even = np.asarray(coefficients, dtype=np.float64)[0::2]
        moments = np.array([special.factorial2(2 * j - 1) if j else 1.0 for j in range(len(even))])
        return np.asarray(np.polynomial.polynomial.polyval(q, even * moments))

    def mean_derivative(self, q: Array, k: int) -> Array:
        """M_k(q): the mean of the polynomial differentiated k times, (2.1)."""
        series = np.polynomial.Polynomial(self.coefficients)
        return self._mean_of((series.deriv(k) if k else series).coef, q)

    def second_moment(self, q: Array) -> Array:
        """S(q): the mean of the squared polynomial, (2.2)."""
        return self._mean_of((np.polynomial.Polynomial(self.coefficients) ** 2).coef, q)

    def second_moment_slope(self, q: Array) -> Array:
        """S'(q): half the mean of the second derivative of the squared polynomial, (2.3)."""
        return 0.5 * self._mean_of((np.polynomial.Polynomial(self.coefficients) ** 2).deriv(2).coef, q)

    def derivative_second_moment(self, q: Array) -> Array:
        """E1(q): the mean of the squared derivative, (2.4)."""
        return self._mean_of((np.polynomial.Polynomial(self.coefficients).deriv() ** 2).coef, q)

    def mehler(self, q: Array, terms: int) -> Array:
        """a_k = M_k s^k/√k!, zero beyond the degree, (2.6)."""
        result = np.zeros((len(q), terms))
        for k in range(min(terms, len(self.coefficients))):
            result[:, k] = self.mean_derivative(q, k) * q ** (k / 2) / np.sqrt(special.factorial(k))
        return result


@dataclass(frozen=True)
class Wave(Shape):
    """The sine, shifted by a number of quarter periods: 0 for sin x, 1 for cos x."""

    quarter: int

    @property
    def parity(self) -> int:  # type: ignore[override]
        """-1 for the sine, which is odd, +1 for the cosine."""
        return 1 if self.quarter else -1

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        turn = (order + self.quarter) % 4
        value = (xp.sin, xp.cos)[turn % 2](x)
        return value if turn < 2 else -value

    def mean_derivative(self, q: Array, k: int) -> Array:
        """M_k(q): e^{-q/2} times the derivative at zero, (2.1)."""
        return _SINE_AT_QUARTERS[(k + self.quarter) % 4] * np.exp(-0.5 * q)

    def mehler(self, q: Array, terms: int) -> Array:
        """a_k = M_k s^k/√k!, through logarithms: s^k alone may overflow."""
        k = np.arange(terms)
        signs = np.array(_SINE_AT_QUARTERS)[(k + self.quarter) % 4]
        log_root = 0.5 * np.log(np.maximum(q, TINY))[:, None]
        return np.asarray(signs * np.exp(-0.5 * q[:, None] + k * log_root - 0.5 * special.gammaln(k + 1.0)))

    def pair_moments(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
        """F and F': e^{-(q1+q2)/2} times sinh c and cosh c for the sine, cosh c and sinh c for the cosine, (3.22)."""
        size = np.abs(c)
        # √q1√q2 - |c| and (√q1 - √q2)² add up to the exponent without cancelling large numbers.
        exponent = -0.5 * (np.sqrt(q1) - np.sqrt(q2)) ** 2 - (np.sqrt(q1) * np.sqrt(q2) - size)
        odd = -0.5 * np.sign(c) * np.exp(exponent) * np.expm1(-2.0 * size)
        even = 0.5 * np.exp(exponent) * (1.0 + np.exp(-2.0 * size))
        return (even, odd) if self.quarter else (odd, even)

    def second_moment(self, q: Array) -> Array:
        """S(q) = (1 ∓ e^{-2q})/2, (2.2)."""
        return 0.5 + 0.5 * np.exp(-2.0 * q) if self.quarter else -0.5 * np.expm1(-2.0 * q)

    def second_moment_slope(self, q: Array) -> Array:
        """S'(q) = ±e^{-2q}, (2.3)."""
        return (-1.0 if self.quarter else 1.0) * np.exp(-2.0 * q)

    def derivative_second_moment(self, q: Array) -> Array:
        """E1(q) = (1 ± e^{-2q})/2, (2.4)."""
        return -0.5 * np.expm1(-2.0 * q) if self.quarter else 0.5 + 0.5 * np.exp(-2.0 * q)


# --- what their formulas share --------------------------------------------------------------------------------------


def logistic(x: Any, order: int, xp: Any) -> Any:
    """1/(1 + e^-x) and its derivatives, in p = σ(x)σ(-x)."""
    value = xp.expit(x)
    if order == 0:
        return value
    p = value * xp.expit(-x)
    return p if order == 1 else -p * xp.tanh(x / 2.0)


def _normal_cdf(x: Any, order: int, xp: Any) -> Any:
    """P(ξ ≤ x) for ξ ~ N(0, 1), and its derivatives: the density times Hermite polynomials."""
    if order == 0:
        return xp.ndtr(x)
    density = xp.exp(-0.5 * x**2) / _SQRT_2PI
    return density if order == 1 else density * -x
