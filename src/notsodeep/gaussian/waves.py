"""Sine and cosine as activations: every moment is an exponential of the variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from notsodeep.gaussian.backend import TorchForm
from notsodeep.gaussian.shapes import TINY, Shape
from notsodeep.validation import Array

_SINE_AT_QUARTERS = (0.0, 1.0, 0.0, -1.0)


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

    def torch_form(self, torch: Any) -> TorchForm:
        return self.torch_kernel(
            torch, *((torch.cos, torch.cos_) if self.quarter else (torch.sin, torch.sin_))
        )

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
