"""Parameters that all models check alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation


def as_tau(tau0: float) -> float:
    """The norm of a typical input: a finite positive number."""
    if np.ndim(tau0):
        raise InputError(
            f"tau0 is one number, the norm of a typical row, and came with shape {np.shape(tau0)}. Of samples in "
            "rows it is np.sqrt(np.mean(np.sum(X**2, axis=1)))."
        )
    value = float(tau0)
    if not np.isfinite(value) or value <= 0:
        raise InputError(
            f"tau0 is the root of a variance (the norm of a typical row) and must be positive; got {tau0}."
        )
    return value


def as_activation(name: Any) -> Activation:
    """The activation with this name, or that a function of NumPy or torch stands for; one is taken as it is."""
    return activation(name)


__all__ = ["as_activation", "as_tau"]
