"""Activations with elementary moments: polynomials (finite sums), sine and cosine (exponentials of the variance)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from notsodeep.errors import InputError
from notsodeep.gaussian.shapes import TINY, Shape
from notsodeep.validation import Array

_SINE_AT_QUARTERS = (0.0, 1.0, 0.0, -1.0)


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


def sine() -> Wave:
    """The activation sin x."""
    return Wave(0)


def cosine() -> Wave:
    """The activation cos x."""
    return Wave(1)
