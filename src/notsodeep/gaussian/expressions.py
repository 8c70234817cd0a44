"""Expressions in one variable as trees of eight kinds of node, and what can be computed by walking them.

A tree says nothing about numbers: `walk` hands each node to an algebra.  `Jets` carries values with derivatives by the
rules of calculus, on arrays or on tensors; `Rounding` carries values with a bound of their rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from notsodeep.gaussian import smooth
from notsodeep.gaussian.backend import NUMPY
from notsodeep.gaussian.waves import Cosine, Sine
from notsodeep.validation import Array

Value = TypeVar("Value")

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Number:
    """A constant in an expression."""

    value: float


@dataclass(frozen=True)
class Variable:
    """The variable x of an expression."""


@dataclass(frozen=True)
class Sum:
    """The sum left + right of two expressions."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class Product:
    """The product left · right of two expressions."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class Larger:
    """The larger of two expressions, with a kink where they cross."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class Absolute:
    """The absolute value of an expression, with a kink where that changes its sign."""

    argument: Expression


@dataclass(frozen=True)
class Power:
    """An expression to a constant power, base ** exponent."""

    base: Expression
    exponent: float


@dataclass(frozen=True)
class Function:
    """A smooth function of one argument, by its name in FUNCTIONS."""

    name: str
    argument: Expression


Expression = Number | Variable | Sum | Product | Larger | Absolute | Power | Function


class Algebra(Protocol[Value]):
    """What the nodes of a tree are computed with; see `walk`."""

    def variable(self) -> Value:
        """The value of the variable x."""

    def number(self, value: float) -> Value:
        """The value of a constant."""

    def add(self, left: Value, right: Value) -> Value:
        """The value of left + right."""

    def multiply(self, left: Value, right: Value) -> Value:
        """The value of left · right."""

    def larger(self, left: Value, right: Value) -> Value:
        """The value of max(left, right); where they are equal, the right one counts."""

    def power(self, base: Value, exponent: float) -> Value:
        """The value of base ** exponent."""

    def apply(self, name: str, argument: Value) -> Value:
        """The value of the function of that name."""


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


def _exp(x: Any, order: int, xp: Any) -> Any:
    return xp.exp(x)


def _expm1(x: Any, order: int, xp: Any) -> Any:
    return xp.exp(x) if order else xp.expm1(x)


def _log(x: Any, order: int, xp: Any) -> Any:
    if order == 0:
        return xp.log(x)
    return (-1.0) ** (order - 1) * math.factorial(order - 1) / x**order


def _log1p(x: Any, order: int, xp: Any) -> Any:
    return _log(1.0 + x, order, xp) if order else xp.log1p(x)


def _sinh(x: Any, order: int, xp: Any) -> Any:
    return xp.cosh(x) if order % 2 else xp.sinh(x)


def _cosh(x: Any, order: int, xp: Any) -> Any:
    return _sinh(x, order + 1, xp)


def power(x: Any, exponent: float, order: int, xp: Any) -> Any:
    """The derivative of x ** exponent: exponent (exponent - 1) ⋯ x ** (exponent - order)."""
    factor = math.prod(exponent - j for j in range(order))
    # 0 · x⁻¹ is zero also at x = 0.
    return factor * x ** (exponent - order) if factor else xp.zeros_like(x)


# Each takes an array or a tensor, the order of the derivative and the functions to compute with (`backend.Backend`).
FUNCTIONS: dict[str, Callable[[Any, int, Any], Any]] = {
    "tanh": smooth.Tanh().evaluate,
    "erf": smooth.Erf().evaluate,
    "swish": smooth.Swish().evaluate,
    "gelu": smooth.Gelu().evaluate,
    "softplus": smooth.Softplus().evaluate,
    "mish": smooth.Mish().evaluate,
    "arctan": smooth.Arctan().evaluate,
    "sigmoid": smooth.logistic,
    "sin": Sine().evaluate,
    "cos": Cosine().evaluate,
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sinh": _sinh,
    "cosh": _cosh,
}


# --- algebras -------------------------------------------------------------------------------------------------------


def _is_positive(difference: Any) -> Any:
    return difference > 0.0


