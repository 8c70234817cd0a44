"""Networks with the DEQ's own activation that see the input again: docs/theory.md (7.8) to (7.12), (10.5), (10.9).

Only 2L numbers are designed: the variances of the weights of L layers, those of the weights that read the input again,
and the scale of the output. They are found by least squares on exact kernels at pairs of samples: a handful of norms
and angles around τ0, or rows or images of a user. `PairKernels` computes both kernels at those pairs: of rows in about
a millisecond, of images in some tens.

Twins of neural ODEs and cells (`flow_design`): a few layers with their activation and a linear last one; all see the
input.

The state of a neural ODE is a linear function of its input and of its past features. So is the last layer of its twin,
x^(L) = √w_L W_L x^(L-1) + √c_L B_L x; the layers before it have the activation of the ODE. The variances are fitted to
exact kernels, as those of the injected networks of DEQs are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize

from notsodeep.cells.expressions import Dense, Input
from notsodeep.designs.families import DesignTask, FamilySolution, NetworkFamily, is_centred
from notsodeep.designs.pair_kernels import PairKernels, Pairs, chosen_pairs, numbers_of
from notsodeep.designs.result import Design
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit, Model, NeuralODE
from notsodeep.models.cell_models import CellModel
from notsodeep.models.time_nodes import time_nodes
from notsodeep.models.time_programs import base_field
from notsodeep.validation import Array, as_count

# The pull towards the start, relative to the kernels: it decides only what the kernels leave open, such as the scale of
# a layer whose activation is homogeneous.
_PULL = 1e-6
_DIFFERENCE, _STEPS = 1e-6, 60
# How far a logarithm may move from its start.
_FURTHEST = 15.0
# Where there are no data, kernels are compared at these squared norms, relative to τ0², and cosines of angles, which
# count with these shares; samples with themselves as in the kernel matrix of so many rows.
NORMS = (0.7, 1.0, 1.4)
COSINES = {-0.4: 0.5, -0.2: 1.0, 0.0: 1.0, 0.2: 1.0, 0.4: 0.5, 0.7: 0.2}
_MATRIX = 300
# The smallest variance that a fit starts from: its logarithm is what moves.
_SMALLEST = 1e-6


# --- what a network is to match ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelTarget:
    """The kernels that an injected network is to have at some pairs.

    Attributes:
        pairs: the pairs; each sample with itself counts as well.
        kernels: the names of the kernels that count.
        values: of each kernel: the pairs first, then the samples with themselves.
        shares: how much each value counts: the number of entries of a kernel matrix that it stands for.
    """

    pairs: Pairs
    kernels: tuple[str, ...]
    values: tuple[Array, ...]
    shares: Array

    def weighted(self, kernels: Sequence[Array]) -> Array:
        """The values of all kernels, each relative to the size of its target."""
        roots = np.sqrt(self.shares)
        parts = [
            roots * part / np.linalg.norm(roots * goal)
            for part, goal in zip(kernels, self.values, strict=True)
        ]
        return np.concatenate(parts)

    def distance(self, kernels: Sequence[Array]) -> float:
        """The largest relative distance of a kernel, in the root mean square over the pairs."""
        parts = np.split(self.weighted(kernels) - self.weighted(self.values), len(self.kernels))
        return float(max(np.linalg.norm(part) for part in parts))


def kernels_of(kernel: str) -> tuple[str, ...]:
    """The kernels that a design for `kernel` is about."""
    return ("ck", "ntk") if kernel == "both" else (kernel,)


def reference_target(model: Model, tau0: float, kernel: str) -> KernelTarget:
    """The model's kernels at a few norms and angles around τ0: what is known without data, (7.11)."""
    squares, cosines = tau0**2 * np.array(NORMS), np.array(list(COSINES))
    first, second = (np.repeat(part, len(cosines)) for part in np.triu_indices(len(squares)))
    repeats = len(first) // len(cosines)
    cross = np.tile(cosines, repeats) * np.sqrt(squares[first] * squares[second])
    # Two different norms occur in a matrix twice.
    entries = np.tile(list(COSINES.values()), repeats) * np.where(first == second, 1.0, 2.0)
    alone = np.full(len(squares), 1.0 / (_MATRIX * len(squares)))
    shares = np.concatenate([entries / entries.sum(), alone])
    pairs = Pairs(squares, first, second, cross)
    names = kernels_of(kernel)
    return KernelTarget(pairs, names, tuple(values_at(model, pairs, name) for name in names), shares)


def values_at(model: Model, pairs: Pairs, kernel: str) -> Array:
    """A kernel of any model at pairs that are given by norms and inner products: rows in a plane have them."""
    roots = np.sqrt(pairs.squares)
    rows = np.stack([roots, np.zeros_like(roots)], axis=1)
    along = pairs.cross / roots[pairs.first]
    across = np.sqrt(np.maximum(pairs.squares[pairs.second] - along**2, 0.0))
    rectangle = exact_kernel(model, rows, np.stack([along, across], axis=1), kernel=kernel)
    diagonal = exact_kernel(model, rows, kernel=kernel).diagonal()
    return np.concatenate([rectangle[pairs.first, np.arange(len(pairs.first))], diagonal])


