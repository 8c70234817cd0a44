"""Polynomials as activations: every moment is a finite sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from notsodeep.errors import InputError
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array


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