@dataclass(frozen=True)
class Jets:
    """Values with derivatives up to `order`: a list [u, u', u'', …] for each node, exact up to rounding.

    Attributes:
        x: the array or tensor that the variable stands for.
        order: the order of the last derivative.
        xp: the functions of arrays or of tensors to compute with.
        chosen: whether the left branch of a max counts, from the difference of the two.
    """

    x: Any
    order: int
    xp: Any = NUMPY
    chosen: Callable[[Any], Any] = _is_positive

    def variable(self) -> list[Any]:
        """The jet of x: its value, then 1, then zeros."""
        one, zero = (self.xp.constant(value, self.x) for value in (1.0, 0.0))
        return [self.x, one, *([zero] * self.order)][: self.order + 1]

    def number(self, value: float) -> list[Any]:
        """The jet of a constant: its value, then zeros."""
        return [self.xp.constant(value, self.x), *([self.xp.constant(0.0, self.x)] * self.order)]

    def add(self, left: list[Any], right: list[Any]) -> list[Any]:
        """The derivatives of a sum are the sums of the derivatives."""
        return [a + b for a, b in zip(left, right, strict=True)]

    def multiply(self, left: list[Any], right: list[Any]) -> list[Any]:
        """The derivatives of a product, by Leibniz's rule."""
        return [
            sum((math.comb(k, j) * left[j] * right[k - j] for j in range(1, k + 1)), left[0] * right[k])
            for k in range(self.order + 1)
        ]

    def larger(self, left: list[Any], right: list[Any]) -> list[Any]:
        """The branch that counts, with all its derivatives; what is not a number stays so."""
        where = self.xp.where
        left_counts = self.chosen(left[0] - right[0])
        undefined = self.xp.isnan(left[0]) | self.xp.isnan(right[0])
        return [
            where(undefined, math.nan, where(left_counts, a, b)) for a, b in zip(left, right, strict=True)
        ]

    def power(self, base: list[Any], exponent: float) -> list[Any]:
        """The derivatives of a power, by the chain rule."""
        outer = [power(base[0], exponent, k, self.xp) for k in range(self.order + 1)]
        return smooth.chain_rule(outer, base)

    def apply(self, name: str, argument: list[Any]) -> list[Any]:
        """The derivatives of a function of the argument, by the chain rule."""
        outer = [FUNCTIONS[name](argument[0], k, self.xp) for k in range(self.order + 1)]
        return smooth.chain_rule(outer, argument)


def derivative(tree: Expression, x: Any, order: int = 0, xp: Any = NUMPY) -> Any:
    """The derivative of that order at every x, an array or a tensor; the function itself for order 0."""
    return xp.broadcast_to(walk(tree, Jets(x, order, xp))[order], x.shape)


@dataclass(frozen=True)
class Rounding:
    """Values with a bound of the rounding errors that led to them: a pair (u, |error|) for each node."""

    x: Array

    def variable(self) -> tuple[Array, Array]:
        """The variable has no rounding error."""
        return self.x, np.zeros(())

    def number(self, value: float) -> tuple[Array, Array]:
        """A constant has the error of its rounding to a float."""
        return np.asarray(value), np.asarray(EPS * abs(value))

    def add(self, left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        """The errors of a sum add up."""
        return self._rounded(left[0] + right[0], left[1] + right[1])

    def multiply(self, left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        """The relative errors of a product add up."""
        return self._rounded(left[0] * right[0], np.abs(left[0]) * right[1] + np.abs(right[0]) * left[1])

    def larger(self, left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        """The error of a max is at most the larger of the two."""
        return np.maximum(left[0], right[0]), np.maximum(left[1], right[1])

    def power(self, base: tuple[Array, Array], exponent: float) -> tuple[Array, Array]:
        """The error of the base times the slope of the power."""
        value, slope = (power(base[0], exponent, k, NUMPY) for k in (0, 1))
        return self._rounded(value, np.abs(slope) * base[1])

    def apply(self, name: str, argument: tuple[Array, Array]) -> tuple[Array, Array]:
        """The error of the argument times the slope of the function."""
        value, slope = (FUNCTIONS[name](argument[0], k, NUMPY) for k in (0, 1))
        return self._rounded(value, np.abs(slope) * argument[1])

    @staticmethod
    def _rounded(value: Array, error: Array) -> tuple[Array, Array]:
        return value, np.asarray(error + EPS * np.abs(value))


def rounding(tree: Expression, x: Array) -> Array:
    """A bound of the rounding error in the value of the tree at every x."""
    return np.broadcast_to(walk(tree, Rounding(x))[1], x.shape)
