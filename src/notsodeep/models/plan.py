"""The plan of a cell: its second moments as polynomials of registers, derived once, without data.

Every second moment of a pair of samples (i, j) is a sum of terms

    scale · l(i) · r(j) · product of registers,

where l and r are products of numbers known sample by sample (coefficients behind skips and norms, means of gates). A
register holds the Gram matrix, F, F' or F'' of an expectation, or a second moment that is named: the argument A of an
expectation, a combination C, an unknown U. Sums, skips and norms are terms with one register, gates terms with several,
an expectation fills three registers from a fourth. Newton's matrix, the derivatives of the registers by the unknowns
and the tangent kernels are such polynomials again: they are derived here, one register at a time, so that they stay
short (docs/theory.md, section 17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

from notsodeep.cells.expressions import (
    Activated,
    Bias,
    Dense,
    Gate,
    Input,
    Node,
    Norm,
    Scaled,
    State,
    Sum,
    Weighted,
)
from notsodeep.cells.second_moments import Atom, Vector
from notsodeep.cells.structure import Cell, Factor
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.kernel_names import Kernel

# A register: its kind, then what it belongs to. Kinds: "gram"; "A", "F", "dF", "ddF" of an expectation; "C" of a
# combination; "U" of an unknown; lines of derivatives "D" and tangents "T"; right sides "R",
# "RT" and the matrix "J" of linear equations, and their solution "t".
Symbol = tuple[Any, ...]
# What is known of a sample: ("coefficient", vector, atom) or ("mean", factor, step, order of the derivative).
Slot = tuple[Any, ...]
GRAM: Symbol = ("gram",)
# Numbers of unknowns up to which the fewest are looked for.
SEARCHED = 3


@dataclass(frozen=True)
class Term:
    """One term of a polynomial.

    Attributes:
        scale: a number.
        registers: the registers that are multiplied.
        left: what is known of the sample of the row.
        right: what is known of the sample of the column.
        weights: how many weights were passed on the way to the registers, and how many of them read the state.
    """

    scale: float = 1.0
    registers: tuple[Symbol, ...] = ()
    left: tuple[Slot, ...] = ()
    right: tuple[Slot, ...] = ()
    weights: tuple[int, int] = (0, 0)

    def __mul__(self, other: Term) -> Term:
        return Term(
            self.scale * other.scale,
            self.registers + other.registers,
            self.left + other.left,
            self.right + other.right,
            (self.weights[0] + other.weights[0], self.weights[1] + other.weights[1]),
        )

    def without(self, place: int) -> Term:
        """The term without one of its registers; derivatives pass no weights."""
        return replace(self, registers=self.registers[:place] + self.registers[place + 1 :], weights=(0, 0))


Polynomial = list[Term]


def _product(one: Iterable[Term], two: Iterable[Term]) -> Polynomial:
    second = list(two)
    return [a * b for a in one for b in second]


@dataclass
class Expect:
    """E[φ(u)φ(v)] of a vector u of the sample of the row and a vector v of that of the column."""

    phi: Activation
    one: Vector
    two: Vector
    argument: Polynomial = field(default_factory=list)


class SecondMoments:
    """Second moments of vectors as polynomials, by the rules of docs/theory.md, section 17.

    Args:
        cell: the cell.
        steps: how often it is applied; None for the equilibrium.

    Attributes:
        expects: all expectations.
        combined: polynomials of the registers ("C", number), each after those that it contains.
        pairs: what each of them is the second moment of: two vectors, or two atoms.
    """

    def __init__(self, cell: Cell, steps: int | None) -> None:
        self.cell, self.steps = cell, steps
        self.expects: list[Expect] = []
        self.combined: list[Polynomial] = []
        self.pairs: list[tuple[tuple[Atom | Vector, Atom | Vector], bool]] = []
        self._numbers: dict[object, int] = {}
        self._known: dict[object, Polynomial] = {}
        self._open: list[object] = []
        self.atoms = self._atoms()
        self._constants = self._constant_coefficients()

    def _constant_coefficients(self) -> dict[tuple[Vector, Atom], float]:
        """The coefficients of atoms that are the same numbers for all samples."""
        constants: dict[tuple[Vector, Atom], float] = {}
        # Twice: what the state contains is known after the last node.
        for step in [0, 0] if self.steps is None else range(self.steps):
            for number, node in enumerate(self.cell.nodes):
                vector = number, step
                for atom in self.atoms[vector]:
                    if isinstance(node, Norm):
                        continue
                    parts = [(self.cell.number(parent), step) for parent in node.parents]
                    if isinstance(node, State) and self.steps is None:
                        parts = [(self.cell.last, 0)]
                        if self.cell.reads_state[self.cell.last]:
                            continue
                    own = atom == self._new_atom(number, step)
                    found = (
                        [part for part in parts if atom in self.atoms.get(part, [])]
                        if self._passes(node)
                        else []
                    )
                    if all((part, atom) in constants for part in found):
                        total = sum(constants[part, atom] for part in found) + float(own)
                        constants[vector, atom] = total * (node.factor if isinstance(node, Scaled) else 1.0)
        return constants

    def _new_atom(self, number: int, step: int) -> Atom | None:
        """The atom that a node adds."""
        node = self.cell.nodes[number]
        if isinstance(node, State):
            return ("state", self.cell.last, step - 1) if self.steps is not None else None
        if isinstance(node, Bias):
            return "bias", number, 0
        if isinstance(node, Activated | Gate):
            return "feature", number, step
        return ("field", number, step) if isinstance(node, Weighted) else None

    @staticmethod
    def _passes(node: Node) -> bool:
        """Whether a node contains the atoms of its parents."""
        return isinstance(node, Sum | Scaled | Bias | State)

    def _weighted(self, vector: Vector, atom: Atom, *, left: bool) -> Term:
        """The coefficient of an atom as a factor: a number, or what is known of the sample."""
        constant = self._constants.get((vector, atom))
        if constant is not None:
            return Term(constant)
        slot: Slot = "coefficient", vector, atom
        return Term(left=(slot,)) if left else Term(right=(slot,))

    def _atoms(self) -> dict[Vector, list[Atom]]:
        """The atoms of each vector; the state of a loop is an atom, at an equilibrium it is what it contains."""
        cell = self.cell
        atoms: dict[Vector, list[Atom]] = {}
        for step in range(self.steps or 1):
            for number, node in enumerate(cell.nodes):
                parts = [atoms[cell.number(parent), step] for parent in node.parents]
                own: list[Atom] = [atom for part in parts for atom in part]
                if isinstance(node, State):
                    if self.steps is None:
                        own = [(kind, place, 0) for kind, place in sorted(cell.contents[number])]
                    else:
                        own = [("state", cell.last, step - 1)] if step else []
                elif isinstance(node, Bias):
                    own = [*parts[0], ("bias", number, 0)]
                elif isinstance(node, Weighted):
                    own = [("field", number, step)]
                elif isinstance(node, Activated | Gate):
                    own = [("feature", number, step)]
                elif isinstance(node, Input):
                    own = []
                atoms[number, step] = list(dict.fromkeys(own))
        return atoms

    def of_vectors(self, one: Vector, two: Vector) -> Polynomial:
        """The second moment of two vectors."""
        if isinstance(self.cell.nodes[one[0]], Input):
            return [Term(registers=(GRAM,))]
        key = one, two
        if key in self._known:
            return self._known[key]
        if key in self._open:
            # A linear way around the loop: a second moment that contains itself.
            return [Term(registers=(("C", self._reserve(("cycle", *key), key)),))]
        self._open.append(key)
        terms = [
            self._weighted(one, a, left=True) * self._weighted(two, b, left=False) * term
            for a in self.atoms[one]
            for b in self.atoms[two]
            for term in self.of_atoms(a, b)
        ]
        self._open.pop()
        if ("cycle", *key) in self._numbers:
            self.combined[self._numbers["cycle", *key]] = terms
        self._known[key] = terms
        return terms

    def _reserve(
        self, key: object, pair: tuple[Vector, Vector] | tuple[Atom, Atom], atoms: bool = False
    ) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.combined)
            self.combined.append([])
            self.pairs.append((pair, atoms))
        return self._numbers[key]

    def _named(
        self, key: object, terms: Polynomial, pair: tuple[Vector, Vector] | tuple[Atom, Atom], atoms: bool
    ) -> Polynomial:
        """The polynomial as a register of its own, unless it is no more than a term with one register."""
        if not terms or (len(terms) == 1 and len(terms[0].registers) <= 1):
            return terms
        number = self._reserve(key, pair, atoms)
        self.combined[number] = terms
        return [Term(registers=(("C", number),))]

    def of_atoms(self, a: Atom, b: Atom) -> Polynomial:
        """The second moment of two atoms."""
        if "state" in (a[0], b[0]):
            return self._of_states(a, b)
        if not self._are_correlated(a, b):
            return []
        node = self.cell.nodes[a[1]]
        if a[0] == b[0] == "bias":
            return [Term(node.variance, weights=(1, 0))]  # type: ignore[attr-defined]
        if a[0] == b[0] == "field":
            if not isinstance(node, Dense):
                raise ValueError("Plans are of cells of rows: filters and graph maps couple positions.")
            if not node.variance:
                return []
            read = self.cell.number(node.node)
            passed = Term(node.variance, weights=(1, int(isinstance(node.node, State))))
            key = "read", read, a[2], b[2]
            inner = self.of_vectors((read, a[2]), (read, b[2]))
            # Several fields may read one vector.
            if len(inner) > 2:
                inner = self._named(key, inner, ((read, a[2]), (read, b[2])), False)
            return _product([passed], inner)
        if a[0] == b[0] == "feature":
            return self._of_features(a, b)
        return self._of_feature_and_field(a, b)

    def _of_states(self, a: Atom, b: Atom) -> Polynomial:
        """Of the state of an earlier step of a loop: a register of its own."""
        key = "state", a, b
        if key not in self._known:
            if a[0] == b[0] == "state":
                terms = self.of_vectors(a[1:], b[1:])
            elif a[0] == "state":
                terms = self._of_vector_and_atom(a[1:], b, left=True)
            else:
                terms = self._of_vector_and_atom(b[1:], a, left=False)
            self._known[key] = self._named(key, terms, (a, b), True)
        return self._known[key]

    def _of_vector_and_atom(self, vector: Vector, atom: Atom, *, left: bool) -> Polynomial:
        """The second moment of a vector (of the row if `left`) and an atom."""
        total: Polynomial = []
        for own in self.atoms[vector]:
            pair = self.of_atoms(own, atom) if left else self.of_atoms(atom, own)
            total += _product([self._weighted(vector, own, left=left)], pair)
        return total

    def _are_correlated(self, a: Atom, b: Atom) -> bool:
        kinds = {a[0], b[0]}
        if kinds == {"feature"}:
            return True
        if "feature" not in kinds:
            return a[:2] == b[:2]
        other, feature = (a, b) if b[0] == "feature" else (b, a)
        factors = self.cell.factors[feature[1]]
        return any(other[:2] in self.cell.contents[factor.argument] for factor in factors)

    def _of_feature_and_field(self, a: Atom, b: Atom) -> Polynomial:
        """Of a Gaussian atom and a feature, by Stein's lemma: Σ_k cov(atom, u_k) E[φ_k'] Π E[φ_l]."""
        feature, is_right = (b, True) if b[0] == "feature" else (a, False)
        factors, total = self.cell.factors[feature[1]], []
        for k, factor in enumerate(factors):
            slots = tuple(_mean(other, feature[2], int(place == k)) for place, other in enumerate(factors))
            side = Term(right=slots) if is_right else Term(left=slots)
            vector = factor.argument, feature[2]
            other = a if is_right else b
            total += _product([side], self._of_vector_and_atom(vector, other, left=not is_right))
        return total

    def _of_features(self, a: Atom, b: Atom) -> Polynomial:
        """Of two products of activations: F of correlated factors, means of the others."""
        factors, others = self.cell.factors[a[1]], self.cell.factors[b[1]]
        pairs = self.cell.matches(a[1], b[1])
        left = tuple(_mean(f, a[2], 0) for k, f in enumerate(factors) if k not in [pair[0] for pair in pairs])
        right = tuple(_mean(f, b[2], 0) for k, f in enumerate(others) if k not in [pair[1] for pair in pairs])
        terms = [Term()]
        for k, j in pairs:
            factor, one, two = factors[k], (factors[k].argument, a[2]), (others[j].argument, b[2])
            if factor.is_linear and isinstance(self.cell.nodes[a[1]], Gate):
                inner = self._named(("linear", one, two), self.of_vectors(one, two), (one, two), False)
                terms = _product(
                    [Term((factor.phi.amplitude * factor.phi.gain) ** 2)], _product(terms, inner)
                )
            else:
                terms = _product(terms, [Term(registers=(("F", self._expect(factor.phi, one, two)),))])
        if len(pairs) > 1:
            terms = self._named(("product", a, b), terms, (a, b), True)
        return _product([Term(left=left, right=right)], terms)

    def _expect(self, phi: Activation, one: Vector, two: Vector) -> int:
        key = "expect", phi, one, two
        if key not in self._numbers:
            self._numbers[key] = number = len(self.expects)
            self.expects.append(Expect(phi, one, two))
            # The argument of an expectation is a register: what contains it does not contain itself.
            kept, self._open = self._open, []
            self.expects[number].argument = self.of_vectors(one, two)
            self._open = kept
        return self._numbers[key]


def _mean(factor: Factor, step: int, order: int) -> Slot:
    return "mean", factor, step, order


@dataclass
class Plan:
    """A compiled cell.

    Attributes:
        cell: the cell.
        steps: how often it is applied; None for the equilibrium.
        expects: all expectations.
        pairs: what each register ("C", number) is the second moment of.
        unknown: the registers of the equations that Newton's method solves; none for a loop.
        order: registers ("A", number) and ("C", number) in the order of their evaluation.
        free: expectations that contain no unknown: evaluated once.
        polynomials: the polynomial of each register that has one, and of each kernel ("out", name).
        step_lines: registers of a Newton step, in order.
        tangent_lines: for each kind of tangent kernel the registers that it needs, in order.
        kinds: the kind of each tangent kernel.
    """

    cell: Cell
    steps: int | None
    expects: list[Expect]
    pairs: list[tuple[tuple[Atom | Vector, Atom | Vector], bool]]
    unknown: list[Symbol] = field(default_factory=list)
    order: list[Symbol] = field(default_factory=list)
    free: set[int] = field(default_factory=set)
    polynomials: dict[Symbol, Polynomial] = field(default_factory=dict)
    step_lines: list[Symbol] = field(default_factory=list)
    tangent_lines: dict[int, list[Symbol]] = field(default_factory=dict)
    kinds: dict[Kernel, int] = field(default_factory=dict)

    @property
    def loop(self) -> list[Symbol]:
        """The registers of `order` that change from step to step."""
        return [node for node in self.order if not (node[0] == "A" and node[1] in self.free)]

    @property
    def slots(self) -> list[Slot]:
        """What must be known of samples."""
        terms = [term for terms in self.polynomials.values() for term in terms]
        return list(dict.fromkeys(slot for term in terms for slot in (*term.left, *term.right)))

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activations of all expectations."""
        return tuple(dict.fromkeys(expect.phi for expect in self.expects))


