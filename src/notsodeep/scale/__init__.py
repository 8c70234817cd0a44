"""Kernels block by block, beyond memory and beyond one machine; dask and zarr (extra `scale`) are loaded when needed.

Names are imported when first used: a kernel in memory, which comes through here as well, loads nothing of the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "StoredKernel": "stored",
    "open_kernel": "stored",
    "open_rows": "sample_sources",
    "Machine": "cost",
    "best_block": "cost",
    "cost_of": "cost",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
