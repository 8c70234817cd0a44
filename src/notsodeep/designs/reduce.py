"""Designs in closed form: an odd layer sets the ratio of the second-order equations, one layer carries the rest.

With order 2 in one layer only, all four equations become explicit (docs/designs.md, "Closed forms"): the odd layer
before it must have S'/M_1² = √(norm/trace) up to a factor of the depth, which is a quadratic equation in its odd
weight; the carrying layer then has known shares at orders 1 and 2, and what is left of its energy is odd.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from notsodeep.designs.goal import Goal
from notsodeep.designs.units import HardTanh, Layer, LeakyReLU, Unit

# Rounding may leave a share a little above one.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Candidate:
    """Layers at unit scale, the units that make them, and the energy of the output."""

    layers: tuple[Layer, ...]
    units: tuple[Unit, ...]
    energy: float


@dataclass(frozen=True)
class _Prefix:
    """What the layers before the carrying one contribute: share at order 1 and the tangent's diagonal."""

    layers: tuple[Layer, ...]
    linear: float
    tangent_diagonal: float


def hard_tanh_layer(goal: Goal, unit: HardTanh) -> Candidate | None:
    """One hard-tanh layer for an odd target, docs/theory.md (7.4): one scalar root in k = c/τ0.

    Both quotients fall from infinity (tangent) or π/2 (conjugate) to 1 as the clip moves out.
    """
    if not goal.is_odd or goal.linear <= 0.0:
        return None
    wanted = goal.diagonal / goal.linear

    def excess(log_knot: float) -> float:
        return _quotient(unit.at(math.exp(log_knot)), goal) - wanted

    low, high = (math.log(bound) for bound in unit.bounds[0])
    if excess(low) < 0.0 or excess(high) > 0.0:
        # Beyond the last clip the layer is linear to all digits; before the first it is a sign function.
        if abs(excess(high)) > 1e-11 * wanted:
            return None
        return _hard_tanh(goal, unit, math.exp(high))
    return _hard_tanh(goal, unit, math.exp(optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-15)))


def _quotient(layer: Layer, goal: Goal) -> float:
    if goal.tangent:
        return (1.0 + layer.roughness) / (2.0 * layer.slope2)
    return 1.0 / layer.slope2


def _hard_tanh(goal: Goal, unit: HardTanh, knot: float) -> Candidate:
    layer = unit.at(knot)
    energy = goal.linear / ((2.0 if goal.tangent else 1.0) * layer.slope2)
    return Candidate((layer,), (unit,), energy)


def one_layer(goal: Goal, unit: Unit) -> Iterator[Candidate]:
    """One layer of a family with an odd part, where docs/theory.md (7.3) allows one."""
    if not goal.one_layer:
        return
    for knots in unit.grid:
        for layer, energy in _carrier(goal, unit, knots, _Prefix((), 1.0, 1.0), depth=1):
            yield Candidate((layer,), (unit,), energy)


def two_layers(goal: Goal, unit: Unit) -> Iterator[Candidate]:
    """An odd layer, then the carrying one, over the grid of shape parameters."""
    for first_knots, knots in itertools.product(unit.grid, unit.grid):
        first = _ratio_layer(goal, unit, first_knots, depth=2, position=2)
        if first is None:
            continue
        prefix = _Prefix((first,), first.slope2, 1.0 + first.roughness)
        for layer, energy in _carrier(goal, unit, knots, prefix, depth=2):
            yield Candidate((first, layer), (unit, unit), energy)


def three_layers(goal: Goal, unit: Unit) -> Iterator[Candidate]:
    """An odd layer, the one that carries order 2, and an odd layer for the energy that is left.

    For the tangent kernel order 2 in the middle has the DEQ's own ratio 1/3 of norm to trace without any help, so
    that hardly any energy is wasted; two layers have 1/2 or 1/5.
    """
    for first_knots, knots in itertools.product(unit.grid, unit.grid):
        first = _ratio_layer(goal, unit, first_knots, depth=3, position=2)
        if first is None:
            continue
        middle = _middle(goal, unit, knots, first.slope2)
        if middle is None:
            return
        roughness = 1.0 + middle.roughness * (1.0 + first.roughness)
        linear = first.slope2 * middle.slope2
        for last in unit.grid:
            prefix = _Prefix((first, middle), linear, roughness)
            for layer, energy in _odd_carrier(goal, unit, last, prefix, middle.curvature2 * first.slope2**2):
                yield Candidate((first, middle, layer), (unit, unit, unit), energy)


def _ratio_layer(
    goal: Goal, unit: Unit, knots: tuple[float, ...], *, depth: int, position: int
) -> Layer | None:
    """The odd layer with S' = M_1² √(norm/trace) (times the depth's own factor for the tangent kernel)."""
    if goal.trace == 0.0:
        return unit.layer(1.0, 0.0, 0.0, knots) if goal.norm == 0.0 else None
    ratio2 = goal.norm_to_trace
    if goal.tangent:
        ratio2 *= (depth + 1 + position) / (depth + 1 - position)
    basis = unit.basis(knots)
    odd = _smaller_root(basis.odd_slope, basis.odd_third, 1.0 - math.sqrt(ratio2))
    return None if odd is None else unit.layer(1.0, 0.0, odd, knots)


