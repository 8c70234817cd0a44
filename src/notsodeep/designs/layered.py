"""Families of networks whose layers are all of one kind, and the kinds: closed forms first, then least squares.

A kind of layer has an even and an odd function (`LayerKind`). To add one: a class here or in a file of its own, and a
line in `FAMILIES` of `notsodeep.designs.designer`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from notsodeep.designs.closed_forms import ClosedForms, one_curved_layer
from notsodeep.designs.families import NetworkFamily, Solution, Task
from notsodeep.designs.least_squares import best_network, least_drift
from notsodeep.designs.matching_equations import (
    EXACT,
    Basis,
    Candidate,
    Equations,
    Layer,
    LayerKind,
    ShapeParameters,
)
from notsodeep.gaussian.activations import Activation, activation

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


class LeakyReLU(LayerKind):
    """max(a x, b x), docs/theory.md (7.5): no odd part."""

    name = "leaky_relu"
    has_odd = False
    has_freedom = False
    shortage = "three unknowns for four equations: only a target with the energies of a kink meets the fourth"

    def basis(self, shape: ShapeParameters) -> Basis:
        return _hinges(0.0).basis

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        ratio, bend = output_scale / input_scale, layer.even / _hinges(0.0).even_size
        return activation("leaky_relu", a=ratio * (layer.linear + bend), b=ratio * (layer.linear - bend))


class HardTanh(LayerKind):
    """a · clip(x, -c, c), docs/theory.md (2.8): one shape parameter k = c/τ0, no even part, flat outside."""

    name = "hard_tanh"
    bounds = ((1e-3, 8.0),)
    has_even = False
    has_freedom = False

    def basis(self, shape: ShapeParameters) -> Basis:
        return _hinges(shape[0]).basis

    def angles(self, odd_only: bool) -> int:
        return 0

    def from_coordinates(self, values: Sequence[float], odd_only: bool) -> Layer:
        parts = _hinges(values[0])
        # A slope of zero outside fixes the weights.
        return self.layer(parts.odd_linear, 0.0, parts.odd_size, (values[0],))

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        slope = (output_scale / input_scale) * layer.linear / _hinges(layer.shape[0]).odd_linear
        return activation("hard_tanh", a=slope, c=layer.shape[0] * input_scale)

    def obstruction(self, equations: Equations, layers: int) -> str:
        if layers == 1 and equations.linear < 2.0 / math.pi * equations.diagonal:
            return "a hard-tanh layer keeps at least 2/π of its energy at order 1; the target has less"
        return ""


# --- polynomials --------------------------------------------------------------------------------------------------


class Polynomial(LayerKind):
    """Polynomials of degree 3: E and O are He₂/√2 and He₃/√6. They grow without bound."""

    name = "polynomial"

    def basis(self, shape: ShapeParameters) -> Basis:
        return Basis(1.0, 2.0, 2.0, SQRT6, 3.0, 3.0)

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        powers = [0.0, layer.linear - SQRT3 * layer.odd / SQRT2, layer.even / SQRT2, layer.odd / SQRT6]
        kept = powers if self.has_odd else powers[:3]
        scaled = [output_scale * value / input_scale**power for power, value in enumerate(kept)]
        return activation("polynomial", coefficients=scaled)


class Quadratic(Polynomial):
    """Polynomials of degree 2 (ICLR, Corollary 1)."""

    name = "quadratic"
    has_odd = False
    shortage = "a quadratic layer has no energy beyond order 2"


# --- families ---------------------------------------------------------------------------------------------------------

# Closed forms looked at before the best of them is taken.
_LOOK = 96


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

    def worth_trying(self, task: Task) -> bool:
        """One layer is, where docs/theory.md (7.3) allows one; more are always."""
        return self.layers > 1 or task.equations.allow_one_layer

    def exact_candidates(self, equations: Equations) -> list[Candidate]:
        """The first closed forms that satisfy all equations."""
        found = itertools.islice(self.closed_forms(equations, self.kind, self.layers), _LOOK)
        return [one for one in found if equations.largest_residual(one) <= EXACT / 10.0]

    def solve(self, task: Task, *, thorough: bool) -> Solution:
        """The best network; what freedom an exact one has is spent on the norms of the samples."""
        equations = task.equations
        candidates = self.exact_candidates(equations)
        if not candidates:
            candidates = [best_network(equations, self.kind, self.layers, thorough=thorough)]
        if equations.largest_residual(candidates[0]) <= EXACT:
            return _solution(task, self, *least_drift(equations, candidates, task.response))
        return _solution(task, self, candidates[0])


def _solution(
    task: Task, family: NetworkFamily, candidate: Candidate, drift: float | None = None
) -> Solution:
    network, residual = candidate.network(task.tau0), task.equations.largest_residual(candidate)
    if drift is None:
        drift = task.response.drift(network)
    network = task.with_constant(network)
    reason = obstruction(task.equations, candidate.kind, len(candidate.layers))
    return Solution(family, network, residual, drift, reason)


def obstruction(equations: Equations, kind: LayerKind, layers: int) -> str:
    """What stands in the way of layers of this kind that did not meet the equations."""
    if layers == 1 and not equations.is_odd:
        forced, share = ("β̃2 = β̃3/6", "1/6") if equations.tangent else ("α̃2 = ½α̃3", "½")
        found = _number(equations.norm_to_trace / 2.0)
        return f"one layer forces {forced}; the target has {found} in place of {share}"
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
