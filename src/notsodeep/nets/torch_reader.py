"""`from_torch`: the cell `forward(z, x)` of a torch module as an expression of `notsodeep.cells`."""

from __future__ import annotations

import copy
import re
import sys
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError
from notsodeep.models.cell_models import Equilibrium
from notsodeep.nets.torch_check import check_read_cell, check_weights
from notsodeep.nets.torch_operations import ABSTRACT, REASONS, Operations
from notsodeep.nets.torch_values import InputVector, Product, Vector
from notsodeep.validation import one_of

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in [^\n]+)?\n\s*(?P<code>[^\n]*)')


def from_torch(
    module: nn.Module, z_example: Tensor, x_example: Tensor, *, readout: str = "flatten"
) -> Equilibrium:
    """Read the cell `forward(z, x)` of a torch module as a model of infinite width.

    Weights are described by the mean square of their entries: s is the variance times fan-in for weights that read the
    state or features, the variance for those that read the input. An input that is added to the state without weights
    is read as if Gaussian weights of variance 1/size had been applied to it, which keeps its inner products; the
    tangent kernel then includes these weights. Understood are Linear, Conv1d, Conv2d, LayerNorm, RMSNorm (also written
    as a vector divided by its root mean square), activations, sums, products, multiples, chunk and split of a Linear's
    output, and concatenation before a Linear.

    Args:
        module: with `forward(z, x)`, which returns the next state; it is copied and put in evaluation mode.
        z_example: a state (samples, features), (samples, tokens, features) or, for convolutions, images.
        x_example: the second argument.
        readout: of images: "flatten" or "pool".

    Raises:
        InputError: for an operation that cannot be read, with its line, or a cell without a Gaussian limit; or if the
            module itself, run a few steps at its weights, has other second moments than the cell that was read.
    """
    one_of(readout, ("flatten", "pool"), "readout")
    # The module is run on copies: nothing of the caller's changes, nor torch's random state.
    with torch.random.fork_rng(), torch.no_grad():
        return _read(module, z_example, x_example, readout)


def _read(module: nn.Module, z: Tensor, x: Tensor, readout: str) -> Equilibrium:
    graph = _traced(module, z, x)
    images = any(isinstance(part, nn.Conv1d | nn.Conv2d) for part in graph.modules())
    reader = _Reader(graph, 1 if images else z.ndim - 1)
    step = reader.read()
    if images:
        step = (ex.flatten if readout == "flatten" else ex.pool)(step)
    try:
        model = Equilibrium(step)
    except InputError as error:
        raise InputError(f"from_torch{reader.line_in(str(error))}: {error}") from None
    check_weights(*reader.operations.given_weights())
    signed = reader.operations.adds_input
    check_read_cell(_copied(module), model, z.clone(), x.clone(), reader.axis, reader.narrowest, signed)
    return model


