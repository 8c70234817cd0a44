"""The optional packages of this room, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from notsodeep.errors import InputError


def needed(package: str, purpose: str) -> Any:
    """The package, or an error that says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise InputError(
            f"{purpose} needs the package {error.name or package}. Install it: pip install 'notsodeep[scale]'."
        ) from error