# Kinds of tangent kernels: with all weights, or with those that read the state alone, as the papers define it.
EVERY, RECURRENT = 0, 1


@lru_cache(maxsize=64)
def compile_plan(
    cell: Cell,
    steps: int | None,
    kernels: tuple[Kernel, ...],
    ends: tuple[int, int] | None = None,
    paper: int = RECURRENT,
) -> Plan:
    """Compile a cell of rows; plans are kept, and must not be changed.

    Args:
        cell: the cell.
        steps: how often it is applied; None for the equilibrium.
        kernels: the kernels that are computed.
        ends: of a loop, the steps after which rows and columns are read; both after the last if not given.
        paper: which weights the papers' tangent kernel counts.
    """
    moments = SecondMoments(cell, steps)
    one, two = ends or ((steps or 1), (steps or 1))
    # Step by step, so that no second moment is derived through many others at once.
    for back in range(min(one, two) - 1, 0, -1):
        moments.of_vectors((cell.last, one - 1 - back), (cell.last, two - 1 - back))
    for step in range(max(one, two) - 1 if cell.reads_state[cell.last] else 0):
        for other in range(step + 1):
            moments.of_vectors((cell.last, step), (cell.last, other))
            moments.of_vectors((cell.last, other), (cell.last, step))
    out = moments.of_vectors((cell.last, one - 1), (cell.last, two - 1))
    entering: Polynomial = []
    if any(kernel in _ENTERING for kernel in kernels):
        entering = moments.of_vectors(*((_entering(cell), end - 1) for end in (one, two)))
    plan = Plan(cell, steps, moments.expects, moments.pairs)
    _order(plan, moments.combined, (out, entering))
    kinds = {
        kernel: paper if kernel is Kernel.NTK_PAPER else EVERY for kernel in kernels if kernel.is_tangent
    }
    derive = _Derivatives(plan, set(kinds.values()))
    for kernel in kernels:
        terms = entering if kernel in _ENTERING else out
        if kernel in kinds:
            # The weights of the readout give the conjugate kernel.
            own = [] if kernel in _ENTERING else [replace(term, weights=(0, 0)) for term in terms]
            plan.kinds[kernel] = kinds[kernel]
            terms = own + derive.tangent(terms, kinds[kernel]) + derive.solved(terms)
        plan.polynomials["out", kernel] = terms
    return plan


