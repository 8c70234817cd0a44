"""Cells as plain JSON values: a list of nodes, each naming those that it is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping, number


def cell_to_list(
    step: ex.Node, write: Callable[[Activation], dict[str, Any]] = activation_to_dict
) -> list[dict[str, Any]]:
    """Return the nodes in order; equal expressions give equal lists."""
    nodes = ex.nodes_of(step)
    places = {id(node): place for place, node in enumerate(nodes)}
    return [{"of": [places[id(parent)] for parent in node.parents], **_own(node, write)} for node in nodes]


def _own(node: ex.Node, write: Callable[[Activation], dict[str, Any]]) -> dict[str, Any]:
    """The kind of a node and its numbers."""
    match node:
        case ex.State():
            return {"op": "state"}
        case ex.Input():
            return {"op": "input"}
        case ex.Dense():
            return {"op": "dense", "s": node.variance + 0.0}
        case ex.Bias():
            return {"op": "bias", "b": node.variance + 0.0}
        case ex.Conv():
            size = {"filter_size": node.filter_size, "padding": node.padding}
            return {"op": "conv", "s": node.variance + 0.0, **size}
        case ex.Graph():
            return {"op": "graph", "s": node.variance + 0.0, "matrix": (node.matrix + 0.0).tolist()}
        case ex.Activated():
            return {"op": "activation", "phi": write(node.phi)}
        case ex.Norm():
            return {"op": "norm", "kind": node.kind}
        case ex.Scaled():
            return {"op": "scaled", "factor": node.factor + 0.0}
        case ex.Sum():
            return {"op": "sum"}
        case ex.Gate():
            return {"op": "gate"}
        case ex.Readout():
            return {"op": node.kind}
    raise ValueError(f"There is no serial form of {type(node).__name__}.")


def cell_from_list(data: Any) -> ex.Node:
    """Return the expression that `cell_to_list` wrote down."""
    if not isinstance(data, list) or not data:
        raise InputError("A stored cell must be a list of nodes.")
    nodes: list[ex.Node] = []
    for entry in data:
        nodes.append(_node(mapping(entry, "a node of a cell"), nodes))
    return nodes[-1]


def _node(entry: Any, before: list[ex.Node]) -> ex.Node:
    places = entry.get("of")
    if not isinstance(places, list) or not all(
        isinstance(place, int) and 0 <= place < len(before) for place in places
    ):
        raise InputError(f"A node of a stored cell must name nodes before it under 'of'; got {places!r}.")
    parents = [before[place] for place in places]
    builders: dict[str, Callable[..., ex.Node]] = {
        "state": ex.state,
        "input": ex.input,
        "dense": lambda one: ex.dense(one, number(entry["s"], "s")),
        "bias": lambda one: ex.bias(one, number(entry["b"], "b")),
        "conv": lambda one: ex.conv(one, number(entry["s"], "s"), entry["filter_size"], entry["padding"]),
        "graph": lambda one: ex.graph(one, entry["matrix"], number(entry["s"], "s")),
        "activation": lambda one: ex.activation(one, activation_from_dict(entry["phi"])),
        "norm": lambda one: ex.norm(one, entry["kind"]),
        "scaled": lambda one: number(entry["factor"], "factor") * one,
        "sum": lambda *terms: ex.Sum(tuple(terms)),
        "gate": lambda one, other: one * other,
        "pool": ex.pool,
        "flatten": ex.flatten,
    }
    name = entry.get("op")
    if name not in builders:
        raise InputError(f"A node of a stored cell is one of {', '.join(builders)}; not {name!r}.")
    try:
        return builders[name](*parents)
    except (KeyError, TypeError) as error:
        raise InputError(f"The stored node {name!r} of a cell is incomplete: {error}.") from error


__all__ = ["cell_from_list", "cell_to_list"]
