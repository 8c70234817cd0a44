"""What the engine knows of samples one by one: variances, coefficients behind norms and skips, means of gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from notsodeep.cells.expressions import Activated
from notsodeep.cells.layouts import Layout
from notsodeep.cells.rates import growth_of, raise_growth
from notsodeep.cells.sample_terms import equilibrium_terms, loop_terms
from notsodeep.cells.second_moments import Atom, Moments, SampleTerms, Vector
from notsodeep.gaussian.interpolation import at_variances
from notsodeep.gaussian.moments import solve_variance
from notsodeep.models.plan import GRAM, Plan, Slot, Symbol
from notsodeep.validation import Array

Item = Vector | Atom


@dataclass
class Own:
    """Numbers of samples one by one, each (n,).

    Attributes:
        squares: squared norms.
        slots: coefficients and means.
        variances: second moments of the vectors that expectations are taken of.
        sizes: second moments of what else is an unknown.
    """

    squares: Array
    slots: dict[Slot, Array] = field(default_factory=dict)
    variances: dict[Vector, Array] = field(default_factory=dict)
    sizes: dict[Item, Array] = field(default_factory=dict)

    def of_unknown(self, plan: Plan, node: Symbol, side: int) -> Array:
        """The second moment with itself of the left (0) or right (1) part of an unknown."""
        number = node[1]
        if node[0] == "A":
            expect = plan.expects[number]
            return self.variances[expect.two if side else expect.one]
        return self.sizes[plan.pairs[number][0][side]]


@dataclass(frozen=True)
class Affine:
    """Λ = feedback · F(Λ) + gain · c + constant: what enters one expectation, with the same numbers for all samples."""

    feedback: float = 0.0
    gain: float = 0.0
    constant: float = 0.0
    before: float = 0.0

    @classmethod
    def of(cls, plan: Plan, node: Symbol, before: int | None) -> Affine | None:
        """What enters an expectation; None if it is of another form. `before` is the expectation before it."""
        numbers = {"feedback": 0.0, "gain": 0.0, "constant": 0.0, "before": 0.0}
        name = ("R", plan.unknown.index(node)) if node in plan.unknown else node
        for term in plan.polynomials[name]:
            if term.left or term.right or len(term.registers) > 1:
                return None
            symbol = term.registers[0] if term.registers else None
            known = {None: "constant", GRAM: "gain", ("F", node[1]): "feedback", ("F", before): "before"}
            if symbol not in known:
                return None
            numbers[known[symbol]] += term.scale
        return cls(**numbers)


def solve_own(plan: Plan, squares: Array, *, tangent: bool) -> Own:
    """Everything that depends on one sample, for samples with these squared norms.

    Raises:
        ConvergenceError: if the state of a sample has no equilibrium, or, with `tangent`, its derivatives grow.
    """
    if plan.steps is not None:
        return _named(plan, squares, _loop_columns(plan, squares))
    # A DEQ has a solver of its own, which converges near the end of contraction, too.
    is_deq = (
        len(plan.order) == 1 and not plan.slots and isinstance(plan.cell.nodes[plan.cell.last], Activated)
    )
    affine = Affine.of(plan, plan.order[0], None) if is_deq else None
    if affine is not None:
        expect, equation = plan.expects[plan.order[0][1]], affine
        forcing = equation.gain * squares + equation.constant
        variances = forcing
        if equation.feedback:
            key = "variance", expect.phi, equation.feedback
            variances = at_variances(
                lambda b: np.asarray(solve_variance(expect.phi, equation.feedback, b).q), forcing, key
            )
        return Own(squares, variances={expect.one: variances})
    return _named(plan, squares, _interpolated(plan, squares, tangent))


def _names(plan: Plan) -> list[tuple[str, Any]]:
    """The columns of a table of own numbers."""
    vectors = dict.fromkeys(vector for expect in plan.expects for vector in (expect.one, expect.two))
    unknown = [node for node in plan.unknown if node[0] == "C"]
    items = dict.fromkeys(item for node in unknown for item in plan.pairs[node[1]][0])
    named: list[tuple[str, Any]] = [("slot", slot) for slot in plan.slots]
    return named + [("variance", vector) for vector in vectors] + [("size", item) for item in items]


def _named(plan: Plan, squares: Array, columns: list[Array]) -> Own:
    own = Own(squares)
    tables: dict[str, dict[Any, Array]] = {
        "slot": own.slots,
        "variance": own.variances,
        "size": own.sizes,
    }
    for (kind, name), column in zip(_names(plan), columns, strict=True):
        tables[kind][name] = column if kind == "slot" else np.maximum(column, 0.0)
    return own


def _columns(plan: Plan, terms: SampleTerms, moments: Moments, count: int) -> list[Array]:
    """The columns from the terms of samples in the layout "own"."""

    def column(kind: str, name: Any) -> Array:
        if kind == "variance":
            return terms.variances[name]
        if kind == "size":
            return moments.covariance(name, name)
        if name[0] == "mean":
            return terms.mean(*name[1:])
        _, vector, atom = name
        return terms.combinations[vector].get(atom, np.zeros(1))

    return [np.broadcast_to(column(*name).reshape(-1), (count,)) for name in _names(plan)]


def _loop_columns(plan: Plan, squares: Array) -> list[Array]:
    terms, moments = loop_terms(plan.cell, Layout("own"), squares.reshape(-1, 1, 1), plan.steps or 1)
    return _columns(plan, terms, moments, len(squares))


def _interpolated(plan: Plan, squares: Array, tangent: bool) -> list[Array]:
    """Equilibria at a few norms, interpolated; those of zeros on their own."""
    tables: dict[bytes, list[Array]] = {}

    def table(points: Array) -> list[Array]:
        key = points.tobytes()
        if key not in tables:
            terms, moments = equilibrium_terms(plan.cell, Layout("own"), points.reshape(-1, 1, 1))
            tables[key] = _columns(plan, terms, moments, len(points))
            if tangent:
                tables[key].append(growth_of(plan.cell, Layout("own"), terms, moments).reshape(-1))
        return tables[key]

    names: list[Any] = [*_names(plan), *(["growth"] if tangent else [])]
    columns = []
    for number, name in enumerate(names):
        columns.append(at_variances(_column(table, number), squares, (plan.cell, name)))
    if tangent:
        raise_growth(columns.pop())
    return columns


def _column(table: Callable[[Array], list[Array]], number: int) -> Callable[[Array], Array]:
    return lambda points: table(points)[number]


__all__ = ["Affine", "Own", "solve_own"]
