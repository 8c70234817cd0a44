"""Polishing a design on data: its parameters moved to bring the exact kernels of a subsample together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from notsodeep.designs.parts import Polish
from notsodeep.designs.result import Design
from notsodeep.equivalents.coefficients import coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import conjugate_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import as_rows

Array = NDArray[np.float64]
Model = DEQ | Explicit

_STEPS = 12
# How far a parameter may move, relative to its size.
_REACH = 0.5


def polish_design(design: Design, X: ArrayLike, samples: int) -> Design:
    """The design with its parameters fitted to the exact kernel of a subsample of X, and by how much it helped.

    A parameter is every slope, knot and coefficient of the layers; the result is kept only if it also helps on rows
    that it was not fitted to.
    """
    if design.kernel == "both" or design.model is None:
        raise InputError(
            "Polishing on data works for kernel='ck', 'ntk' or 'ntk_paper', with the model at hand."
        )
    fixed = [str(layer) for layer in design.network.layers if not layer.parameters]
    if fixed:
        raise InputError(
            f"Polishing moves the parameters of the layers, and {', '.join(fixed)} has none. Leave X out, or have the "
            "family build layers with parameters, such as leaky_relu, hard_tanh or piecewise_linear."
        )
    rows = as_rows(X)
    if len(rows) < 4:
        raise InputError(f"Polishing needs at least 4 rows, got {len(rows)}.")
    count = min(int(samples), len(rows) // 2)
    # Rows evenly over X, so that sorted classes are all met; no randomness, equal input gives equal designs.
    order = np.argsort(np.modf(np.arange(len(rows)) * 0.6180339887498949)[0], kind="stable")
    train, test = rows[order[:count]], rows[order[count : 2 * count]]
    kernel = _kernel(design.kernel)
    wanted, wanted_test = kernel(design.model, train), kernel(design.model, test)
    network = _fitted(design, kernel, train, wanted)
    distances = [
        float(np.linalg.norm(goal - kernel(net, part)) / np.linalg.norm(goal))
        for part, goal in ((train, wanted), (test, wanted_test))
        for net in (design.network, network)
    ]
    polish = Polish(count, *distances)
    if polish.held_out_after >= polish.held_out_before:
        unchanged = Polish(count, distances[0], distances[0], distances[2], distances[2])
        return replace(design, polish=unchanged)
    reached = coefficients(network, design.tau0, design.target.kernel)
    return replace(design, network=network, reached=reached, polish=polish)


def _fitted(design: Design, kernel: Callable[[Model, Array], Array], rows: Array, wanted: Array) -> Explicit:
    """Least squares over all parameters of the layers, centred again at each step."""
    values = [_parameters(layer) for layer in design.network.layers]
    start = np.concatenate(values)
    scales = np.concatenate([np.maximum(np.abs(part), 0.1 * np.abs(part).max()) for part in values])
    upper = np.triu_indices(len(rows))
    # Off the diagonal each entry stands for two.
    weights = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0)) / np.linalg.norm(wanted)
    cuts = np.cumsum([len(part) for part in values])[:-1]

    def network(moves: Array) -> Explicit:
        parts = np.split(start + moves * scales, cuts)
        layers = [_rebuilt(layer, part) for layer, part in zip(design.network.layers, parts, strict=True)]
        return Explicit(layers).centred(design.tau0)

    def misfit(moves: Array) -> Array:
        return np.asarray((kernel(network(moves), rows) - wanted)[upper] * weights)

    bounds = (-_REACH, _REACH)
    result = optimize.least_squares(
        misfit, np.zeros_like(start), bounds=bounds, diff_step=1e-5, max_nfev=_STEPS, xtol=1e-6, ftol=1e-4
    )
    return network(result.x)


def _parameters(layer: Activation) -> Array:
    return np.concatenate([np.atleast_1d(np.asarray(value, dtype=float)) for _, value in layer.parameters])


def _rebuilt(layer: Activation, values: Array) -> Activation:
    """The same kind of activation with other parameters, scaled and shifted as before."""
    remaining, parameters = values.tolist(), {}
    for name, old in layer.parameters:
        size = len(old) if isinstance(old, tuple) else 1
        taken, remaining = remaining[:size], remaining[size:]
        parameters[name] = taken if isinstance(old, tuple) else taken[0]
    made = activation(layer.name, **parameters)
    return replace(made, amplitude=layer.amplitude, gain=layer.gain, offset=layer.offset)


def _kernel(name: str) -> Callable[[Model, Array], Array]:
    if name == "ck":
        return lambda model, rows: conjugate_kernel(model, rows)
    of = "paper" if name == "ntk_paper" else "network"
    # An explicit network has one tangent kernel.
    return lambda model, rows: tangent_kernel(model, rows, of=of if isinstance(model, DEQ) else "network")
