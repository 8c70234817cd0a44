"""Kernels block by block, beyond memory and beyond one machine; dask and zarr are loaded when they are needed."""

from importlib import import_module
from typing import Any
from warnings import warn

from notsodeep.scale.sample_sources import open_rows
from notsodeep.scale.stored import StoredKernel, open_kernel

__all__ = ["StoredKernel", "open_kernel", "open_rows"]

# Names of 0.1 that stand elsewhere since 0.2: found there, with a warning; docs/migration.md.
_MOVED = {
    "KernelOperator": "operators",
    "StreamedEquivalent": "operators",
    "mixture_statistics": "operators",
    "conjugate_kernel": "kernels",
    "tangent_kernel": "kernels",
}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"notsodeep.{_MOVED[name]}"
    warn(f"notsodeep.scale.{name} is {home}.{name} since 0.2.", DeprecationWarning, stacklevel=2)
    return getattr(import_module(home), name)
