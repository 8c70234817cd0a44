"""Kernels of random networks of finite width, whose limit the exact kernels are.

Plain NumPy, slow and noisy: for tests and figures, not for computing kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.progress import Report, reported
from notsodeep.validation import Array

TOLERANCE = 1e-10
MAX_STEPS = 500


@dataclass(frozen=True)
class Estimate:
    """Kernels averaged over draws, with the standard error of each entry.

    Attributes:
        ck: mean of ⟨z_i, z_j⟩.
        ntk: mean of ⟨∂f_i, ∂f_j⟩ over all weights.
        ck_error: standard error of ck.
        ntk_error: standard error of ntk.
        ck_draws: every draw (draws, n, n), for tests that want their own statistics.
        ntk_draws: the same for the NTK.
    """

    ck: Array
    ntk: Array
    ck_error: Array
    ntk_error: Array
    ck_draws: Array
    ntk_draws: Array


def finite_width_kernels(
    model: Model,
    X: ArrayLike,
    *,
    width: int,
    draws: int,
    seed: int = 0,
    progress: bool | Report = True,
) -> Estimate:
    """CK and NTK of random networks of the given width, (1.1) and (1.4), with Gaussian weights.

    The NTK is exact for each network: for a DEQ by the implicit function theorem, a system of `width` equations for
    every sample and draw.

    Args:
        model: a DEQ or an Explicit network.
        X: samples in rows.
        width: units of a layer.
        draws: number of networks, two or more.
        seed: random seed of the weights.
        progress: a bar on a terminal; False for none, or a function (see
            `notsodeep.progress`) that is called after each draw.
    """
    rows = model.check_samples(X)
    if width < 1 or draws < 2:
        raise InputError(
            f"width must be positive and draws at least 2 (for a standard error); got {width}, {draws}."
        )
    pairs = []
    with reported(progress, "random networks") as report:
        for rng in _generators(seed, draws):
            pairs.append(random_kernels(model, rows, width, rng))
            report(len(pairs), draws, lambda: f"{len(pairs)} of {draws}")
    ck, ntk = (np.stack(side) for side in zip(*pairs, strict=True))
    errors = [np.std(side, axis=0, ddof=1) / np.sqrt(draws) for side in (ck, ntk)]
    return Estimate(ck.mean(axis=0), ntk.mean(axis=0), errors[0], errors[1], ck, ntk)


def _generators(seed: int, draws: int) -> Iterator[np.random.Generator]:
    for child in np.random.SeedSequence(seed).spawn(draws):
        yield np.random.default_rng(child)


@singledispatch
def random_kernels(model: Model, X: Array, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """CK and NTK of one random network; another kind of model registers a function of its own here."""
    raise InputError(f"Random networks of finite width are not known for {type(model).__name__}.")


@singledispatch
def random_features(model: Model, X: Array, width: int, rng: np.random.Generator) -> Array:
    """The last hidden layer of one random network, (n, width), whose inner products tend to the CK.

    Another kind of model registers a function of its own here.
    """
    raise InputError(f"Random networks of finite width are not known for {type(model).__name__}.")


@random_features.register
def _deq_features(model: DEQ, X: Array, width: int, rng: np.random.Generator) -> Array:
    return equilibrium(model.activation, *_deq_weights(model, X, width, rng))


def _deq_weights(model: DEQ, X: Array, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The recurrent weights, and what the input and the bias bring to the pre-activations."""
    recurrent = np.sqrt(model.sigma_a2) * rng.standard_normal((width, width))
    injected = np.sqrt(model.sigma_b2) * X @ rng.standard_normal((X.shape[1], width))
    return recurrent, injected + np.sqrt(model.bias2) * rng.standard_normal(width)


@random_kernels.register
def _deq_draw(model: DEQ, X: Array, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    phi, scale = model.activation, 1.0 / np.sqrt(width)
    recurrent, injected = _deq_weights(model, X, width, rng)
    readout = rng.standard_normal(width)
    z = equilibrium(phi, recurrent, injected)
    slopes = phi.derivative(z @ recurrent.T + injected)
    # λ solves λ = D(readout + Aᵀ λ)/√m; then ∂f/∂h = λ, and h depends on (A, B, b) through σ_a z, σ_b x and σ_c.
    adjoint = np.stack([_adjoint(recurrent, row, readout, scale) for row in slopes])
    ck = z @ z.T
    weights = model.sigma_a2 * ck + model.sigma_b2 * (X @ X.T) + model.bias2
    return ck, ck + (adjoint @ adjoint.T) * weights


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


def _adjoint(recurrent: Array, slopes: Array, readout: Array, scale: float) -> Array:
    width = len(readout)
    system = np.eye(width) - scale * (recurrent * slopes[:, None]).T
    return np.asarray(scale * slopes * np.linalg.solve(system, readout))


@random_features.register
def _explicit_features(model: Explicit, X: Array, width: int, rng: np.random.Generator) -> Array:
    features = X
    for layer, _, inner in _explicit_layers(model, X, width, rng):
        features = layer.phi(inner) / np.sqrt(width)
    return np.asarray(features)


def _explicit_layers(
    model: Explicit, X: Array, width: int, rng: np.random.Generator
) -> Iterator[tuple[Any, Array, Array]]:
    """Each layer with its random weights and the pre-activations of all samples."""
    signal = X
    for layer in model.inputs:
        matrix = np.sqrt(layer.weight) * rng.standard_normal((width, signal.shape[1]))
        inner = signal @ matrix.T
        if layer.inject:
            inner += np.sqrt(layer.inject) * X @ rng.standard_normal((X.shape[1], width))
        if layer.constant:
            inner += np.sqrt(layer.constant) * rng.standard_normal(width)
        yield layer, matrix, inner
        signal = layer.phi(inner) / np.sqrt(width)


@random_kernels.register
def _explicit_draw(model: Explicit, X: Array, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    gram, scale = X @ X.T, 1.0 / np.sqrt(width)
    signals, slopes, weights = [X], [], []
    for layer, matrix, inner in _explicit_layers(model, X, width, rng):
        weights.append(matrix)
        signals.append(scale * layer.phi(inner))
        slopes.append(scale * layer.phi.derivative(inner))
    back = np.broadcast_to(rng.standard_normal(width), signals[-1].shape)
    ck = signals[-1] @ signals[-1].T
    ntk = ck.copy()
    for number in range(len(weights) - 1, -1, -1):
        back = back * slopes[number]
        # The weights of a layer, and those that read the input again, share the derivative in what enters it.
        ntk += (back @ back.T) * model.inputs[number].enter(signals[number] @ signals[number].T, gram)
        back = back @ weights[number]
    return ck, ntk
