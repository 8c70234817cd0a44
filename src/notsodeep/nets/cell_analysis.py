"""Solver problem, leading eigenvalues and adjoint of any torch cell z ← cell(z, x), samples along the first axis.

Eigenvalues are those of the transposed Jacobian of each sample, whose products reverse-mode differentiation gives.
Trained networks have complex leading pairs, so that power iteration alone would not do: Arnoldi's method, for all
samples at once, from a vector that some power iterations have turned towards the leading eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.validation import Array

# Power iterations before Arnoldi's method, dimension of its space, and eigenvalues that are kept.
POWER_STEPS, KRYLOV, EIGENVALUES = 80, 40, 6
# Terms of the adjoint's series.
ADJOINT_TERMS = 64

Cell = Callable[[Tensor, Tensor], Tensor]
Product = Callable[[Tensor], Tensor]


class CellProblem:
    """The samples of a cell as a problem for the solver of `nets`, which records the residual of every evaluation.

    Args:
        cell: cell(z, x) of states (samples, size).
        x: its second argument.
        first: z_1, where the solver starts.
        residuals: one tensor for each evaluation, NaN for samples that were not evaluated.
        rows: numbers of these samples among all.
    """

    def __init__(self, cell: Cell, x: Tensor, first: Tensor, residuals: list[Tensor], rows: Tensor) -> None:
        self.cell, self.x, self.first, self.residuals, self.rows = cell, x, first, residuals, rows
        self.last = first

    @classmethod
    def of(cls, cell: Cell, x: Tensor, z0: Tensor) -> CellProblem:
        """The problem of all samples; the evaluation at z_0 is the first that is recorded."""
        first = cell(z0, x)
        return cls(cell, x, first, [relative_change(z0, first)], torch.arange(len(z0), device=z0.device))

    def start(self) -> Tensor:
        """Return the state z_1 after the first evaluation."""
        return self.first.clone()

    def step(self, x: Tensor, out: Tensor) -> None:
        """Evaluate the cell, and record its residual."""
        out.copy_(self.cell(x, self.x))
        self.residuals.append(torch.full_like(self.residuals[0], float("nan")))
        self.residuals[-1][self.rows] = relative_change(x, out)
        self.last = out.clone()

    def solution(self, rows: Tensor) -> Tensor:
        """The image of the last state."""
        return self.last[rows]

    def restrict(self, rows: Tensor) -> CellProblem:
        """The same problem for some of the samples."""
        part = CellProblem(self.cell, self.x[rows], self.first[rows], self.residuals, self.rows[rows])
        part.last = self.last[rows]
        return part


def relative_change(x: Tensor, image: Tensor) -> Tensor:
    """‖f(x) − x‖/‖f(x)‖ of each sample; zero is its own fixed point."""
    moved = torch.linalg.vector_norm((image - x).double(), dim=1)
    return torch.where(moved == 0.0, moved, moved / torch.linalg.vector_norm(image.double(), dim=1))


def leading_eigenvalues(product: Product, v: Tensor) -> Any:
    """Eigenvalues of largest modulus of each sample, (samples, some), complex."""
    size = v.shape[1]
    if size > KRYLOV:
        for _ in range(POWER_STEPS):
            image = product(v)
            norm = torch.linalg.vector_norm(image, dim=1, keepdim=True)
            v = torch.where(norm > 0.0, image / norm.clamp_min(torch.finfo(v.dtype).tiny), v)
    dimension = min(size, KRYLOV)
    basis = v.new_zeros(len(v), dimension + 1, size)
    hessenberg = np.zeros((len(v), dimension + 1, dimension))
    basis[:, 0] = v / torch.linalg.vector_norm(v, dim=1, keepdim=True)
    for j in range(dimension):
        image = product(basis[:, j])
        size_before = torch.linalg.vector_norm(image, dim=1)
        # Twice is enough (Kahan and Parlett).
        for _ in range(2):
            onto = torch.einsum("bkd,bd->bk", basis[:, : j + 1], image)
            image = image - torch.einsum("bk,bkd->bd", onto, basis[:, : j + 1])
            hessenberg[:, : j + 1, j] += onto.double().cpu().numpy()
        left = torch.linalg.vector_norm(image, dim=1)
        # An invariant space: nothing but rounding is left, and the eigenvalues so far are exact.
        left = torch.where(left > 100.0 * torch.finfo(v.dtype).eps * size_before, left, 0.0)
        hessenberg[:, j + 1, j] = left.double().cpu().numpy()
        basis[:, j + 1] = torch.where(left[:, None] > 0.0, image / left[:, None].clamp_min(1e-300), 0.0)
    # A sample that is not finite has no eigenvalues; the others keep theirs.
    finite = np.asarray(np.isfinite(hessenberg).all(axis=(1, 2)))
    values = np.linalg.eigvals(np.where(finite[:, None, None], hessenberg, 0.0)[:, :dimension])
    values = np.where(finite[:, None], values.astype(np.complex128), np.nan)
    order = np.argsort(-np.abs(values), axis=1)[:, :EIGENVALUES]
    return np.take_along_axis(values, order, axis=1)


def adjoint_errors(product: Product, cotangents: list[Tensor]) -> tuple[Array, Array]:
    """‖t‖/‖w‖ and ‖t − t_k‖/‖t‖ for k = 0, 1, …, roots of means over random cotangents w."""
    squares = []
    for w in cotangents:
        terms = [w.double()]
        for _ in range(2 * ADJOINT_TERMS - 1):
            terms.append(product(terms[-1].to(w)).double())
        rest, sizes = torch.zeros_like(terms[0]), []
        for term in reversed(terms):
            rest = rest + term
            sizes.append(rest.square().sum(dim=1))
        squares.append(torch.stack([*sizes[::-1], w.double().square().sum(dim=1)], dim=1).cpu().numpy())
    mean = np.mean(squares, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(mean[:, 0] / mean[:, -1]), np.sqrt(mean[:, :ADJOINT_TERMS] / mean[:, :1])


__all__ = ["KRYLOV", "Cell", "CellProblem", "adjoint_errors", "leading_eigenvalues", "relative_change"]
