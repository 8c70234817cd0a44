"""Sine and cosine as activations: every moment is an exponential of the variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from notsodeep.gaussian.backend import TorchForm
from notsodeep.gaussian.shapes import TINY, Shape
from notsodeep.validation import Array


class Wave(Shape):
    """What sine and cosine share."""

    quarter: int

    def _turn(self, order: int) -> int:
        """The derivative of this order is the sine, this number of quarter periods ahead."""
        return (order + self.quarter) % 4

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        turn = self._turn(order)
        value = (xp.sin, xp.cos)[turn % 2](x)
        return value if turn < 2 else -value

    def mean_derivative(self, q: Array, k: int) -> Array:
        """M_k(q): e^{-q/2} times the derivative at zero, (2.1)."""
        return (0.0, 1.0, 0.0, -1.0)[self._turn(k)] * np.exp(-0.5 * q)

    def mehler(self, q: Array, terms: int) -> Array:
        """a_k = M_k s^k/√k!, through logarithms: s^k alone may overflow."""
        k = np.arange(terms)
        signs = np.array([(0.0, 1.0, 0.0, -1.0)[self._turn(j)] for j in range(terms)])
        log_root = 0.5 * np.log(np.maximum(q, TINY))[:, None]
        return np.asarray(signs * np.exp(-0.5 * q[:, None] + k * log_root - 0.5 * special.gammaln(k + 1.0)))

    def _pair_terms(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
        """e^{-(q1+q2)/2} sinh c and e^{-(q1+q2)/2} cosh c, (3.22)."""
        size = np.abs(c)
        # √q1√q2 - |c| and (√q1 - √q2)² add up to the exponent without cancelling large numbers.
        exponent = -0.5 * (np.sqrt(q1) - np.sqrt(q2)) ** 2 - (np.sqrt(q1) * np.sqrt(q2) - size)
        odd = -0.5 * np.sign(c) * np.exp(exponent) * np.expm1(-2.0 * size)
        even = 0.5 * np.exp(exponent) * (1.0 + np.exp(-2.0 * size))
        return odd, even


@dataclass(frozen=True)
class Sine(Wave):
    """The activation sin x."""

    quarter = 0
    parity = -1

    def torch_form(self, torch: Any) -> TorchForm:
        return TorchForm(torch.sin, torch.cos, torch.sin_)

    def pair_moments(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
        """F and F' of sin: sinh for the function, cosh for its derivative, (3.22)."""
        return self._pair_terms(q1, q2, c)

    def second_moment(self, q: Array) -> Array:
        """S(q) = (1 - e^{-2q})/2, (2.2)."""
        return -0.5 * np.expm1(-2.0 * q)

    def second_moment_slope(self, q: Array) -> Array:
        """S'(q) = e^{-2q}, (2.3)."""
        return np.exp(-2.0 * q)

    def derivative_second_moment(self, q: Array) -> Array:
        """E1(q) = (1 + e^{-2q})/2, (2.4)."""
        return 0.5 + 0.5 * np.exp(-2.0 * q)


@dataclass(frozen=True)
class Cosine(Wave):
    """The activation cos x."""

    quarter = 1
    parity = 1

    def torch_form(self, torch: Any) -> TorchForm:
        return TorchForm(torch.cos, lambda x: -torch.sin(x), torch.cos_)

    def pair_moments(self, q1: Array, q2: Array, c: Array) -> tuple[Array, Array]:
        """F and F' of cos: cosh for the function, sinh for its derivative, (3.22)."""
        odd, even = self._pair_terms(q1, q2, c)
        return even, odd

    def second_moment(self, q: Array) -> Array:
        """S(q) = (1 + e^{-2q})/2, (2.2)."""
        return 0.5 + 0.5 * np.exp(-2.0 * q)

    def second_moment_slope(self, q: Array) -> Array:
        """S'(q) = -e^{-2q}, (2.3)."""
        return -np.exp(-2.0 * q)

    def derivative_second_moment(self, q: Array) -> Array:
        """E1(q) = (1 - e^{-2q})/2, (2.4)."""
        return -0.5 * np.expm1(-2.0 * q)