_ENTERING = (Kernel.CK_PREACTIVATIONS, Kernel.NTK_PREACTIVATIONS)


def _entering(cell: Cell) -> int:
    """The node that enters the last activation."""
    top = cell.nodes[cell.last]
    if not isinstance(top, Activated):
        raise InputError(
            f"The kernels of pre-activations are defined for cells that end with an activation; "
            f"{cell.shown(cell.last)} does not. Use 'ck' (conjugate_kernel) or 'ntk' (tangent_kernel)."
        )
    return cell.number(top.node)


def _order(plan: Plan, combined: list[Polynomial], outputs: tuple[Polynomial, ...]) -> None:
    """Choose the unknowns, and sort what is left; registers that no output needs are dropped."""
    nodes: dict[Symbol, Polynomial] = {("A", e): expect.argument for e, expect in enumerate(plan.expects)}
    nodes |= {("C", c): terms for c, terms in enumerate(combined)}

    def reads(terms: Polynomial) -> dict[Symbol, None]:
        symbols = [symbol for term in terms for symbol in term.registers if symbol != GRAM]
        return dict.fromkeys(("A", symbol[1]) if symbol[0] == "F" else symbol for symbol in symbols)

    needed: dict[Symbol, dict[Symbol, None]] = {}
    stack = [symbol for terms in outputs for symbol in reads(terms)]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed[node] = reads(nodes[node])
            stack.extend(needed[node])
    plan.unknown = _fewest_cuts(needed) if plan.steps is None else []
    names: dict[Symbol, Symbol] = {node: ("U", k) for k, node in enumerate(plan.unknown)}
    for node in needed:
        terms = [_renamed(term, names) for term in nodes[node]]
        plan.polynomials[("R", names[node][1]) if node in names else node] = terms
    for terms in outputs:
        terms[:] = [_renamed(term, names) for term in terms]
    # An unknown is known when a sweep begins.
    ordered = _sorted_nodes({node: [] if node in names else list(read) for node, read in needed.items()})
    plan.order = [node for node in ordered if node[0] == "A" or node not in names]
    moving = set(names)
    for node in plan.order:
        if any(parent in moving for parent in needed[node]):
            moving.add(node)
    plan.free = {int(node[1]) for node in plan.order if node[0] == "A" and node not in moving}


