"""Twins of neural ODEs and cells: a few layers with their activation and a linear last one; all see the input.

The state of a neural ODE is a linear function of its input and of its past features. So is the last layer of its twin,
x^(L) = √w_L W_L x^(L-1) + √c_L B_L x; the layers before it have the activation of the ODE. The variances are fitted to
exact kernels, as those of the injected networks of DEQs are.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from notsodeep.cells.expressions import Dense, Input
from notsodeep.designs.injected import InjectedFit, KernelTarget, reference_target, samples_target
from notsodeep.designs.pair_kernels import PairKernels, numbers_of
from notsodeep.designs.result import Design
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.models import Explicit, NeuralODE
from notsodeep.models.cell_models import CellModel
from notsodeep.models.time_nodes import time_nodes
from notsodeep.models.time_programs import base_field
from notsodeep.validation import Array, as_count

# Layers without `layers=`, most layers, nodes of the start, and the smallest variance that a fit starts from.
USUAL, MOST, NODES, SMALLEST = 3, 4, 16, 1e-6


class FlowKernels(PairKernels):
    """The kernels of layers whose last one is linear."""

    def kernels(self, weights: Array, inject: Array) -> tuple[Array, Array]:
        """Conjugate and tangent kernel: first the pairs, then the samples with themselves."""
        features, tangent = super().kernels(weights[:-1], inject[:-1])
        again = inject[-1] * self.pairs.read(self.pairs.cross, self.pairs.squares)
        last = weights[-1] * features + again
        return last, last + weights[-1] * tangent + again


class FlowFit(InjectedFit):
    """Least squares for the variances of a twin."""

    def __init__(self, phi: Activation, target: KernelTarget) -> None:
        self.target = target
        self.kernels = FlowKernels(phi, target.pairs, None)


def flow_design(
    model: NeuralODE | CellModel,
    tau0: float,
    kernel: str,
    family: Any,
    layers: int | None,
    samples: Array | None,
) -> Design:
    """Design the twin of a neural ODE or of a cell of rows, fitted to samples; without them, to norms around tau0.

    Layers without norms cannot give samples of different norms features of one norm: the twin of a normalised cell is
    not closer than a plain layer unless the samples have one norm.
    """
    if family not in ("auto", "injected"):
        raise InputError(
            f"family={family!r} is for DEQs. This model has family='injected', which 'auto' takes."
        )
    if kernel == "ntk_paper":
        raise InputError(
            "The papers' tangent kernel is not defined for this model: use kernel='ntk' or 'both'."
        )
    if isinstance(model, CellModel) and (model.cell.samples != "rows" or not model.activations):
        raise InputError("Twins are designed for cells of rows that have an activation.")
    depth = USUAL if layers is None else as_count(layers, "layers", least=2)
    if depth > MOST:
        raise InputError(f"Such a twin has 2 to {MOST} layers, not {depth}.")
    known = reference_target(model, tau0, kernel)
    target = known if samples is None else samples_target(model, samples, kernel)
    fits = []
    # A cell may have several activations: the one whose layers come closest is taken.
    for phi in (model.activation,) if isinstance(model, NeuralODE) else model.activations:
        around, fit = FlowFit(phi, known), FlowFit(phi, target)
        logs = around.closest(_start(model, depth))
        logs = logs if samples is None else fit.closest(logs)
        fits.append((fit.distance(logs), around.distance(logs, rescale=False), logs, phi))
    _, distance, logs, phi = min(fits, key=lambda one: one[0])
    made = _as_design(model, tau0, kernel, logs, phi, distance)
    return made if samples is None else replace(made, fitted_to=len(samples))


def _start(model: NeuralODE | CellModel, depth: int) -> Array:
    """Layers as the state at evenly spaced times would have it, each reading the one before all the time."""
    if isinstance(model, CellModel):
        read = [
            node.variance
            for node in model.cell.nodes
            if isinstance(node, Dense) and isinstance(node.node, Input)
        ]
        first = max(sum(read), SMALLEST)
        return np.log([1.0, first, *[1.0] * (depth - 1), *[first] * (depth - 1)])
    nodes = time_nodes(NODES, model.duration, model.decay)
    base, reach = base_field(model, nodes).diagonal(), np.append(nodes.integral.sum(axis=1), nodes.end.sum())
    places = [round((layer + 1) / depth * NODES) for layer in range(depth)]
    inputs = np.maximum(base[places], SMALLEST)
    weights = np.maximum(model.sigma_w2 * reach[places] ** 2, SMALLEST)
    return np.log([1.0, inputs[0], *weights[1:], *inputs[1:]])


def _as_design(
    model: NeuralODE | CellModel, tau0: float, kernel: str, logs: Array, phi: Activation, distance: float
) -> Design:
    output, weights, inject = numbers_of(logs)
    layers = [*[phi] * (len(weights) - 1), activation("identity").scaled(sqrt(output))]
    network = Explicit(layers, weights=weights.tolist(), inject=inject.tolist())
    name = "ck" if kernel == "both" else kernel
    target, reached = _scalars(model, tau0, name), _scalars(network, tau0, name)
    if target is None or reached is None:
        target = reached = None
    family = f"{len(network.layers)} × injected"
    reason = f"{len(logs)} numbers are matched to whole kernels, which they meet to {distance:.1e}"
    return Design(network, model, tau0, kernel, family, target, reached, reason=reason, misfit=distance)


def _scalars(model: Any, tau0: float, kernel: str) -> Coefficients | None:
    """The scalars; None for a model that is not centred."""
    try:
        return coefficients(model, tau0, kernel)
    except InputError:
        return None


__all__ = ["flow_design"]
