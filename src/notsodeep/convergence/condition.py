"""The condition under which gradient descent provably trains a DEQ to zero loss: docs/theory.md (8.16)–(8.21).

The induction behind it is short, and shows what each inequality is for. While ||W|| ≤ ρ̄_w, ||U|| ≤ ρ̄_u, ||a|| ≤ ρ̄_a:

- every gradient obeys ||∇_θ Φ|| ≤ c_θ ||X||_F ||r|| with r = ŷ - y; summed over a loss that falls like
  (1 - ηλ_0/2)^τ, no parameter moves further than 4 c_θ ||X||_F ||r(0)||/λ_0 ≤ δ: docs/theory.md (8.17);
- ||Z(τ) - Z(0)||_F ≤ ρ̄_a⁻¹ (c_w ||ΔW|| + c_u ||ΔU||) ||X||_F ≤ (1 - 1/√2) √λ_0: docs/theory.md (8.18), so λ_τ ≥ λ_0/2;
- one step gives docs/theory.md (8.27), which is 1 - ηλ_0/2 or less for steps within docs/theory.md (8.28).

The only assumption on φ' is values in [0, 1]: kinks do no harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

# The formulas below take some thirty operations; what they give is moved to the safe side by this much.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class Start:
    """The numbers of a network at initialisation that the condition needs, each rounded to its safe side."""

    least: float  # λ_0 = λ_min(Zᵀ Z), from below; the other numbers from above
    recurrent: float  # ||W(0)||₂
    inputs: float  # ||U(0)||₂
    readout: float  # ||a(0)||
    data: float  # ||X||_F
    residual: float  # ||ŷ(0) - y||


@dataclass(frozen=True)
class Constants:
    """The numbers of docs/theory.md (8.16)."""

    rho_w: float
    rho_u: float
    rho_a: float
    c_w: float
    c_u: float
    c_a: float

    @classmethod
    def of(cls, start: Start, delta: float) -> Constants:
        """For a start and a δ below 1 - ||W(0)||₂."""
        rho_w, rho_u, rho_a = start.recurrent + delta, start.inputs + delta, start.readout + delta
        # Sum and difference round by 2⁻⁵³ each. Where no room is left, the constants are huge and nothing holds.
        room = max(1.0 - rho_w - 2.0**-51, 1e-30)
        return cls(rho_w, rho_u, rho_a, rho_u * rho_a / room**2, rho_a / room, rho_u / room)

    @property
    def hidden(self) -> float:
        """c_w² + c_u², of the weights below the readout."""
        return self.c_w**2 + self.c_u**2

    @property
    def all(self) -> float:
        """c_w² + c_u² + c_a²."""
        return self.hidden + self.c_a**2


@dataclass(frozen=True)
class Inequality:
    """left ≥ right, each rounded to its safe side.

    Attributes:
        number: of the equation in docs/theory.md.
        printed: its number in the paper.
        meaning: what it is for.
        left: what must be large.
        right: what it must exceed.
    """

    number: str
    printed: str
    meaning: str
    left: float
    right: float

    @property
    def ratio(self) -> float:
        """left/right: above 1 where the inequality holds."""
        return self.left / self.right if self.right > 0 else np.inf

    @property
    def holds(self) -> bool:
        """Whether it holds, strictly."""
        return self.left > self.right


def inequalities(start: Start, delta: float) -> tuple[Inequality, Inequality, Inequality]:
    """docs/theory.md (8.17), (8.18) and (8.19) at this δ."""
    c = Constants.of(start, delta)
    largest, square = max(c.c_w, c.c_u, c.c_a), start.data**2
    least = max(start.least, 0.0)
    up = 1.0 + _ROUNDING
    return (
        Inequality(
            "8.17",
            "(7)",
            "no parameter moves further than δ",
            least,
            up * 4.0 / delta * largest * start.data * start.residual,
        ),
        Inequality(
            "8.18",
            "(8)",
            "λ_τ stays above λ_0/2",
            least**1.5,
            up * 4.0 * (2.0 + math.sqrt(2.0)) / c.rho_a * c.hidden * square * start.residual,
        ),
        Inequality("8.19", "(9)", "a step lowers the loss", least, up * 4.0 * c.hidden * square),
    )


def smallest_ratio(start: Start, delta: float) -> float:
    """The worst of the three inequalities, left over right."""
    return min(inequality.ratio for inequality in inequalities(start, delta))


def best_delta(start: Start) -> float:
    """The δ that maximises the smallest ratio, where ||W(0)||₂ < 1.

    Each ratio rises to one maximum and falls again as δ grows (two of them only fall), so their minimum does as well
    and a golden-section search finds its top. Any δ is valid: how well it is found decides nothing but sharpness.
    """
    room = 1.0 - start.recurrent

    def depth(t: float) -> float:
        ratio = smallest_ratio(start, room * float(np.exp(-t)))
        return -float(np.log(max(ratio, 1e-300)))

    optimum = minimize_scalar(depth, bounds=(1e-3, 30.0), method="bounded", options={"xatol": 1e-6})
    return room * float(np.exp(-optimum.x))


def printed_step(start: Start, delta: float) -> float:
    """The paper's bound on the step η, docs/theory.md (8.20)."""
    c = Constants.of(start, delta)
    return min(2.0 / start.least, 2.0 * c.hidden / (c.all**2 * start.data**2))


def proved_step(start: Start, delta: float) -> float:
    """The largest step η for which the induction goes through, docs/theory.md (8.28); 0 where none does."""
    c = Constants.of(start, delta)
    square = start.data**2
    margin = start.least * (1.0 - _ROUNDING) - 4.0 * c.hidden * square * (1.0 + _ROUNDING)
    if margin <= 0:
        return 0.0
    return (1.0 - _ROUNDING) * min(2.0 / start.least, margin / (2.0 * c.all**2 * square**2))
