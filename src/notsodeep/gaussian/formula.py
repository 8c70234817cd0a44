"""An activation typed as a formula in x: read, never executed, then resolved like any other callable.

Python's own grammar reads the text into a syntax tree; every node of it must be on a short list and becomes a node of
`expressions`.  What is not on the list is refused by a sentence that names the place.  Nothing is compiled or run.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.gaussian import expressions, panels
from notsodeep.gaussian.backend import NUMPY
from notsodeep.gaussian.expressions import (
    Absolute,
    Expression,
    Function,
    Jets,
    Larger,
    Number,
    Power,
    Product,
    Sum,
    Variable,
    walk,
)
from notsodeep.gaussian.resolved import Resolved, checked_values
from notsodeep.gaussian.shapes import MAX_ORDER
from notsodeep.validation import Array

# Limits: far beyond any activation, far below what could keep a machine busy.
MAX_LENGTH = 300
MAX_DEPTH = 60
MAX_CONSTANT = 1e6
MAX_EXPONENT = 20.0

CONSTANTS = {"pi": math.pi, "e": math.e}
ALIASES = {"silu": "swish", "atan": "arctan", "logistic": "sigmoid"}
# Functions that are written with other nodes, and how many arguments each takes.
WRITTEN_OUT = {"abs": 1, "relu": 1, "sqrt": 1, "min": 2, "max": 2, "clip": 3}
ALLOWED = (
    "Allowed are x, numbers, pi, e, + - * / **, round brackets and "
    + ", ".join(sorted([*expressions.FUNCTIONS, "abs", "relu", "sqrt"]))
    + " of one argument, min(a, b), max(a, b), clip(a, low, high)."
)
_HINTS = {
    "^": "a power is written **, as in x**2",
    "²": "a power is written **, as in x**2",
    "³": "a power is written **, as in x**3",
    "=": "write only what stands to the right of =",
    "|": "an absolute value is written abs(x)",
    "[": "brackets are round",
    "{": "brackets are round",
    "<": "cases are written with max, min and clip",
    ">": "cases are written with max, min and clip",
    "·": "a product is written *",
    "×": "a product is written *",
    "−": "minus is written with the hyphen, -",
    "π": "the number π is written pi",
}
_NEEDS_STAR = "a product needs its *, as in 2 * x"
_FOREIGN = re.compile(r"[^0-9A-Za-z_.+\-*/(), ]")
_MISSING_STAR = re.compile(r"(?<![A-Za-z_0-9.])[0-9.]+ *[A-Za-z(]|\) *[A-Za-z0-9(]")

# Where kinks are looked for, and how finely; a kink that is missed is refused when the function is resolved.
REACH = 256.0
STEP = 1.0 / 64.0
MAX_KINKS = 200
# Kinks closer than this, relative to their position, are one.
SAME = 1e-12
# A kink closer to zero than this is at zero.
ZERO = 1e-30


class _Reader:
    """Python's syntax tree of one text, turned into an expression or refused."""

    def __init__(self, text: str) -> None:
        self.text = text

    def refuse(self, reason: str, start: int = 0, end: int | None = None) -> NoReturn:
        """An InputError that quotes the place."""
        place = self.text[start : len(self.text) if end is None else end]
        quoted = place if len(place) <= 40 else place[:40] + "…"
        whole = self.text if len(self.text) <= 80 else self.text[:80] + "…"
        at = f" at character {start + 1}, {quoted!r}" if place else " at its end"
        raise InputError(f"The formula {whole!r} cannot be read{at}: {reason}. {ALLOWED}")

    def syntax(self) -> ast.expr:
        """The syntax tree of the whole text."""
        foreign = _FOREIGN.search(self.text)
        if foreign:
            hint = _HINTS.get(foreign[0], "this character has no place in a formula")
            self.refuse(hint, foreign.start(), foreign.end())
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            # An offset of zero is the end of the text.
            at = error.offset - 1 if error.offset else len(self.text)
            self.refuse(self._what_is_wrong(str(error.msg)), at)
        except (ValueError, MemoryError, RecursionError):
            self.refuse("it is too deeply nested")

    def _what_is_wrong(self, message: str) -> str:
        if "never closed" in message:
            return "this bracket is not closed"
        if "unmatched" in message:
            return "this bracket was not opened"
        if "too many nested" in message:
            return "it is too deeply nested"
        if _MISSING_STAR.search(self.text):
            return _NEEDS_STAR
        return "something is missing or too much"

    def read(self, node: ast.AST, depth: int = 0) -> Expression:
        """The expression that this node stands for; constants are worked out."""
        if depth > MAX_DEPTH:
            self.refuse_node(node, f"it is more than {MAX_DEPTH} operations deep")
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                made: Expression = Number(self._float(value, node))
            case ast.Name(id=name):
                made = self._name(name, node)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                made = self.read(operand, depth + 1)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                made = _negative(self.read(operand, depth + 1))
            case ast.BinOp(left=left, op=operation, right=right):
                made = self._operation(
                    operation, self.read(left, depth + 1), self.read(right, depth + 1), node
                )
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                made = self._call(name, [self.read(argument, depth + 1) for argument in arguments], node)
            case ast.Call(func=ast.Constant() | ast.BinOp() | ast.Call()):
                self.refuse_node(node, _NEEDS_STAR)
            case _:
                self.refuse_node(node, "this is not part of a formula")
        return self._worked_out(made, node)

    def refuse_node(self, node: ast.AST, reason: str) -> NoReturn:
        """Refuse what stands at this node."""
        self.refuse(reason, getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None))

    def _float(self, value: float, node: ast.AST) -> float:
        # Compared before it is converted: an integer may be too long for a float.
        if not abs(value) <= MAX_CONSTANT:
            self.refuse_node(node, f"a number may be as large as {MAX_CONSTANT:g}, and must be finite")
        return float(value)

    def _name(self, name: str, node: ast.AST) -> Expression:
        if name == "x":
            return Variable()
        if name in CONSTANTS:
            return Number(CONSTANTS[name])
        if name in expressions.FUNCTIONS or name in ALIASES or name in WRITTEN_OUT:
            self.refuse_node(node, f"{name} is a function and needs its argument, as in {name}(x)")
        self.refuse_node(node, f"there is no {name!r}; the variable is x")

    def _operation(
        self, kind: ast.operator, left: Expression, right: Expression, node: ast.AST
    ) -> Expression:
        match kind:
            case ast.Add():
                return Sum(left, right)
            case ast.Sub():
                return Sum(left, _negative(right))
            case ast.Mult():
                return Product(left, right)
            case ast.Div():
                return Product(left, self._worked_out(Power(right, -1.0), node))
            case ast.Pow():
                return self._power(left, right, node)
        self.refuse_node(node, "this operation is not part of a formula")

    def _power(self, base: Expression, exponent: Expression, node: ast.AST) -> Expression:
        if isinstance(exponent, Number):
            if abs(exponent.value) > MAX_EXPONENT:
                self.refuse_node(node, f"an exponent may be as large as {MAX_EXPONENT:g}")
            return {0.0: Number(1.0), 1.0: base}.get(exponent.value, Power(base, exponent.value))
        if isinstance(base, Number) and base.value > 0.0:
            return Function("exp", Product(Number(math.log(base.value)), exponent))
        self.refuse_node(
            node, "x in an exponent needs a positive number under it, as in 2**x; else use exp and log"
        )

    def _call(self, name: str, arguments: list[Expression], node: ast.AST) -> Expression:
        name = ALIASES.get(name, name)
        if name not in expressions.FUNCTIONS and name not in WRITTEN_OUT:
            product = name == "x" or name in CONSTANTS
            self.refuse_node(node, _NEEDS_STAR if product else f"there is no function {name!r}")
        wanted = WRITTEN_OUT.get(name, 1)
        if len(arguments) != wanted:
            count = f"{wanted} argument{'s' if wanted > 1 else ''}"
            self.refuse_node(node, f"{name} takes {count}, not {len(arguments)}")
        match name, arguments:
            case "abs", [one]:
                return Absolute(one)
            case "relu", [one]:
                return Larger(one, Number(0.0))
            case "sqrt", [one]:
                return Power(one, 0.5)
            case "max", [left, right]:
                return Larger(left, right)
            case "min", [left, right]:
                return _smaller(left, right)
            case "clip", [_, Number(low), Number(high)] if low >= high:
                self.refuse_node(node, f"clip(a, low, high) needs low < high, not {low:g} and {high:g}")
            case "clip", [one, low, high]:
                return _smaller(Larger(one, low), high)
        return Function(name, arguments[0])

    def _worked_out(self, tree: Expression, node: ast.AST) -> Expression:
        """A number in place of an operation on numbers alone."""
        parts = [part for part in vars(tree).values() if not isinstance(part, float | str)]
        if isinstance(tree, Variable | Number) or not all(isinstance(part, Number) for part in parts):
            return tree
        with np.errstate(all="ignore"):
            return Number(self._float(float(walk(tree, Jets(np.zeros(()), 0))[0]), node))


