"""Batched fixed points: one solver for equilibria, their adjoints and their tangents.

Each row of the state is a separate problem: its iterates do not depend on the other rows of the batch. Rows that have
converged leave the loop, so that slow samples do not cost iterations of the fast ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.validation import one_of

# Stages in their order; each one starts from the best state of a row so far.
STAGES = {
    "auto": ("iteration", "anderson", "damped"),
    "iteration": ("iteration",),
    "anderson": ("anderson",),
}
METHODS = tuple(STAGES)
# Finished rows are dropped when they are at least this share: dropping copies the rest.
_DROP_SHARE = 0.2
# A state replaces the best one so far if its residual is smaller by this factor: rounding does not decide between
# states that are about as good.
_BETTER = 0.9
# A damped step goes this share of the way to f(x). After so many steps that left the residual above this share of what
# it was, a row halves its share, down to the least.
_SHARE, _PATIENCE, _PROGRESS, _LEAST_SHARE = 0.5, 20, 0.98, 1.0 / 64.0
# Anderson starts again from the best state when the residual is larger by this factor.
_LOST = 100.0
# A report lists at most this many samples.
_SHOWN = 12
_TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class SolverOptions:
    """Options of the fixed-point solver.

    Attributes:
        method: "auto": plain iteration from zero, then, for the rows it did not solve, Anderson acceleration, then
            damped iteration, each from the best state so far; "iteration" or "anderson": this stage alone.
        tolerance: on the residual ||f(z) - z||/||f(z)|| of each sample; None for 1e-5 in float32, 1e-10 in float64.
        max_steps: evaluations of f at most, in each stage.
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


def as_solver_options(given: Any, name: str, default: SolverOptions | None = None) -> SolverOptions:
    """Return the options, the default ones for None; an InputError for anything else."""
    options = (default or SolverOptions()) if given is None else given
    if not isinstance(options, SolverOptions):
        raise InputError(f"{name} takes SolverOptions(method=..., tolerance=...), not {given!r}.")
    return options


@dataclass(frozen=True)
class Stage:
    """What one stage of the solver did.

    Attributes:
        method: "iteration", "anderson" or "damped".
        steps: evaluations of f.
        residual: the largest residual of its samples afterwards.
    """

    method: str
    steps: int
    residual: float

    def __str__(self) -> str:
        return f"{self.method}: {self.steps} steps, residual {self.residual:.1e}"


@dataclass(frozen=True, repr=False)
class SolveReport(Shown):
    """The result of solving a batch of fixed points.

    Attributes:
        stages: what each stage did that was needed.
        residuals: relative residual of each sample, measured one step before the point returned.
        tolerance: the tolerance of the solver options.
        rate: factor by which the last step of plain iteration changed the residual, of the slowest sample; NaN after
            one step.
        row_steps: evaluations summed over samples; below steps × samples when some finished early.
    """

    stages: tuple[Stage, ...]
    residuals: Tensor
    tolerance: float
    rate: float
    row_steps: int

    @property
    def method(self) -> str:
        """The last stage."""
        return self.stages[-1].method

    @property
    def steps(self) -> int:
        """Evaluations of f, the number of products with the recurrent matrix."""
        return sum(stage.steps for stage in self.stages)

    @property
    def converged(self) -> bool:
        """Whether every sample reached the tolerance."""
        return bool(self.settled.all())

    @property
    def settled(self) -> Tensor:
        """Whether each sample reached the tolerance."""
        return self.residuals <= self.tolerance

    @property
    def unsolved(self) -> Tensor:
        """The places of the samples that did not converge."""
        return (~self.settled).nonzero().squeeze(1)

    def __str__(self) -> str:
        late = self.unsolved.tolist()
        rows = ", ".join(map(str, late[:_SHOWN])) + (", …" if len(late) > _SHOWN else "")
        failed = f"{len(late)} of {len(self.residuals)} samples did not converge (rows {rows})"
        verdict, stages = failed if late else "all samples converged", "; ".join(map(str, self.stages))
        return f"{verdict} in {self.steps} steps ({stages}), tolerance {self.tolerance:.1e}"


class RowProblem(Protocol):
    """A fixed-point equation x = f(x) for each row."""

    def start(self) -> Tensor:
        """The first state, (rows, m)."""

    def step(self, x: Tensor, out: Tensor) -> None:
        """Write f(x) into `out`."""

    def solution(self, rows: Tensor) -> Tensor:
        """The solution that belongs to the last step, of some of the rows."""

    def restrict(self, rows: Tensor) -> RowProblem:
        """The same problem for some of the rows; the last step stays known."""