def _renamed(term: Term, names: dict[Symbol, Symbol]) -> Term:
    return replace(term, registers=tuple(names.get(symbol, symbol) for symbol in term.registers))


def _sorted_nodes(parents: dict[Symbol, list[Symbol]]) -> list[Symbol]:
    """The nodes, each after its parents; without recursion, for loops of many steps."""
    done: dict[Symbol, None] = {}
    for start in parents:
        stack = [start]
        while stack:
            node = stack[-1]
            missing = [parent for parent in parents[node] if parent not in done and parent != node]
            if missing and node not in done:
                stack.extend(missing)
            else:
                done[stack.pop()] = None
    return list(done)


def _fewest_cuts(graph: dict[Symbol, dict[Symbol, None]]) -> list[Symbol]:
    """Nodes without which the graph has no cycle: the fewest, or in large graphs few; arguments come first."""
    nodes = sorted(_on_cycles(graph), key=lambda node: (node[0] != "A", node[1]))
    for size in range(SEARCHED + 1):
        for chosen in combinations(nodes, size):
            if not _on_cycles(_without(graph, chosen)):
                return list(chosen)
    cuts: list[Symbol] = []
    while nodes:
        # The node through which most ways lead.
        reads = {node: sum(node in graph[other] for other in nodes) for node in nodes}
        cuts.append(max(nodes, key=lambda node: reads[node] * len([p for p in graph[node] if p in reads])))
        left = _on_cycles(_without(graph, cuts))
        nodes = [node for node in nodes if node in left]
    return cuts


