"""Networks with the DEQ's own activation that see the input again: docs/theory.md (7.8) to (7.12).

Only 2L numbers are designed: the variances of the weights of L layers, those of the weights that read the input again,
and the scale of the output. They are found by least squares on exact kernels at pairs of samples: a handful of norms
and angles around τ0, or rows of a user. `PairKernels` computes both kernels at those pairs, in about a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from notsodeep.designs.families import NetworkFamily, Solution, Task
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import dual
from notsodeep.gaussian.moments import derivative_second_moment, mean_derivative, mehler, second_moment
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.chebyshev import LogInterval, chebyshev_basis, chebyshev_coefficients
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array

# Terms of Mehler's series for activations without a closed form, nodes of the interpolation in log q, and by how much
# its range reaches beyond the variances that were met.
_TERMS, _NODES, _MARGIN = 96, 40, math.log(4.0)
# The pull towards the start, relative to the kernels: it decides only what the kernels leave open, such as the scale of
# a layer whose activation is homogeneous.
_PULL = 1e-6
_DIFFERENCE, _STEPS = 1e-6, 40
# Squared norms, relative to τ0², and cosines of angles at which kernels are compared where there are no data.
NORMS, COSINES = (0.7, 1.0, 1.4), (-0.2, 0.0, 0.2, 0.5, 0.8)
# Pairs of rows that a fit looks at.
_MOST_PAIRS = 600
# The smallest variance that a fit starts from: its logarithm is what moves.
_SMALLEST = 1e-6
# A mean below this fraction of the root mean square is rounding in the centring constant.
_CENTRED = 1e-8


@dataclass(frozen=True)
class Pairs:
    """Pairs of samples on which kernels are compared.

    Attributes:
        squares: squared norms of the samples.
        first, second: which samples each pair consists of.
        cross: their inner products.
    """

    squares: Array
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    cross: Array


class PairKernels:
    """The kernels of injected networks at given pairs of samples, and of the samples with themselves.

    Args:
        phi: the activation of all layers.
        pairs: the pairs.
        centre: the norm τ0 at which each layer is shifted to mean zero; None for the activation as it is.
    """

    def __init__(self, phi: Activation, pairs: Pairs, centre: float | None) -> None:
        self.phi, self.pairs, self.centre = phi, pairs, centre
        # The last sample is the typical one, at which layers are centred.
        typical = 1.0 if centre is None else centre**2
        self._squares = np.append(pairs.squares, typical)
        flat = np.ones(1)
        self._closed = phi.shape.pair_moments(flat, flat, 0.5 * flat) is not None
        self._range, self._series = (0.0, 0.0), np.empty((0, 0))

    def kernels(self, weights: Array, inject: Array) -> tuple[Array, Array]:
        """Conjugate and tangent kernel: first the pairs, then the samples with themselves. Output scale 1."""
        pairs = self.pairs
        q, c = self._squares, pairs.cross
        diagonal, tangent = q, c
        for weight, again in zip(weights, (0.0, *inject), strict=True):
            q, c = weight * q + again * self._squares, weight * c + again * pairs.cross
            diagonal = weight * diagonal + again * self._squares
            tangent = weight * tangent + again * pairs.cross
            features, slopes, energy, steepness = self._layer(q, c)
            tangent, diagonal = features + slopes * tangent, energy + steepness * diagonal
            q, c = energy, features
        return np.concatenate([c, q[:-1]]), np.concatenate([tangent, diagonal[:-1]])

    def _layer(self, q: Array, c: Array) -> tuple[Array, Array, Array, Array]:
        """F and F' of the pairs, S and E1 of the samples."""
        pairs, table = self.pairs, self._moments(q)
        means, energy, steepness, series = table[:, 0], table[:, 1], table[:, 2], table[:, 3:]
        q1, q2 = q[pairs.first], q[pairs.second]
        if self._closed:
            features, slopes = dual(self.phi, q1, q2, c)
        else:
            lengths = np.sqrt(q1 * q2)
            products = series[pairs.first].T * series[pairs.second].T
            powers = np.empty_like(products)
            powers[0], powers[1:] = 1.0, np.clip(c / lengths, -1.0, 1.0)
            np.multiply.accumulate(powers, axis=0, out=powers)
            features = np.einsum("kp,kp->p", products, powers)
            slopes = (
                np.einsum("k,kp,kp->p", np.arange(1.0, len(products)), products[1:], powers[:-1]) / lengths
            )
        if self.centre is not None:
            shift = -means[-1]
            features = features + shift * (means[pairs.first] + means[pairs.second]) + shift**2
            energy = energy + 2.0 * shift * means + shift**2
        return features, slopes, energy, steepness

    def _moments(self, q: Array) -> Array:
        """M_0, S, E1 and, without a closed form of F, the Mehler coefficients at each variance."""
        logs = np.log(np.maximum(q, 1e-200))
        low, high = float(logs.min()), float(logs.max())
        if low < self._range[0] or high > self._range[1] or not self._series.size:
            if self._series.size:
                low, high = min(low, self._range[0]), max(high, self._range[1])
            self._range = low - _MARGIN, high + _MARGIN
            nodes = LogInterval(*self._range).nodes(_NODES)
            coefficients = mehler(self.phi, nodes, 1 if self._closed else _TERMS)
            columns = [
                coefficients[:, 0],
                second_moment(self.phi, nodes),
                derivative_second_moment(self.phi, nodes),
            ]
            self._series = chebyshev_coefficients(np.column_stack([*columns, coefficients]))
        place = (2.0 * logs - sum(self._range)) / (self._range[1] - self._range[0])
        return np.asarray(chebyshev_basis(place, _NODES) @ self._series)


