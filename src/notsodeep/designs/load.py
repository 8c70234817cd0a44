"""The fields of a design from its JSON text: each entry checked, the scalars computed again from the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from notsodeep.designs import serial
from notsodeep.designs.both import tangent_coefficients
from notsodeep.designs.parts import Attempt, Polish, Tangent
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import InputError
from notsodeep.models import Explicit, as_tau

FORMAT, VERSION = "notsodeep.designs", 1
_KEYS = (
    "format",
    "version",
    "model",
    "tau0",
    "kernel",
    "family",
    "layers",
    "target",
    "reached",
    "tried",
    "drift",
    "tangent",
    "polish",
    "reason",
)
# Numbers survive the text to the last bit; the moments may differ by rounding between machines.
_SAME = 1e-9


def stored_fields(text: str) -> dict[str, Any]:
    """The fields of the design that `Design.to_json` wrote down.

    Raises:
        InputError: if the text is not a design, lacks or adds an entry, or if its layers do not have the scalars
            that it claims.
    """
    data = serial.parse(text, "a design")
    if data.get("format") != FORMAT or data.get("version") != VERSION:
        raise InputError(
            f"The text is not a design of format {FORMAT!r}, version {VERSION}: it says "
            f"{data.get('format')!r}, version {data.get('version')!r}."
        )
    data = serial.mapping(dict(data), "a design", _KEYS)
    network, target = serial.network_from_list(data["layers"]), serial.coefficients_from_dict(data["target"])
    tau0, kernel = as_tau(serial.number(data["tau0"], "tau0")), _kernel(data["kernel"])
    matched = "ck" if kernel == "both" else kernel
    model = None if data["model"] is None else serial.model_from_dict(data["model"])
    if target.kernel != matched or target.tau0 != tau0:
        raise InputError("The stored target belongs to another kernel or another tau0 than the design.")
    _agree(serial.coefficients_from_dict(data["reached"]), coefficients(network, tau0, matched), "network")
    if model is not None:
        _agree(target, coefficients(model, tau0, matched), "model")
    return dict(
        network=network,
        model=model,
        tau0=tau0,
        kernel=kernel,
        family=str(data["family"]),
        target=target,
        reached=serial.coefficients_from_dict(data["reached"]),
        tried=tuple(_attempt(entry) for entry in data["tried"]),
        drift=serial.number(data["drift"], "drift"),
        tangent=_tangent(data["tangent"], network, tau0),
        polish=_polish(data["polish"]),
        reason=str(data["reason"]),
    )


def _kernel(name: Any) -> str:
    if name not in ("ck", "ntk", "ntk_paper", "both"):
        raise InputError(f"A design is for 'ck', 'ntk', 'ntk_paper' or 'both', not {name!r}.")
    return str(name)


def _agree(stored: Coefficients, computed: Coefficients, what: str) -> None:
    scale = np.maximum(np.abs(computed.as_array()), 1e-12 * computed.diagonal)
    if np.any(np.abs(stored.as_array() - computed.as_array()) > _SAME * scale):
        raise InputError(
            f"The stored {what} does not have the stored scalars: the text was changed or belongs to another design."
        )


def _attempt(entry: Any) -> Attempt:
    if not isinstance(entry, list) or len(entry) != 3:
        raise InputError(f"An entry of 'tried' is [family, residual, reason], not {entry!r}.")
    return Attempt(str(entry[0]), serial.number(entry[1], "residual"), str(entry[2]))


def _tangent(data: Any, network: Explicit, tau0: float) -> Tangent | None:
    if data is None:
        return None
    entry = serial.mapping(data, "the tangent part", ("multipliers", "target"))
    rates = entry["multipliers"]
    if not isinstance(rates, list) or len(rates) != len(network.layers) + 1:
        raise InputError(
            "A design for both kernels needs one multiplier for each layer and one for the readout."
        )
    multipliers = tuple(serial.number(rate, "a multiplier") for rate in rates)
    reached = tangent_coefficients(network, tau0, multipliers)
    return Tangent(multipliers, serial.coefficients_from_dict(entry["target"]), reached)


def _polish(data: Any) -> Polish | None:
    if data is None:
        return None
    names = tuple(entry.name for entry in fields(Polish))
    stored: Mapping[str, Any] = serial.mapping(data, "the polish", names)
    values = {name: serial.number(stored[name], name) for name in names[1:]}
    return Polish(samples=int(serial.number(stored["samples"], "samples")), **values)
