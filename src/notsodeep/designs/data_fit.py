"""Fitting a design to data: its parameters moved to bring the exact kernels of a subsample together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import optimize

from notsodeep.designs.evidence import Polish
from notsodeep.designs.families import REACH, Parametrisation
from notsodeep.designs.result import Design
from notsodeep.equivalents.coefficients import coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.models import Explicit
from notsodeep.validation import Array

_STEPS = 12


def fit_to_data(design: Design, around: Parametrisation | None, rows: Array, others: Array) -> Design:
    """The design with its parameters fitted to the exact kernel of rows, and by how much it helped on others.

    The networks come from `around`, or from moving every parameter of the design's activations. The result is kept
    only if it also helps on rows that it was not fitted to.
    """
    if design.kernel == "both" or design.model is None or design.target is None:
        raise InputError(
            "Polishing on data works for kernel='ck', 'ntk' or 'ntk_paper', with the model at hand."
        )
    parts, count = (rows, others), len(rows)
    wanted = [exact_kernel(design.model, part, kernel=design.kernel) for part in parts]
    network = _fitted(around or _all_parameters(design), design.kernel, parts[0], wanted[0])
    distances = [
        float(np.linalg.norm(goal - exact_kernel(net, part, kernel=design.kernel)) / np.linalg.norm(goal))
        for part, goal in zip(parts, wanted, strict=True)
        for net in (design.network, network)
    ]
    polish = Polish(count, *distances)
    if polish.held_out_after >= polish.held_out_before:
        unchanged = Polish(count, distances[0], distances[0], distances[2], distances[2])
        return replace(design, polish=unchanged)
    reached = coefficients(network, design.tau0, design.target.kernel)
    return replace(design, network=network, reached=reached, polish=polish)


def _fitted(around: Parametrisation, kernel: str, rows: Array, wanted: Array) -> Explicit:
    """The network whose exact kernel is closest to the wanted one, by least squares over the parameters."""
    upper = np.triu_indices(len(rows))
    # Off the diagonal each entry stands for two.
    weights = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0)) / np.linalg.norm(wanted)

    def misfit(moves: Array) -> Array:
        return np.asarray(
            (exact_kernel(around.network(moves), rows, kernel=kernel) - wanted)[upper] * weights
        )

    start, bounds = np.zeros_like(around.low), (around.low, around.high)
    result = optimize.least_squares(
        misfit, start, bounds=bounds, diff_step=1e-5, max_nfev=_STEPS, xtol=1e-6, ftol=1e-4
    )
    return around.network(result.x)


def _all_parameters(design: Design) -> Parametrisation:
    """Networks around a design: every parameter of its activations may move."""
    layers = design.network.layers
    values = [_parameters(layer) for layer in layers]
    scales = np.concatenate([np.maximum(np.abs(part), 0.1 * np.abs(part).max()) for part in values])
    start, cuts = np.concatenate(values), np.cumsum([len(part) for part in values])[:-1]

    def network(moves: Array) -> Explicit:
        parts = np.split(start + moves * scales, cuts)
        moved = [_with_parameters(layer, part) for layer, part in zip(layers, parts, strict=True)]
        return Explicit(moved).centred(design.tau0)

    reach = np.full(len(start), REACH)
    return Parametrisation(-reach, reach, network)


def _parameters(layer: Activation) -> Array:
    return np.concatenate([np.atleast_1d(np.asarray(value, dtype=float)) for _, value in layer.parameters])


def _with_parameters(layer: Activation, values: Array) -> Activation:
    """The same kind of activation with other parameters, scaled and shifted as before."""
    remaining, parameters = values.tolist(), {}
    for name, old in layer.parameters:
        size = len(old) if isinstance(old, tuple) else 1
        taken, remaining = remaining[:size], remaining[size:]
        parameters[name] = taken if isinstance(old, tuple) else taken[0]
    made = activation(layer.name, **parameters)
    return replace(made, amplitude=layer.amplitude, gain=layer.gain, offset=layer.offset)
