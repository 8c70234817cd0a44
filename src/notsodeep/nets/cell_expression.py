"""An expression of `notsodeep.cells` on tensors: its weights, and one step of the network that it describes."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError
from notsodeep.models.mixing import Convolution
from notsodeep.nets.connections import Connection, DenseConnection, FilterConnection
from notsodeep.nets.modules import Net, gaussian_draws
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.validation import as_count


class Weights(NamedTuple):
    """The weights of a node.

    Attributes:
        name: name of the parameter.
        connection: matrices or filters.
        rate: variance of what multiplies a number that they read: s/m of a state or feature, s of the input.
    """

    name: str
    connection: Connection
    rate: float


class Use(NamedTuple):
    """What the weights of a node (its number) read, and what they made of it."""

    number: int
    signal: Tensor
    product: Tensor


# Weights of all nodes as they are stored; None for the present ones.
Stored = Sequence[Tensor] | None


class ExpressionNet(Net):
    """Base of networks of cells: the weights of all nodes, and one step.

    States have coordinates of order one. Each node with weights has Gaussian weights of its own: √(s/m) W v of a state
    or feature, √s W x of the input, divided by √(number of taps) for filters.

    Args:
        step: the cell; its outermost node may be a readout of images.
        sample_shape: shape of one sample: (features,) for rows, (channels, height, width) for images.
        width: m; of images channels.
        out_features: number of outputs.
        seed: random seed of the initial weights; torch's global generator (`torch.manual_seed`) if None.
        options: keyword arguments of `Net`: train, scaling, dtype, device, output_scale.

    Attributes:
        nodes: the nodes of the cell, each after what it is made from.
        graph_size: number of nodes of the graph, whose states depend on each other; None for other cells.
    """

    def __init__(
        self,
        step: ex.Node,
        sample_shape: Sequence[int],
        width: int,
        out_features: int,
        *,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        readout, cell = (step.kind, step.node) if isinstance(step, ex.Readout) else ("flatten", step)
        shape = tuple(as_count(size, "in_features") for size in sample_shape)
        nodes = ex.nodes_of(cell)
        _check_shape_of_samples(nodes, shape)
        super().__init__(shape, _connection(shape, 1, "zeros", readout), width, out_features, **options)
        # Numbers of nodes rather than the nodes themselves: a copy of the network has copies of the nodes.
        self.nodes, places = nodes, {id(node): number for number, node in enumerate(nodes)}
        self._parents = [tuple(places[id(parent)] for parent in node.parents) for node in nodes]
        self._reads_state = self._find_state()
        self._driving = self._find_drive()
        self._activations = {
            number: TorchActivation(node.phi)
            for number, node in enumerate(self.nodes)
            if isinstance(node, ex.Activated)
        }
        self._weights = self._drawn_weights(seed)
        self.graph_size = self._add_graphs()

    def _find_state(self) -> list[bool]:
        """Whether each node depends on the state; the others are computed once for all steps."""
        found: list[bool] = []
        for node, parents in zip(self.nodes, self._parents, strict=True):
            found.append(isinstance(node, ex.State) or any(found[parent] for parent in parents))
        return found

    def _find_drive(self) -> list[int]:
        """Nodes of the drive: those without the state that others, or the network, read."""
        read = {
            parent
            for parents, reads_state in zip(self._parents, self._reads_state, strict=True)
            if reads_state
            for parent in parents
        }
        return sorted(number for number in read | {len(self.nodes) - 1} if not self._reads_state[number])

    def _drawn_weights(self, seed: int | None) -> dict[int, Weights]:
        """Draw the weights of all nodes in their order, then those of the readout."""
        draw = gaussian_draws(seed)
        weights: dict[int, Weights] = {}
        for number, node in enumerate(self.nodes):
            if not isinstance(node, ex.Weighted):
                continue
            name, reads_input = f"weight{len(weights) + 1}", _is_input(node.node)
            size, padding = (node.filter_size, node.padding) if isinstance(node, ex.Conv) else (1, "zeros")
            connection = _connection(self.sample_shape, size, padding, "flatten")
            if isinstance(node, ex.Bias):
                self._add(name, draw(self.units))
                weights[number] = Weights(name, connection, node.variance)
                continue
            fan_in = self.sample_shape[0] if reads_input else self.units
            self._add(name, draw(self.units, fan_in, *connection.filter_shape))
            if not reads_input:
                self.hidden_fan_in = max(self.hidden_fan_in, fan_in * connection.taps)
            rate = node.variance / connection.taps / (1 if reads_input else self.units)
            weights[number] = Weights(name, connection, rate)
        self._add("readout", draw(self.out_features, self.width))
        return weights

    def _add_graphs(self) -> int | None:
        """Hold the matrices of graphs; returns their size."""
        size = None
        for number, node in enumerate(self.nodes):
            if isinstance(node, ex.Graph):
                size = len(node.matrix)
                matrix = torch.tensor(node.matrix, **self._place)
                self.register_buffer(f"graph{number}", matrix, persistent=False)
        return size

    def stored_weights(self) -> tuple[Tensor, ...]:
        """The weights of all nodes as they are stored."""
        return tuple(getattr(self, weights.name) for weights in self._weights.values())

    def _compute(
        self, values: dict[int, Tensor], moving: bool, stored: Stored, uses: list[Use] | None
    ) -> None:
        """Add the values of all nodes that depend on the state (`moving`), or of all others, in their order."""
        weights = dict(zip(self._weights, self.stored_weights() if stored is None else stored, strict=True))
        for number, node in enumerate(self.nodes):
            if number in values or self._reads_state[number] is not moving:
                continue
            parts = [values[parent] for parent in self._parents[number]]
            if not isinstance(node, ex.Weighted):
                values[number] = self._value(number, node, parts)
                continue
            product = self._product(number, parts[0], weights[number])
            if uses is not None:
                # Buffers, of a network whose readout alone is trained, have no gradient: what they make has.
                product = product if product.requires_grad else product.detach().clone().requires_grad_()
                uses.append(Use(number, parts[0].detach(), product))
            values[number] = (
                parts[0] + product if isinstance(node, ex.Bias) else self._spread(number, product)
            )

    def _value(self, number: int, node: ex.Node, parts: list[Tensor]) -> Tensor:
        """The value of a node without weights from those that it is made from."""
        if isinstance(node, ex.Activated):
            return self._activations[number](parts[0])
        if isinstance(node, ex.Norm):
            return self._normalised(parts[0], node.kind)
        if isinstance(node, ex.Scaled):
            return node.factor * parts[0]
        if isinstance(node, ex.Sum):
            return sum(parts[1:], parts[0])
        if isinstance(node, ex.Gate):
            return parts[0] * parts[1]
        raise InputError(f"A network has no operation for {node}; pool and flatten are outermost nodes.")

    def _product(self, number: int, signal: Tensor, weights: Tensor) -> Tensor:
        """What the stored weights of a node make of a signal."""
        name, connection, rate = self._weights[number]
        scale = self.factors[name] * sqrt(rate)
        if isinstance(self.nodes[number], ex.Bias):
            return connection.spread(scale * weights).expand(len(signal), -1)
        return connection.image(weights, scale * signal)

    def _spread(self, number: int, product: Tensor) -> Tensor:
        """What a graph makes of the products of its nodes; of any other node the product itself."""
        if self.graph_size is None or not isinstance(self.nodes[number], ex.Graph):
            return product
        graphs = product.reshape(-1, self.graph_size, self.units)
        spread: Tensor = getattr(self, f"graph{number}") @ graphs
        return spread.reshape(-1, self.units)

    def _normalised(self, value: Tensor, kind: str) -> Tensor:
        """RMSNorm or LayerNorm over the units (of images, at each position), without weights; zero stays zero."""
        units = value.reshape(-1, self.units, self.connection.count)
        if kind == "layer":
            units = units - units.mean(dim=1, keepdim=True)
        square = units.square().mean(dim=1, keepdim=True)
        return (units * square.clamp_min(torch.finfo(value.dtype).tiny).rsqrt()).flatten(1)

    def _drive(self, rows: Tensor, uses: list[Use] | None = None) -> Tensor:
        """All values that do not depend on the state and that a step needs, side by side, (rows, …)."""
        values = {number: rows for number, node in enumerate(self.nodes) if isinstance(node, ex.Input)}
        self._compute(values, False, None, uses)
        needed = [values[number] for number in self._driving]
        return torch.cat(needed, dim=1) if needed else rows.new_zeros(len(rows), 0)

    def _step(self, z: Tensor, drive: Tensor, stored: Stored = None, uses: list[Use] | None = None) -> Tensor:
        """One step of states (rows, layer_size), with the present weights if none are given."""
        # An empty drive still splits into one part.
        parts = drive.split(self.layer_size, dim=1) if self._driving else ()  # type: ignore[no-untyped-call]
        values: dict[int, Tensor] = dict(zip(self._driving, parts, strict=True))
        values |= {number: z for number, node in enumerate(self.nodes) if isinstance(node, ex.State)}
        self._compute(values, True, stored, uses)
        return values[len(self.nodes) - 1]


def _connection(shape: tuple[int, ...], filter_size: int, padding: str, readout: str) -> Connection:
    """Matrices for rows; filters for images, of one tap where every position is read by itself."""
    if len(shape) == 1:
        return DenseConnection()
    return FilterConnection(Convolution(shape[1:], filter_size, padding), readout)


def _is_input(node: ex.Node) -> bool:
    """Whether weights read the input itself, or a multiple of it."""
    while isinstance(node, ex.Scaled):
        node = node.node
    return isinstance(node, ex.Input)


def _check_shape_of_samples(nodes: list[ex.Node], shape: tuple[int, ...]) -> None:
    """Refuse samples that do not fit the cell."""
    filters = [node.filter_size for node in nodes if isinstance(node, ex.Conv)]
    if bool(filters) != (len(shape) > 1):
        needed = "(channels, height, width)" if filters else "a number of features"
        kind = "has filters (conv)" if filters else "has no filters (conv)"
        raise InputError(f"The cell {kind}: in_features must be {needed}; got {shape}.")
    if len(shape) > 3:
        raise InputError(f"Images have the shape (channels, height, width); got {shape}.")
    if filters and min(shape[1:]) < max(filters):
        raise InputError(
            f"Images of {' × '.join(map(str, shape[1:]))} positions are smaller than filters of {max(filters)} taps."
        )


__all__ = ["ExpressionNet", "Use"]
