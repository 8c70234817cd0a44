"""Expressions of cells: what one step of an implicit or looped network does to its state.

    z, x = state(), input()
    step = norm(z + dense(activation(dense(z, 1.2), "gelu"), 0.8) + dense(x, 0.6))

A node is a vector of the network at infinite width. `dense`, `bias`, `conv` and `graph` have weights of their own,
drawn afresh at each call; a node that is used twice is the same vector. Weights are Gaussian in NTK parametrisation:
`dense(node, s)` multiplies the second moment per coordinate of a state or feature by s, and has covariance s x_i·x_j
for the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.activations import activation as as_activation
from notsodeep.validation import Array, as_real, as_variance

PADDINGS, NORMS = ("zeros", "circular"), ("rms", "layer")


class Node:
    """A vector of a cell. Add nodes, multiply them with numbers, or gate one with another (`a * b`)."""

    @property
    def parents(self) -> tuple[Node, ...]:
        """The nodes that this one is made from."""
        values = [
            part
            for value in vars(self).values()
            for part in (value if isinstance(value, tuple) else (value,))
        ]
        return tuple(part for part in values if isinstance(part, Node))

    def __add__(self, other: Any) -> Node:
        return _add(self, other)

    def __radd__(self, other: Any) -> Node:
        return _add(self, other)

    def __sub__(self, other: Any) -> Node:
        return _add(self, -1.0 * as_node(other, "the second term of a difference"))

    def __neg__(self) -> Node:
        return Scaled(self, -1.0)

    def __mul__(self, other: Any) -> Node:
        if isinstance(other, Node):
            return Gate(self, other)
        return Scaled(self, _number(other, "A factor"))

    def __rmul__(self, other: Any) -> Node:
        return Scaled(self, _number(other, "A factor"))

    def __truediv__(self, other: Any) -> Node:
        number = _number(other, "A divisor")
        if not number:
            raise InputError("A node of a cell cannot be divided by zero.")
        return Scaled(self, 1.0 / number)


@dataclass(frozen=True, eq=False)
class State(Node):
    """The state z of the loop."""

    def __str__(self) -> str:
        return "z"


@dataclass(frozen=True, eq=False)
class Input(Node):
    """The input x; only weights may read it."""

    def __str__(self) -> str:
        return "x"


class Weighted(Node):
    """A node with Gaussian weights of its own.

    Attributes:
        node: what the weights read.
        variance: s.
    """

    node: Node
    variance: float


@dataclass(frozen=True, eq=False)
class Dense(Weighted):
    """A matrix of fresh Gaussian weights, √(s/m) W node, or √s W x of the input."""

    node: Node
    variance: float

    def __str__(self) -> str:
        return f"dense({self.node}, {self.variance:g})"


@dataclass(frozen=True, eq=False)
class Conv(Weighted):
    """Filters of fresh Gaussian weights: the average of the covariance over the taps, times s."""

    node: Node
    variance: float
    filter_size: int
    padding: str

    def __str__(self) -> str:
        return f"conv({self.node}, {self.variance:g}, {self.filter_size}, {self.padding!r})"


@dataclass(frozen=True, eq=False)
class Graph(Weighted):
    """A dense map followed by the propagation over the nodes of a graph, S W node."""

    node: Node
    matrix: Array
    variance: float

    def __str__(self) -> str:
        return f"graph({self.node}, S, {self.variance:g})"


@dataclass(frozen=True, eq=False)
class Bias(Weighted):
    """The node plus a Gaussian vector of variance b, the same for all samples."""

    node: Node
    variance: float

    def __str__(self) -> str:
        return f"bias({self.node}, {self.variance:g})"


@dataclass(frozen=True, eq=False)
class Activated(Node):
    """An activation of a Gaussian vector, entry by entry."""

    node: Node
    phi: Activation

    def __str__(self) -> str:
        return f"{self.phi}({self.node})"


@dataclass(frozen=True, eq=False)
class Norm(Node):
    """The node divided by its root mean square; LayerNorm ("layer") also subtracts its mean."""

    node: Node
    kind: str

    def __str__(self) -> str:
        return f"norm({self.node})"


@dataclass(frozen=True, eq=False)
class Sum(Node):
    """The sum of nodes."""

    terms: tuple[Node, ...]

    def __str__(self) -> str:
        return "(" + " + ".join(map(str, self.terms)) + ")"


@dataclass(frozen=True, eq=False)
class Scaled(Node):
    """A number times a node."""

    node: Node
    factor: float

    def __str__(self) -> str:
        return f"{self.factor:g}·{self.node}"


@dataclass(frozen=True, eq=False)
class Gate(Node):
    """The product of two nodes, entry by entry."""

    left: Node
    right: Node

    def __str__(self) -> str:
        return f"({self.left} ∘ {self.right})"


@dataclass(frozen=True, eq=False)
class Readout(Node):
    """How images are read out: "flatten" (weights for each position) or "pool" (the mean over positions)."""

    node: Node
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}({self.node})"


# --- what users call --------------------------------------------------------------------------------------------------


def state() -> State:
    """Return the state of the loop: z_0 = 0, or the equilibrium."""
    return State()


def input() -> Input:
    """Return the input of the network, which dense maps, filters or graph maps read."""
    return Input()


def dense(node: Node, s: float) -> Dense:
    """Multiply a node with fresh Gaussian weights.

    Args:
        node: a state, a feature, a sum of such, or the input.
        s: variance: the second moment per coordinate becomes s times that of the node; s x_i·x_j of the input.
    """
    return Dense(as_node(node, "dense"), as_variance(s, "s"))


def conv(node: Node, s: float, filter_size: int = 3, padding: str = "zeros") -> Conv:
    """Convolve a node with fresh Gaussian filters.

    Args:
        node: a state, a feature, or the input (images or sequences).
        s: variance, shared by the taps: each weight has variance s / taps.
        filter_size: an odd number of taps along each axis.
        padding: "zeros" or "circular".
    """
    if isinstance(filter_size, bool) or not isinstance(filter_size, int | np.integer) or filter_size % 2 == 0:
        raise InputError(f"filter_size must be an odd whole number, got {filter_size!r}.")
    if filter_size < 1:
        raise InputError(f"filter_size must be positive, got {filter_size}.")
    if padding not in PADDINGS:
        raise InputError(f"padding must be one of {', '.join(PADDINGS)}; got {padding!r}.")
    return Conv(as_node(node, "conv"), as_variance(s, "s"), int(filter_size), padding)


def graph(node: Node, matrix: Any, s: float) -> Graph:
    """Multiply a node with fresh Gaussian weights and propagate it over a graph.

    Args:
        node: a state, a feature, or the input (one row for each node of the graph).
        matrix: S, nodes by nodes; `notsodeep.models.normalised_adjacency` makes one.
        s: variance of the weights.
    """
    values = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    propagation = np.array(as_real(values, "matrix"), dtype=np.float64)
    if propagation.ndim != 2 or propagation.shape[0] != propagation.shape[1] or not len(propagation):
        raise InputError(f"matrix must be square, nodes by nodes; its shape is {propagation.shape}.")
    if not np.isfinite(propagation).all():
        raise InputError("matrix has entries that are not finite.")
    propagation.setflags(write=False)
    return Graph(as_node(node, "graph"), propagation, as_variance(s, "s"))


def bias(node: Node, b: float) -> Node:
    """Add a Gaussian vector of variance b that is the same for all samples and steps."""
    return Bias(as_node(node, "bias"), as_variance(b, "b"))


def activation(node: Node, phi: Any) -> Activated:
    """Apply an activation, given by name, as an Activation or as a function, to each entry of a Gaussian vector."""
    return Activated(as_node(node, "activation"), as_activation(phi))


def norm(node: Node, kind: str = "rms") -> Norm:
    """Divide a vector by its root mean square (RMSNorm, "rms"), after subtracting its mean (LayerNorm, "layer")."""
    if kind not in NORMS:
        raise InputError(f"kind must be 'rms' or 'layer', got {kind!r}.")
    return Norm(as_node(node, "norm"), kind)


def pool(step: Node) -> Readout:
    """Read the state of images out by the mean over positions; the outermost node of a cell."""
    return Readout(as_node(step, "pool"), "pool")


def flatten(step: Node) -> Readout:
    """Read the state of images out with weights for each position; the outermost node of a cell."""
    return Readout(as_node(step, "flatten"), "flatten")


def as_node(value: Any, where: str) -> Node:
    """Return a node, or raise an InputError that says what was given."""
    if not isinstance(value, Node):
        raise InputError(
            f"{where} takes a node of a cell, such as cells.state() or cells.dense(x, 1.0); got {value!r}."
        )
    return value


def nodes_of(step: Node) -> list[Node]:
    """List the nodes of an expression, each once and after what it is made from."""
    ordered: dict[int, Node] = {}
    stack = [step]
    while stack:
        node = stack[-1]
        missing = [parent for parent in node.parents if id(parent) not in ordered]
        if missing:
            stack.extend(reversed(missing))
        else:
            ordered[id(stack.pop())] = node
    return list(ordered.values())


def _add(one: Node, other: Any) -> Node:
    second = as_node(other, "A sum")
    terms = [part for node in (one, second) for part in (node.terms if isinstance(node, Sum) else (node,))]
    return Sum(tuple(terms))


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise InputError(f"{name} of a node must be a finite number or another node, got {value!r}.")
    return number


__all__ = [
    "Activated", "Bias", "Conv", "Dense", "Gate", "Graph", "Input", "Node", "Norm", "Readout", "Scaled", "State", "Sum",
    "Weighted", "activation", "as_node", "bias", "conv", "dense", "flatten", "graph", "input", "nodes_of", "norm",
    "pool", "state",
]  # fmt: skip
