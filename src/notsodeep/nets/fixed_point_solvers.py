"""Batched fixed points: one loop for equilibria and their adjoints, by plain iteration or Anderson acceleration.

Each row of the state is a problem of its own.  Rows that have converged leave the loop, so that slow samples do
not cost iterations of the fast ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.validation import one_of

METHODS = ("auto", "iteration", "anderson")
# Finished rows are dropped when they are at least this share: dropping copies the rest.
_DROP_SHARE = 0.2
# "auto" leaves plain iteration when, after these many steps, a step gains less than this factor: a step of Anderson
# costs as much as two or three of iteration, and saves a third of the steps at a rate of 0.9, two thirds at 0.96.
# Or when iteration would take more than this share of the steps that are left.
_PATIENCE = 8
_SLOW = 0.93
_TOO_LONG = 0.8
# Steps taken at most without measuring residuals.
_MOST_UNMEASURED = 6
_TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class SolverOptions:
    """How a fixed point is sought.

    Attributes:
        method: "iteration"; "anderson"; or "auto": iteration, and Anderson if that turns out slow.
        tolerance: on the residual ||f(z) - z||/||f(z)|| of each sample; None for 1e-5 in float32, 1e-10 in float64.
        max_steps: evaluations of f at most.
        memory: number of earlier steps that Anderson acceleration combines.
    """

    method: str = "auto"
    tolerance: float | None = None
    max_steps: int = 200
    memory: int = 5

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        one_of(self.method, METHODS, "method")
        if self.tolerance is not None and not self.tolerance > 0.0:
            raise InputError(f"tolerance must be positive, or None for the default; got {self.tolerance}.")
        if self.max_steps < 1 or self.memory < 1:
            raise InputError(
                f"max_steps and memory must be at least 1; got {self.max_steps} and {self.memory}."
            )

    def tolerance_for(self, dtype: torch.dtype) -> float:
        """The tolerance, or the default of this precision."""
        return _TOLERANCES.get(dtype, 1e-2) if self.tolerance is None else self.tolerance


@dataclass(frozen=True, repr=False)
class SolveReport(Shown):
    """How a batch was solved.

    Attributes:
        method: what was used in the end, "iteration" or "anderson".
        steps: evaluations of f, the number of products with the recurrent matrix.
        residuals: relative residual of each sample, measured one step before the point returned, which is better.
        tolerance: what was asked for.
        rate: factor by which the last step changed the residual, of the slowest sample; NaN after one step.
        row_steps: evaluations summed over samples; below steps × samples when some finished early.
    """

    method: str
    steps: int
    residuals: Tensor
    tolerance: float
    rate: float
    row_steps: int

    @property
    def converged(self) -> bool:
        """Whether every sample met the tolerance."""
        return bool((self.residuals <= self.tolerance).all())

    def __str__(self) -> str:
        late = int((~(self.residuals <= self.tolerance)).sum())
        worst = float(self.residuals.max()) if len(self.residuals) else 0.0
        verdict = (
            "all samples converged"
            if not late
            else f"{late} of {len(self.residuals)} samples did not converge"
        )
        return f"{verdict} in {self.steps} steps ({self.method}): residual {worst:.1e}, tolerance {self.tolerance:.1e}"

    def _facts(self) -> dict[str, Any]:
        return {
            "converged": self.converged,
            "method": self.method,
            "steps": self.steps,
            "residual": float(self.residuals.max()) if len(self.residuals) else 0.0,
            "tolerance": self.tolerance,
            "samples": len(self.residuals),
        }


class RowProblem(Protocol):
    """A fixed-point equation x = f(x) for each row."""

    def start(self) -> Tensor:
        """The first state, (rows, m)."""

    def step(self, x: Tensor, out: Tensor) -> None:
        """Write f(x) into `out`."""

    def size(self, state: Tensor) -> Tensor:
        """The norm of each row's solution after the last step, which led to `state`: what residuals are relative to."""

    def solution(self) -> Tensor:
        """The solution that belongs to the last step, (rows, m)."""

    def restrict(self, rows: Tensor) -> RowProblem:
        """The same problem for some of the rows; the last step stays known."""


