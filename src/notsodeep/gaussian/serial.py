"""Activations as plain JSON values: names, numbers and formulas, to the last bit and nothing that is executed.

This is the one serial form of an activation: stored designs are read back from it, and `notsodeep.fingerprint` tells
models apart by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import BUILDERS, Activation, activation, rebuilt

AFFINE = ("amplitude", "gain", "offset")


def activation_to_dict(phi: Activation) -> dict[str, Any]:
    """Name, parameters, amplitude, gain and offset; equal activations give equal values.

    Raises:
        InputError: for a custom callable, which is code and not a name with numbers.
    """
    if rebuilt(phi) is None:
        raise InputError(
            f"The activation {phi.name!r} is a callable of its own and cannot be stored as text; "
            f"only named ones can: {', '.join(sorted(BUILDERS))}."
        )
    parameters = {key: _plain(value) for key, value in phi.parameters}
    return {"name": phi.name, "parameters": parameters, **affine_to_dict(phi)}


def affine_to_dict(phi: Activation) -> dict[str, float]:
    """Amplitude, gain and offset of an activation, by name."""
    return {key: _plain(getattr(phi, key)) for key in AFFINE}


def _plain(value: Any) -> Any:
    """Text, a float, or a list of floats; 1 and 1.0 are the same number, and so are 0.0 and -0.0."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return float(value) + 0.0


def activation_from_dict(data: Any) -> Activation:
    """The activation that `activation_to_dict` wrote down."""
    entry = mapping(data, "an activation", ("name", "parameters", *AFFINE))
    if not isinstance(entry["name"], str):
        raise InputError(f"The name of an activation must be text, not {entry['name']!r}.")
    parameters = mapping(entry["parameters"], f"the parameters of {entry['name']}")
    for key, value in parameters.items():
        # Text is a formula, which `activation` reads and never executes.
        for part in value if isinstance(value, list) else [] if isinstance(value, str) else [value]:
            number(part, f"{entry['name']}.{key}")
    made = activation(entry["name"], **parameters)
    amplitude, gain, offset = (number(entry[key], key) for key in AFFINE)
    return replace(made, amplitude=amplitude, gain=gain, offset=offset)


def mapping(data: Any, what: str, keys: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """An object with exactly these keys (any keys if none are named)."""
    if not isinstance(data, dict):
        raise InputError(f"{what.capitalize()} must be a JSON object, not {type(data).__name__}.")
    missing, unknown = set(keys) - set(data), set(data) - set(keys)
    if keys and (missing or unknown):
        raise InputError(
            f"{what.capitalize()} has the wrong entries: missing {sorted(missing)}, unknown {sorted(unknown)}."
        )
    return data


def number(value: Any, name: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, not {value!r}.")
    return float(value)
