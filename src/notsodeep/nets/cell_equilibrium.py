"""The equilibrium z = step(z, drive) of any differentiable step, with the gradient of the implicit function theorem.

`nets.equilibrium` is the special case z = φ(W z + u), which is faster: its products with the Jacobian are written out.
Here they come from reverse-mode differentiation of one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from notsodeep.nets.cell_analysis import Cell, CellProblem
from notsodeep.nets.equilibrium import FirstOrder, check_report
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions, solve

_ADVICE = "lower the variances of the weights that read the state, or raise that of the input's weights."


@dataclass(frozen=True)
class CellSolver:
    """How equilibria of a cell and their adjoints are solved.

    Attributes:
        solver: of the forward pass.
        adjoint: of the backward pass.
        on_failure: "raise", "warn" or "ignore".
        on_solve: is called with the report of the forward pass.
        on_adjoint: is called with the report of the backward pass.
    """

    solver: SolverOptions
    adjoint: SolverOptions
    on_failure: str
    on_solve: Callable[[SolveReport], None]
    on_adjoint: Callable[[SolveReport], None]


def cell_equilibrium(step: Cell, drive: Tensor, size: int, settings: CellSolver) -> Tensor:
    """Find z with z = step(z, drive) for each row; differentiable in the drive and in the weights of the step.

    Args:
        step: one step of states (rows, size); rows do not depend on each other.
        drive: what the step needs of the input, (rows, …).
        size: numbers of a state.
        settings: solvers.
    """
    with torch.no_grad():
        z, report = solve(CellProblem.of(step, drive, drive.new_zeros(len(drive), size)), settings.solver)
    settings.on_solve(report)
    check_report(report, "The equilibrium", settings.on_failure, settings.solver, advice=_ADVICE)
    # The gradient of one more step in everything but its state; the state's share is the adjoint equation.
    image = step(z, drive)
    attached: Tensor = _Implicit.apply(image, z, drive.detach(), step, settings)  # type: ignore[no-untyped-call]
    return attached


def cell_adjoint(step: Cell, z: Tensor, drive: Tensor, cotangent: Tensor, settings: CellSolver) -> Tensor:
    """Solve t = cotangent + Jᵀ t for each row, J the Jacobian of the step at the equilibrium z."""
    t: Tensor = _AdjointSolve.apply(step, z, drive, cotangent, settings)  # type: ignore[no-untyped-call]
    return t


class _Implicit(torch.autograd.Function):
    """The identity on the image of the equilibrium, whose gradient is the solution of the adjoint equation."""

    @staticmethod
    def forward(image: Tensor, z: Tensor, drive: Tensor, step: Cell, settings: CellSolver) -> Tensor:
        return image.view_as(image)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, z, drive, ctx.step, ctx.settings = inputs
        ctx.save_for_backward(z, drive)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        z, drive = ctx.saved_tensors
        return cell_adjoint(ctx.step, z, drive, cotangents[0], ctx.settings), None, None, None, None


class _AdjointSolve(FirstOrder):
    """t = (I - Jᵀ)⁻¹ w, which cannot be differentiated again."""

    @staticmethod
    def forward(step: Cell, z: Tensor, drive: Tensor, cotangent: Tensor, settings: CellSolver) -> Tensor:
        t, report = solve(_Adjoint(step, z, drive, cotangent), settings.adjoint)
        settings.on_adjoint(report)
        what = "The adjoint equation of the backward pass"
        check_report(report, what, settings.on_failure, settings.adjoint, advice=_ADVICE)
        return t


class _Adjoint:
    """The state is t; a step is t ← w + Jᵀ t by reverse-mode differentiation."""

    def __init__(self, step: Cell, z: Tensor, drive: Tensor, cotangent: Tensor) -> None:
        self.cell, self.z, self.drive, self.cotangent = step, z.detach(), drive, cotangent
        self.last = cotangent
        self.image: Tensor | None = None

    def start(self) -> Tensor:
        return self.cotangent.clone()

    def step(self, x: Tensor, out: Tensor) -> None:
        if self.image is None:
            with torch.enable_grad():
                self.image = self.cell(self.z.requires_grad_(), self.drive)
        (product,) = torch.autograd.grad(self.image, self.z, x, retain_graph=True)
        self.last = self.cotangent + product
        out.copy_(self.last)

    def solution(self, rows: Tensor) -> Tensor:
        return self.last[rows]

    def restrict(self, rows: Tensor) -> _Adjoint:
        part = _Adjoint(self.cell, self.z[rows], self.drive[rows], self.cotangent[rows])
        part.last = self.last[rows]
        return part


__all__ = ["CellSolver", "cell_adjoint", "cell_equilibrium"]
