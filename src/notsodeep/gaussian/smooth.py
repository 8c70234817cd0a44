"""Smooth activations by name, with derivatives up to order 4; their moments come from quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep.errors import InputError
from notsodeep.gaussian.shapes import Shape, bell, hermite

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Smooth(Shape):
    """A named function with derivatives up to order 4."""

    name: str
    parameters: tuple[float, ...] = ()

    @property
    def _entry(self) -> SmoothEntry:
        return SMOOTH[self.name]

    @property
    def kinks(self) -> tuple[float, ...]:  # type: ignore[override]
        return self._entry.kinks

    @property
    def parity(self) -> int:  # type: ignore[override]
        return self._entry.parity

    @property
    def feature(self) -> float:  # type: ignore[override]
        return self._entry.feature

    @property
    def dual(self) -> str:  # type: ignore[override]
        return "erf" if self.name == "erf" else "general"

    def __call__(self, x: Array, order: int = 0) -> Array:
        return np.asarray(self._entry.function(x, order, *self.parameters))


@dataclass(frozen=True)
class SmoothEntry:
    """What the quadrature must know of a smooth function."""

    function: Callable[..., Any]
    parity: int
    feature: float
    kinks: tuple[float, ...] = ()


def _sech2(x: Array) -> Array:
    decay = np.exp(-2.0 * np.abs(x))
    return np.asarray(4.0 * decay / (1.0 + decay) ** 2)


def _tanh(x: Array, order: int) -> Array:
    y = np.tanh(x)
    if order == 0:
        return np.asarray(y)
    slope = _sech2(x)
    factors = (1.0, -2.0 * y, 6.0 * y**2 - 2.0, 8.0 * y * (2.0 - 3.0 * y**2))
    return np.asarray(slope * factors[order - 1])


def logistic(x: Array, order: int) -> Array:
    """1/(1 + e^-x) and its derivatives, in p = σ(x)σ(-x)."""
    value = special.expit(x)
    if order == 0:
        return np.asarray(value)
    p, m = value * special.expit(-x), -np.tanh(x / 2.0)
    return np.asarray(p * (1.0, m, 1.0 - 6.0 * p, m * (1.0 - 12.0 * p))[order - 1])


def _softplus(x: Array, order: int) -> Array:
    return np.logaddexp(0.0, x) if order == 0 else logistic(x, order - 1)


def _swish(x: Array, order: int) -> Array:
    lower = order * logistic(x, order - 1) if order else 0.0
    return np.asarray(x * logistic(x, order) + lower)


def _normal_cdf(x: Array, order: int) -> Array:
    if order == 0:
        return np.asarray(special.ndtr(x))
    return (-1.0) ** (order - 1) * hermite(x, order - 1) * bell(x)


def _gelu(x: Array, order: int) -> Array:
    lower = order * _normal_cdf(x, order - 1) if order else 0.0
    return np.asarray(x * _normal_cdf(x, order) + lower)


def _erf(x: Array, order: int) -> Array:
    if order == 0:
        return np.asarray(special.erf(x))
    factors = (1.0, -2.0 * x, 4.0 * x**2 - 2.0, 12.0 * x - 8.0 * x**3)
    return np.asarray(2.0 / np.sqrt(np.pi) * np.exp(-(x**2)) * factors[order - 1])


def _arctan(x: Array, order: int) -> Array:
    if order == 0:
        return np.asarray(np.arctan(x))
    r = 1.0 / (1.0 + x**2)
    return np.asarray(
        (r, -2.0 * x * r**2, (6.0 * x**2 - 2.0) * r**3, 24.0 * x * (1.0 - x**2) * r**4)[order - 1]
    )


def _softsign(x: Array, order: int) -> Array:
    r = 1.0 / (1.0 + np.abs(x))
    if order == 0:
        return np.asarray(x * r)
    sign = np.where(x > 0, (-1.0) ** (order + 1), 1.0)
    return np.asarray(sign * special.factorial(order) * r ** (order + 1))


def _elu(x: Array, order: int, alpha: float) -> Array:
    below = np.minimum(x, 0.0)
    if order == 0:
        return np.asarray(np.where(x > 0, x, alpha * np.expm1(below)))
    return np.asarray(np.where(x > 0, 1.0 if order == 1 else 0.0, alpha * np.exp(below)))


def chain_rule(outer: list[Array], inner: list[Array]) -> list[Array]:
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


def _mish(x: Array, order: int) -> Array:
    """x tanh(softplus x)."""
    u = [_softplus(x, j) for j in range(order + 1)]
    t = [_tanh(u[0], j) for j in range(order + 1)]
    composed = chain_rule(t, u)
    lower = order * composed[order - 1] if order else 0.0
    return np.asarray(x * composed[order] + lower)


@dataclass(frozen=True)
class SmoothSum(Shape):
    """linear · x + bend · softplus(sharpness · x) + bounded · tanh(clip · x): of linear growth, without a kink."""

    linear: float
    bend: float
    sharpness: float
    bounded: float
    clip: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not np.isfinite(value):
                raise InputError(f"smooth_sum needs finite numbers, but {name} = {value}.")
        if self.sharpness <= 0 or self.clip <= 0:
            raise InputError(
                f"smooth_sum needs sharpness > 0 and clip > 0, got {self.sharpness} and {self.clip}; "
                "put signs in bend and bounded."
            )

    @property
    def parity(self) -> int:  # type: ignore[override]
        """Odd without the softplus."""
        return -1 if self.bend == 0.0 else 0

    @property
    def feature(self) -> float:  # type: ignore[override]
        """The shorter of the lengths over which its two bent terms are smooth."""
        return min(SMOOTH["softplus"].feature / self.sharpness, SMOOTH["tanh"].feature / self.clip)

    def __call__(self, x: Array, order: int = 0) -> Array:
        value = self.bend * self.sharpness**order * _softplus(self.sharpness * x, order)
        value = value + self.bounded * self.clip**order * _tanh(self.clip * x, order)
        if order == 0:
            return np.asarray(value + self.linear * x)
        return np.asarray(value + self.linear if order == 1 else value)


SMOOTH: dict[str, SmoothEntry] = {
    "tanh": SmoothEntry(_tanh, parity=-1, feature=1.0),
    "erf": SmoothEntry(_erf, parity=-1, feature=0.7),
    "swish": SmoothEntry(_swish, parity=0, feature=2.0),
    "gelu": SmoothEntry(_gelu, parity=0, feature=1.0),
    "softplus": SmoothEntry(_softplus, parity=0, feature=2.0),
    "mish": SmoothEntry(_mish, parity=0, feature=1.5),
    "arctan": SmoothEntry(_arctan, parity=-1, feature=0.7),
    "softsign": SmoothEntry(_softsign, parity=-1, feature=1.0, kinks=(0.0,)),
    "elu": SmoothEntry(_elu, parity=0, feature=1.0, kinks=(0.0,)),
}