def samples_target(model: Model, samples: Array, kernel: str) -> KernelTarget:
    """The model's exact kernels at evenly drawn pairs of samples."""
    (pairs, rows, columns, shares), names = chosen_pairs(model, samples), kernels_of(kernel)
    used, places = np.unique(np.append(rows, columns), return_inverse=True)
    rows, columns = np.split(places, 2)
    values = tuple(exact_kernel(model, samples[used], kernel=name)[rows, columns] for name in names)
    return KernelTarget(pairs, names, values, shares)


# --- the fit ----------------------------------------------------------------------------------------------------------


class InjectedFit:
    """Least squares for the logarithms of (output scale, weights, inject), from a start.

    Args:
        target: the kernels that the networks are to have.
        kernels: computes the kernels of a network at the pairs of the target.
    """

    def __init__(self, target: KernelTarget, kernels: PairKernels) -> None:
        self.target, self.kernels = target, kernels

    @classmethod
    def of(cls, model: DEQ | ConvDEQ, target: KernelTarget, centre: float | None) -> InjectedFit:
        """The fit of networks with the activation and the bias of a model, centred at the norm `centre` if given."""
        return cls(target, PairKernels(model.activation, target.pairs, centre, model.bias2))

    def distance(self, logs: Array, *, rescale: bool = True) -> float:
        """The distance of a network's kernels, with the best output scale unless `rescale` is false."""
        return self.target.distance(self._values(self._rescaled(logs) if rescale else logs))

    def closest(self, start: Array) -> Array:
        """The numbers of the network that is closest."""
        low, high = start - _FURTHEST, start + _FURTHEST
        goal = self.target.weighted(self.target.values)

        def misfit(logs: Array) -> Array:
            values = self.target.weighted(self._values(np.clip(logs, low, high)))
            return np.concatenate([values - goal, _PULL * (logs - start)])

        def slopes(logs: Array) -> Array:
            before = misfit(logs)
            return (
                np.stack([misfit(logs + move) - before for move in _DIFFERENCE * np.eye(len(logs))], axis=1)
                / _DIFFERENCE
            )

        result = optimize.least_squares(
            misfit, self._rescaled(start), slopes, method="lm", xtol=1e-9, ftol=1e-7, max_nfev=_STEPS
        )
        return self._rescaled(np.clip(result.x, low, high))

    def _values(self, logs: Array) -> list[Array]:
        """The kernels of the target, of the network with these logarithms."""
        return self.kernels.named(self.target.kernels, logs)

    def _rescaled(self, logs: Array) -> Array:
        """With the output scale of least squares: one linear unknown."""
        values, goal = (self.target.weighted(part) for part in (self._values(logs), self.target.values))
        rescaled = logs.copy()
        rescaled[0] += math.log(max(float(values @ goal) / float(values @ values), _SMALLEST))
        return rescaled


def cut_start(model: DEQ | ConvDEQ, layers: int) -> Array:
    """The DEQ cut after as many steps: w_1 = σ_b², then w_l = σ_a² and c_l = σ_b²."""
    recurrent, injected = max(model.sigma_a2, _SMALLEST), model.sigma_b2
    return np.log([1.0, injected, *[recurrent] * (layers - 1), *[injected] * (layers - 1)])


def network_at(model: DEQ | ConvDEQ, logs: Array, centre: float | None) -> Explicit | ConvExplicit:
    """The network with these logarithms of its numbers, its layers centred at `centre`."""
    output, weights, inject = numbers_of(logs)
    layers = [model.activation] * len(weights)
    plain = model.network(layers, weights=weights.tolist(), inject=inject.tolist())
    shifted = plain if centre is None else plain.centred(centre)
    *hidden, last = shifted.layers
    return shifted.with_layers([*hidden, last.scaled(math.sqrt(output))])


