"""The families of explicit networks that a design may come from, and the order in which "auto" tries them.

Few layers first; among networks of one depth the cheaper activation first. Cubic layers come last whatever their
depth: they always match, but grow without bound and are no network to train.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from notsodeep.designs.goal import Goal
from notsodeep.designs.reduce import (
    Candidate,
    hard_tanh_layer,
    leaky_relu_layers,
    one_layer,
    three_layers,
    two_layers,
)
from notsodeep.designs.units import Cubic, HardTanh, LeakyReLU, Quadratic, SmoothSum, TwoKnots, Unit
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation

# Closed forms looked at before the best of them is taken.
_LOOK = 96


@dataclass(frozen=True)
class Chain:
    """A built-in family: a name, the units of its layers, and the closed forms that it has."""

    name: str
    units: tuple[Unit, ...]

    @property
    def layers(self) -> int:
        """Number of hidden layers."""
        return len(self.units)

    @property
    def label(self) -> str:
        """The family in words, e.g. "2 × piecewise_linear"."""
        return f"{self.layers} × {self.name}"

    def closed_forms(self, goal: Goal) -> list[Candidate]:
        """Exact designs from the reductions of `reduce`; none where these do not apply."""
        return list(itertools.islice(self._reductions(goal), _LOOK))

    def _reductions(self, goal: Goal) -> Iterator[Candidate]:
        unit = self.units[0]
        if isinstance(unit, HardTanh):
            found = hard_tanh_layer(goal, unit)
            return iter(() if found is None else (found,))
        if isinstance(unit, LeakyReLU):
            return leaky_relu_layers(goal, unit)
        if not unit.has_odd:
            return iter(())
        return (one_layer, two_layers, three_layers)[self.layers - 1](goal, unit)


@dataclass(frozen=True)
class Family:
    """A family of one's own: a function from parameters to the activations of the layers, with bounds.

    Args:
        name: what to call it.
        build: parameters (as many as bounds) → activations, one for each layer; centring is done for them.
        bounds: lower and upper bound of each parameter, finite.
        starts: starting points; the centre of the bounds and points around it if none are given.
    """

    name: str
    build: Callable[[Sequence[float]], Sequence[Activation]]
    bounds: Sequence[tuple[float, float]]
    starts: Sequence[Sequence[float]] = field(default=())

    def __post_init__(self) -> None:
        ranges = self._numbers(self.bounds)
        if ranges.ndim != 2 or ranges.shape[1] != 2 or not len(ranges):
            raise InputError(f"Family {self.name!r} needs a pair (low, high) for each parameter.")
        if not np.all(np.isfinite(ranges)) or np.any(ranges[:, 0] >= ranges[:, 1]):
            raise InputError(f"Family {self.name!r}: bounds must be finite, with low < high.")
        starts = self._numbers(self.starts) if len(self.starts) else np.empty((0, len(ranges)))
        if starts.ndim != 2 or starts.shape[1] != len(ranges) or not np.all(np.isfinite(starts)):
            raise InputError(
                f"Family {self.name!r} has {len(ranges)} parameters: each of its starts must be a list of as many "
                f"finite numbers; got {list(self.starts)}."
            )

    def _numbers(self, values: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        try:
            return np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            raise InputError(
                f"Family {self.name!r}: bounds and starts must be numbers, not {values!r}."
            ) from None

    def starting_points(self, count: int = 8) -> list[list[float]]:
        """The given starts, or points of a Halton-like sequence inside the bounds: the same ones every time."""
        if self.starts:
            return [list(map(float, start)) for start in self.starts]
        low, high = np.asarray(self.bounds, dtype=float).T
        steps = np.sqrt(np.array(_PRIMES[: len(low)] if len(low) <= len(_PRIMES) else range(2, len(low) + 2)))
        turns = (0.5 + np.arange(count)[:, None] * steps) % 1.0
        return [list(low + turn * (high - low)) for turn in turns]


_PRIMES = (2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0, 29.0)


def _chains(unit: Unit, *depths: int) -> tuple[Chain, ...]:
    return tuple(Chain(unit.name, (unit,) * depth) for depth in depths)


FAMILIES: dict[str, tuple[Chain, ...]] = {
    "hard_tanh": _chains(HardTanh(), 1),
    "leaky_relu": _chains(LeakyReLU(), 2),
    "piecewise_linear": _chains(TwoKnots(), 1, 2, 3),
    "smooth": _chains(SmoothSum(), 1, 2, 3),
    "cubic": _chains(Cubic(), 1, 2, 3),
    "quadratic": _chains(Quadratic(), 2),
}
# Tried last, or never: polynomials grow without bound.
LAST = ("cubic", "quadratic")


def auto_order(goal: Goal) -> list[Chain]:
    """The families that "auto" tries, one after the other, until one is exact."""
    practical = [chain for name, chains in FAMILIES.items() if name not in LAST for chain in chains]
    ordered = sorted(practical, key=lambda chain: chain.layers)
    ordered += FAMILIES["cubic"]
    return [chain for chain in ordered if chain.layers > 1 or goal.one_layer]


def named(name: str, layers: int | None) -> list[Chain]:
    """The chains of one family, of the depth asked for or from few layers to many."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise InputError(
            f"There is no family {name!r}. Choose 'auto', one of {', '.join(sorted(FAMILIES))}, or give a Family."
        )
    chains = [chain for chain in FAMILIES[name] if layers in (None, chain.layers)]
    if not chains:
        depths = ", ".join(str(chain.layers) for chain in FAMILIES[name])
        raise InputError(f"Family {name!r} comes with {depths} layers, not {layers}.")
    return chains
