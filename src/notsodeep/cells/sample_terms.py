"""What a cell does to samples one by one, at the equilibrium or in a loop: coefficients, variances, norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from notsodeep.cells.expressions import Activated, Bias, Gate, Input, Norm, Scaled, State, Sum, Weighted
from notsodeep.cells.layouts import Layout
from notsodeep.cells.second_moments import Atom, Combination, DualOf, Moments, SampleTerms, Vector
from notsodeep.cells.structure import Cell
from notsodeep.duals.dual import Dual
from notsodeep.duals.sides import Side
from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_variances
from notsodeep.gaussian.moments import derivative_second_moment, second_moment
from notsodeep.validation import Array

# Second moments of pairs of atoms.
Known = dict[tuple[Atom, Atom], Array]
# Relative change at which the iteration over coefficients and variances ends, and the number of steps it may take.
SETTLED, MAX_STEPS = 4e-15, 20_000
# Largest second moment of a state that counts as finite, relative to that of the input.
UNBOUNDED = 1e12
# Samples from which on the iteration runs at a few norms first, how many, and squares that count as equal there.
MANY, NODES, EQUAL = 96, 33, 1e-9


def loop_terms(cell: Cell, layout: Layout, gram: Array, steps: int) -> tuple[SampleTerms, Moments]:
    """Return what is known of samples after each of `steps` steps from z = 0, and the moments they follow from."""
    terms = SampleTerms()
    moments = Moments(cell, layout, terms, terms, gram, own_dual(terms, layout))
    for step in range(steps):
        loop_step(cell, layout, terms, moments, step)
    return terms, moments


def loop_step(cell: Cell, layout: Layout, terms: SampleTerms, moments: Moments, step: int) -> None:
    """Record one more step of a loop; the state that enters it is an atom, and zero at the first step."""
    state: Combination = {("state", cell.last, step - 1): np.ones((1, 1))} if step else {}
    walk(cell, terms, step, state, partial(_own_moment, layout, moments))


def _own_moment(layout: Layout, moments: Moments, vector: Vector) -> Array:
    """The second moment of a vector with itself."""
    return layout.diagonal(moments.of(vector, vector))


def equilibrium_terms(cell: Cell, layout: Layout, gram: Array) -> tuple[SampleTerms, Moments]:
    """Return what is known of samples one by one at the equilibrium, and their second moments.

    The cell is applied to the state as a network would apply it, but with fields that are at rest: then every norm does
    what it does at the equilibrium, and the iteration settles wherever that is stable.
    """
    if layout.kind == "own" and not layout.positions and len(gram) > MANY:
        state, known = _interpolated(cell, layout, gram)
    else:
        state, known = {}, {}
    terms, moments, _ = _iterate(cell, layout, gram, state, known)
    return terms, moments


def cut_nodes(cell: Cell) -> list[int]:
    """List the nodes that contain the state itself and are read by weights or activations."""
    read = [cell.number(cell.nodes[place].parents[0]) for place in cell.weighted]
    read += [factor.argument for factors in cell.factors.values() for factor in factors]
    return [number for number in dict.fromkeys(read) if cell.reads_state[number]]


def _iterate(
    cell: Cell, layout: Layout, gram: Array, state: Combination, known: Known
) -> tuple[SampleTerms, Moments, Known]:
    """Apply the cell until the coefficients of the state, and the second moments of its atoms (`known`), settle."""
    largest, before = np.inf, np.inf
    limit = UNBOUNDED * (1.0 + float(np.abs(gram).max(initial=0.0)))
    for step in range(MAX_STEPS):
        _, moments, atoms = _applied(cell, layout, gram, state, known)
        updated = moments.recomputed(atoms)
        # Once more with these: norms must divide by what the state will be, or a weak branch makes them oscillate.
        terms, moments, fresh = _applied(cell, layout, gram, state, updated)
        before, largest = (
            largest,
            max(
                [_change(fresh[atom], state.get(atom, 0.0)) for atom in fresh]
                + [_change(updated[pair], known.get(pair, 0.0)) for pair in updated]
                + [0.0]
            ),
        )
        state, known = fresh, updated
        size = max(
            [float(np.abs(part).max(initial=0.0)) for part in (*state.values(), *known.values())] + [0.0]
        )
        if not np.isfinite(largest) or size > limit:
            break
        # Further steps, which fall as these two do, may add up to more than the last; rounding ends the fall.
        rest = largest / max(1.0 - largest / before, 1e-3) if 0.0 < largest < before else largest
        # The loop starts with an empty state: the first steps may change nothing.
        if step > len(cell.nodes) and (rest <= SETTLED or (largest <= 1e-13 and largest >= before)):
            return terms, moments, known
    raise ConvergenceError(
        f"The second moments of the state of {cell.shown(cell.last)} do not settle: after {step + 1} steps the last "
        f"change was {largest:.2g}.",
        "Lower the variances of the weights, or normalise the state: a skip z + … without a norm grows without bound.",
    )


def _applied(
    cell: Cell, layout: Layout, gram: Array, state: Combination, known: Known
) -> tuple[SampleTerms, Moments, Combination]:
    """What the cell makes of a state whose atoms have these second moments."""
    terms = SampleTerms()
    moments = Moments(cell, layout, terms, terms, gram, own_dual(terms, layout), known=known)
    return terms, moments, walk(cell, terms, 0, state, partial(_own_moment, layout, moments))


def _change(new: Array, old: Array | float) -> float:
    """The largest relative change."""
    scale = np.maximum(np.abs(new), np.abs(old))
    return float(np.max(np.abs(new - old) / np.where(scale > 0.0, scale, 1.0), initial=0.0))


def _interpolated(cell: Cell, layout: Layout, gram: Array) -> tuple[Combination, Known]:
    """A first guess for samples that differ in norm only: the solution at Chebyshev points, interpolated."""
    squares = gram.reshape(-1)
    # A sample of zeros starts from the state zero, as in a loop: norms keep it there.
    present = squares > 0.0
    low, high = (float(end(squares[present])) if present.any() else 0.0 for end in (np.min, np.max))
    if high - low <= EQUAL * high:
        nodes = np.full(1, low)
    else:
        nodes = 0.5 * (low + high) - 0.5 * (high - low) * np.cos((np.arange(NODES) + 0.5) * np.pi / NODES)
    terms, _, known = _iterate(cell, layout, nodes.reshape(-1, 1, 1), {}, {})
    state = terms.combinations[cell.last, 0]

    def spread(values: Array) -> Array:
        flat = np.broadcast_to(values.reshape(-1), len(nodes))
        if len(nodes) == 1:
            return np.where(present, flat[0], 0.0)
        polynomial = np.polynomial.Chebyshev.fit(nodes, flat, NODES - 1, domain=[low, high])
        return np.where(present, polynomial(squares), 0.0)

    guess = {atom: spread(values)[:, None] for atom, values in state.items()}
    return guess, {pair: spread(values)[:, None, None] for pair, values in known.items()}


def walk(
    cell: Cell, terms: SampleTerms, step: int, state: Combination, own: Callable[[Vector], Array]
) -> Combination:
    """Record the combination of every node at a step, and return that of the new state.

    Args:
        cell: the cell.
        terms: where combinations and variances are recorded.
        step: number of this step.
        state: the combination of the state that enters it.
        own: the second moment of a vector with itself.
    """
    for number, node in enumerate(cell.nodes):
        vector = number, step
        parents = [terms.combinations.get((cell.number(parent), step), {}) for parent in node.parents]
        combination: Combination = {}
        if isinstance(node, State):
            combination = dict(state)
        elif isinstance(node, Activated | Gate):
            for factor in cell.factors[number]:
                terms.variances[factor.argument, step] = np.maximum(own((factor.argument, step)), 0.0)
            combination = {("feature", number, step): np.ones((1, 1))}
        elif isinstance(node, Weighted) and not isinstance(node, Bias):
            combination = {("field", number, step): np.ones((1, 1))}
        elif isinstance(node, Norm):
            root = np.sqrt(np.maximum(own((cell.number(node.node), step)), 0.0))
            terms.roots[vector] = root
            over = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0.0)
            combination = {atom: values * over for atom, values in parents[0].items()}
        elif isinstance(node, Scaled):
            combination = {atom: node.factor * values for atom, values in parents[0].items()}
        elif isinstance(node, Bias):
            # A bias is the same vector at every step: what the state brings of it adds to it.
            atom = "bias", number, 0
            combination = {**parents[0], atom: parents[0].get(atom, 0.0) + np.ones((1, 1))}
        elif isinstance(node, Sum):
            for parent in parents:
                for atom, values in parent.items():
                    combination[atom] = combination[atom] + values if atom in combination else values
        elif not isinstance(node, Input):
            raise ValueError(f"There is no rule for {type(node).__name__}.")
        terms.combinations[vector] = combination
    return terms.combinations[cell.last, step]


def own_dual(terms: SampleTerms, layout: Layout) -> DualOf:
    """Return the function that computes F and F' of vectors of the same sample."""

    def dual(phi: Activation, one: Vector, two: Vector, covariance: Array) -> tuple[Array, Array]:
        first, second = terms.variances[one], terms.variances[two]
        if layout.kind == "own" and one == two:
            return tuple(_moment(function, phi, first)[:, :, None] for function in _OWN)  # type: ignore[return-value]
        shape = covariance.shape
        rows, columns = (np.ascontiguousarray(np.broadcast_to(q, shape[:2])) for q in (first, second))
        engine = Dual(phi, np.concatenate([rows.reshape(-1), columns.reshape(-1)]), pairs=covariance.size)
        left, right = engine.rows(rows), engine.columns(columns)
        value, slope = np.empty(shape), np.empty(shape)
        engine.tiles(left, right, np.ascontiguousarray(np.broadcast_to(covariance, shape)), value, slope)
        settle_exceptions(left, right, value, slope, diagonal=layout.kind == "graph" and one == two)
        return value, slope

    return dual


# F and F' of a vector with itself.
_OWN = second_moment, derivative_second_moment


def _moment(function: Callable[[Activation, Array], Array], phi: Activation, variances: Array) -> Array:
    """A moment of one variable at many variances, interpolated where that is cheaper."""
    flat = at_variances(
        lambda q: np.asarray(function(phi, q)), variances.reshape(-1), (function.__name__, phi)
    )
    return flat.reshape(variances.shape)


def settle_exceptions(left: Side, right: Side, value: Array, slope: Array, *, diagonal: bool) -> None:
    """Write what is exact: the diagonal, and samples of variance zero, which are independent of every other."""
    for side, lines, others in ((left, value, right), (right, value.swapaxes(1, 2), left)):
        if side.silent.any():
            for layer, row in zip(*np.nonzero(side.silent), strict=True):
                lines[layer, row] = side.still * others.mean[layer]
    if diagonal:
        place = np.arange(value.shape[1])
        value[:, place, place], slope[:, place, place] = left.energy, left.steep


__all__ = [
    "cut_nodes",
    "equilibrium_terms",
    "loop_step",
    "loop_terms",
    "own_dual",
    "settle_exceptions",
    "walk",
]
