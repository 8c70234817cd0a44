"""Features of random networks of finite width, in NumPy; `nets.empirical_kernels` has the kernels of torch networks."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array

TOLERANCE = 1e-10
MAX_STEPS = 500


@singledispatch
def random_features(model: Model, X: Array, width: int, rng: np.random.Generator) -> Array:
    """The last hidden layer of one random network, (n, width), whose inner products tend to the CK.

    Another kind of model registers a function of its own here.
    """
    raise InputError(f"Random networks of finite width are not known for {type(model).__name__}.")


@random_features.register
def _deq_features(model: DEQ, X: Array, width: int, rng: np.random.Generator) -> Array:
    recurrent = np.sqrt(model.sigma_a2) * rng.standard_normal((width, width))
    injected = np.sqrt(model.sigma_b2) * X @ rng.standard_normal((X.shape[1], width))
    injected = injected + np.sqrt(model.bias2) * rng.standard_normal(width)
    return equilibrium(model.activation, recurrent, injected)


def equilibrium(phi: Activation, recurrent: Array, injected: Array) -> Array:
    """z = φ(A z + injected)/√m for every row of `injected`, by iteration to TOLERANCE.

    Raises:
        ConvergenceError: if the map does not contract.
    """
    scale = 1.0 / np.sqrt(recurrent.shape[0])
    z = np.zeros_like(injected)
    for _ in range(MAX_STEPS):
        fresh = scale * phi(z @ recurrent.T + injected)
        moved = float(np.abs(fresh - z).max())
        z = np.asarray(fresh)
        if moved <= TOLERANCE * scale * max(1.0, float(np.abs(z).max() / scale)):
            return z
    raise ConvergenceError(
        f"The equilibrium of a random DEQ of width {len(recurrent)} did not converge in {MAX_STEPS} steps.",
        "Lower sigma_a2: the typical contraction rate is √(σ_a² E[φ'²]).",
    )


@random_features.register
def _explicit_features(model: Explicit, X: Array, width: int, rng: np.random.Generator) -> Array:
    signal = X
    for layer in model.inputs:
        inner = np.sqrt(layer.weight) * signal @ rng.standard_normal((width, signal.shape[1])).T
        if layer.inject:
            inner += np.sqrt(layer.inject) * X @ rng.standard_normal((X.shape[1], width))
        if layer.constant:
            inner += np.sqrt(layer.constant) * rng.standard_normal(width)
        signal = np.asarray(layer.phi(inner) / np.sqrt(width))
    return signal
