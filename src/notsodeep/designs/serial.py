"""Activations, models and coefficients as plain JSON values: names, numbers and formulas, nothing that is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import BUILDERS, Activation, activation
from notsodeep.models import DEQ, Explicit

_AFFINE = ("amplitude", "gain", "offset")


def activation_to_dict(phi: Activation) -> dict[str, Any]:
    """Name, parameters, amplitude, gain and offset.

    Raises:
        InputError: for a custom callable, which is code and not a name with numbers.
    """
    if not _is_named(phi):
        raise InputError(
            f"The activation {phi.name!r} is a callable of its own and cannot be stored as text; "
            f"only named ones can: {', '.join(sorted(BUILDERS))}."
        )
    parameters = {key: list(value) if isinstance(value, tuple) else value for key, value in phi.parameters}
    return {"name": phi.name, "parameters": parameters, **{key: getattr(phi, key) for key in _AFFINE}}


def _is_named(phi: Activation) -> bool:
    """Whether name and parameters make it again; a callable may bear the name of a built-in one."""
    return phi.name in BUILDERS and activation(phi.name, **dict(phi.parameters)).shape == phi.shape


def activation_from_dict(data: Any) -> Activation:
    """The activation that `activation_to_dict` wrote down."""
    entry = mapping(data, "an activation", ("name", "parameters", *_AFFINE))
    if not isinstance(entry["name"], str):
        raise InputError(f"The name of an activation must be text, not {entry['name']!r}.")
    parameters = mapping(entry["parameters"], f"the parameters of {entry['name']}")
    for key, value in parameters.items():
        # Text is a formula, which `activation` reads and never executes.
        for part in value if isinstance(value, list) else [] if isinstance(value, str) else [value]:
            number(part, f"{entry['name']}.{key}")
    made = activation(entry["name"], **parameters)
    amplitude, gain, offset = (number(entry[key], key) for key in _AFFINE)
    return replace(made, amplitude=amplitude, gain=gain, offset=offset)


def model_to_dict(model: DEQ | Explicit) -> dict[str, Any] | None:
    """A DEQ or an explicit network; None where an activation is a custom callable."""
    layers = (model.activation,) if isinstance(model, DEQ) else model.layers
    if not all(_is_named(phi) for phi in layers):
        return None
    stored = [activation_to_dict(phi) for phi in layers]
    if isinstance(model, Explicit):
        return {"kind": "explicit", "layers": stored}
    variances = {"sigma_a2": model.sigma_a2, "sigma_b2": model.sigma_b2, "bias2": model.bias2}
    return {"kind": "deq", "activation": stored[0], **variances}


def model_from_dict(data: Any) -> DEQ | Explicit | None:
    """The model that `model_to_dict` wrote down."""
    if data is None:
        return None
    kind = mapping(data, "a model").get("kind")
    if kind == "explicit":
        return network_from_list(mapping(data, "a model", ("kind", "layers"))["layers"])
    entry = mapping(data, "a model", ("kind", "activation", "sigma_a2", "sigma_b2", "bias2"))
    if kind != "deq":
        raise InputError(f"A stored model is of kind 'deq' or 'explicit', not {kind!r}.")
    variances = (number(entry[key], key) for key in ("sigma_a2", "sigma_b2", "bias2"))
    return DEQ(activation_from_dict(entry["activation"]), *variances)


def network_from_list(data: Any) -> Explicit:
    """An explicit network from the list of its layers."""
    if not isinstance(data, list):
        raise InputError(f"The layers of a network must be a list, not {type(data).__name__}.")
    return Explicit([activation_from_dict(layer) for layer in data])


def coefficients_to_dict(scalars: Coefficients) -> dict[str, Any]:
    """All fields by name."""
    return asdict(scalars)


def coefficients_from_dict(data: Any) -> Coefficients:
    """The scalars that `coefficients_to_dict` wrote down."""
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