def solve(problem: RowProblem, options: SolverOptions) -> tuple[Tensor, SolveReport]:
    """Iterate every row to the tolerance, or to `max_steps`; the caller decides what a failure means."""
    return _Iteration(problem, options).run()


class _Iteration:
    """The loop of `solve`: the rows that have not converged yet, and how fast they move."""

    def __init__(self, problem: RowProblem, options: SolverOptions) -> None:
        self.problem, self.options = problem, options
        self.x = problem.start()
        self.fresh, self.difference = torch.empty_like(self.x), torch.empty_like(self.x)
        self.tolerance = options.tolerance_for(self.x.dtype)
        self.ledger = _Ledger.blank(self.x)
        self.mixer = _Anderson(options.memory) if options.method == "anderson" else None
        self.rates = self.x.new_full((len(self.x),), float("nan"))
        self.moved: Tensor | None = None
        self.step = self.row_steps = self.measured_at = 0
        self.next_measured = 1

    def run(self) -> tuple[Tensor, SolveReport]:
        """Step until all rows have converged or the steps are used up."""
        while self.step < self.options.max_steps:
            self.problem.step(self.x, self.fresh)
            self.step, self.row_steps = self.step + 1, self.row_steps + len(self.x)
            if self.step < self.next_measured and self.step < self.options.max_steps:
                self.x, self.fresh = self.fresh, self.x
            elif self._measure():
                break
        rate = float(self.rates.max()) if len(self.rates) else float("nan")
        method = "iteration" if self.mixer is None else "anderson"
        report = SolveReport(method, self.step, self.ledger.residuals, self.tolerance, rate, self.row_steps)
        return self.ledger.answer, report

    def _measure(self) -> bool:
        """Measure residuals, let converged rows leave and choose the next state; True when nothing is left to do."""
        size = self.problem.size(self.fresh)
        torch.sub(self.fresh, self.x, out=self.difference)
        moved = torch.linalg.vector_norm(self.difference, dim=1)
        if self.moved is not None:
            before = self.moved.clamp_min(torch.finfo(moved.dtype).tiny)
            self.rates = (moved / before) ** (1.0 / (self.step - self.measured_at))
        # A row of zeros is its own fixed point: 0 <= 0. A row that is not finite is beyond help.
        left = ~(moved <= self.tolerance * size) & torch.isfinite(moved)
        remaining = int(left.sum())
        if remaining == 0 or self.step == self.options.max_steps:
            self.ledger.close(torch.ones_like(left), moved, size, self.problem.solution())
            return True
        if remaining <= (1.0 - _DROP_SHARE) * len(left):
            self.ledger.close(~left, moved, size, self.problem.solution())
            kept = left.nonzero().squeeze(1)
            moved, size = moved[kept], size[kept]
            self._keep(kept)
        self.moved, self.measured_at = moved, self.step
        self._choose_next(size)
        return False

    def _keep(self, rows: Tensor) -> None:
        """Go on with some of the rows only."""
        self.problem = self.problem.restrict(rows)
        self.x, self.fresh, self.difference = (t[rows] for t in (self.x, self.fresh, self.difference))
        self.rates = self.rates[rows]
        if self.mixer is not None:
            self.mixer.restrict(rows)

    def _choose_next(self, size: Tensor) -> None:
        """The next state, and the step after which residuals are measured again."""
        if self.mixer is None and self.options.method == "auto" and self._is_slow(size):
            self.mixer = _Anderson(self.options.memory)
        self.next_measured = self.step + 1
        if self.mixer is not None:
            self.x = self.mixer.mix(self.fresh, self.difference)
            return
        self.x, self.fresh = self.fresh, self.x
        if self.moved is not None:
            self.next_measured += _steps_before(self.tolerance * size, self.moved, self.rates)

    def _is_slow(self, size: Tensor) -> bool:
        """Whether plain iteration costs more than Anderson's would, or may not arrive."""
        if self.step < _PATIENCE or self.moved is None:
            return False
        if float(self.rates.max()) > _SLOW:
            return True
        needed = torch.log(self.tolerance * size / self.moved) / torch.log(self.rates)
        return float(needed.max()) > _TOO_LONG * (self.options.max_steps - self.step)


