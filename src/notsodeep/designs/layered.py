"""Families of networks whose layers are all of one kind: closed forms first, then least squares."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from notsodeep.designs.closed_forms import ClosedForms, one_curved_layer
from notsodeep.designs.families import NetworkFamily, Solution, Task
from notsodeep.designs.learning_rates import (
    closest,
    match_multipliers,
    matched_together,
    tangent_coefficients,
)
from notsodeep.designs.least_squares import best_network
from notsodeep.designs.matching_equations import EXACT, Candidate, Equations, LayerKind
from notsodeep.designs.norm_drift import least_drift
from notsodeep.designs.result import Tangent
from notsodeep.equivalents.coefficients import coefficients

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
    matches_both = True

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


@dataclass(frozen=True, kw_only=True)
class _LayeredSolution(Solution):
    """The best network of layers of one kind, with the same network without units."""

    candidate: Candidate

    def match_tangent(self, task: Task, alternatives: Sequence[NetworkFamily]) -> Solution:
        """Of all designs that are exact for the conjugate kernel, the one whose tangent kernel comes closest."""
        target = coefficients(task.model, task.tau0, "ntk")
        equations = Equations.of(target)
        best, family = match_multipliers(self.candidate, equations), self.family
        for other in alternatives:
            matched = closest(other.exact_candidates(task.equations), equations)
            # A deeper network must earn its layers.
            if matched is not None and matched.residual < 0.5 * best.residual - EXACT:
                best, family = matched, other
        if self.exact and best.residual > EXACT:
            best = matched_together(best, task.equations, equations)
        found = self if best.candidate is self.candidate else _solution(task, family, best.candidate)
        reached = tangent_coefficients(found.network, task.tau0, best.multipliers)
        return replace(found, tangent=Tangent(best.multipliers, target, reached))


def _solution(
    task: Task, family: NetworkFamily, candidate: Candidate, drift: float | None = None
) -> _LayeredSolution:
    network, residual = candidate.network(task.tau0), task.equations.largest_residual(candidate)
    if drift is None:
        drift = task.response.drift(network)
    reason = obstruction(task.equations, candidate.kind, len(candidate.layers))
    return _LayeredSolution(family, network, residual, drift, reason, candidate=candidate)


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