# --- what a network is to match ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The kernels that an injected network is to have at some pairs.

    Attributes:
        pairs: the pairs; each sample with itself counts as well.
        kernels: the names of the kernels that count.
        wanted: for each its values: the pairs first, then the samples with themselves.
        shares: how much each value counts: the number of entries of a kernel matrix that it stands for.
    """

    pairs: Pairs
    kernels: tuple[str, ...]
    wanted: tuple[Array, ...]
    shares: Array

    def misfit(self, found: Sequence[Array]) -> Array:
        """Differences of all kernels, each relative to its own size."""
        roots = np.sqrt(self.shares)
        parts = [
            roots * (values - goal) / np.linalg.norm(roots * goal)
            for values, goal in zip(found, self.wanted, strict=True)
        ]
        return np.concatenate(parts)

    def distance(self, found: Sequence[Array]) -> float:
        """The largest relative distance of a kernel, in the root mean square over the pairs."""
        parts = np.split(self.misfit(found), len(self.kernels))
        return float(max(np.linalg.norm(part) for part in parts))


def kernels_of(kernel: str) -> tuple[str, ...]:
    """The kernels that a design for `kernel` is about."""
    return ("ck", "ntk") if kernel == "both" else (kernel,)


def reference_target(model: Model, tau0: float, kernel: str) -> Target:
    """The model's kernels at a few norms and angles around τ0: what is known without data, (7.11)."""
    squares = tau0**2 * np.array(NORMS)
    first, second = np.triu_indices(len(squares))
    pairs = len(first) * len(COSINES)
    first, second = np.repeat(first, len(COSINES)), np.repeat(second, len(COSINES))
    cosines = np.tile(COSINES, pairs // len(COSINES))
    cross = cosines * np.sqrt(squares[first] * squares[second])
    # Each value once, and those of equal samples twice: there are fewer of them.
    shares = np.concatenate([np.ones(pairs), np.full(len(squares), 2.0)])
    found = Pairs(squares, first, second, cross)
    names = kernels_of(kernel)
    return Target(found, names, tuple(values_at(model, found, name) for name in names), shares)


def values_at(model: Model, pairs: Pairs, kernel: str) -> Array:
    """A kernel of any model at pairs that are given by norms and inner products: rows in a plane have them."""
    roots = np.sqrt(pairs.squares)
    rows = np.stack([roots, np.zeros_like(roots)], axis=1)
    along = pairs.cross / roots[pairs.first]
    across = np.sqrt(np.maximum(pairs.squares[pairs.second] - along**2, 0.0))
    rectangle = exact_kernel(model, rows, np.stack([along, across], axis=1), kernel=kernel)
    diagonal = exact_kernel(model, rows, kernel=kernel).diagonal()
    return np.concatenate([rectangle[pairs.first, np.arange(len(pairs.first))], diagonal])


def values_with_rates(network: Explicit, pairs: Pairs, rates: Sequence[float]) -> Array:
    """The tangent kernel at pairs of a network that is trained with learning-rate multipliers."""
    q, c = pairs.squares, pairs.cross
    diagonal, tangent = rates[0] * q, rates[0] * c
    for number, layer in enumerate(network.inputs):
        q, c = layer.enter(q, pairs.squares), layer.enter(c, pairs.cross)
        diagonal = layer.enter(diagonal, rates[number] * pairs.squares)
        tangent = layer.enter(tangent, rates[number] * pairs.cross)
        c, slopes = dual(layer.phi, q[pairs.first], q[pairs.second], c)
        steepness = np.asarray(derivative_second_moment(layer.phi, q))
        q = np.asarray(second_moment(layer.phi, q))
        diagonal, tangent = (
            rates[number + 1] * q + steepness * diagonal,
            rates[number + 1] * c + slopes * tangent,
        )
    return np.concatenate([tangent, diagonal])


def rows_target(model: Model, rows: Array, kernel: str) -> Target:
    """The model's exact kernels on rows, or on evenly drawn pairs of them."""
    first, second = np.triu_indices(len(rows), 1)
    # Golden-ratio order: pairs evenly over all rows, and no randomness.
    order = np.argsort(np.modf(np.arange(len(first)) * 0.6180339887498949)[0], kind="stable")[:_MOST_PAIRS]
    shares = np.concatenate([np.full(len(order), 2.0 * len(first) / max(len(order), 1)), np.ones(len(rows))])
    first, second = first[order], second[order]
    squares, cross = (rows**2).sum(axis=1), np.einsum("ij,ij->i", rows[first], rows[second])
    names, wanted = kernels_of(kernel), []
    for name in names:
        values = exact_kernel(model, rows, kernel=name)
        wanted.append(np.concatenate([values[first, second], values.diagonal()]))
    return Target(Pairs(squares, first, second, cross), names, tuple(wanted), shares)


# --- the fit ----------------------------------------------------------------------------------------------------------


def fitted(phi: Activation, target: Target, centre: float | None, start: Array) -> tuple[Array, float]:
    """Logarithms of (output scale, weights, inject) by least squares from a start, and the distance that is left."""
    kernels, layers = PairKernels(phi, target.pairs, centre), len(start) // 2

    def found(logs: Array) -> list[Array]:
        numbers = np.exp(logs)
        both = kernels.kernels(numbers[1 : layers + 1], numbers[layers + 1 :])
        return [numbers[0] * both[0 if name == "ck" else 1] for name in target.kernels]

    def misfit(logs: Array) -> Array:
        return np.concatenate([target.misfit(found(logs)), _PULL * (logs - start)])

    # The best output scale for the start: one linear unknown.
    moved = start.copy()
    values, shares = np.concatenate(found(start)), np.tile(target.shares, len(target.kernels))
    goal = np.concatenate(target.wanted)
    moved[0] += math.log(max(float((shares * values) @ goal) / float((shares * values) @ values), _SMALLEST))
    result = optimize.least_squares(
        misfit,
        moved,
        method="lm",
        diff_step=_DIFFERENCE,
        xtol=1e-9,
        ftol=1e-7,
        max_nfev=_STEPS * (len(start) + 1),
    )
    return np.asarray(result.x), target.distance(found(result.x))


def cut_start(model: DEQ, layers: int) -> Array:
    """The DEQ cut after as many steps: w_1 = σ_b², then w_l = σ_a² and c_l = σ_b²."""
    recurrent, injected = max(model.sigma_a2, _SMALLEST), model.sigma_b2
    return np.log([1.0, injected, *[recurrent] * (layers - 1), *[injected] * (layers - 1)])


def network_at(phi: Activation, logs: Array, centre: float | None) -> Explicit:
    """The network with these logarithms of (output scale, weights, inject), its layers centred at `centre`."""
    numbers, layers = np.exp(logs).tolist(), len(logs) // 2
    plain = Explicit([phi] * layers, weights=numbers[1 : layers + 1], inject=numbers[layers + 1 :])
    shifted = plain if centre is None else plain.centred(centre)
    *hidden, last = shifted.layers
    return shifted.with_layers([*hidden, last.scaled(math.sqrt(numbers[0]))])


# --- the family -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InjectedFamily(NetworkFamily):
    """Networks with the model's own activation whose layers see the input again."""

    layers: int
    name = "injected"
    in_auto = False
    matches_both = True
    centres = False

    def solve(self, task: Task, *, thorough: bool) -> InjectedSolution:
        """The network closest to the model at a few norms and angles around τ0."""
        model, centre = self._checked(task)
        target = reference_target(model, task.tau0, task.kernel)
        logs, distance = fitted(model.activation, target, centre, cut_start(model, self.layers))
        return self._solution(model, centre, logs, distance)

    def _checked(self, task: Task) -> tuple[DEQ, float | None]:
        """The model, and τ0 if its activation is centred there: then each layer is, at its own scale."""
        model = task.model
        if not isinstance(model, DEQ):
            raise InputError(
                f"family='injected' takes a DEQ, whose activation it keeps, not a {type(model).__name__}."
            )
        if model.bias2:
            raise InputError(
                f"bias2 = {model.bias2:g}: injected networks have no bias. Give the rows a constant column "
                "√(bias2/sigma_b2) and the DEQ bias2=0: that is the same model."
            )
        return model, task.tau0 if is_centred(model, task.tau0) else None

    def _solution(self, model: DEQ, centre: float | None, logs: Array, distance: float) -> InjectedSolution:
        network = network_at(model.activation, logs, centre)
        reason = f"{2 * self.layers} numbers are matched to whole kernels, which they meet to {distance:.1e}"
        return InjectedSolution(self, network, distance, 0.0, reason, logs=logs, centre=centre)


def is_centred(model: DEQ, tau0: float) -> bool:
    """Whether the activation has mean zero at inputs of norm tau0."""
    phi, q = model.activation, model.preactivation_variance(tau0)
    return abs(float(mean_derivative(phi, q, 0))) <= _CENTRED * math.sqrt(float(second_moment(phi, q)))


@dataclass(frozen=True, kw_only=True)
class InjectedSolution(Solution):
    """An injected network and the logarithms of its numbers."""

    logs: Array
    centre: float | None

    @property
    def misfit(self) -> float:
        """The relative distance of the kernels at the reference pairs."""
        return self.residual

    def fitted_to(self, task: Task, rows: Array) -> InjectedSolution:
        """The network fitted to the exact kernels of rows: from the design without data and from the DEQ cut."""
        family, model = self.family, task.model
        if not isinstance(family, InjectedFamily) or not isinstance(model, DEQ):
            raise InputError("Only a DEQ has an injected network.")
        target, phi = rows_target(model, rows, task.kernel), model.activation
        starts = self.logs, cut_start(model, family.layers)
        logs, _ = min((fitted(phi, target, self.centre, start) for start in starts), key=lambda pair: pair[1])
        reference = reference_target(model, task.tau0, task.kernel)
        network = network_at(phi, logs, self.centre)
        found = [values_at(network, reference.pairs, name) for name in reference.kernels]
        return family._solution(model, self.centre, logs, reference.distance(found))
