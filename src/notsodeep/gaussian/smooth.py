"""Smooth activations, each a class with its first two derivatives; their moments come from quadrature.

Softsign and ELU are among them, with one kink at zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array

_SQRT_2PI = math.sqrt(2.0 * math.pi)


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
        check_finite(self, "elu")

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        below = xp.clip(x, None, 0.0)
        if order == 0:
            return xp.where(x > 0, x, self.alpha * xp.expm1(below))
        return xp.where(x > 0, 1.0 if order == 1 else 0.0, self.alpha * xp.exp(below))


_TANH, _SOFTPLUS = Tanh(), Softplus()


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


def check_finite(shape: Shape, name: str) -> None:
    """Refuse parameters of a shape that are not finite numbers, and make floats of them."""
    for parameter, value in vars(shape).items():
        if not np.isfinite(value):
            raise InputError(f"{name} needs finite numbers, but {parameter} = {value}.")
        object.__setattr__(shape, parameter, float(value))
