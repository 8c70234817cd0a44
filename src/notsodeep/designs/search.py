"""From a goal to a network: closed forms first, then least squares, family after family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from notsodeep.designs.families import LAST, Chain, Family
from notsodeep.designs.fit import Effort, least_squares, residuals
from notsodeep.designs.follow import Response, best_follower
from notsodeep.designs.goal import Goal
from notsodeep.designs.parts import EXACT, Attempt, relative_residuals
from notsodeep.designs.reduce import Candidate
from notsodeep.designs.verdict import obstruction
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import Explicit


@dataclass(frozen=True)
class Found:
    """The best of a family: its candidate, its residual, and how far it drifts with the norms."""

    chain: Chain
    candidate: Candidate
    residual: float
    drift: float

    @property
    def exact(self) -> bool:
        """Whether all equations hold."""
        return self.residual <= EXACT


def solve(goal: Goal, chain: Chain, effort: Effort, response: Response) -> Found:
    """The best design of one family; what freedom an exact one has is spent on following the norms."""
    candidates = exact_candidates(goal, chain)
    if not candidates:
        candidates = [least_squares(goal, chain.units, effort)]
    if worst(goal, candidates[0]) <= EXACT:
        candidate, drift = best_follower(goal, chain.units, candidates, response)
    else:
        candidate, drift = candidates[0], response.drift(candidates[0])
    return Found(chain, candidate, worst(goal, candidate), drift)


def exact_candidates(goal: Goal, chain: Chain) -> list[Candidate]:
    """The closed-form designs of a family that satisfy all equations."""
    return [found for found in chain.closed_forms(goal) if worst(goal, found) <= EXACT / 10.0]


def worst(goal: Goal, candidate: Candidate) -> float:
    """The largest relative residual."""
    return float(np.abs(residuals(goal, candidate)).max())


def first_exact(
    goal: Goal, chains: Sequence[Chain], effort: Effort, response: Response
) -> tuple[Found, list[Attempt]]:
    """The first family that is exact and follows the norms, or the best there is, with the attempts before it.

    Where an exact family drifts too much, the others of the same depth are tried as well; where all of them do,
    one layer more.
    """
    attempts: list[Attempt] = []
    exact: Found | None = None
    inexact: Found | None = None
    for chain in chains:
        if exact is not None and _settled(exact, chain, response):
            break
        found = solve(goal, chain, effort, response)
        if not found.exact:
            attempts.append(Attempt(chain.label, found.residual, obstruction(goal, chain)))
            inexact = found if inexact is None or found.residual < inexact.residual else inexact
        elif exact is None or found.drift < _beaten_by(exact, chain):
            exact = found
    best = exact or inexact
    if best is None:
        raise InputError("There is no family to try.")
    return best, [entry for entry in attempts if entry.family != best.chain.label]


def _beaten_by(exact: Found, challenger: Chain) -> float:
    """The drift below which another family replaces an exact one: a deeper network must earn its layer."""
    return exact.drift * (1.0 if challenger.layers == exact.chain.layers else 0.7)


def _settled(exact: Found, following: Chain, response: Response) -> bool:
    """Whether an exact design is good enough not to try the following family; one layer is never given up."""
    if following.layers > exact.chain.layers:
        return exact.chain.layers == 1 or following.name in LAST or exact.drift <= response.tolerable
    return following.name in LAST or exact.drift <= response.allowed


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
