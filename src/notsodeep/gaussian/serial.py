"""TEMPORARY."""

from typing import Any

from notsodeep.gaussian.activations import Activation


def activation_description(phi: Activation) -> dict[str, Any]:
    return {
        "name": phi.name,
        "parameters": repr(phi.parameters),
        "affine": [phi.amplitude, phi.gain, phi.offset],
    }