# --- the family -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InjectedFamily(NetworkFamily):
    """Networks with the model's own activation whose layers see the input again, for rows and for images.

    `design` knows one to three layers by name; `family=InjectedFamily(4)` gives it another number.

    Attributes:
        layers: number of hidden layers.
    """

    layers: int
    name = "injected"
    in_auto = False
    matches_both = True
    centres = False
    takes = (DEQ, ConvDEQ)

    def solve(self, task: DesignTask, *, thorough: bool) -> InjectedSolution:
        """The network closest to the model at a few norms and angles around τ0.

        For images these are images of one colour, which a convolution treats as a layer treats rows.
        """
        model, centre = self._checked(task)
        rows = model.dense if isinstance(model, ConvDEQ) else model
        target = reference_target(rows, task.tau0, task.kernel)
        fit = InjectedFit.of(model, target, centre)
        logs = fit.closest(cut_start(model, self.layers))
        return self._solution(model, centre, logs, fit.distance(logs))

    def _checked(self, task: DesignTask) -> tuple[DEQ | ConvDEQ, float | None]:
        """The model, and τ0 if its activation is centred there: then each layer is, at its own scale."""
        model = task.model
        if not isinstance(model, DEQ | ConvDEQ):
            raise InputError(
                f"family='injected' takes a DEQ or a ConvDEQ, whose activation it keeps, not a {type(model).__name__}."
            )
        if task.kernel == "ntk_paper":
            raise InputError("The papers' tangent kernel is that of no network: use kernel='ntk', or 'both'.")
        return model, task.tau0 if is_centred(model, task.tau0) else None

    def _solution(
        self, model: DEQ | ConvDEQ, centre: float | None, logs: Array, distance: float
    ) -> InjectedSolution:
        network = network_at(model, logs, centre)
        reason = f"{len(logs)} numbers are matched to whole kernels, which they meet to {distance:.1e}"
        return InjectedSolution(self, network, distance, reason, logs=logs, centre=centre)


@dataclass(frozen=True, kw_only=True)
class InjectedSolution(FamilySolution):
    """An injected network and the logarithms of its numbers."""

    logs: Array
    centre: float | None

    @property
    def misfit(self) -> float:
        """The relative distance of the kernels where they were compared."""
        return self.residual

    def fitted_to(self, task: DesignTask, samples: Array) -> InjectedSolution:
        """The network fitted to the exact kernels of samples, by least squares at some pairs of them."""
        family, model = self.family, task.model
        if not isinstance(family, InjectedFamily) or not isinstance(model, DEQ | ConvDEQ):
            raise InputError("Only a DEQ or a ConvDEQ has an injected network.")
        fit = InjectedFit.of(model, samples_target(model, samples, task.kernel), self.centre)
        logs = fit.closest(min(self.logs, cut_start(model, family.layers), key=fit.distance))
        if not isinstance(model, DEQ):
            return family._solution(model, self.centre, logs, fit.distance(logs))
        # Of rows the distance around τ0 is kept, which says what the network is beyond these rows.
        around = InjectedFit.of(model, reference_target(model, task.tau0, task.kernel), self.centre)
        return family._solution(model, self.centre, logs, around.distance(logs, rescale=False))


# --- neural ODEs and cells --------------------------------------------------------------------------------------------

# Layers without `layers=`, most layers, and nodes of the start.
USUAL, MOST, NODES = 3, 4, 16


class FlowKernels(PairKernels):
    """The kernels of layers whose last one is linear."""

    def kernels(self, weights: Array, inject: Array) -> tuple[Array, Array]:
        """Conjugate and tangent kernel: first the pairs, then the samples with themselves."""
        features, tangent = super().kernels(weights[:-1], inject[:-1])
        again = inject[-1] * self.pairs.read(self.pairs.cross, self.pairs.squares)
        last = weights[-1] * features + again
        return last, last + weights[-1] * tangent + again


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
        around, fit = (InjectedFit(one, FlowKernels(phi, one.pairs, None)) for one in (known, target))
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
        first = max(sum(read), _SMALLEST)
        return np.log([1.0, first, *[1.0] * (depth - 1), *[first] * (depth - 1)])
    nodes = time_nodes(NODES, model.duration, model.decay)
    base, reach = base_field(model, nodes).diagonal(), np.append(nodes.integral.sum(axis=1), nodes.end.sum())
    places = [round((layer + 1) / depth * NODES) for layer in range(depth)]
    inputs = np.maximum(base[places], _SMALLEST)
    weights = np.maximum(model.sigma_w2 * reach[places] ** 2, _SMALLEST)
    return np.log([1.0, inputs[0], *weights[1:], *inputs[1:]])


def _as_design(
    model: NeuralODE | CellModel, tau0: float, kernel: str, logs: Array, phi: Activation, distance: float
) -> Design:
    output, weights, inject = numbers_of(logs)
    # A factor of the linear layer is one of what it reads.
    weights[-1], inject[-1] = output * weights[-1], output * inject[-1]
    layers = [*[phi] * (len(weights) - 1), activation("identity")]
    network = Explicit(layers, weights=weights.tolist(), inject=inject.tolist())
    name = "ck" if kernel == "both" else kernel
    target: Coefficients | None
    reached: Coefficients | None
    try:
        target, reached = coefficients(model, tau0, name), coefficients(network, tau0, name)
    except InputError:  # a model that is not centred has no scalars
        target = reached = None
    family = f"{len(network.layers)} × injected"
    reason = f"{len(logs) - 1} numbers are matched to whole kernels, which they meet to {distance:.1e}"
    return Design(network, model, tau0, kernel, family, target, reached, reason=reason, misfit=distance)