def _steps_before(wanted: Tensor, moved: Tensor, rates: Tensor) -> int:
    """Number of steps after which no row can have converged at its present rate: residuals need not be measured."""
    ahead = torch.log(wanted / moved) / torch.log(rates)
    # Rates vary: one step less than predicted. What is not a number (no rate yet, no movement) means: measure at once.
    first = float(torch.where((rates < 1.0) & (wanted < moved), ahead, 0.0).min())
    return min(max(int(first) - 1, 0), _MOST_UNMEASURED)


@dataclass
class _Ledger:
    """Answers and residuals of all rows, while some of them are still being iterated."""

    answer: Tensor
    residuals: Tensor
    open_rows: Tensor

    @classmethod
    def blank(cls, x: Tensor) -> _Ledger:
        return cls(torch.empty_like(x), x.new_zeros(len(x)), torch.arange(len(x), device=x.device))

    def close(self, gone: Tensor, residual: Tensor, size: Tensor, solution: Tensor) -> None:
        """Store the results of the rows that leave, and keep the positions of the others."""
        relative = torch.where(residual == 0.0, residual, residual / size)
        if len(solution) == len(self.answer) and bool(gone.all()):
            # No row has left before: no need to copy.
            self.answer, self.residuals = solution, relative
        else:
            places = self.open_rows[gone]
            self.answer[places], self.residuals[places] = solution[gone], relative[gone]
        self.open_rows = self.open_rows[~gone]


class _Anderson:
    """Anderson acceleration (type II), each row with coefficients of its own.

    The next state combines the last few f(x) so that the combination of their residuals is smallest. The last changes
    of f(x) and of the residual stand in rings, (rows, memory, m), and the products of the latter in a table of which a
    step makes one line anew: a step reads each ring once or twice and copies nothing.
    """

    def __init__(self, memory: int) -> None:
        self.memory, self.count = memory, 0
        self.last: tuple[Tensor, Tensor] | None = None
        self.values, self.residuals, self.gram = (torch.empty(0) for _ in range(3))

    def restrict(self, rows: Tensor) -> None:
        """Forget the rows that have finished."""
        if self.last is not None:
            self.last = (self.last[0][rows], self.last[1][rows])
        if self.count:
            self.values, self.residuals, self.gram = (
                t[rows] for t in (self.values, self.residuals, self.gram)
            )

    def mix(self, value: Tensor, residual: Tensor) -> Tensor:
        """The next state from f(x) and f(x) - x; both are copied, the caller may reuse their memory."""
        if self.last is None:
            self.last = (value.clone(), residual.clone())
            return value.clone()
        self._remember(value, residual, *self.last)
        known = min(self.count, self.memory)
        changes, gram = self.residuals[:, :known], self.gram[:, :known, :known]
        projected = (changes @ residual[:, :, None]).double()
        # Relative to the size of the residuals, so that small residuals are not swamped.
        size = gram.diagonal(dim1=1, dim2=2).mean(dim=1)
        size = torch.where(size > 0.0, size, 1.0)
        ridge = 10.0 * torch.finfo(value.dtype).eps * size[:, None]
        coefficients = torch.linalg.solve(gram + torch.diag_embed(ridge.expand(-1, known)), projected)
        mixed = torch.baddbmm(
            value[:, None], coefficients.mT.to(value.dtype), self.values[:, :known], alpha=-1.0
        )
        return mixed.squeeze(1)

    def _remember(self, value: Tensor, residual: Tensor, before: Tensor, residual_before: Tensor) -> None:
        """The latest changes in the place of the oldest."""
        if not self.count:
            shape = (len(value), self.memory, value.shape[1])
            self.values, self.residuals = value.new_empty(shape), value.new_empty(shape)
            self.gram = value.new_zeros(len(value), self.memory, self.memory, dtype=torch.float64)
        place, self.count = self.count % self.memory, self.count + 1
        known = min(self.count, self.memory)
        torch.sub(value, before, out=self.values[:, place])
        torch.sub(residual, residual_before, out=self.residuals[:, place])
        before.copy_(value)
        residual_before.copy_(residual)
        changes = self.residuals[:, :known]
        line = (changes @ self.residuals[:, place, :, None]).squeeze(2).double()
        self.gram[:, place, :known], self.gram[:, :known, place] = line, line


__all__ = ["METHODS", "RowProblem", "SolveReport", "SolverOptions", "solve"]