class _Cell(nn.Module):
    """The module with its two arguments, so that further ones keep their defaults."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, z: Tensor, x: Tensor) -> Any:
        return self.cell(z, x)


def _traced(module: Any, z: Any, x: Any) -> fx.GraphModule:
    """The graph of the module, each node with the shape of its value."""
    if not isinstance(module, nn.Module) or not isinstance(z, Tensor) or not isinstance(x, Tensor):
        kinds = ", ".join(type(value).__name__ for value in (module, z, x))
        raise InputError(f"from_torch takes a torch module with forward(z, x), and two tensors; got {kinds}.")
    cell = _Cell(_copied(module))
    try:
        image = cell(z.clone(), x.clone())
    except Exception as error:
        raise InputError(f"from_torch: module(z_example, x_example) fails: {error}") from error
    if not isinstance(image, Tensor) or image.shape != z.shape:
        got = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
        raise InputError(
            f"from_torch: forward(z, x) must return a state like z, {tuple(z.shape)}; it returned {got}."
        )
    try:
        # Modules of torch.nn are operations, others are read through; the lines of operations are kept.
        tracer = fx.Tracer()
        tracer.record_stack_traces = True
        graph = fx.GraphModule(cell, tracer.trace(cell))
        ShapeProp(graph).propagate(z.clone(), x.clone())
    except Exception as error:
        raise InputError(
            f"from_torch cannot follow the forward of {type(module).__name__}: {error}. Branches and loops that depend "
            "on values of tensors cannot be read."
        ) from error
    return graph


def _copied(module: nn.Module) -> nn.Module:
    """A copy of the module in evaluation mode."""
    try:
        return copy.deepcopy(module).eval()
    except Exception as error:
        raise InputError(
            f"from_torch reads a copy of the module, but copy.deepcopy(module) fails: {error}"
        ) from error


class _Reader:
    """Reads the operations of a graph one after the other.

    Args:
        graph: traced module, with shapes.
        axis: axis of the features.
    """

    def __init__(self, graph: fx.GraphModule, axis: int) -> None:
        self.graph, self.axis = graph, axis
        self.operations = Operations(axis)
        # The size of the smallest vector.
        self.narrowest = sys.maxsize
        # The line of each node of the expression: where it appeared first.
        self.lines: list[tuple[ex.Node, str]] = []

    def read(self) -> ex.Node:
        """The expression of the output."""
        for node in self.graph.graph.nodes:
            # What is certainly outside of the class is named before the operations that lead to it.
            name = self._words(node).partition(" ")[0].lower()
            reason = REASONS.get(name)
            if self._overwrites(node):
                reason = "it changes a vector in place that is used again."
            if reason:
                raise InputError(f"from_torch cannot read {self._words(node)}{_place(node)}: {reason}")
        values: dict[fx.Node, Any] = {}
        for node in self.graph.graph.nodes:
            try:
                if node.op == "output":
                    return self.operations.plain(values[node.args[0]]).node
                value = values[node] = self._value(node, values)
            except InputError as refusal:
                where = f"{self._words(node)}{_place(node)}"
                raise InputError(f"from_torch cannot read {where}: {refusal}") from None
            if isinstance(value, Vector | Product):
                self.narrowest = min(self.narrowest, value.size)
            if isinstance(value, Vector):
                self.lines.append((value.node, _place(node)))
        raise InputError("from_torch: the module has no output.")

    def _value(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        if node.op == "placeholder":
            size = node.meta["tensor_meta"].shape[self.axis]
            return Vector(ex.state(), size) if node.target == "z" else InputVector(ex.input(), size)
        if node.op == "get_attr":
            value = attrgetter(str(node.target))(self.graph)
            return value.detach() if isinstance(value, Tensor) else value
        args = fx.map_arg(node.args, values.__getitem__)
        kwargs = fx.map_arg(node.kwargs, values.__getitem__)
        vectors = [one for one in node.all_input_nodes if isinstance(values[one], ABSTRACT)]
        known = [getattr(one.meta.get("tensor_meta"), "shape", None) for one in vectors]
        shapes = [None if shape is None else tuple(shape) for shape in known]
        if node.op == "call_module":
            return self.operations.module(self.graph.get_submodule(str(node.target)), args[0], shapes)
        return self.operations.function(node.target, args, kwargs, shapes)

    def _overwrites(self, node: fx.Node) -> bool:
        """Whether an operation writes into a vector that a later one reads."""
        options = dict(node.kwargs)
        if node.op == "call_module":
            options["inplace"] = getattr(self.graph.get_submodule(str(node.target)), "inplace", False)
        written = options.get("out") or (options.get("inplace") and next(iter(node.all_input_nodes), None))
        return isinstance(written, fx.Node) and any(user > node for user in written.users)

    def _words(self, node: fx.Node) -> str:
        if node.op == "call_module":
            name = str(node.target).removeprefix("cell.")
            return f"{type(self.graph.get_submodule(str(node.target))).__name__} ({name})"
        return getattr(node.target, "__name__", str(node.target))

    def line_in(self, message: str) -> str:
        """The line of the largest node that a message shows."""
        # Messages show the beginning of a node's text.
        texts = [(str(node), line) for node, line in self.lines if line]
        shown = [(len(text), line) for text, line in texts if text[:87] in message]
        return max(shown)[1] if shown else ""


def _place(node: fx.Node) -> str:
    """The line of the user's code that an operation comes from."""
    frames = [one for one in _FRAME.finditer(node.stack_trace or "") if "/torch/" not in one["file"]]
    frames = [one for one in frames if one["file"] != __file__]
    if not frames:
        return ""
    last = frames[-1]
    return f" in line {last['line']} of {last['file'].rpartition('/')[2]}, `{last['code'].strip()}`"


__all__ = ["from_torch"]
