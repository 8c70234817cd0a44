"""Plain iteration of a cell until every sample has an answer: it settles, grows or oscillates, or time is over.

Whether a sample still comes closer to an equilibrium is judged at evaluations 1024, 2048, …, from the lengths d_k of
its steps, the norms of its states, and their logarithms' means in four parts of the later half.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.forecasts.cell_in_float64 import CellInFloat64
from notsodeep.nets import SolverOptions
from notsodeep.validation import Array

SETTLES, GROWS, OSCILLATES = "settles", "grows", "oscillates"
# Evaluations at which it is first judged whether steps still become shorter, and the fewest when time is over.
FIRST_CHECK, FEWEST = 1024, 256
# A smaller change of a logarithm over the later half is none.
CHANGE = 1e-4
# Steps that fall as k^-p with p below this have no finite sum; a larger p may be that of a slow rate.
SUMMABLE = 0.9
# Growth of p from one half of the iteration to the next, in parts and in all, above which steps will still fall faster.
BENDS, BENT = 0.3, 0.05
# Least growth of log ‖z‖ over the later half, in standard deviations within its parts, of a state that grows.
SPREADS = 3.0
# Evaluations of all samples, so that curves of ordinary cells are complete; later ones leave out those that settled.
TOGETHER = 200
# Most evaluations between two looks at the residuals.
BLOCK = 64
# A residual that falls from above the one to below the other at once vanishes after finitely many steps.
BEFORE, VANISHED = 1e-6, 1e-13


class Clock:
    """Seconds since the start of a measurement, of those that it may take."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._start = seconds, time.monotonic()

    def over(self, share: float = 1.0) -> bool:
        """Whether this share of the seconds has passed."""
        return time.monotonic() - self._start > share * self.seconds


@dataclass
class Trajectory:
    """What plain iteration did.

    Attributes:
        residuals: ‖z_{k+1} − z_k‖/‖z_{k+1}‖, (samples, evaluations), NaN after a sample has left.
        outcome: "settles", "grows", "oscillates" or "not within N evaluations", (samples,).
        last: the equilibria of samples that settle; other samples' last finite states.
        factor: mean factor of the length of a late step.
        vanishes: whether the residual vanished after finitely many steps.
        largest: the largest norm of a state.
    """

    residuals: Array
    outcome: Any
    last: Tensor
    factor: Array
    vanishes: Any
    largest: Array


def iterate(cell: CellInFloat64, max_steps: int | None, clock: Clock, share: float) -> Trajectory:
    """Iterate from the cell's first states until every sample has an answer, or this share of the time is over."""
    z, last = cell.start, cell.start.clone()
    tolerance = SolverOptions().tolerance_for(cell.dtype)
    rows = torch.arange(len(z), device=z.device)
    outcome = np.full(len(z), "", dtype="<U40")
    # Lengths of steps and norms of states, (evaluations, samples); NaN after a sample has left.
    moves, norms = (np.empty((0, len(z))) for _ in range(2))
    check, over = FIRST_CHECK, False
    while (outcome == "").any() and len(moves) != max_steps and not over:
        block = min(max(1, len(moves) // TOGETHER), BLOCK, check - len(moves))
        block = block if max_steps is None else min(block, max_steps - len(moves))
        lengths: list[Tensor] = []
        for _ in range(block):
            before, z = z, cell(z, cell.inputs[rows])
            lengths.append(torch.linalg.vector_norm(torch.stack([z - before, z]).double(), dim=2))
            over = clock.over(share)
            if over:
                break
        places, new = rows.cpu().numpy(), torch.stack(lengths).cpu().numpy()
        added = np.full((2, len(new), len(outcome)), np.nan)
        added[:, :, places] = new.transpose(1, 0, 2)
        moves, norms = np.concatenate([moves, added[0]]), np.concatenate([norms, added[1]])
        move, norm, is_open = moves[-1, places], norms[-1, places], outcome[places] == ""
        finite, settled = np.isfinite(move), move <= tolerance * norm
        changed = torch.from_numpy(is_open & finite).to(z.device)
        last[rows[changed]] = z[changed]
        outcome[places[is_open & settled]] = SETTLES
        outcome[places[is_open & ~finite]] = GROWS
        if len(moves) == check:
            outcome[outcome == ""] = judged(moves[:, outcome == ""], norms[:, outcome == ""])
            check *= 2
        keep = torch.from_numpy((outcome[places] == "") | (finite & (len(moves) < TOGETHER))).to(z.device)
        if not bool(keep.all()):
            z, rows = z[keep], rows[keep]
    return _trajectory(moves, norms, outcome, last)


def _trajectory(moves: Array, norms: Array, outcome: Any, last: Tensor) -> Trajectory:
    count, is_open = len(moves), outcome == ""
    if is_open.any() and count >= FEWEST:
        outcome[is_open] = judged(moves[:, is_open], norms[:, is_open])
    outcome[outcome == ""] = f"not within {count} evaluations"
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        residuals = np.where(moves == 0.0, 0.0, moves / norms)
        quarter = max(1, count // 4)
        factor = (moves[-1] / moves[-1 - quarter]) ** (1.0 / quarter) if count > 1 else np.ones(len(outcome))
    ends, samples = np.argmax(residuals <= VANISHED, axis=0), np.arange(len(outcome))
    vanishes = (residuals[ends, samples] <= VANISHED) & (residuals[np.maximum(ends - 1, 0), samples] > BEFORE)
    vanishes &= (outcome == SETTLES) & (ends > 0)
    largest = np.where(np.isfinite(norms), norms, 0.0).max(axis=0)
    return Trajectory(residuals.T, outcome, last, factor, vanishes, largest)


def judged(moves: Array, norms: Array) -> Any:
    """The answer of each sample from d_k and ‖z_{k+1}‖, (evaluations, samples); "" while steps become shorter.

    A sum of steps that fall as k^-p is infinite for p ≤ 1. A slow geometric decay looks like that too, also after a
    transient in which steps become longer, but its p increases from one half of the iteration to the next. A norm that
    fluctuates more than it rises is not said to grow.
    """
    half = len(moves) // 2
    with np.errstate(divide="ignore", invalid="ignore"):
        late, early = (_parts(np.log(moves[i:j])) for i, j in _halves(len(moves)))
        logs = np.log(norms[half:])
        size, spread = _parts(logs), np.mean([part.std(axis=0) for part in np.array_split(logs, 4)], axis=0)
        falls = (np.diff(late, axis=0) < 0.0).all(axis=0) & (late[0] - late[3] > CHANGE)
        rises = (np.diff(size, axis=0) > 0.0).all(axis=0) & (size[3] - size[0] > CHANGE)
        power, before = ((each[0] - each[3]) / np.log(1.875 / 1.125) for each in (late, early))
        bent = BENDS * np.abs(before) + np.where(falls, 10.0 * CHANGE, BENT)
        endless = (power < SUMMABLE) & (power - before < bent)
        certain = size[3] - size[0] > SPREADS * spread
    return np.where(rises & endless & certain, GROWS, np.where(rises | falls, "", OSCILLATES))


def _halves(count: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (count // 2, count), (count // 4, count // 2)


def _parts(values: Array) -> Array:
    """Means of four successive parts, (4, samples)."""
    return np.stack([part.mean(axis=0) for part in np.array_split(values, 4)])


__all__ = ["SETTLES", "Clock", "Trajectory", "iterate"]
