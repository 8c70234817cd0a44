"""Why a design is exact, or why it cannot be: the words behind `Design.explain`."""

from __future__ import annotations

import math
from typing import Protocol

from notsodeep.designs.families import Chain
from notsodeep.designs.goal import Goal
from notsodeep.designs.parts import EXACT, Attempt, Polish, Tangent
from notsodeep.models import DEQ, Explicit

_NAMES = {
    "diagonal": "the diagonal",
    "linear": "the coefficient of XXᵀ",
    "norm": "the coefficient of the norms",
    "trace": "the coefficient of T",
}


KERNEL_WORDS = {
    "ck": "conjugate kernel",
    "ntk": "tangent kernel",
    "ntk_paper": "papers' tangent kernel",
    "both": "two kernels",
}


class Explainable(Protocol):
    """What the words need to know of a design."""

    @property
    def family(self) -> str:
        """The family in words."""

    @property
    def kernel(self) -> str:
        """Which kernel."""

    @property
    def model(self) -> DEQ | Explicit | None:
        """What it stands for."""

    @property
    def exact(self) -> bool:
        """Whether all equations hold."""

    @property
    def residual(self) -> float:
        """The largest relative residual."""

    @property
    def residuals(self) -> dict[str, float]:
        """Each of them."""

    @property
    def tried(self) -> tuple[Attempt, ...]:
        """Families tried before."""

    @property
    def tangent(self) -> Tangent | None:
        """The tangent side, for both kernels."""

    @property
    def polish(self) -> Polish | None:
        """What polishing did."""

    @property
    def reason(self) -> str:
        """Why it is not exact."""


def obstruction(goal: Goal, chain: Chain) -> str:
    """What stands in the way of a family that did not match."""
    unit = chain.units[0]
    if chain.layers == 1 and not goal.is_odd:
        return _one_layer(goal)
    if not unit.has_even and not goal.is_odd:
        return "an odd layer has M_2 = 0 and cannot make the second-order terms (norm and trace)"
    if chain.layers == 1 and chain.name == "hard_tanh" and goal.linear < 2.0 / math.pi * goal.diagonal:
        return "a hard-tanh layer keeps at least 2/π of its energy at order 1; the target has less"
    if not unit.has_odd and not goal.tangent and goal.trace > goal.norm:
        return (
            f"layers without an odd part have α̃3 ≤ 2α̃2 always; the target has α3 = {goal.trace / goal.norm:.4g}·2α2"
            if goal.norm
            else "layers without an odd part have α̃3 ≤ 2α̃2 always; the target has α2 = 0"
        )
    if goal.tangent and goal.trace * chain.layers < goal.norm * (chain.layers + 2):
        return (
            f"order 2 in the first of {chain.layers} layers has 2β̃2/β̃3 = {chain.layers}/{chain.layers + 2}, later ones "
            f"less; the target has {_number(goal.norm_to_trace)}, and an odd layer that raises it costs energy"
        )
    return _energy(goal, chain)


def _one_layer(goal: Goal) -> str:
    found = _number(goal.norm_to_trace / 2.0)
    if goal.tangent:
        return f"one layer forces β̃2 = β̃3/6; the target has {found} in place of 1/6"
    return f"one layer forces α̃2 = ½α̃3; the target has {found} in place of ½"


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4g}"


def _energy(goal: Goal, chain: Chain) -> str:
    beyond = 1.0 - (goal.linear + goal.trace) / goal.diagonal
    if beyond < 0.0 and not goal.tangent:
        return (
            f"the target has {-100 * beyond:.3g} % more energy at orders 1 and 2 than on its diagonal, which no kernel "
            "has: at this tau0 the moments of the model have too few digits"
        )
    room = f"the target has {100 * beyond:.3g} % of its diagonal beyond order 2"
    if chain.name == "leaky_relu":
        return f"three unknowns for four equations: only a target with the energies of a kink meets the fourth ({room})"
    if chain.name == "quadratic":
        return f"a quadratic layer has no energy beyond order 2 ({room})"
    if chain.name == "piecewise_linear":
        return f"kinks put more of the energy beyond order 2 than there is room for ({room})"
    return f"no solution was found from any starting point ({room})"


def explain(design: Explainable) -> str:
    """The verdict in words: exact or not, which equation is off, why, and what to try."""
    parts = [_headline(design)]
    if not design.exact:
        parts += [_worst(design), _reason(design), _remedy(design)]
    if design.tried:
        parts.append("Tried before: " + "; ".join(_attempt(entry) for entry in design.tried) + ".")
    if design.tangent is not None:
        parts.append(_both(design))
    if design.polish is not None:
        parts.append(f"It was then {design.polish}; the scalars are off by what the table shows.")
    return "\n".join(part for part in parts if part)


def _headline(design: Explainable) -> str:
    what = (
        f"The network {design.family} for the {KERNEL_WORDS[design.kernel]} of {design.model or 'the model'}"
    )
    if design.exact:
        return f"{what} is exact: every scalar agrees, the worst to {design.residual:.1e}."
    if design.tangent is not None and max(design.residuals.values()) <= EXACT:
        return f"{what} has the conjugate kernel exactly and the tangent kernel approximately."
    return f"{what} is the best approximation of this family, not exact."


def _worst(design: Explainable) -> str:
    off = {name: value for name, value in design.residuals.items() if value > EXACT}
    if not off:
        return ""
    words = ", ".join(f"{_NAMES[name]} by {100 * value:.3g} %" for name, value in off.items())
    return f"Equations that are not met: {words}."


def _reason(design: Explainable) -> str:
    return f"Why: {design.reason}." if design.reason else ""


def _remedy(design: Explainable) -> str:
    if design.tangent is not None or design.polish is not None:
        return ""
    if design.kernel == "ntk_paper":
        return (
            "What to do: match the true tangent kernel, kernel='ntk'; the papers' one is that of no network."
        )
    return "What to do: family='auto' takes the simplest family that matches; 'smooth' and 'cubic' reach furthest."


def _attempt(entry: Attempt) -> str:
    return f"{entry.family} (off by {entry.residual:.1e}: {entry.reason})"


def _both(design: Explainable) -> str:
    if design.tangent is None:
        return ""
    off = design.tangent.residual
    if off <= EXACT:
        return "With the multipliers the tangent kernel agrees as well."
    worst = max(
        design.tangent.residuals, key=lambda name: design.tangent.residuals[name] if design.tangent else 0.0
    )
    return (
        f"With the multipliers the tangent kernel is off by {100 * off:.3g} % in {_NAMES[worst]}: the second-order "
        "equations ask for different sums of the same rates (docs/matching_both.md)."
    )