def _negative(tree: Expression) -> Expression:
    return Number(-tree.value) if isinstance(tree, Number) else Product(Number(-1.0), tree)


def _smaller(left: Expression, right: Expression) -> Expression:
    return _negative(Larger(_negative(left), _negative(right)))


def read_formula(text: str) -> tuple[Expression, str]:
    """The tree of a formula in x, and the formula in its tidied form: equal formulas, equal texts.

    Raises:
        InputError: for everything that is not such a formula, with the place and what is allowed.
    """
    if not isinstance(text, str):
        raise InputError(f"A formula is text, such as 'x * sigmoid(x)', not {type(text).__name__}.")
    if not text.strip():
        raise InputError(f"The formula is empty: write one in x, such as x * sigmoid(x). {ALLOWED}")
    if len(text) > MAX_LENGTH:
        raise InputError(
            f"The formula has {len(text)} characters and may have {MAX_LENGTH}: shorten it, or use custom_activation."
        )
    reader = _Reader(text.strip())
    syntax = reader.syntax()
    tree = reader.read(syntax)
    if isinstance(tree, Number):
        reader.refuse("it is the same number for every x")
    return tree, ast.unparse(syntax)


def find_kinks(tree: Expression) -> tuple[float, ...]:
    """Where a max, min, abs or relu of the tree changes its branch, up to REACH, to the last bit."""
    # Odd numbers, so that no point of the grid is a root of something simple.
    grid = np.arange(-REACH, REACH, STEP) + 0.0037
    found: list[float] = []
    for switch in expressions.switches(tree):
        with np.errstate(all="ignore"):
            on = expressions.derivative(switch, grid) > 0.0
            turns = np.flatnonzero(on[1:] != on[:-1])
            found += _boundaries(switch, grid[turns], grid[turns + 1]).tolist()
    distinct: list[float] = []
    for kink in sorted(found):
        if not distinct or kink - distinct[-1] > SAME * max(1.0, abs(kink)):
            distinct.append(kink)
    return tuple(distinct)


