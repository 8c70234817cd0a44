"""An activation typed as a formula in x: read, never executed, then resolved like any other function.

Python's own grammar reads the text into a syntax tree; every node of it must be on a short list and becomes a number
or a function of (x, xp), where xp has the functions of arrays or of tensors.  Everything else is refused with an error
that names the place.  Nothing is compiled or run.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activation_names import ALIASES
from notsodeep.gaussian.custom import Custom
from notsodeep.gaussian.piecewise import PiecewiseLinear
from notsodeep.gaussian.shapes import NUMPY, Shape, TorchForm, torch_backend
from notsodeep.validation import Array

# A part of a formula: a constant, or a function of x and of the backend to compute with.
Term = float | Callable[[Any, Any], Any]

# Limits: far beyond any activation, far below what could keep a machine busy.
MAX_LENGTH = 300
MAX_DEPTH = 60
MAX_CONSTANT = 1e6
MAX_EXPONENT = 20.0

CONSTANTS = {"pi": math.pi, "e": math.e}
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


# Smooth functions of one argument; the others have kinks or several arguments.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sigmoid": lambda u, xp: xp.expit(u),
    "swish": lambda u, xp: u * xp.expit(u),
    "gelu": lambda u, xp: u * xp.ndtr(u),
    "softplus": lambda u, xp: xp.logaddexp(xp.zeros_like(u), u),
    "mish": lambda u, xp: u * xp.tanh(xp.logaddexp(xp.zeros_like(u), u)),
    "sqrt": lambda u, xp: u**0.5,
}
FUNCTIONS |= {
    name: lambda u, xp, name=name: getattr(xp, name)(u)  # type: ignore[misc]
    for name in ("tanh", "erf", "arctan", "sin", "cos", "exp", "expm1", "log", "log1p", "sinh", "cosh")
}
# Functions with kinks, and the number of their arguments.
KINKED = {"abs": 1, "relu": 1, "min": 2, "max": 2, "clip": 3}
ALLOWED = (
    "Allowed are x, numbers, pi, e, + - * / **, round brackets and "
    + ", ".join(sorted([*FUNCTIONS, "abs", "relu"]))
    + " of one argument, min(a, b), max(a, b), clip(a, low, high)."
)
_NEEDS_STAR = "a product needs its *, as in 2 * x"
_FOREIGN = re.compile(r"[^0-9A-Za-z_.+\-*/(), ]")
_MISSING_STAR = re.compile(r"(?<![A-Za-z_0-9.])[0-9.]+ *[A-Za-z(]|\) *[A-Za-z0-9(]")

# Where kinks are searched for, and how finely; a kink that is missed is refused when the function is resolved.
REACH = 256.0
STEP = 1.0 / 64.0
MAX_KINKS = 200
# Kinks closer than this, relative to their position, are one.
SAME = 1e-12
# A kink closer to zero than this is at zero.
ZERO = 1e-30


def _negative(u: Any, xp: Any) -> Any:
    return -u


class _Reader:
    """Turns Python's syntax tree of one text into a term, or refuses it.

    Attributes:
        switches: terms whose sign decides between the branches of each max, min, abs and relu.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.switches: list[Term] = []

    def refuse(self, reason: str, start: int = 0, end: int | None = None) -> NoReturn:
        """Raise an InputError that quotes the place."""
        place = self.text[start : len(self.text) if end is None else end]
        quoted = place if len(place) <= 40 else place[:40] + "…"
        whole = self.text if len(self.text) <= 80 else self.text[:80] + "…"
        at = f" at character {start + 1}, {quoted!r}" if place else " at its end"
        raise InputError(f"The formula {whole!r} cannot be read{at}: {reason}. {ALLOWED}")

    def refuse_node(self, node: ast.AST, reason: str) -> NoReturn:
        """Raise an InputError that quotes the text of this node."""
        self.refuse(reason, getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None))

    def syntax(self) -> ast.expr:
        """The syntax tree of the whole text."""
        foreign = _FOREIGN.search(self.text)
        if foreign:
            self.refuse("this character has no place in a formula", foreign.start(), foreign.end())
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            # An offset of zero is the end of the text.
            at = error.offset - 1 if error.offset else len(self.text)
            self.refuse(_NEEDS_STAR if _MISSING_STAR.search(self.text) else error.msg, at)
        except (ValueError, MemoryError, RecursionError):
            self.refuse("it is too deeply nested")

    def read(self, node: ast.AST, depth: int = 0) -> Term:
        """The term of this node."""
        if depth > MAX_DEPTH:
            self.refuse_node(node, f"it is more than {MAX_DEPTH} operations deep")
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self._number(value, node)
            case ast.Name(id="x"):
                return lambda x, xp: x
            case ast.Name(id=name) if name in CONSTANTS:
                return CONSTANTS[name]
            case ast.Name(id=name):
                self.refuse_node(
                    node, f"there is no {name!r}; the variable is x, a function needs its argument"
                )
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand, depth + 1)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._combine(node, _negative, self.read(operand, depth + 1))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
                parts = self.read(left, depth + 1), self.read(right, depth + 1)
                self._check_operation(sign, *parts, node)
                operation = OPERATORS[type(sign)]
                return self._combine(node, lambda a, b, xp: operation(a, b), *parts)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, [self.read(argument, depth + 1) for argument in arguments], node)
            case ast.Call(func=ast.Constant() | ast.BinOp() | ast.Call()):
                self.refuse_node(node, _NEEDS_STAR)
        self.refuse_node(node, "this is not part of a formula")

    def _number(self, value: float, node: ast.AST) -> float:
        # Compared before it is converted: an integer may be too long for a float.
        if not abs(value) <= MAX_CONSTANT:
            self.refuse_node(node, f"a number may be as large as {MAX_CONSTANT:g}, and must be finite")
        return float(value)

    def _combine(self, node: ast.AST, operation: Callable[..., Any], *parts: Term) -> Term:
        """An operation on terms; on constants alone it is computed at once."""
        constants = [np.float64(part) for part in parts if isinstance(part, float)]
        if len(constants) == len(parts):
            with np.errstate(all="ignore"):
                return self._number(float(operation(*constants, NUMPY)), node)
        return lambda x, xp: operation(*(p if isinstance(p, float) else p(x, xp) for p in parts), xp)

    def _check_operation(self, sign: ast.operator, left: Term, right: Term, node: ast.AST) -> None:
        """Refuse a division by zero, large exponents, and powers of x with x in the exponent."""
        if isinstance(sign, ast.Div) and right == 0.0:
            self._number(math.inf, node)
        if not isinstance(sign, ast.Pow):
            return
        if isinstance(right, float) and abs(right) > MAX_EXPONENT:
            self.refuse_node(node, f"an exponent may be as large as {MAX_EXPONENT:g}")
        if not isinstance(right, float) and not (isinstance(left, float) and left > 0.0):
            self.refuse_node(
                node, "x in an exponent needs a positive number under it, as in 2**x; else use exp and log"
            )

    def _call(self, name: str, arguments: list[Term], node: ast.AST) -> Term:
        name = ALIASES.get(name, name)
        if name not in FUNCTIONS and name not in KINKED:
            product = name == "x" or name in CONSTANTS
            self.refuse_node(node, _NEEDS_STAR if product else f"there is no function {name!r}")
        count = KINKED.get(name, 1)
        if len(arguments) != count:
            words = f"{count} argument{'s' if count > 1 else ''}"
            self.refuse_node(node, f"{name} takes {words}, not {len(arguments)}")
        match name, arguments:
            case "abs", [one]:
                return self._larger(node, one, self._combine(node, _negative, one), switch=one)
            case "relu", [one]:
                return self._larger(node, one, 0.0)
            case "max", [left, right]:
                return self._larger(node, left, right)
            case "min", [left, right]:
                return self._smaller(node, left, right)
            case "clip", [_, float(low), float(high)] if low >= high:
                self.refuse_node(node, f"clip(a, low, high) needs low < high, not {low:g} and {high:g}")
            case "clip", [one, low, high]:
                return self._smaller(node, self._larger(node, one, low), high)
        return self._combine(node, FUNCTIONS[name], arguments[0])

    def _larger(self, node: ast.AST, left: Term, right: Term, switch: Term | None = None) -> Term:
        decides = self._combine(node, lambda a, b, xp: a - b, left, right) if switch is None else switch
        if not isinstance(decides, float):
            self.switches.append(decides)
        return self._combine(node, lambda a, b, xp: xp.maximum(a, b), left, right)

    def _smaller(self, node: ast.AST, left: Term, right: Term) -> Term:
        negative = [self._combine(node, _negative, part) for part in (left, right)]
        return self._combine(node, _negative, self._larger(node, *negative))


