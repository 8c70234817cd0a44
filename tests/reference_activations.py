"""Activations by their definitions, in mpmath and in NumPy, for the oracles; the tests compare the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reference:
    """One activation by its definition, in mpmath and in NumPy.

    Attributes:
        name, parameters: what `nsd.activation` takes.
        mp_value, mp_slope: phi and phi' on an mpf.
        np_value, np_slope: phi and phi' on an array.
        kinks: points where phi is not analytic (of any order: elu has one at 0).
        pieces: (knots, slopes, value at 0) of a piecewise-linear phi, for its closed forms.
        coefficients: of a polynomial phi, lowest order first.
        wave: sin and cos, whose quadrature at large variance is hopeless and whose closed form is short.
    """

    name: str
    mp_value: Callable[[Any], Any]
    mp_slope: Callable[[Any], Any]
    np_value: Callable[[Array], Array]
    np_slope: Callable[[Array], Array]
    parameters: dict[str, Any] = field(default_factory=dict)
    kinks: tuple[float, ...] = ()
    pieces: tuple[tuple[float, ...], tuple[float, ...], float] | None = None
    coefficients: tuple[float, ...] | None = None
    wave: bool = False
    label: str = ""

    def __str__(self) -> str:
        return self.label or self.name


def pieces_value(x: Any, knots: Sequence[float], slopes: Sequence[float], at_zero: float) -> Any:
    """The continuous piecewise-linear function through (0, at_zero), for any number type."""
    edges = [-math.inf, *knots, math.inf]
    total = x * 0 + at_zero
    for left, right, slope in zip(edges[:-1], edges[1:], slopes, strict=True):
        total = total + slope * (_clip(x, left, right) - min(max(0, left), right))
    return total


def _clip(x: Any, left: float, right: float) -> Any:
    return np.clip(x, left, right) if isinstance(x, np.ndarray) else min(max(x, left), right)


def _pieces_slope(x: Any, knots: Sequence[float], slopes: Sequence[float]) -> Any:
    if isinstance(x, np.ndarray):
        return np.asarray(slopes)[np.searchsorted(np.asarray(knots), x)]
    return mpf(slopes[sum(1 for knot in knots if x > knot)])


def piecewise(
    name: str,
    knots: Sequence[float],
    slopes: Sequence[float],
    parameters: dict[str, Any] | None = None,
    *,
    at_zero: float = 0.0,
    label: str = "",
) -> Reference:
    """A piecewise-linear reference from its knots, slopes and value at 0."""
    exact = [mpf(knot) for knot in knots], [mpf(slope) for slope in slopes], mpf(at_zero)
    return Reference(
        name=name,
        label=label,
        parameters=parameters or {},
        mp_value=lambda x: pieces_value(x, *exact),
        mp_slope=lambda x: _pieces_slope(x, knots, slopes),
        np_value=lambda x: pieces_value(x, knots, slopes, at_zero),
        np_slope=lambda x: _pieces_slope(x, knots, slopes),
        kinks=tuple(knots),
        pieces=(tuple(knots), tuple(slopes), at_zero),
    )


def polynomial(coefficients: Sequence[float], name: str = "polynomial") -> Reference:
    """A polynomial reference, lowest order first."""
    exact = [mpf(c) for c in coefficients]
    rounded = [k * c for k, c in enumerate(coefficients)][1:] or [0.0]

    def horner(x: Any, terms: Sequence[float]) -> Any:
        total = x * 0
        for term in reversed(terms):
            total = total * x + term
        return total

    return Reference(
        name=name,
        parameters={"coefficients": list(coefficients)} if name == "polynomial" else {},
        mp_value=lambda x: horner(x, exact),
        mp_slope=lambda x: horner(x, [k * c for k, c in enumerate(exact)][1:]),
        np_value=lambda x: horner(x, coefficients),
        np_slope=lambda x: horner(x, rounded),
        coefficients=tuple(coefficients),
    )


def _mp_sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def _mp_mish(x: Any) -> Any:
    n = mpmath.exp(x) * (mpmath.exp(x) + 2)
    return x * n / (n + 2)


def _mp_mish_slope(x: Any) -> Any:
    e = mpmath.exp(x)
    n = e * (e + 2)
    return n / (n + 2) + x * 4 * e * (e + 1) / (n + 2) ** 2


def _sech2(x: Array) -> Array:
    small = np.exp(-2 * np.abs(x))
    return 4 * small / (1 + small) ** 2


def density(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _mish_slope(x: Array) -> Array:
    plus = np.logaddexp(0, x)
    return np.tanh(plus) + x * _sech2(plus) * special.expit(x)


SMOOTH = (
    Reference("tanh", mpmath.tanh, lambda x: mpmath.sech(x) ** 2, np.tanh, _sech2),
    Reference(
        "erf",
        mpmath.erf,
        lambda x: 2 / mpmath.sqrt(mp.pi) * mpmath.exp(-x * x),
        special.erf,
        lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    ),
    Reference(
        "sigmoid",
        _mp_sigmoid,
        lambda x: _mp_sigmoid(x) * _mp_sigmoid(-x),
        special.expit,
        lambda x: special.expit(x) * special.expit(-x),
    ),
    Reference(
        "swish",
        lambda x: x * _mp_sigmoid(x),
        lambda x: _mp_sigmoid(x) * (1 + x * _mp_sigmoid(-x)),
        lambda x: x * special.expit(x),
        lambda x: special.expit(x) * (1 + x * special.expit(-x)),
    ),
    Reference(
        "gelu",
        lambda x: x * mpmath.ncdf(x),
        lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x),
        lambda x: x * special.ndtr(x),
        lambda x: special.ndtr(x) + x * density(x),
    ),
    Reference(
        "softplus",
        lambda x: max(x, mpf(0)) + mpmath.log1p(mpmath.exp(-abs(x))),
        _mp_sigmoid,
        lambda x: np.logaddexp(0, x),
        special.expit,
    ),
    Reference(
        "elu",
        lambda x: x if x > 0 else mpmath.expm1(x),
        lambda x: mpf(1) if x > 0 else mpmath.exp(x),
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        lambda x: np.exp(np.minimum(x, 0)),
        kinks=(0.0,),
    ),
    Reference("mish", _mp_mish, _mp_mish_slope, lambda x: x * np.tanh(np.logaddexp(0, x)), _mish_slope),
    Reference("arctan", mpmath.atan, lambda x: 1 / (1 + x * x), np.arctan, lambda x: 1 / (1 + x * x)),
    Reference(
        "softsign",
        lambda x: x / (1 + abs(x)),
        lambda x: 1 / (1 + abs(x)) ** 2,
        lambda x: x / (1 + np.abs(x)),
        lambda x: 1 / (1 + np.abs(x)) ** 2,
        kinks=(0.0,),
    ),
)

PIECEWISE = (
    piecewise("relu", (0.0,), (0.0, 1.0)),
    piecewise("leaky_relu", (0.0,), (0.1, 1.0), {"a": 1.0, "b": 0.1}),
    # max(ax, bx) with a < b: the two slopes exchange sides
    piecewise("leaky_relu", (0.0,), (-0.5, 0.3), {"a": -0.5, "b": 0.3}, label="leaky_relu_swapped"),
    piecewise("abs", (0.0,), (-1.0, 1.0)),
    piecewise("hard_tanh", (-1.2, 1.2), (0.0, 0.8, 0.0), {"a": 0.8, "c": 1.2}),
    piecewise("hard_sigmoid", (-3.0, 3.0), (0.0, 1 / 6, 0.0), at_zero=0.5),
    piecewise(
        "piecewise_linear",
        (-1.0, 0.5, 2.0),
        (0.2, 1.0, -0.3, 0.5),
        {"knots": (-1.0, 0.5, 2.0), "slopes": (0.2, 1.0, -0.3, 0.5)},
    ),
)

POLYNOMIALS = (polynomial((0.0, 1.0), "identity"), polynomial((0.1, 1.0, -0.3, 0.05)))

WAVES = (
    Reference("sin", mpmath.sin, mpmath.cos, np.sin, np.cos, wave=True),
    Reference("cos", mpmath.cos, lambda x: -mpmath.sin(x), np.cos, lambda x: -np.sin(x), wave=True),
)

ALL = PIECEWISE + SMOOTH + POLYNOMIALS + WAVES


def reference(label: str) -> Reference:
    """The reference of that label."""
    return next(one for one in ALL if str(one) == label)


def at_zero(phi: Reference) -> float:
    """The value of the activation at 0."""
    return float(phi.np_value(np.zeros(1))[0])


def mp_derivative(phi: Reference, x: float, order: int) -> float:
    """The order-th derivative of our own mpmath definition, by differences at 60 digits."""
    with mp.workdps(60):
        return float(mpmath.diff(phi.mp_value, mpf(x), order))