def solve(problem: RowProblem, options: SolverOptions) -> tuple[Tensor, SolveReport]:
    """Solve every row to the tolerance, in as few stages as necessary; the caller checks the report for failures."""
    states = _RowStates.of(problem.start())
    tolerance, rate, row_steps = options.tolerance_for(states.best.dtype), float("nan"), 0
    stages: list[Stage] = []
    for method in STAGES[options.method]:
        rows = (~states.solved).nonzero().squeeze(1)
        if stages and not len(rows):
            break
        part = problem if len(rows) == len(states.best) else problem.restrict(rows)
        run = _RUNS[method](part, states, rows, options)
        run.go()
        if method == "iteration":
            rate = run.rate
        row_steps += run.row_steps
        worst = float(states.residuals[rows].max()) if len(rows) else 0.0
        stages.append(Stage(method, run.steps, worst))
    states.fill_unsolved(problem)
    return states.answer, SolveReport(tuple(stages), states.residuals, tolerance, rate, row_steps)


@dataclass
class _RowStates:
    """Answers of all rows, whether they are solved, the best states so far, and their residuals."""

    answer: Tensor
    solved: Tensor
    best: Tensor
    residuals: Tensor

    @classmethod
    def of(cls, start: Tensor) -> _RowStates:
        rows = len(start)
        solved = torch.zeros(rows, dtype=torch.bool, device=start.device)
        return cls(torch.empty_like(start), solved, start, start.new_full((rows,), float("inf")))

    def fill_unsolved(self, problem: RowProblem) -> None:
        """The answers of unsolved rows are those of their best states."""
        rows = (~self.solved).nonzero().squeeze(1)
        if len(rows):
            part, states = problem.restrict(rows), self.best[rows]
            part.step(states, torch.empty_like(states))
            self.answer[rows] = part.solution(torch.arange(len(rows), device=rows.device))


class _Iteration:
    """Plain iteration of some rows, and the loop that the other stages share.

    Other methods start only after `max_steps`: where plain iteration converges within them, its limit is the answer,
    and no other method can lead to another equilibrium.

    Args:
        problem: of these rows.
        states: answers and best states of all rows.
        rows: indices of these rows.
        options: tolerance, number of steps and memory.
    """

    def __init__(self, problem: RowProblem, states: _RowStates, rows: Tensor, options: SolverOptions) -> None:
        self.problem, self.states, self.rows, self.options = problem, states, rows, options
        self.best, self.least = states.best[rows], states.residuals[rows]
        self.x = self.best.clone()
        self.fresh, self.change = torch.empty_like(self.x), torch.empty_like(self.x)
        self.open = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        self.tolerance = options.tolerance_for(self.x.dtype)
        self.steps = self.row_steps = 0
        self.rate = float("nan")
        self.residual = self.least
        self._prepare()

    def go(self) -> None:
        """Step until all rows are solved, have left or have used up their steps."""
        while not self.steps or (self.steps < self.options.max_steps and len(self.rows)):
            self.problem.step(self.x, self.fresh)
            self.steps, self.row_steps = self.steps + 1, self.row_steps + len(self.x)
            self._measure()
            self._next()
            left = int(self.open.sum())
            if left <= (1.0 - _DROP_SHARE) * len(self.open):
                self._store()
                self._keep(self.open.nonzero().squeeze(1))
        self._store()

    def _measure(self) -> None:
        """Residuals; solved rows get their answers, and those that are not finite leave."""
        torch.sub(self.fresh, self.x, out=self.change)
        moved = torch.linalg.vector_norm(self.change, dim=1)
        # A row of zeros is its own fixed point.
        residual = torch.where(moved == 0.0, moved, moved / torch.linalg.vector_norm(self.fresh, dim=1))
        if self.steps > 1 and bool(self.open.any()):
            before = self.residual.clamp_min(torch.finfo(residual.dtype).tiny)
            self.rate = float((residual / before)[self.open].max())
        self.residual = residual
        solved = self.open & (residual <= self.tolerance)
        if bool(solved.any()):
            places = solved.nonzero().squeeze(1)
            rows = self.rows[places]
            self.states.answer[rows], self.states.solved[rows] = self.problem.solution(places), True
        better = self.open & (solved | (residual < _BETTER * self.least))
        self.least = torch.where(better, residual, self.least)
        if bool(better.all()):
            # No state is needed twice: exchange the memory instead of copying.
            self.best, self.x = self.x, self.best
        else:
            self.best[better] = self.x[better]
        # A step to zero has an infinite residual and is no reason to leave.
        self.open = self.open & ~solved & torch.isfinite(moved)

    def _store(self) -> None:
        """Keep the best states and their residuals."""
        self.states.best[self.rows], self.states.residuals[self.rows] = self.best, self.least

    def _keep(self, places: Tensor) -> None:
        """Continue with some of the rows only."""
        self.problem = self.problem.restrict(places)
        for name in ("rows", "best", "least", "x", "fresh", "change", "open", "residual"):
            setattr(self, name, getattr(self, name)[places])
        self._keep_more(places)

    # --- what differs between stages ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Set up what the stage itself remembers."""

    def _next(self) -> None:
        """Put the next state into `x`."""
        self.x, self.fresh = self.fresh, self.x

    def _keep_more(self, places: Tensor) -> None:
        """Restrict what the stage itself remembers."""