def _boundaries(switch: Expression, low: Array, high: Array) -> Array:
    """Where the switch turns between each pair of points, by bisection down to neighbouring numbers."""
    below = expressions.derivative(switch, low) > 0.0
    while np.any((low < (middle := 0.5 * (low + high))) & (middle < high) & (high - low > ZERO)):
        same = (expressions.derivative(switch, middle) > 0.0) == below
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    at_low, at_high = (np.abs(expressions.derivative(switch, side)) for side in (low, high))
    return np.where((low <= 0.0) & (high >= 0.0), 0.0, np.where(at_low <= at_high, low, high))


class Formula(Resolved):
    """A formula in x, with derivatives by the rules of calculus and kinks where its branches change.

    Attributes:
        expression: the formula in its tidied form, by which formulas are compared.
        tree: the expression that was read from it.
    """

    most_panels = 4000
    caveat = (
        f"The formula was looked at in points {panels.PROBES:g}·|x| apart ({panels.PROBES * panels.CORE:g} near zero): "
        "a feature narrower than that cannot be excluded."
    )

    def __init__(self, expression: str) -> None:
        self.tree, self.expression = read_formula(expression)
        self.name = self.expression
        self.kinks = find_kinks(self.tree)
        if len(self.kinks) > MAX_KINKS:
            raise InputError(
                f"The formula {self.name!r} has {len(self.kinks)} kinks between ±{REACH:g}; up to {MAX_KINKS} are "
                "supported."
            )
        self.resolve()
        broken = [~np.isfinite(side) for k in range(MAX_ORDER + 1) for side in self._sides(k)]
        if np.any(broken):
            self.refuse(self.kinks[int(np.argmax(np.any(broken, axis=0)))])

    def __repr__(self) -> str:
        return f"formula({self.expression!r})"

    def __reduce__(self) -> tuple[type[Formula], tuple[str]]:
        return Formula, (self.expression,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and other.expression == self.expression

    def __hash__(self) -> int:
        return hash((Formula, self.expression))

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        """By the rules of calculus; at a kink the derivative on its left."""
        return expressions.derivative(self.tree, x, order, xp)

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order on an array, checked; at a kink that on its left."""
        with np.errstate(all="ignore"):
            return checked_values(x, self.evaluate(x, order, NUMPY), self._refuse_value)

    def values(self, x: Array) -> Array:
        """The formula on an array, checked."""
        return self(x)

    def noise(self) -> Callable[[Array], Array]:
        """A bound of the rounding errors, by walking the tree."""

        def bound(x: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.nan_to_num(expressions.rounding(self.tree, x), nan=0.0, posinf=0.0)

        return bound

    def lipschitz(self) -> float:
        """sup |φ'|, infinite if the slope goes on growing far out."""
        steepest = super().lipschitz()
        with np.errstate(all="ignore"):
            # Where a derivative cannot be computed nothing is known.
            far = np.abs(self.evaluate(np.array([-1e8, -1e4, 1e4, 1e8]), 1, NUMPY))
        return np.inf if np.any(far > 1.001 * steepest) else steepest

    def jumps(self, order: int) -> Array:
        """The derivative on the right of each kink less that on its left."""
        left, right = self._sides(order)
        # Differences of a few units in the last place are not jumps.
        return np.where(np.abs(right - left) > 1e-12 * (np.abs(right) + np.abs(left)), right - left, 0.0)

    def _sides(self, order: int) -> tuple[Array, Array]:
        """The derivative at each kink by the branches on its left, and by those on its right."""
        kinks = np.array(self.kinks)
        gaps = np.concatenate([[np.inf], np.diff(kinks), [np.inf]])
        step = np.minimum(
            1e-7 * np.maximum(1.0, np.abs(kinks)), 0.5 * np.minimum(gaps[1:], gaps[:-1])[: len(kinks)]
        )
        return self._beside(kinks, kinks - step, order), self._beside(kinks, kinks + step, order)

    def _beside(self, x: Array, witness: Array, order: int) -> Array:
        """The derivative at x with the branches that hold at a witness beside it."""

        def chosen(difference: Array) -> NDArray[np.bool_]:
            return np.asarray(np.broadcast_to(difference, (2, len(x)))[1] > 0.0)

        both = np.stack([x, witness])
        with np.errstate(all="ignore"):
            jets = walk(self.tree, Jets(both, order, chosen=chosen))
        return np.asarray(np.broadcast_to(jets[order], both.shape)[0])

    def _refuse_value(self, position: float) -> NoReturn:
        raise InputError(
            f"The formula {self.name!r} is not a finite number at x = {position:.6g}, but every x can occur: keep it "
            "from overflowing there, and from sqrt, log and fractional powers of what is negative."
        )

    def refuse(self, position: float) -> NoReturn:
        """Raise an InputError that says what a formula may contain."""
        raise InputError(
            f"The formula {self.name!r} is not smooth at x ≈ {position:.9g}, or varies too fast to be followed there. "
            "It may have kinks (abs, relu, min, max, clip) but no jump, pole or infinite slope."
        )


@lru_cache(maxsize=128)
def resolved_formula(tidied: str) -> Formula:
    """The shape of a formula in its tidied form; one that was resolved before is not resolved again."""
    return Formula(tidied)


def formula(expression: str = "") -> Formula:
    """The shape of a formula in x, such as "x * sigmoid(x)"."""
    return resolved_formula(read_formula(expression)[1])
