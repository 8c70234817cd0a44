"""Models read back from their serial form. A new kind of model that is to be stored is named here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from notsodeep.errors import InputError
from notsodeep.gaussian.serial import mapping
from notsodeep.models.cell_models import Equilibrium, Loop
from notsodeep.models.convolutional import ConvDEQ, ConvExplicit
from notsodeep.models.deq import DEQ, UnrolledDEQ
from notsodeep.models.explicit import Explicit
from notsodeep.models.graph import GraphDEQ, GraphExplicit
from notsodeep.models.neural_ode import NeuralODE
from notsodeep.models.protocol import Model

# The words that `to_dict` writes under "kind".
KINDS: dict[str, Callable[[Any], Model]] = {
    "deq": DEQ.from_dict,
    "unrolled_deq": UnrolledDEQ.from_dict,
    "explicit": Explicit.from_dict,
    "conv_deq": ConvDEQ.from_dict,
    "conv_explicit": ConvExplicit.from_dict,
    "graph_deq": GraphDEQ.from_dict,
    "graph_explicit": GraphExplicit.from_dict,
    "equilibrium": Equilibrium.from_dict,
    "loop": Loop.from_dict,
    "neural_ode": NeuralODE.from_dict,
}


def model_from_dict(data: Any) -> Model:
    """The model that its `to_dict` wrote down."""
    kind = mapping(data, "a model").get("kind")
    if kind not in KINDS:
        raise InputError(f"A stored model is of kind {', '.join(map(repr, KINDS))}; not {kind!r}.")
    return KINDS[kind](data)


__all__ = ["KINDS", "model_from_dict"]