def read_formula(text: str) -> tuple[Callable[[Any, Any], Any], tuple[Term, ...], str]:
    """The function of (x, xp) that a formula in x stands for, its switches, and the formula in its tidied form.

    Equal formulas have equal tidied texts.

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
    term = reader.read(syntax)
    if isinstance(term, float):
        reader.refuse("it is the same number for every x")
    return term, tuple(reader.switches), ast.unparse(syntax)


def find_kinks(switches: tuple[Term, ...]) -> tuple[float, ...]:
    """Where a max, min, abs or relu changes its branch, up to REACH, to the last bit."""
    # Odd numbers, so that no point of the grid is a root of something simple.
    grid = np.arange(-REACH, REACH, STEP) + 0.0037
    roots: list[float] = []
    with np.errstate(all="ignore"):
        for switch in switches:
            positive = switch(grid, NUMPY) > 0.0  # type: ignore[operator]
            turns = np.flatnonzero(positive[1:] != positive[:-1])
            roots += _boundaries(switch, grid[turns], grid[turns + 1]).tolist()
    distinct: list[float] = []
    for root in sorted(roots):
        if not distinct or root - distinct[-1] > SAME * max(1.0, abs(root)):
            distinct.append(root)
    return tuple(distinct)


def _boundaries(switch: Any, low: Array, high: Array) -> Array:
    """Where the switch turns between each pair of points, by bisection down to neighbouring numbers."""
    below = switch(low, NUMPY) > 0.0
    while np.any((low < (middle := 0.5 * (low + high))) & (middle < high) & (high - low > ZERO)):
        same = (switch(middle, NUMPY) > 0.0) == below
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    at_low, at_high = (np.abs(switch(side, NUMPY)) for side in (low, high))
    return np.where((low <= 0.0) & (high >= 0.0), 0.0, np.where(at_low <= at_high, low, high))


@dataclass(frozen=True, repr=False)
class StraightFormula(PiecewiseLinear):
    """A formula that consists of straight pieces, such as "relu(x - 2)": its moments and pairs have closed forms.

    Attributes:
        expression: the formula in its tidied form.
    """

    expression: str = field(default="", kw_only=True)

    def __repr__(self) -> str:
        return f"formula({self.expression!r})"


def straight_formula(expression: str) -> StraightFormula | None:
    """The pieces of a formula of sums, multiples, max, min, abs, relu and clip; None for any other.

    Between the kinks of the branches that are nested inside it, each branch is decided by a linear function.
    """
    term, switches, tidied = read_formula(expression)
    if not _is_straight(ast.parse(tidied, mode="eval").body):
        return None
    knots: list[float] = []
    for switch in switches:
        knots = sorted({*knots, *(_linear_root(switch, *ends) for ends in _segments(knots))} - {np.nan})
        if len(knots) > MAX_KINKS:
            return None
    slopes = [_slope(term, *ends) for ends in _segments(knots)]
    if not np.isfinite([*knots, *slopes]).all():
        return None
    bends = [place for place in range(len(knots)) if slopes[place] != slopes[place + 1]]
    kept = slopes[:1] + [slopes[place + 1] for place in bends]
    value = float(term(np.zeros(1), NUMPY)[0])
    return StraightFormula(
        tuple(knots[place] for place in bends), tuple(kept), value=value, expression=tidied
    )


def _is_straight(node: ast.AST) -> bool:
    """Whether a formula is piecewise linear because of how it is written; a number is."""
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.UnaryOp(operand=operand):
            return _is_straight(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return _is_straight(left) and _is_straight(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return (_is_number(left) and _is_straight(right)) or (_is_straight(left) and _is_number(right))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _is_straight(left) and _is_number(right)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return ALIASES.get(name, name) in KINKED and all(map(_is_straight, arguments))
    return _is_number(node)


def _is_number(node: ast.AST) -> bool:
    return not any(isinstance(part, ast.Name) and part.id == "x" for part in ast.walk(node))


def _segments(knots: list[float]) -> list[tuple[float, float, bool, bool]]:
    """Two points of every piece between the knots, and whether it goes on for ever to the left and to the right."""
    if not knots:
        return [(-1.0, 1.0, True, True)]
    length = max(1.0, *np.abs(knots))
    pieces = [(left, right, False, False) for left, right in pairwise(knots)]
    return [(knots[0] - length, knots[0], True, False), *pieces, (knots[-1], knots[-1] + length, False, True)]


def _slope(term: Any, left: float, right: float, *_: bool) -> float:
    """The slope of a function that is linear between two points: at x + i it is the imaginary part, without rounding.

    max compares real parts.
    """
    return float(term(np.array([0.5 * (left + right) + 1j]), NUMPY).imag[0])


def _linear_root(switch: Any, left: float, right: float, open_left: bool, open_right: bool) -> float:
    """Where a function that is linear on a piece changes its sign within it; NaN if it does not."""
    low, high = switch(np.array([left, right]), NUMPY)
    with np.errstate(all="ignore"):
        root = left - low * (right - left) / (high - low)
    inside = (open_left or root > left) and (open_right or root < right)
    if not inside or not np.isfinite(root):
        return np.nan
    length = (right - left) + abs(root - left)
    ends = (root - length if open_left else left), (root + length if open_right else right)
    return float(_boundaries(switch, *(np.array([end]) for end in ends))[0])


class Formula(Custom):
    """A formula in x as an activation; its kinks are where its branches change.

    Attributes:
        expression: the formula in its tidied form, by which formulas are compared.
    """

    def __init__(self, expression: str) -> None:
        term, switches, self.expression = read_formula(expression)
        kinks = find_kinks(switches)
        if len(kinks) > MAX_KINKS:
            raise InputError(
                f"The formula {self.expression!r} has {len(kinks)} kinks between ±{REACH:g}; up to {MAX_KINKS} are "
                "supported."
            )
        self._term = term
        super().__init__(lambda x: term(x, NUMPY), kinks=kinks, name=self.expression)

    def __repr__(self) -> str:
        return f"formula({self.expression!r})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Formula, (self.expression,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and other.expression == self.expression

    def __hash__(self) -> int:
        return hash((Formula, self.expression))

    def torch_form(self, torch: Any) -> TorchForm:
        """The formula on tensors; its slope by autograd."""
        xp = torch_backend(torch)
        return TorchForm(lambda x: self._term(x, xp), torch.func.grad(lambda x: self._term(x, xp).sum()))

    def lipschitz(self) -> float:
        """sup |φ'|, infinite if the slope goes on growing far out."""
        steepest = super().lipschitz()
        far = np.array([-1e8, -1e4, -1e2, 1e2, 1e4, 1e8])
        with np.errstate(all="ignore"):
            # Where the formula cannot be computed nothing is known.
            slopes = np.abs(self._term(1.01 * far, NUMPY) - self._term(far, NUMPY)) / np.abs(0.01 * far)
        return np.inf if np.any(slopes > 1.001 * steepest) else steepest

    def refuse_kink(self, position: float) -> NoReturn:
        """Raise an InputError that says what a formula may contain."""
        raise InputError(
            f"The formula {self.name!r} is not smooth at x ≈ {position:.9g}, or varies too fast to be resolved there. "
            "It may have kinks (abs, relu, min, max, clip) but no jump, pole or infinite slope."
        )


@lru_cache(maxsize=128)
def resolved_formula(tidied: str) -> Shape:
    """The shape of a formula in its tidied form; one that was resolved before is not resolved again."""
    return straight_formula(tidied) or Formula(tidied)


def formula(expression: str = "") -> Shape:
    """The shape of a formula in x, such as "x * sigmoid(x)"."""
    return resolved_formula(read_formula(expression)[2])