def _without(
    graph: dict[Symbol, dict[Symbol, None]], removed: Sequence[Symbol]
) -> dict[Symbol, dict[Symbol, None]]:
    return {node: parents for node, parents in graph.items() if node not in removed}


def _on_cycles(graph: dict[Symbol, dict[Symbol, None]]) -> list[Symbol]:
    """What is left after nodes without parents, and nodes that no other reads, are removed again and again."""
    left = {node: {parent for parent in parents if parent in graph} for node, parents in graph.items()}
    while True:
        read = {parent for parents in left.values() for parent in parents}
        ends = {node for node, parents in left.items() if not parents or node not in read}
        if not ends:
            return list(left)
        left = {node: parents - ends for node, parents in left.items() if node not in ends}


class _Derivatives:
    """Derivatives by the unknowns and tangents of polynomials; those of registers become lines of their own.

    Args:
        plan: the plan; its polynomials and lines are completed.
        kinds: the kinds of tangent kernels that are needed.
    """

    def __init__(self, plan: Plan, kinds: set[int]) -> None:
        self.plan, self.polynomials = plan, plan.polynomials
        self.unknown = {node: k for k, node in enumerate(plan.unknown)}
        known = [node for node in plan.order if node not in self.unknown]
        count = range(len(plan.unknown))
        for node in known:
            for k in count:
                self._keep(("D", node, k), self.derivative(self.polynomials[node], k), plan.step_lines)
        for k in count:
            inputs = [term for term in self.polynomials["R", k] if set(term.registers) <= {GRAM}]
            plan.polynomials["forcing", k] = inputs
            plan.polynomials |= {("J", k, o): self.derivative(self.polynomials["R", k], o) for o in count}
        for kind in kinds:
            lines = plan.tangent_lines[kind] = []
            for node in known:
                self._keep(("T", node, kind), self.tangent(self.polynomials[node], kind), lines)
            for k in count:
                self.polynomials["RT", k, kind] = self.tangent(self.polynomials["R", k], kind)

    def _keep(self, name: Symbol, terms: Polynomial, lines: list[Symbol]) -> None:
        self.polynomials[name] = terms
        if _inlined(name, terms) is not terms:
            lines.append(name)

    def derivative(self, terms: Polynomial, k: int) -> Polynomial:
        """The derivative by an unknown."""

        def moved(node: Symbol) -> Polynomial:
            if node == ("U", k) or self.unknown.get(node) == k:
                return [Term()]
            name = "D", node, k
            return _inlined(name, self.polynomials.get(name, []))

        return self._chain(terms, moved)

    def tangent(self, terms: Polynomial, kind: int) -> Polynomial:
        """The tangent moment where those of the unknowns are zero."""
        own = [
            replace(one, scale=one.scale * one.weights[kind], weights=(0, 0))
            for one in terms
            if one.weights[kind]
        ]

        def moved(node: Symbol) -> Polynomial:
            name = "T", node, kind
            return _inlined(name, self.polynomials.get(name, []))

        return own + self._chain(terms, moved)

    def solved(self, terms: Polynomial) -> Polynomial:
        """What the tangents of the unknowns add."""
        total: Polynomial = []
        for k in range(len(self.plan.unknown)):
            total += _product([Term(registers=(("t", k),))], self.derivative(terms, k))
        return total

    def _chain(self, terms: Polynomial, moved: Callable[[Symbol], Polynomial]) -> Polynomial:
        result: Polynomial = []
        for term in terms:
            for place, symbol in enumerate(term.registers):
                if symbol[0] == "F":
                    inner = _product([Term(registers=(("dF", symbol[1]),))], moved(("A", symbol[1])))
                else:
                    inner = moved(symbol)
                result += _product([term.without(place)], inner)
        return result


def _inlined(name: Symbol, terms: Polynomial) -> Polynomial:
    """A short polynomial itself; otherwise its register."""
    if not terms or (len(terms) == 1 and len(terms[0].registers) <= 1):
        return terms
    return [Term(registers=(name,))]


__all__ = [
    "EVERY",
    "GRAM",
    "RECURRENT",
    "Expect",
    "Plan",
    "Polynomial",
    "Slot",
    "Symbol",
    "Term",
    "compile_plan",
]
