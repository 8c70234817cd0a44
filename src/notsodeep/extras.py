"""Optional packages: imported when first needed, and asked for by name where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from notsodeep.errors import MissingExtraError

EXTRA_OF = {
    "torch": "torch",
    "matplotlib": "plot",
    "dask": "scale",
    "distributed": "scale",
    "zarr": "scale",
    "streamlit": "app",
}


def needed(package: str, purpose: str) -> Any:
    """The package, imported.

    Raises:
        MissingExtraError: it is not installed; the message says which extra brings it.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise missing(package, purpose, error.name) from error


def missing(package: str, purpose: str, module: str | None = None) -> MissingExtraError:
    """The error to raise without `package`, or without the `module` that it needs in turn."""
    name = module or package
    command = f'pip install "notsodeep[{EXTRA_OF[package]}]"'
    return MissingExtraError(f"{purpose} needs the package {name}. Install it with: {command}", name=name)
