"""Families of networks whose layers are all of one kind, and the kinds: closed forms first, then least squares.

A kind of layer has an even and an odd function (`LayerKind`). To add one, write a class and list it in `FAMILIES` of
`notsodeep.designs.designer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy import optimize

from notsodeep.designs.closed_forms import ClosedForms, one_curved_layer
from notsodeep.designs.families import DesignTask, FamilySolution, NetworkFamily
from notsodeep.designs.matching_equations import (
    EXACT,
    Basis,
    Equations,
    LayerKind,
    ShapeParameters,
    UnitLayer,
    UnitNetwork,
)
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.validation import Array

SQRT2, SQRT3, SQRT6 = math.sqrt(2.0), math.sqrt(3.0), math.sqrt(6.0)


@dataclass(frozen=True)
class _Parts:
    """The functions that E and O are made of, before they have unit variance.

    Attributes:
        even_size, odd_size: standard deviation of the even function, and of the odd one without its linear part.
        odd_linear: that linear part.
        basis: the numbers of E and O.
    """

    even_size: float
    odd_size: float
    odd_linear: float
    basis: Basis


# --- kinks --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _hinges(k: float) -> _Parts:
    """E from (|u| - k)₊ and O from clip(u, -k, k) (none for k = 0), docs/theory.md (2.8)–(2.10) at q = 1."""
    tail, bell = 0.5 * math.erfc(k / SQRT2), math.exp(-0.5 * k * k) / math.sqrt(2.0 * math.pi)
    mean = 2.0 * (bell - k * tail)
    even_size = math.sqrt(2.0 * ((1.0 + k * k) * tail - k * bell) - mean**2)
    variance = even_size**2
    even = (2.0 * bell**2 / variance, (2.0 * tail - 2.0 * mean * bell) / variance, 2.0 * tail / variance)
    if k == 0.0:
        return _Parts(even_size, 0.0, 0.0, Basis(*even))
    inside = 1.0 - 2.0 * tail
    # S - M_1² of docs/theory.md (2.8), written in the tail so that a far clip keeps its digits.
    odd_size = math.sqrt(2.0 * (tail * (inside + k * k) - k * bell))
    odd = (
        -2.0 * k * bell / odd_size,
        2.0 * tail * (inside - 2.0 * k * bell) / odd_size**2,
        2.0 * tail * inside / odd_size**2,
    )
    return _Parts(even_size, odd_size, inside, Basis(*even, *odd))


class LeakyReLULayers(LayerKind):
    """max(a x, b x), docs/theory.md (7.5): no odd part."""

    name = "leaky_relu"
    has_odd = False
    shortage = "three unknowns for four equations: only a target with the energies of a kink meets the fourth"

    def basis(self, shape: ShapeParameters) -> Basis:
        return _hinges(0.0).basis

    def activation(self, layer: UnitLayer, input_scale: float, output_scale: float) -> Activation:
        ratio, bend = output_scale / input_scale, layer.even / _hinges(0.0).even_size
        return activation("leaky_relu", a=ratio * (layer.linear + bend), b=ratio * (layer.linear - bend))


class HardTanhLayers(LayerKind):
    """a · clip(x, -c, c), docs/theory.md (2.8): one shape parameter k = c/τ0, no even part, flat outside."""

    name = "hard_tanh"
    bounds = ((1e-3, 8.0),)
    has_even = False

    def basis(self, shape: ShapeParameters) -> Basis:
        return _hinges(shape[0]).basis

    def angles(self, odd_only: bool) -> int:
        return 0

    def from_coordinates(self, values: Sequence[float], odd_only: bool) -> UnitLayer:
        parts = _hinges(values[0])
        # A slope of zero outside fixes the weights.
        return self.layer(parts.odd_linear, 0.0, parts.odd_size, (values[0],))

    def activation(self, layer: UnitLayer, input_scale: float, output_scale: float) -> Activation:
        slope = (output_scale / input_scale) * layer.linear / _hinges(layer.shape[0]).odd_linear
        return activation("hard_tanh", a=slope, c=layer.shape[0] * input_scale)

    def obstruction(self, equations: Equations, layers: int) -> str:
        if layers == 1 and equations.linear < 2.0 / math.pi * equations.diagonal:
            return "a hard-tanh layer keeps at least 2/π of its energy at order 1; the target has less"
        return ""


# --- polynomials --------------------------------------------------------------------------------------------------


class CubicLayers(LayerKind):
    """Polynomials of degree 3: E and O are He₂/√2 and He₃/√6. They grow without bound."""

    name = "polynomial"

    def basis(self, shape: ShapeParameters) -> Basis:
        return Basis(1.0, 2.0, 2.0, SQRT6, 3.0, 3.0)

    def activation(self, layer: UnitLayer, input_scale: float, output_scale: float) -> Activation:
        powers = [0.0, layer.linear - SQRT3 * layer.odd / SQRT2, layer.even / SQRT2, layer.odd / SQRT6]
        kept = powers if self.has_odd else powers[:3]
        scaled = [output_scale * value / input_scale**power for power, value in enumerate(kept)]
        return activation("polynomial", coefficients=scaled)


class QuadraticLayers(CubicLayers):
    """Polynomials of degree 2 (ICLR, Corollary 1)."""

    name = "quadratic"
    has_odd = False
    shortage = "a quadratic layer has no energy beyond order 2"


# --- families ---------------------------------------------------------------------------------------------------------

# Evaluations of one least-squares problem.
_EVALUATIONS = 60


@dataclass(frozen=True)
class LayeredFamily(NetworkFamily):
    """Networks with a given number of layers of one kind.

    Attributes:
        kind: what the layers are.
        layers: number of hidden layers.
        closed_forms: its exact networks, where there is a formula for them.
    """

    kind: LayerKind
    layers: int
    closed_forms: ClosedForms = one_curved_layer
    in_auto: bool = True
    last_resort: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the kind of layer."""
        return self.kind.name

    def worth_trying(self, task: DesignTask) -> bool:
        """One layer is, where docs/theory.md (7.3) allows one; more are always."""
        return self.layers > 1 or task.equations.allow_one_layer

    def solve(self, task: DesignTask, *, thorough: bool) -> FamilySolution:
        """The best closed form that meets all equations, or the best network of bounded least squares.

        Closed forms differ in how their kernels change with the norm of the samples: the best is the one whose diagonal
        is closest to the model's at another norm.
        """
        equations = task.equations
        closed = self.closed_forms(equations, self.kind, self.layers)
        exact = [one for one in closed if equations.largest_residual(one) <= EXACT / 10.0]
        best = (
            min(exact, key=lambda one: abs(task.diagonal(one.network(task.tau0)) - task.diagonal(task.model)))
            if exact
            else best_network(equations, self.kind, self.layers, thorough=thorough)
        )
        reason = obstruction(equations, self.kind, self.layers)
        network = task.with_constant(best.network(task.tau0))
        return FamilySolution(self, network, equations.largest_residual(best), reason)


