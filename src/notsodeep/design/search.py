"""From a goal to a network: closed forms first, then least squares, family after family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from notsodeep.design.families import Chain, Family
from notsodeep.design.fit import Effort, least_squares, residuals
from notsodeep.design.goal import Goal
from notsodeep.design.reduce import Candidate
from notsodeep.design.result import EXACT, Attempt, relative_residuals
from notsodeep.design.verdict import obstruction
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import Explicit


@dataclass(frozen=True)
class Found:
    """The best of a family: its candidate, residual, and whether a closed form gave it."""

    chain: Chain
    candidate: Candidate
    residual: float

    @property
    def exact(self) -> bool:
        """Whether all equations hold."""
        return self.residual <= EXACT


def solve(goal: Goal, chain: Chain, effort: Effort) -> Found:
    """The best design of one family."""
    exact = exact_candidates(goal, chain)
    candidate = exact[0] if exact else least_squares(goal, chain.units, effort)
    return Found(chain, candidate, worst(goal, candidate))


def exact_candidates(goal: Goal, chain: Chain) -> list[Candidate]:
    """The closed-form designs of a family that satisfy all equations."""
    return [found for found in chain.closed_forms(goal) if worst(goal, found) <= EXACT / 10.0]


def worst(goal: Goal, candidate: Candidate) -> float:
    """The largest relative residual."""
    return float(np.abs(residuals(goal, candidate)).max())


def first_exact(goal: Goal, chains: Sequence[Chain], effort: Effort) -> tuple[Found, list[Attempt]]:
    """The first family that is exact, or the best of all, with the attempts before it."""
    attempts: list[Attempt] = []
    best: Found | None = None
    for chain in chains:
        found = solve(goal, chain, effort)
        if found.exact:
            return found, attempts
        attempts.append(Attempt(chain.label, found.residual, obstruction(goal, chain)))
        if best is None or found.residual < best.residual:
            best = found
    if best is None:
        raise InputError("There is no family to try.")
    return best, [entry for entry in attempts if entry.family != best.chain.label]


def network_of(candidate: Candidate, tau0: float) -> Explicit:
    """The candidate at the scale of the data; every hidden layer keeps τ̃ = τ0, docs/theory.md (7.7)."""
    outputs = [tau0] * (len(candidate.layers) - 1) + [math.sqrt(candidate.energy)]
    parts = zip(candidate.units, candidate.layers, outputs, strict=True)
    return Explicit([unit.activation(layer, tau0, output) for unit, layer, output in parts]).centred(tau0)


def fit_family(family: Family, target: Coefficients) -> Explicit:
    """The best network of a user's family: bounded least squares from its starting points."""
    low, high = np.asarray(family.bounds, dtype=float).T

    def network(parameters: Sequence[float]) -> Explicit:
        return Explicit(_built(family, parameters)).centred(target.tau0)

    def misfit(parameters: Sequence[float]) -> list[float]:
        found = coefficients(network(parameters), target.tau0, target.kernel)
        return [math.copysign(value, sign) for value, sign in _signed(target, found)]

    best: tuple[float, list[float]] | None = None
    for start in family.starting_points():
        inside = np.clip(start, low + 1e-9 * (high - low), high - 1e-9 * (high - low))
        result = optimize.least_squares(
            misfit, inside, bounds=(low, high), xtol=1e-15, ftol=1e-15, gtol=1e-15
        )
        size = float(np.abs(result.fun).max())
        if best is None or size < best[0]:
            best = (size, list(result.x))
        if size <= EXACT * 1e-2:
            break
    if best is None:
        raise InputError(f"Family {family.name!r} has no starting point.")
    return network(best[1])


def _signed(target: Coefficients, found: Coefficients) -> list[tuple[float, float]]:
    sizes = relative_residuals(target, found).values()
    signs = found.as_array() - target.as_array()
    return list(zip(sizes, signs.tolist(), strict=True))


def _built(family: Family, parameters: Sequence[float]) -> list[Activation]:
    try:
        layers = list(family.build([float(value) for value in parameters]))
    except (InputError, ConvergenceError):
        raise
    except Exception as error:
        raise InputError(f"Family {family.name!r} failed at {list(parameters)}: {error!r}.") from error
    if not layers or not all(isinstance(layer, Activation) for layer in layers):
        raise InputError(f"Family {family.name!r} must return a list of Activations, one for each layer.")
    return layers
