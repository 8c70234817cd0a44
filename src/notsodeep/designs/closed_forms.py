"""Designs in closed form.

An odd layer sets the ratio of the second-order equations, one layer carries the rest. With order 2 in one layer only,
all four equations become explicit (docs/theory.md, section 18): the odd layer before it must have
S'/M_1² = √(norm/trace) up to a factor of the depth, which is a quadratic equation in its odd weight; the carrying layer
then has known shares at orders 1 and 2, and what is left of its energy is odd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy import optimize

from notsodeep.designs.matching_equations import Equations, LayerKind, UnitLayer, UnitNetwork

# Exact networks of so many layers of one kind.
ClosedForms = Callable[[Equations, LayerKind, int], Iterator[UnitNetwork]]
# Rounding may leave a share a little above one.
_ROUNDING = 1e-12


def hard_tanh_layer(equations: Equations, kind: LayerKind, layers: int) -> Iterator[UnitNetwork]:
    """One hard-tanh layer for an odd target, docs/theory.md (7.4): one scalar root in k = c/τ0.

    The quotient of diagonal and order 1 falls from infinity (tangent) or π/2 (conjugate) to 1 as the clip moves out.
    """
    if not equations.is_odd or equations.linear <= 0.0:
        return
    target, paths = equations.diagonal / equations.linear, 2.0 if equations.tangent else 1.0

    def layer_at(log_knot: float) -> UnitLayer:
        return kind.from_coordinates([math.exp(log_knot)], True)

    def excess(log_knot: float) -> float:
        layer = layer_at(log_knot)
        energy = 1.0 + layer.roughness if equations.tangent else 1.0
        return energy / (paths * layer.slope2) - target

    low, high = (math.log(bound) for bound in kind.bounds[0])
    if excess(low) >= 0.0 and excess(high) <= 0.0:
        layer = layer_at(optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-15))
    elif abs(excess(high)) <= 1e-11 * target:
        # Beyond the last clip the layer is linear to all digits.
        layer = layer_at(high)
    else:
        # Before the first clip it is a sign function, which has too little at order 1.
        return
    yield UnitNetwork(kind, (layer,), equations.linear / (paths * layer.slope2))


def leaky_relu_layers(equations: Equations, kind: LayerKind, layers: int) -> Iterator[UnitNetwork]:
    """One or two Leaky-ReLU layers for the conjugate kernel, docs/theory.md (7.6) with r_1 = 1.

    One layer has its linear share from the linear equation. With two, linear and (norm - trace) leave one unknown,
    x = m_1²: second·(x - A)(1 - x²) = (B - C) x, a cubic. The trace equation is what a target must satisfy by itself.
    """
    if equations.tangent:
        return
    linear, norm, trace = (equations.as_array()[1:] / equations.diagonal).tolist()
    if layers == 1:
        share = min(linear, 1.0)
        only = kind.layer(math.sqrt(share), math.sqrt(1.0 - share), 0.0, ())
        yield UnitNetwork(kind, (only,), equations.diagonal)
        return
    second = kind.basis(()).even_second
    for root in np.roots([-second, second * linear, second - (norm - trace), -second * linear]):
        share = float(root.real)
        if abs(root.imag) > 1e-7 or not linear - _ROUNDING <= share <= 1.0 + _ROUNDING or share <= 0.0:
            continue
        share = min(max(share, linear), 1.0)
        shares = (share, min(linear / share, 1.0))
        both = tuple(kind.layer(math.sqrt(x), math.sqrt(1.0 - x), 0.0, ()) for x in shares)
        yield UnitNetwork(kind, both, equations.diagonal)


def one_curved_layer(equations: Equations, kind: LayerKind, layers: int) -> Iterator[UnitNetwork]:
    """Networks with order 2 in one layer: the only one, the last of two, or the middle of three; the others are odd.

    For the tangent kernel order 2 in the middle of three layers has the DEQ's own ratio 1/3 of norm to trace without
    any help, so that hardly any energy is wasted; two layers have 1/2 or 1/5.
    """
    # Paths from the weights to the output, at orders 1 and 2.
    paths = (layers + 1, layers + 1 + min(layers, 2)) if equations.tangent else (1, 1)
    for before in _layers_before(equations, kind, layers):
        linear, tangent = (before[0].slope2, 1.0 + before[0].roughness) if before else (1.0, 1.0)
        linear2 = equations.linear / (paths[0] * linear)
        even2 = equations.trace / (paths[1] * linear**2 * kind.basis(()).even_second)
        if linear2 + even2 == 0.0:
            # Neither order 1 nor order 2, a multiple of the identity: one purely odd layer has it.
            if layers == 1:
                only = kind.layer(0.0, 0.0, 1.0, ())
                energy = equations.diagonal / (1.0 + only.roughness if equations.tangent else 1.0)
                yield UnitNetwork(kind, (only,), energy)
            return
        if layers < 3:
            for last, energy in _last_layers(equations, kind, linear2, even2, tangent):
                yield UnitNetwork(kind, (*before, last), energy)
            continue
        middle = kind.layer(math.sqrt(linear2), math.sqrt(even2), 0.0, ())
        if middle.slope2 > 0.0:
            carried = equations.linear / (paths[0] * (linear * middle.slope2))
        else:
            carried = equations.trace / (paths[1] * (middle.curvature2 * linear**2))
        after = 1.0 + middle.roughness * tangent
        for last, energy in _last_layers(equations, kind, carried, 0.0, after):
            yield UnitNetwork(kind, (*before, middle, last), energy)


def _layers_before(equations: Equations, kind: LayerKind, layers: int) -> Iterator[tuple[UnitLayer, ...]]:
    """What stands before the layer that carries order 2: nothing, or an odd layer.

    The odd layer has S' = M_1² √(norm/trace), times a factor of the depth for the tangent kernel.
    """
    if layers == 1 and kind.has_odd and equations.allow_one_layer:
        yield ()
    if layers == 1 or not kind.has_odd or (equations.trace == 0.0 and equations.norm > 0.0):
        return
    ratio2 = equations.norm_to_trace if equations.trace else 1.0
    if equations.tangent and equations.trace:
        ratio2 *= (layers + 3) / (layers - 1)
    basis = kind.basis(())
    # The root of smaller size of odd_slope·t² + odd_third·t + 1 - √ratio2.
    constant = 1.0 - math.sqrt(ratio2)
    discriminant = basis.odd_third**2 - 4.0 * basis.odd_slope * constant
    if discriminant >= 0.0:
        root = math.copysign(math.sqrt(discriminant), basis.odd_third)
        yield (kind.layer(1.0, 0.0, -2.0 * constant / (basis.odd_third + root), ()),)


def _last_layers(
    equations: Equations,
    kind: LayerKind,
    linear2: float,
    even2: float,
    tangent: float,
) -> Iterator[tuple[UnitLayer, float]]:
    """Last layers with these energies at order 1 and in E, the rest odd and of either sign; with the output's energy.

    For the conjugate kernel the output's energy is the diagonal; for the tangent kernel it follows from
    κ² = energy·(1 + E1·tangent), `tangent` the diagonal before the layer, linear in the share that is not odd.
    """
    carried, basis = linear2 + even2, kind.basis(())
    if equations.tangent:
        roughness = (linear2 + even2 * basis.even_roughness) / carried
        scaled = equations.diagonal / carried + tangent * (basis.odd_roughness - roughness)
        share = (1.0 + tangent * basis.odd_roughness) / scaled if scaled > 0.0 else math.inf
    else:
        share = carried / equations.diagonal
    if share > 1.0 + _ROUNDING:
        return
    share = min(share, 1.0)
    linear, even = (math.sqrt(share * (part / carried)) for part in (linear2, even2))
    odd = math.sqrt(1.0 - share)
    for sign in (1.0, -1.0) if odd > 0.0 else (1.0,):
        yield kind.layer(linear, even, sign * odd, ()), carried / share