class _Anderson(_Iteration):
    """Anderson acceleration (type II), each row with coefficients of its own.

    The next state combines the last few f(x) so that the combination of their residuals is smallest. Ring buffers
    (rows, memory, m) hold the last changes of f(x) and of the residual, and `gram` the inner products of the latter, of
    which a step computes one line: a step reads each buffer once or twice and copies nothing. A row whose residual has
    grown far beyond its smallest one clears its buffers and restarts from its best state.
    """

    def _prepare(self) -> None:
        shape = (len(self.x), self.options.memory, self.x.shape[1])
        self.values, self.residuals = self.x.new_zeros(shape), self.x.new_zeros(shape)
        self.gram = self.x.new_zeros(shape[0], shape[1], shape[1], dtype=torch.float64)
        self.value_before, self.change_before = torch.empty_like(self.x), torch.empty_like(self.x)

    def _next(self) -> None:
        if self.steps > 1:
            self._remember()
        self.value_before.copy_(self.fresh)
        self.change_before.copy_(self.change)
        projected = (self.residuals @ self.change[:, :, None]).double()
        # Relative to the size of the residuals, so that small residuals are not swamped.
        size = self.gram.diagonal(dim1=1, dim2=2).amax(dim=1)
        ridge = 10.0 * torch.finfo(self.x.dtype).eps * torch.where(size > 0.0, size, 1.0)[:, None]
        system = self.gram + torch.diag_embed(ridge.expand(-1, self.options.memory))
        coefficients = torch.linalg.solve_ex(system, projected)[0].mT.to(self.x.dtype)
        torch.baddbmm(self.fresh[:, None], coefficients, self.values, alpha=-1.0, out=self.x[:, None])
        lost = self.open & (self.residual > _LOST * self.least)
        if bool(lost.any()):
            self.x[lost] = self.best[lost]
            for ring in (self.values, self.residuals, self.gram):
                ring[lost] = 0.0

    def _remember(self) -> None:
        """The latest changes in the place of the oldest."""
        place = (self.steps - 2) % self.options.memory
        torch.sub(self.fresh, self.value_before, out=self.values[:, place])
        torch.sub(self.change, self.change_before, out=self.residuals[:, place])
        line = (self.residuals @ self.residuals[:, place, :, None]).squeeze(2).double()
        self.gram[:, place], self.gram[:, :, place] = line, line

    def _keep_more(self, places: Tensor) -> None:
        for name in ("values", "residuals", "gram", "value_before", "change_before"):
            setattr(self, name, getattr(self, name)[places])


class _Damped(_Iteration):
    """Damped iteration x + β (f(x) - x), docs/theory.md (9.2); each row halves its β when it makes no progress."""

    def _prepare(self) -> None:
        self.share = self.least.new_full((len(self.x), 1), _SHARE)
        self.mark = self.least

    def _next(self) -> None:
        torch.addcmul(self.fresh, self.share - 1.0, self.change, out=self.x)
        if self.steps % _PATIENCE == 0:
            stuck = self.least > _PROGRESS * self.mark
            self.x[stuck] = self.best[stuck]
            self.share = torch.where(stuck[:, None], 0.5 * self.share, self.share).clamp_min(_LEAST_SHARE)
            self.mark = self.least

    def _keep_more(self, places: Tensor) -> None:
        self.share, self.mark = self.share[places], self.mark[places]


_RUNS = {"iteration": _Iteration, "anderson": _Anderson, "damped": _Damped}

__all__ = ["METHODS", "RowProblem", "SolveReport", "SolverOptions", "as_solver_options", "solve"]
