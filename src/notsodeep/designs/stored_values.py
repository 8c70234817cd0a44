"""Designs as plain JSON values: their models, layers and coefficients; nothing in them is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import rebuilt
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping, number
from notsodeep.models import Model, model_from_dict
from notsodeep.models.protocol import HasActivations


def model_to_dict(model: Model | None) -> dict[str, Any] | None:
    """The serial form of a model; None where there is no model, or an activation in it is a custom callable."""
    if model is None:
        return None
    if isinstance(model, HasActivations) and any(rebuilt(phi) is None for phi in model.activations):
        return None
    return model.to_dict()


def coefficients_to_dict(scalars: Coefficients | None) -> dict[str, Any] | None:
    """All fields by name."""
    return None if scalars is None else asdict(scalars)


def coefficients_from_dict(data: Any) -> Coefficients | None:
    """The scalars that `coefficients_to_dict` wrote down."""
    if data is None:
        return None
    names = tuple(entry.name for entry in fields(Coefficients))
    stored = mapping(data, "coefficients", names)
    values = {name: number(stored[name], name) for name in names if name != "kernel"}
    return Coefficients(kernel=str(stored["kernel"]), **values)


def parse(text: str, what: str) -> Mapping[str, Any]:
    """A JSON object from text; no NaN, no duplicate meaning, no code."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"This is not the JSON text of {what}: {error}.") from None
    return mapping(data, what)


def _refuse_constant(word: str) -> float:
    raise InputError(f"The text holds {word}, which is not a number that a design can have.")


__all__ = [
    "activation_from_dict",
    "activation_to_dict",
    "coefficients_from_dict",
    "coefficients_to_dict",
    "mapping",
    "model_from_dict",
    "model_to_dict",
    "number",
    "parse",
]
