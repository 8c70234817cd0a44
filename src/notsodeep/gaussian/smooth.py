"""Smooth activations, each a class with derivatives up to order 4; their moments come from quadrature.

Softsign and ELU are among them, with one kink at zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.backend import TorchForm
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array

_SQRT_2PI = math.sqrt(2.0 * math.pi)
# torch's softplus is linear beyond its threshold; at 40 what it drops, e^-40, is below the rounding of float64.
_SOFTPLUS_THRESHOLD = 40.0


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
        y = xp.tanh(x)
        if order == 2:
            return slope * (-2.0 * y)
        return slope * (6.0 * y**2 - 2.0 if order == 3 else 8.0 * y * (2.0 - 3.0 * y**2))

    def torch_form(self, torch: Any) -> TorchForm:
        return self.torch_kernel(torch, torch.tanh, in_place=torch.tanh_, into=torch.tanh)


@dataclass(frozen=True)
class Erf(Shape):
    """The activation erf x, the error function."""

    parity = -1
    feature = 0.7

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        if order == 0:
            return xp.erf(x)
        square = x**2
        slope = 2.0 / math.sqrt(math.pi) * xp.exp(-square)
        if order == 1:
            return slope
        if order == 2:
            return slope * (-2.0 * x)
        return slope * (4.0 * square - 2.0 if order == 3 else x * (12.0 - 8.0 * square))

    def torch_form(self, torch: Any) -> TorchForm:
        return self.torch_kernel(torch, torch.erf, in_place=torch.Tensor.erf_)

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
        square = x**2
        slope = 1.0 / (1.0 + square)
        if order == 1:
            return slope
        if order == 2:
            return -2.0 * x * slope**2
        if order == 3:
            return (6.0 * square - 2.0) * slope**3
        return 24.0 * x * (1.0 - square) * slope**4

    def torch_form(self, torch: Any) -> TorchForm:
        return self.torch_kernel(torch, torch.arctan, in_place=torch.atan_)


@dataclass(frozen=True)
class Softplus(Shape):
    """The activation log(1 + e^x)."""

    feature = 2.0

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        return xp.logaddexp(xp.zeros_like(x), x) if order == 0 else logistic(x, order - 1, xp)

    def torch_form(self, torch: Any) -> TorchForm:
        softplus = torch.nn.functional.softplus
        return self.torch_kernel(torch, lambda x: softplus(x, threshold=_SOFTPLUS_THRESHOLD))


@dataclass(frozen=True)
class Swish(Shape):
    """The activation x/(1 + e^-x), also known as SiLU."""

    feature = 2.0

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        value = x * logistic(x, order, xp)
        return value + order * logistic(x, order - 1, xp) if order else value

    def torch_form(self, torch: Any) -> TorchForm:
        silu = torch.nn.functional.silu
        return self.torch_kernel(torch, silu, in_place=lambda x: silu(x, inplace=True))


@dataclass(frozen=True)
class Gelu(Shape):
    """The activation x P(ξ ≤ x) with ξ ~ N(0, 1): the exact GELU, not its approximation by tanh."""

    is_gelu = True

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        value = x * _normal_cdf(x, order, xp)
        return value + order * _normal_cdf(x, order - 1, xp) if order else value

    def torch_form(self, torch: Any) -> TorchForm:
        return self.torch_kernel(torch, torch.nn.functional.gelu)


@dataclass(frozen=True)
class Mish(Shape):
    """The activation x tanh(log(1 + e^x))."""

    feature = 1.5

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        inner = [_SOFTPLUS.evaluate(x, k, xp) for k in range(order + 1)]
        composed = chain_rule([_TANH.evaluate(inner[0], k, xp) for k in range(order + 1)], inner)
        value = x * composed[order]
        return value + order * composed[order - 1] if order else value

    def torch_form(self, torch: Any) -> TorchForm:
        mish = torch.nn.functional.mish
        return self.torch_kernel(torch, mish, in_place=lambda x: mish(x, inplace=True))


@dataclass(frozen=True)
class Softsign(Shape):
    """The activation x/(1 + |x|)."""

    parity = -1
    kinks = (0.0,)

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        r = 1.0 / (1.0 + xp.abs(x))
        if order == 0:
            return x * r
        value = math.factorial(order) * r ** (order + 1)
        return value if order % 2 else xp.where(x > 0, -value, value)

    def torch_form(self, torch: Any) -> TorchForm:
        return self.torch_kernel(torch, torch.nn.functional.softsign)


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

    def torch_form(self, torch: Any) -> TorchForm:
        elu, alpha = torch.nn.functional.elu, self.alpha
        return self.torch_kernel(
            torch, lambda x: elu(x, alpha), in_place=lambda x: elu(x, alpha, inplace=True)
        )


_TANH, _SOFTPLUS = Tanh(), Softplus()


# --- what their formulas share --------------------------------------------------------------------------------------


def logistic(x: Any, order: int, xp: Any) -> Any:
    """1/(1 + e^-x) and its derivatives, in p = σ(x)σ(-x)."""
    value = xp.expit(x)
    if order == 0:
        return value
    p = value * xp.expit(-x)
    if order == 1:
        return p
    if order == 3:
        return p * (1.0 - 6.0 * p)
    m = -xp.tanh(x / 2.0)
    return p * (m if order == 2 else m * (1.0 - 12.0 * p))


def _normal_cdf(x: Any, order: int, xp: Any) -> Any:
    """P(ξ ≤ x) for ξ ~ N(0, 1), and its derivatives: the density times Hermite polynomials."""
    if order == 0:
        return xp.ndtr(x)
    square = x**2
    density = xp.exp(-0.5 * square) / _SQRT_2PI
    if order == 1:
        return density
    if order == 2:
        return density * -x
    return density * (square - 1.0 if order == 3 else x * (3.0 - square))


def chain_rule(outer: list[Any], inner: list[Any]) -> list[Any]:
    """The derivatives of f(u(x)) from those of f at u and of u at x, orders 0 to at most 4 (Faà di Bruno)."""
    f, u = outer, inner
    composed = f[:1]
    if len(f) > 1:
        composed.append(f[1] * u[1])
    if len(f) > 2:
        composed.append(f[2] * u[1] ** 2 + f[1] * u[2])
    if len(f) > 3:
        composed.append(f[3] * u[1] ** 3 + 3.0 * f[2] * u[1] * u[2] + f[1] * u[3])
    if len(f) > 4:
        fourth = f[4] * u[1] ** 4 + 6.0 * f[3] * u[1] ** 2 * u[2] + f[1] * u[4]
        composed.append(fourth + f[2] * (3.0 * u[2] ** 2 + 4.0 * u[1] * u[3]))
    return composed


def check_finite(shape: Shape, name: str) -> None:
    """Refuse parameters of a shape that are not finite numbers, and make floats of them."""
    for parameter, value in vars(shape).items():
        if not np.isfinite(value):
            raise InputError(f"{name} needs finite numbers, but {parameter} = {value}.")
        object.__setattr__(shape, parameter, float(value))
