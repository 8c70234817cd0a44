"""The equilibrium z = step(z, drive) of any differentiable step, with the gradient of the implicit function theorem.

`nets.equilibrium` is the special case z = φ(W z + u), which is faster: its products with the Jacobian are written out.
Here they come from reverse-mode differentiation of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from notsodeep.nets.equilibrium import FirstOrder, RowFunction, check_report
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions, solve

Cell = Callable[[Tensor, Tensor], Tensor]

_ADVICE = "lower the variances of the weights that read the state, or raise that of the input's weights."


@dataclass(frozen=True)
class CellSolver:
    """The step, and how its equilibria and their adjoints are solved.

    Attributes:
        step: step(z, drive, weights) of states (rows, size); rows do not depend on each other.
        size: numbers of a state.
        solver: solver of the forward pass.
        adjoint: solver of the backward pass.
        on_failure: "raise", "warn" or "ignore".
        on_solve: is called with the report of the forward pass.
        on_adjoint: is called with the report of the backward pass.
    """

    step: Callable[..., Tensor]
    size: int
    solver: SolverOptions
    adjoint: SolverOptions
    on_failure: str
    on_solve: Callable[[SolveReport], None]
    on_adjoint: Callable[[SolveReport], None]


def cell_equilibrium(drive: Tensor, weights: Sequence[Tensor], settings: CellSolver) -> Tensor:
    """Find z with z = step(z, drive, weights) for each row; differentiable in the drive and in the weights."""
    z, fixed = cell_solution(drive, weights, settings), [weight.detach() for weight in weights]
    # The gradient of one more step in everything but its state; the state's share is the adjoint equation.
    image = settings.step(z, drive, weights)
    attached: Tensor = _Implicit.apply(image, z, drive.detach(), settings, *fixed)  # type: ignore[no-untyped-call]
    return attached


def cell_solution(drive: Tensor, weights: Sequence[Tensor], settings: CellSolver) -> Tensor:
    """Find the equilibrium without derivatives."""
    fixed = [weight.detach() for weight in weights]
    z: Tensor = _Solve.apply(drive.detach(), settings, *fixed)  # type: ignore[no-untyped-call]
    return z


def cell_adjoint(
    z: Tensor, drive: Tensor, cotangent: Tensor, weights: Sequence[Tensor], settings: CellSolver
) -> Tensor:
    """Solve t = cotangent + Jᵀ t for each row, J the Jacobian of the step at the equilibrium z."""
    t: Tensor = _AdjointSolve.apply(z, drive, cotangent, settings, *weights)  # type: ignore[no-untyped-call]
    return t


class _Solve(FirstOrder):
    """The equilibrium as a number without derivatives."""

    @staticmethod
    def forward(drive: Tensor, settings: CellSolver, *weights: Tensor) -> Tensor:
        step: Cell = partial(settings.step, weights=weights)
        first = step(drive.new_zeros(len(drive), settings.size), drive)
        z, report = solve(ForwardProblem(step, drive, first), settings.solver)
        settings.on_solve(report)
        check_report(report, "The equilibrium", settings.on_failure, settings.solver, advice=_ADVICE)
        return z


class _Implicit(RowFunction):
    """The identity on the image of the equilibrium, whose gradient is the solution of the adjoint equation."""

    blocks = 3

    @staticmethod
    def forward(image: Tensor, z: Tensor, drive: Tensor, settings: CellSolver, *weights: Tensor) -> Tensor:
        return image.view_as(image)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, z, drive, ctx.settings, *weights = inputs
        ctx.save_for_backward(z, drive, *weights)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        z, drive, *weights = ctx.saved_tensors
        t = cell_adjoint(z, drive, cotangents[0], weights, ctx.settings)
        return t, None, None, None, *[None] * len(weights)


class _AdjointSolve(FirstOrder):
    """t = (I - Jᵀ)⁻¹ w, which cannot be differentiated again."""

    blocks = 3

    @staticmethod
    def forward(
        z: Tensor, drive: Tensor, cotangent: Tensor, settings: CellSolver, *weights: Tensor
    ) -> Tensor:
        step: Cell = partial(settings.step, weights=weights)
        t, report = solve(_Adjoint(step, z, drive, cotangent), settings.adjoint)
        settings.on_adjoint(report)
        what = "The adjoint equation of the backward pass"
        check_report(report, what, settings.on_failure, settings.adjoint, advice=_ADVICE)
        return t


class ForwardProblem:
    """The equation z = step(z, drive) as a problem for `solve`: the state is z, and `last` the first state."""

    def __init__(self, step: Cell, drive: Tensor, last: Tensor) -> None:
        self.cell, self.drive, self.last = step, drive, last

    def start(self) -> Tensor:
        """Return the first state."""
        return self.last.clone()

    def step(self, x: Tensor, out: Tensor) -> None:
        """Write the image of the states into `out`."""
        self.last = self.cell(x, self.drive)
        out.copy_(self.last)

    def solution(self, rows: Tensor) -> Tensor:
        """Return the last images of some of the rows."""
        return self.last[rows]

    def restrict(self, rows: Tensor) -> ForwardProblem:
        """Return the problem of some of the rows."""
        return ForwardProblem(self.cell, self.drive[rows], self.last[rows])


class _Adjoint(ForwardProblem):
    """The equation t = w + Jᵀ t: the state is t, products with Jᵀ come from reverse-mode differentiation."""

    def __init__(self, step: Cell, z: Tensor, drive: Tensor, cotangent: Tensor) -> None:
        super().__init__(step, drive.detach(), cotangent)
        self.z, self.cotangent = z.detach(), cotangent
        self.image: Tensor | None = None

    def step(self, x: Tensor, out: Tensor) -> None:
        if self.image is None:
            with torch.enable_grad():
                self.image = self.cell(self.z.requires_grad_(), self.drive)
        (product,) = torch.autograd.grad(self.image, self.z, x, retain_graph=True)
        self.last = self.cotangent + product
        out.copy_(self.last)

    def restrict(self, rows: Tensor) -> _Adjoint:
        part = _Adjoint(self.cell, self.z[rows], self.drive[rows], self.cotangent[rows])
        part.last = self.last[rows]
        return part


__all__ = ["CellSolver", "ForwardProblem", "cell_adjoint", "cell_equilibrium", "cell_solution"]
