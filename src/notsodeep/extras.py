"""Import optional packages when they are needed, with an error that names the extra to install."""

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
    "msgspec": "lab",
    "pandas": "tables",
    "pyarrow": "tables",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "torchdiffeq": "ode",
}


def install_hint(extra: str) -> str:
    """The command that installs an extra. There is no release on a package index yet, so it names a clone."""
    return f"pip install '.[{extra}]' (in a clone of the repository)"


def needed(package: str, purpose: str) -> Any:
    """Import an optional package.

    Raises:
        MissingExtraError: if it is not installed; the message names the extra that installs it.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise missing(package, purpose, error.name) from error


def missing(package: str, purpose: str, module: str | None = None) -> MissingExtraError:
    """Construct the error for a `package` that is not installed, or for a `module` that it imports."""
    name = module or package
    hint = install_hint(EXTRA_OF[package])
    return MissingExtraError(f"{purpose} needs the package {name}. Install it with: {hint}", name=name)
