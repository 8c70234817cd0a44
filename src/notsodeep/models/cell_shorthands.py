"""Named models as expressions of cells, and expressions that are named models: these have compiled programs."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError
from notsodeep.models.convolutional import ConvDEQ
from notsodeep.models.deq import DEQ, recurrent_step
from notsodeep.models.graph import GraphDEQ
from notsodeep.models.protocol import Model


@singledispatch
def expression_of(model: Any) -> ex.Node:
    """Return the cell of an equilibrium model as an expression of `notsodeep.cells`."""
    step = getattr(model, "step", None)
    if isinstance(step, ex.Node):
        return step
    raise InputError(f"{type(model).__name__} is not an equilibrium of a cell.")


@expression_of.register
def _(model: ConvDEQ) -> ex.Node:
    filters = model.filter_size, model.padding
    state, read = ex.conv(ex.state(), model.sigma_a2, *filters), ex.conv(ex.input(), model.sigma_b2, *filters)
    return (ex.pool if model.readout == "pool" else ex.flatten)(recurrent_step(model, state, read))


@expression_of.register
def _(model: GraphDEQ) -> ex.Node:
    state = ex.graph(ex.state(), model.propagation, model.sigma_a2)
    return recurrent_step(model, state, ex.graph(ex.input(), model.propagation, model.sigma_b2))


def model_of(step: ex.Node, steps: int | None) -> Model | None:
    """Return the compiled model with the same kernels, or None if the cell has another structure.

    Args:
        step: the cell.
        steps: how often it is applied; None for the equilibrium.
    """
    readout = step.kind if isinstance(step, ex.Readout) else "flatten"
    top = step.node if isinstance(step, ex.Readout) else step
    if not isinstance(top, ex.Activated):
        return None
    terms, bias2 = _terms(top.node)
    state = [term for term in terms if isinstance(term, ex.Weighted) and isinstance(term.node, ex.State)]
    read = [term for term in terms if isinstance(term, ex.Weighted) and isinstance(term.node, ex.Input)]
    if len(terms) != 2 or len(state) != 1 or len(read) != 1:
        return None
    variances = state[0].variance, read[0].variance, bias2
    model: Any = None
    match state[0], read[0]:
        case ex.Dense(), ex.Dense():
            model = DEQ(top.phi, *variances)
        case ex.Conv(_, _, size, padding), ex.Conv(_, _, size_too, padding_too):
            if (size, padding) == (size_too, padding_too):
                filters: dict[str, Any] = {"filter_size": size, "padding": padding, "readout": readout}
                model = ConvDEQ(top.phi, *variances, **filters)
        case ex.Graph(_, matrix, _), ex.Graph(_, matrix_too, _):
            if np.array_equal(matrix, matrix_too):
                model = GraphDEQ(matrix, top.phi, *variances)
    if model is None or steps is None:
        return model  # type: ignore[no-any-return]
    return model.unrolled(steps)  # type: ignore[no-any-return]


def _terms(node: ex.Node) -> tuple[list[ex.Node], float]:
    """The terms of a sum without its biases, and the variance of these."""
    if isinstance(node, ex.Bias):
        terms, bias2 = _terms(node.node)
        return terms, bias2 + node.variance
    if not isinstance(node, ex.Sum):
        return [node], 0.0
    parts = [_terms(term) for term in node.terms]
    return [term for terms, _ in parts for term in terms], sum(bias2 for _, bias2 in parts)


__all__ = ["expression_of", "model_of"]