def _smaller_root(square: float, linear: float, constant: float) -> float | None:
    """The root of smaller size of square·t² + linear·t + constant, or None."""
    discriminant = linear**2 - 4.0 * square * constant
    if discriminant < 0.0:
        return None
    return -2.0 * constant / (linear + math.copysign(math.sqrt(discriminant), linear))


def _carrier(
    goal: Goal, unit: Unit, knots: tuple[float, ...], prefix: _Prefix, *, depth: int
) -> Iterator[tuple[Layer, float]]:
    """Last layers with the wanted shares at orders 1 and 2, the rest of the energy odd, of either sign."""
    basis = unit.basis(knots)
    paths = (depth + 1, 2 * depth + 1) if goal.tangent else (1, 1)
    linear2 = goal.linear / (paths[0] * prefix.linear)
    even2 = goal.trace / (paths[1] * prefix.linear**2 * basis.even_second)
    carried = linear2 + even2
    if carried <= 0.0:
        return
    roughness = (linear2 + even2 * basis.even_roughness) / carried
    yield from _filled(
        goal, unit, knots, (linear2 / carried, even2 / carried), carried, roughness, prefix.tangent_diagonal
    )


def _middle(goal: Goal, unit: Unit, knots: tuple[float, ...], linear: float) -> Layer | None:
    """The layer that carries order 2 between two odd ones: no odd part of its own.

    None where the target has neither order 1 nor order 2, a multiple of the identity: nothing is to be carried.
    """
    paths = (4.0, 6.0) if goal.tangent else (1.0, 1.0)
    linear2 = goal.linear / (paths[0] * linear)
    even2 = goal.trace / (paths[1] * linear**2 * unit.basis(knots).even_second)
    if linear2 + even2 == 0.0:
        return None
    return unit.layer(math.sqrt(linear2), math.sqrt(even2), 0.0, knots)


def _odd_carrier(
    goal: Goal, unit: Unit, knots: tuple[float, ...], prefix: _Prefix, second: float
) -> Iterator[tuple[Layer, float]]:
    if prefix.linear > 0.0:
        carried = goal.linear / ((4.0 if goal.tangent else 1.0) * prefix.linear)
    else:
        carried = goal.trace / ((6.0 if goal.tangent else 1.0) * second)
    yield from _filled(goal, unit, knots, (1.0, 0.0), carried, 1.0, prefix.tangent_diagonal)


def _filled(
    goal: Goal,
    unit: Unit,
    knots: tuple[float, ...],
    direction: tuple[float, float],
    carried: float,
    roughness: float,
    before: float,
) -> Iterator[tuple[Layer, float]]:
    """Layers with `carried` of the output energy in the even-linear direction and the rest in the odd part.

    For the conjugate kernel the output energy is the diagonal; for the tangent kernel it follows from
    κ² = energy·(1 + E1·before), linear in the share once `carried` is fixed.
    """
    if goal.tangent:
        odd_rate = unit.basis(knots).odd_roughness
        wanted = goal.diagonal / carried + before * (odd_rate - roughness)
        share = (1.0 + before * odd_rate) / wanted if wanted > 0.0 else math.inf
    else:
        share = carried / goal.diagonal
    if share > 1.0 + _ROUNDING:
        return
    share = min(share, 1.0)
    linear, even = (math.sqrt(share * part) for part in direction)
    odd = math.sqrt(1.0 - share)
    if odd > 0.0 and not unit.has_odd:
        return
    for sign in (1.0, -1.0) if odd > 0.0 else (1.0,):
        yield unit.layer(linear, even, sign * odd, knots), carried / share


def leaky_relu_layers(goal: Goal, unit: LeakyReLU) -> Iterator[Candidate]:
    """Two Leaky-ReLU layers for the conjugate kernel, docs/theory.md (7.6) with r_1 = 1.

    Linear and (norm - trace) leave one unknown, x = m_1²: second·(x - A)(1 - x²) = (B - C) x, a cubic; the trace
    equation is what a target must satisfy by itself.
    """
    if goal.tangent:
        return
    linear, norm, trace = (value / goal.diagonal for value in (goal.linear, goal.norm, goal.trace))
    second = unit.basis(()).even_second
    gap = norm - trace
    polynomial = [-second, second * linear, second - gap, -second * linear]
    for root in np.roots(polynomial):
        share = float(root.real)
        if abs(root.imag) > 1e-7 or not linear - _ROUNDING <= share <= 1.0 + _ROUNDING or share <= 0.0:
            continue
        share = min(max(share, linear), 1.0)
        shares = (share, min(linear / share, 1.0))
        layers = tuple(unit.layer(math.sqrt(x), math.sqrt(1.0 - x), 0.0, ()) for x in shares)
        yield Candidate(layers, (unit, unit), goal.diagonal)