# --- least squares ----------------------------------------------------------------------------------------------------

# Part of the diagonal below which a coefficient counts as small in the first steps: otherwise its relative error would
# be all that these steps see.
_SOFT = 0.05
# Factors on the tilt of each layer, turns towards the odd part, place of the shape parameters in their range.
_PATTERNS: tuple[tuple[tuple[float, ...], tuple[float, ...], float], ...] = (
    ((1.0, 1.0, 1.0), (0.3, 0.3, 0.3), 0.25),
    ((1.0, 1.0, 1.0), (-0.3, -0.3, -0.3), 0.25),
    ((0.5, 1.3, 0.5), (-0.8, 0.4, 0.8), 0.35),
    ((1.3, 0.5, 0.5), (0.4, 0.8, -0.8), 0.35),
    ((0.5, 1.3, 1.0), (0.8, -0.4, -0.8), 0.6),
    ((1.3, 0.5, 1.0), (-0.4, -0.8, 0.8), 0.6),
)


def best_network(equations: Equations, kind: LayerKind, layers: int, *, thorough: bool) -> UnitNetwork:
    """Find the network that meets the equations, or the one of the smallest residual, by bounded least squares.

    The unknowns of a layer are its angles and shape parameters (`LayerKind.from_coordinates`); for the tangent kernel
    there is one more, the logarithm of the output's energy, which for the conjugate kernel is the diagonal.
    """
    # An odd target keeps its layers odd; a kind without an odd part has no choice.
    odd_only = equations.is_odd and kind.has_odd
    ranges = kind.coordinate_bounds(odd_only) * layers
    stride = len(ranges) // layers
    log_energy = math.log(equations.diagonal / (layers + 1)) if equations.tangent else 0.0
    if equations.tangent:
        ranges.append((log_energy - 5.0, log_energy + 2.0))
    low, high = np.array(ranges).T

    def network(vector: Array) -> UnitNetwork:
        energy = math.exp(float(vector[-1])) if equations.tangent else equations.diagonal
        parts = vector[: stride * layers].reshape(layers, -1).tolist()
        return UnitNetwork(kind, tuple(kind.from_coordinates(part, odd_only) for part in parts), energy)

    def residuals(vector: Array, floor: float = 0.0) -> Array:
        scales = np.maximum(equations.scales(), floor * equations.diagonal)
        return equations.residuals(network(vector), scales)

    best, smallest = None, math.inf
    for start in _starts(equations, kind, layers, odd_only, log_energy):
        vector = np.clip(start, low + 1e-6, high - 1e-6)
        for function in (partial(residuals, floor=_SOFT), residuals):
            vector = optimize.least_squares(
                function,
                vector,
                bounds=(low, high),
                xtol=1e-15,
                ftol=1e-15,
                gtol=1e-15,
                max_nfev=_EVALUATIONS,
            ).x
        worst = float(np.abs(residuals(vector)).max())
        if worst < 0.999 * smallest:
            best, smallest = vector, worst
        if worst <= EXACT * 1e-2 or not thorough:
            break
    return network(vector if best is None else best)


