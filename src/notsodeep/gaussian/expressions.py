"""Expressions in one variable as trees of seven kinds of node, and what can be computed by walking them.

A tree says nothing about numbers: `walk` hands each node to an algebra.  `Jets` carries values with derivatives by the
rules of calculus, `Rounding` values with a bound of their rounding errors; torch has algebras of its own in `nets`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from notsodeep.gaussian.shapes import Wave
from notsodeep.gaussian.smooth import SMOOTH, chain_rule, logistic

Array = NDArray[np.float64]
Value = TypeVar("Value")

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True)
class Variable:
    """x."""


@dataclass(frozen=True)
class Sum:
    """left + right."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class Product:
    """left · right."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class Larger:
    """max(left, right): a kink where they cross."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class Absolute:
    """|argument|: a kink where it changes its sign."""

    argument: Expression


@dataclass(frozen=True)
class Power:
    """base ** exponent, the exponent a constant."""

    base: Expression
    exponent: float


@dataclass(frozen=True)
class Function:
    """One of FUNCTIONS, smooth, of one argument."""

    name: str
    argument: Expression


Expression = Number | Variable | Sum | Product | Larger | Absolute | Power | Function


class Algebra(Protocol[Value]):
    """What a walk over a tree computes with."""

    def variable(self) -> Value:
        """x."""

    def number(self, value: float) -> Value:
        """A constant."""

    def add(self, left: Value, right: Value) -> Value:
        """left + right."""

    def multiply(self, left: Value, right: Value) -> Value:
        """left · right."""

    def larger(self, left: Value, right: Value) -> Value:
        """max(left, right); where they are equal, the right one counts."""

    def power(self, base: Value, exponent: float) -> Value:
        """base ** exponent."""

    def apply(self, name: str, argument: Value) -> Value:
        """The function of that name."""


def walk(tree: Expression, algebra: Algebra[Value]) -> Value:
    """The value of the tree in this algebra."""
    match tree:
        case Number(value):
            return algebra.number(value)
        case Variable():
            return algebra.variable()
        case Sum(left, right):
            return algebra.add(walk(left, algebra), walk(right, algebra))
        case Product(left, right):
            return algebra.multiply(walk(left, algebra), walk(right, algebra))
        case Larger(left, right):
            return algebra.larger(walk(left, algebra), walk(right, algebra))
        case Absolute(argument):
            inner = walk(argument, algebra)
            return algebra.larger(inner, algebra.multiply(algebra.number(-1.0), inner))
        case Power(base, exponent):
            return algebra.power(walk(base, algebra), exponent)
        case Function(name, argument):
            return algebra.apply(name, walk(argument, algebra))


def switches(tree: Expression) -> Iterator[Expression]:
    """What decides, by its sign, between the branches of each max, min, abs and relu in the tree."""
    match tree:
        case Sum(left, right) | Product(left, right) | Larger(left, right):
            yield from switches(left)
            yield from switches(right)
        case Absolute(argument) | Power(argument, _) | Function(_, argument):
            yield from switches(argument)
    if isinstance(tree, Larger):
        yield Sum(tree.left, Product(Number(-1.0), tree.right))
    elif isinstance(tree, Absolute):
        yield tree.argument


# --- smooth functions of one argument, with their derivatives -------------------------------------------------------


def _exp(x: Array, order: int) -> Array:
    return np.exp(x)


def _expm1(x: Array, order: int) -> Array:
    return np.exp(x) if order else np.expm1(x)


def _log(x: Array, order: int) -> Array:
    if order == 0:
        return np.asarray(np.log(x))
    return np.asarray((-1.0) ** (order - 1) * math.factorial(order - 1) / x**order)


def _log1p(x: Array, order: int) -> Array:
    return _log(1.0 + x, order) if order else np.log1p(x)


def _sinh(x: Array, order: int) -> Array:
    return np.cosh(x) if order % 2 else np.sinh(x)


def _cosh(x: Array, order: int) -> Array:
    return _sinh(x, order + 1)


def power(x: Array, exponent: float, order: int) -> Array:
    """The derivative of x ** exponent: exponent (exponent - 1) ⋯ x ** (exponent - order)."""
    factor = math.prod(exponent - j for j in range(order))
    # 0 · x⁻¹ is zero also at x = 0.
    return np.asarray(factor * np.power(x, exponent - order)) if factor else np.zeros_like(x)


FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    **{
        name: SMOOTH[name].function for name in ("tanh", "erf", "swish", "gelu", "softplus", "mish", "arctan")
    },
    "sigmoid": logistic,
    "sin": Wave(sine=True),
    "cos": Wave(sine=False),
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sinh": _sinh,
    "cosh": _cosh,
}


# --- algebras of arrays ---------------------------------------------------------------------------------------------


def _positive(difference: Array) -> NDArray[np.bool_]:
    return difference > 0.0


@dataclass(frozen=True)
class Jets:
    """Values with derivatives up to `order`: a list [u, u', u'', …] for each node, exact up to rounding.

    Attributes:
        x: where.
        order: of the last derivative.
        chosen: which branch of a max counts, from the difference of the two.
    """

    x: Array
    order: int
    chosen: Callable[[Array], NDArray[np.bool_]] = _positive

    def variable(self) -> list[Array]:
        """The jet x, 1, 0, 0 and so on."""
        return [self.x, np.ones(()), *([np.zeros(())] * self.order)][: self.order + 1]

    def number(self, value: float) -> list[Array]:
        """The constant, then zeros."""
        return [np.asarray(value), *([np.zeros(())] * self.order)]

    def add(self, left: list[Array], right: list[Array]) -> list[Array]:
        """Term by term."""
        return [a + b for a, b in zip(left, right, strict=True)]

    def multiply(self, left: list[Array], right: list[Array]) -> list[Array]:
        """Leibniz's rule."""
        return [
            sum((math.comb(k, j) * left[j] * right[k - j] for j in range(1, k + 1)), left[0] * right[k])
            for k in range(self.order + 1)
        ]

    def larger(self, left: list[Array], right: list[Array]) -> list[Array]:
        """The branch that counts, with all its derivatives; what is not a number stays so."""
        left_counts = self.chosen(left[0] - right[0])
        undefined = np.isnan(left[0]) | np.isnan(right[0])
        return [
            np.where(undefined, np.nan, np.where(left_counts, a, b)) for a, b in zip(left, right, strict=True)
        ]

    def power(self, base: list[Array], exponent: float) -> list[Array]:
        """The chain rule."""
        return chain_rule([power(base[0], exponent, k) for k in range(self.order + 1)], base)

    def apply(self, name: str, argument: list[Array]) -> list[Array]:
        """The chain rule."""
        return chain_rule([FUNCTIONS[name](argument[0], k) for k in range(self.order + 1)], argument)


def derivative(tree: Expression, x: Array, order: int = 0) -> Array:
    """The derivative of that order at every x; the function itself for order 0."""
    return np.broadcast_to(walk(tree, Jets(x, order))[order], x.shape)


@dataclass(frozen=True)
class Rounding:
    """Values with a bound of the rounding errors that led to them: a pair (u, |error|) for each node."""

    x: Array

    def variable(self) -> tuple[Array, Array]:
        """x, without an error."""
        return self.x, np.zeros(())

    def number(self, value: float) -> tuple[Array, Array]:
        """The constant as it was rounded."""
        return np.asarray(value), np.asarray(EPS * abs(value))

    def add(self, left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        """Errors add up."""
        return self._rounded(left[0] + right[0], left[1] + right[1])

    def multiply(self, left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        """Relative errors add up."""
        return self._rounded(left[0] * right[0], np.abs(left[0]) * right[1] + np.abs(right[0]) * left[1])

    def larger(self, left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        """The larger of the errors."""
        return np.maximum(left[0], right[0]), np.maximum(left[1], right[1])

    def power(self, base: tuple[Array, Array], exponent: float) -> tuple[Array, Array]:
        """The error times the slope."""
        value, slope = (power(base[0], exponent, k) for k in (0, 1))
        return self._rounded(value, np.abs(slope) * base[1])

    def apply(self, name: str, argument: tuple[Array, Array]) -> tuple[Array, Array]:
        """The error times the slope."""
        value, slope = (FUNCTIONS[name](argument[0], k) for k in (0, 1))
        return self._rounded(value, np.abs(slope) * argument[1])

    @staticmethod
    def _rounded(value: Array, error: Array) -> tuple[Array, Array]:
        return value, np.asarray(error + EPS * np.abs(value))


def rounding(tree: Expression, x: Array) -> Array:
    """A bound of the rounding error in the value of the tree at every x."""
    return np.broadcast_to(walk(tree, Rounding(x))[1], x.shape)
