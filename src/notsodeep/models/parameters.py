"""Parameters that all models check alike."""

from __future__ import annotations

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation


def as_tau(tau0: float) -> float:
    """The norm of a typical input: a finite positive number."""
    value = float(tau0)
    if not np.isfinite(value) or value <= 0:
        raise InputError(
            f"tau0 is the root of a variance (the norm of a typical row) and must be positive; got {tau0}."
        )
    return value


def as_activation(name: str | Activation) -> Activation:
    """The activation with this name; an Activation is taken as it is."""
    if isinstance(name, str | Activation):
        return activation(name)
    raise InputError(
        f"An activation is a name or an Activation, not {type(name).__name__}; see custom_activation."
    )


__all__ = ["as_activation", "as_tau"]