def _starts(
    equations: Equations, kind: LayerKind, layers: int, odd_only: bool, log_energy: float
) -> Iterator[Array]:
    """Starting points: the linear share spread over the layers, its rest even, odd or between."""
    share = min(equations.linear / equations.diagonal, 0.98)
    tilt = math.acos(math.sqrt(max(share, 0.05)) ** (1.0 / layers))
    count = kind.angles(odd_only)
    for tilts, turns, place in _PATTERNS:
        inner = [a + place * (b - a) for a, b in kind.bounds]
        values: list[float] = []
        for number in range(layers):
            values += [*[tilt * tilts[number % 3], turns[number % 3]][:count], *inner]
        yield np.array([*values, log_energy] if equations.tangent else values)


# --- reasons ----------------------------------------------------------------------------------------------------------


def obstruction(equations: Equations, kind: LayerKind, layers: int) -> str:
    """Why layers of this kind did not meet the equations."""
    if layers == 1 and not equations.is_odd:
        forced, share = ("β̃2 = β̃3/6", "1/6") if equations.tangent else ("α̃2 = ½α̃3", "½")
        ratio = _number(equations.norm_to_trace / 2.0)
        return f"one layer forces {forced}; the target has {ratio} in place of {share}"
    if not kind.has_even and not equations.is_odd:
        return "an odd layer has M_2 = 0 and cannot make the second-order terms (norm and trace)"
    if known := kind.obstruction(equations, layers):
        return known
    if not kind.has_odd and not equations.tangent and equations.trace > equations.norm:
        has = f"α3 = {equations.trace / equations.norm:.4g}·2α2" if equations.norm else "α2 = 0"
        return f"layers without an odd part have α̃3 ≤ 2α̃2 always; the target has {has}"
    if equations.tangent and equations.trace * layers < equations.norm * (layers + 2):
        return (
            f"order 2 in the first of {layers} layers has 2β̃2/β̃3 = {layers}/{layers + 2}, later ones less; the target "
            f"has {_number(equations.norm_to_trace)}, and an odd layer that raises it costs energy"
        )
    beyond = 1.0 - (equations.linear + equations.trace) / equations.diagonal
    if beyond < 0.0 and not equations.tangent:
        return (
            f"the target has {-100 * beyond:.3g} % more energy at orders 1 and 2 than on its diagonal, which no kernel "
            "has: at this tau0 the moments of the model have too few digits"
        )
    return f"{kind.shortage} (the target has {100 * beyond:.3g} % of its diagonal beyond order 2)"


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4g}"
