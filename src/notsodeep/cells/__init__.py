"""Cells of implicit and looped networks as expressions: `state`, `input`, `dense`, `activation`, `norm`, …"""

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
    # Reading a torch module needs torch; the rest does not.
    if name == "from_torch":
        from notsodeep.cells.torch_reader import from_torch

        return from_torch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "activation", "bias", "conv", "dense", "flatten", "from_torch", "graph", "input", "norm", "pool", "state",
]  # fmt: skip
