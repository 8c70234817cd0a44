"""The structure of a cell: its nodes in order, what each contains, and whether its infinite-width limit is Gaussian.

Every vector of a cell is a combination of *atoms* with one coefficient per sample: fields (the output of weights),
biases, and features (an activation, or a product of activations, of Gaussian vectors). Skips add coefficients, norms
divide them, weights create new fields (docs/theory.md, section 17).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from typing import Any

from notsodeep.cells.expressions import (
    Activated,
    Bias,
    Conv,
    Dense,
    Gate,
    Graph,
    Input,
    Node,
    Norm,
    Readout,
    Scaled,
    State,
    Sum,
    nodes_of,
)
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation

IDENTITY = activation("identity")
# An atom without its step: ("field", node), ("bias", node) or ("feature", node).
Kind = tuple[str, int]
_STATE: Kind = ("state", -1)


@dataclass(frozen=True)
class Factor:
    """One factor of a feature: an activation of a Gaussian node."""

    phi: Activation
    argument: int

    @property
    def is_linear(self) -> bool:
        """Whether the factor is the Gaussian vector itself, up to a number."""
        return self.phi.name == "identity" and not self.phi.offset

    @property
    def is_centred(self) -> bool:
        """Whether the mean of the factor is zero at every variance."""
        return self.phi.parity == -1


class Cell:
    """A checked cell.

    Args:
        step: the expression; a readout, if there is one, is its outermost node.
        from_zero: the cell is started from z = 0, as a loop is.

    Attributes:
        nodes: all nodes but the readout, each after what it is made from.
        readout: "flatten" or "pool" for images, "" otherwise.
        samples: what a sample is: "rows", "images" or "graph".
        factors: the factors of each feature, by node.
        contents: the atoms of each node, the state replaced by what it contains.
        reads_state: whether the state is a term of the node.
    """

    def __init__(self, step: Node, *, from_zero: bool = False) -> None:
        self.step, self.from_zero = step, from_zero
        self.readout = step.kind if isinstance(step, Readout) else ""
        top = step.node if isinstance(step, Readout) else step
        self.nodes = nodes_of(top)
        self.numbers = {id(node): number for number, node in enumerate(self.nodes)}
        self.last = len(self.nodes) - 1
        self.samples = self._samples()
        self.factors = {
            number: self._factors(node)
            for number, node in enumerate(self.nodes)
            if isinstance(node, Activated | Gate)
        }
        terms = self._terms(_STATE)
        self.reads_state = [_STATE in part for part in terms]
        state = terms[self.last] - {_STATE}
        self.contents = [part - {_STATE} | (state if _STATE in part else set()) for part in terms]
        self._check(from_zero)

    def __reduce__(self) -> tuple[Any, ...]:
        # Nodes are known by their identity, which does not survive pickling.
        return partial(Cell, from_zero=self.from_zero), (self.step,)

    def number(self, node: Node) -> int:
        """Return the place of a node in `nodes`."""
        return self.numbers[id(node)]

    def shown(self, number: int) -> str:
        """Return a node as text, cut to one line."""
        text = str(self.nodes[number])
        return text if len(text) <= 90 else f"{text[:87]}…"

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Every activation once, without the identity."""
        found = [
            factor.phi for factors in self.factors.values() for factor in factors if not factor.is_linear
        ]
        return tuple(dict.fromkeys(found))

    @property
    def weighted(self) -> list[int]:
        """The nodes with weights that read something, biases excepted."""
        return [number for number, node in enumerate(self.nodes) if isinstance(node, Dense | Conv | Graph)]

    @property
    def positions(self) -> int | None:
        """Number of nodes of the graph; None for other samples."""
        sizes = {len(node.matrix) for node in self.nodes if isinstance(node, Graph)}
        return sizes.pop() if sizes else None

    def related(self, one: int, other: int) -> bool:
        """Whether two Gaussian nodes share weights, so that they may be correlated."""
        return bool(self.contents[one] & self.contents[other])

    def _samples(self) -> str:
        graph = any(isinstance(node, Graph) for node in self.nodes)
        images = any(isinstance(node, Conv) for node in self.nodes) or bool(self.readout)
        if graph and images:
            raise InputError("A cell has either filters (conv, pool, flatten) or graph maps, not both.")
        if self.readout and not any(isinstance(node, Conv) for node in self.nodes):
            raise InputError(f"{self.readout} reads images out: the cell needs a conv.")
        if graph and len({len(node.matrix) for node in self.nodes if isinstance(node, Graph)}) > 1:
            raise InputError("The graph maps of a cell must have matrices of one size.")
        return "graph" if graph else "images" if images else "rows"

    def _factors(self, node: Node, scale: float = 1.0) -> tuple[Factor, ...]:
        """The factors of a product, nested products flattened."""
        if isinstance(node, Activated):
            return (Factor(node.phi.scaled(scale), self.number(node.node)),)
        if isinstance(node, Scaled):
            return self._factors(node.node, scale * node.factor)
        if isinstance(node, Gate):
            return self._factors(node.left, scale) + self._factors(node.right)
        return (Factor(IDENTITY.scaled(scale), self.number(node)),)

    def _terms(self, state: Kind) -> list[set[Kind]]:
        """The atoms of each node, the state being one of them."""
        terms: list[set[Kind]] = []
        for number, node in enumerate(self.nodes):
            parts = [terms[self.number(parent)] for parent in node.parents]
            if isinstance(node, Readout):
                raise InputError("pool and flatten must be the outermost node of a cell.")
            if isinstance(node, Input):
                terms.append({("input", number)})
                continue
            if not isinstance(node, Dense | Conv | Graph) and any(
                kind == "input" for p in parts for kind, _ in p
            ):
                raise InputError(
                    f"The input must be read by weights first: cells.dense(x, s) instead of x in {self.shown(number)}."
                )
            if isinstance(node, State):
                terms.append({state})
            elif isinstance(node, Dense | Conv | Graph):
                terms.append({("field", number)})
            elif isinstance(node, Activated | Gate):
                terms.append({("feature", number)})
            else:
                own = {("bias", number)} if isinstance(node, Bias) else set()
                terms.append(own.union(*parts))
        if any(kind == "input" for kind, _ in terms[self.last]):
            raise InputError("The input must be read by weights first: cells.dense(x, s).")
        return terms

    # --- what the limit does not cover --------------------------------------------------------------------------------

    def _check(self, from_zero: bool) -> None:
        for number, node in enumerate(self.nodes):
            if isinstance(node, Activated | Gate):
                self._check_feature(number)
            elif isinstance(node, Norm):
                self._check_norm(number, from_zero)
        sums = {self.number(self.nodes[one].parents[0]) for one in self.weighted} | {self.last}
        for place in sums:
            features = sorted(number for kind, number in self.contents[place] if kind == "feature")
            for pair in combinations(features, 2):
                self.matches(*pair)
        if not from_zero and abs(self._skip()) >= 1.0:
            raise InputError(
                f"The state of {self.shown(self.last)} is added to itself with the factor {self._skip():g} and no "
                "norm: it has no equilibrium. Normalise the sum, scale the state (0.5 * z), or use nsd.Loop."
            )
        if not self.contents[self.last]:
            raise InputError("The cell contains no weights: its state is zero, or anything.")

    def _skip(self) -> float:
        """The factor with which the state is added to itself; zero where a norm is passed on the way."""
        factors: list[float] = []
        for node in self.nodes:
            if isinstance(node, State):
                factors.append(1.0)
            elif isinstance(node, Sum | Bias | Scaled):
                total = sum(factors[self.number(parent)] for parent in node.parents)
                factors.append(total * node.factor if isinstance(node, Scaled) else total)
            else:
                factors.append(0.0)
        return factors[self.last]

    def _check_feature(self, number: int) -> None:
        used: set[Kind] = set()
        for factor in self.factors[number]:
            inside = self.contents[factor.argument]
            if any(kind == "feature" for kind, _ in inside):
                raise InputError(
                    f"In {self.shown(number)} a nonlinearity is applied to a sum that contains another one's output, "
                    "with no dense map between: that vector is not Gaussian. Put a cells.dense between the two."
                )
            if inside & used:
                raise InputError(
                    f"The factors of {self.shown(number)} share weights, so that they are not independent. Read each "
                    "with a dense map of its own."
                )
            used |= inside

    def _check_norm(self, number: int, from_zero: bool) -> None:
        argument = self.number(self.nodes[number].parents[0])
        for kind, feature in self.contents[argument]:
            if kind == "feature" and not any(factor.is_centred for factor in self.factors[feature]):
                raise InputError(
                    f"{self.shown(number)} normalises {self.shown(feature)}, whose mean is not zero. Put a cells.dense "
                    "between the two, or use an odd activation."
                )
        if from_zero and not self._terms(_STATE)[argument] - {_STATE}:
            raise InputError(
                f"{self.shown(number)} normalises the state alone, which is zero at the first step of a loop. Add the "
                "input before the norm."
            )

    def matches(self, one: int, other: int) -> list[tuple[int, int]]:
        """Pair the correlated factors of two features that are added; an InputError if the engine cannot."""
        first, second = self.factors[one], self.factors[other]
        pairs = [
            (k, j)
            for k, a in enumerate(first)
            for j, b in enumerate(second)
            if (k == j if one == other else self.related(a.argument, b.argument))
        ]
        distinct = len({k for k, _ in pairs}) == len(pairs) == len({j for _, j in pairs})
        if not distinct or any(first[k].phi != second[j].phi for k, j in pairs):
            raise InputError(
                f"{self.shown(one)} and {self.shown(other)} are added with no dense map between and read the same "
                "weights: expectations of products of two different activations are not available."
            )
        return pairs


@lru_cache(maxsize=64)
def cell_of(model: Any, *, from_zero: bool = False) -> Cell:
    """Return the cell of a model with a `step`; equal models share it, and what is kept for it."""
    return Cell(model.step, from_zero=from_zero)


__all__ = ["Cell", "Factor", "Kind", "cell_of"]
