"""Cells of implicit and looped networks as expressions of states, inputs, dense maps, activations and norms."""

from importlib import import_module
from typing import Any

from notsodeep.cells.expressions import (
    activation,
    bias,
    conv,
    dense,
    flatten,
    graph,
    input,
    norm,
    pool,
    state,
)


def __getattr__(name: str) -> Any:
    # Reading a torch module needs torch and `nets/`, which is above: it is looked up when it is first used.
    if name == "from_torch":
        return import_module("notsodeep.nets.torch_reader").from_torch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "activation", "bias", "conv", "dense", "flatten", "from_torch", "graph", "input", "norm", "pool", "state",
]  # fmt: skip
