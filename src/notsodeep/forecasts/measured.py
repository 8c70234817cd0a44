"""Forecasts measured on a network or on any torch cell z ← cell(z, x), samples along the first axis.

Eigenvalues are those of the transposed Jacobian of each sample, whose products reverse-mode differentiation gives.
Trained networks have complex leading pairs, so that power iteration alone would not do: Arnoldi's method, for all
samples at once, from a vector that some power iterations have turned towards the leading eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.forecasts.forecast_result import Forecast, GradientForecast
from notsodeep.nets import CellNet, EquilibriumNet, SolverOptions
from notsodeep.nets.cell_equilibrium import ForwardProblem
from notsodeep.nets.fixed_point_solvers import SolveReport, solve
from notsodeep.validation import Array

# Random cotangents, terms of the adjoint's series, and numbers in the states that are measured at once.
COTANGENTS, ADJOINT_TERMS, BATCH = 2, 64, 1 << 17
# Power iterations before Arnoldi's method, dimension of its space, and eigenvalues that are kept.
POWER_STEPS, KRYLOV, EIGENVALUES = 80, 40, 6

Cell = Callable[[Tensor, Tensor], Tensor]
Product = Callable[[Tensor], Tensor]


def measure_network(
    net: EquilibriumNet | CellNet, X: Any, max_steps: int, initial: Forecast | None
) -> Forecast:
    """Residuals, eigenvalues and gradients of a network on the samples X, beside the forecast of its model."""
    if net.coupled_samples:
        raise InputError("A network of a graph cannot be measured: forecast its model instead.")
    x = torch.as_tensor(net.spec.check_samples(X), dtype=net.readout.dtype, device=net.readout.device)
    start = net.readout.new_zeros(len(x), net.layer_size)
    return _measured(net.cell, x, start, f"network of {net.spec} with {net.units} units", max_steps, initial)


def measure_cell(model: Any, X: Any, z0: Any, max_steps: int) -> Forecast:
    """Residuals, eigenvalues and gradients of a cell on the samples X."""
    if not callable(model) or z0 is None:
        raise InputError(
            f"forecast of {type(model).__name__}: give a network of notsodeep.nets that solves an equilibrium, or a "
            "torch callable cell(z, x) together with z0=…, its first state."
        )
    start = z0.detach() if isinstance(z0, Tensor) else torch.as_tensor(np.asarray(z0))
    x = X if isinstance(X, Tensor) else torch.as_tensor(np.asarray(X)).to(start)
    if start.ndim < 2 or not len(start) or not start.is_floating_point():
        raise InputError(f"z0 must be floating-point numbers (samples, …); got shape {tuple(start.shape)}.")
    if x.shape[:1] != start.shape[:1]:
        raise InputError(f"X has shape {tuple(x.shape)}, z0 {tuple(start.shape)}: give one state per sample.")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in (start, x)):
        raise InputError("X or z0 has NaN or infinite entries. Remove those samples.")
    shape = tuple(start.shape[1:])

    def cell(z: Tensor, inputs: Tensor) -> Tensor:
        image = model(z.reshape(len(z), *shape), inputs)
        if not isinstance(image, Tensor) or image.shape != (len(z), *shape):
            got = tuple(image.shape[1:]) if isinstance(image, Tensor) else type(image).__name__
            raise InputError(f"cell(z, x) must return a tensor of the shape of z, {shape}; got {got}.")
        return image.flatten(1)

    name = getattr(model, "__name__", type(model).__name__)
    return _measured(cell, x, start.flatten(1), f"cell {name} with states {shape}", max_steps, None)


def _measured(cell: Cell, x: Tensor, z0: Tensor, words: str, max_steps: int, initial: Any) -> Forecast:
    limit, report, _ = _solved(cell, x, z0, SolverOptions(max_steps=max(max_steps, 200)))
    with torch.no_grad():
        residuals, errors = _curves(cell, x, z0, limit, max_steps)
    at_once = max(1, BATCH // z0.shape[1])
    parts = [slice(i, i + at_once) for i in range(0, len(z0), at_once)]
    facts = [_jacobian_facts(cell, x[part], limit[part]) for part in parts]
    eigenvalues, norms, truncated = (np.concatenate(group) for group in zip(*facts, strict=True))
    lost = ~(report.residuals <= report.tolerance).cpu().numpy()
    errors[lost], eigenvalues[lost] = np.nan, np.nan
    rate = np.abs(eigenvalues).max(axis=1)
    settled = rate < 1.0
    gradient = GradientForecast(
        np.where(settled, norms, np.inf),
        np.where(settled[:, None], truncated, np.inf),
        np.where(settled, rate, 1.0),
    )
    return Forecast(
        "measured", words, rate, residuals, errors, gradient, partial(_anderson, cell, x, z0, max_steps),
        eigenvalues=eigenvalues, initial=initial,
    )  # fmt: skip


def _solved(
    cell: Cell, x: Tensor, z0: Tensor, options: SolverOptions
) -> tuple[Tensor, SolveReport, list[Tensor]]:
    """The equilibrium from z_1 = cell(z_0), and the residuals of all evaluations, NaN for samples that had finished."""
    residuals: list[Tensor] = []

    def recorded(z: Tensor, rows: Tensor) -> Tensor:
        image = cell(z, x[rows])
        residuals.append(z.new_full((len(z0),), float("nan"), dtype=torch.float64))
        residuals[-1][rows] = _relative_change(z, image)
        return image

    rows = torch.arange(len(z0), device=x.device)
    with torch.no_grad():
        return *solve(ForwardProblem(recorded, rows, recorded(z0, rows)), options), residuals


def _relative_change(x: Tensor, image: Tensor) -> Tensor:
    """‖f(x) − x‖/‖f(x)‖ of each sample; zero is its own fixed point."""
    moved = torch.linalg.vector_norm((image - x).double(), dim=1)
    return torch.where(moved == 0.0, moved, moved / torch.linalg.vector_norm(image.double(), dim=1))


def _curves(cell: Cell, x: Tensor, z: Tensor, limit: Tensor, max_steps: int) -> tuple[Array, Array]:
    """Residuals and errors of plain iteration, (samples, steps), until all residuals are rounding."""
    rounding, scale = 4.0 * torch.finfo(z.dtype).eps, torch.linalg.vector_norm(limit, dim=1)
    columns: list[tuple[Tensor, Tensor]] = []
    while len(columns) < max_steps and not (columns and bool((columns[-1][0] <= rounding).all())):
        image = cell(z, x)
        columns.append((_relative_change(z, image), torch.linalg.vector_norm(z - limit, dim=1) / scale))
        z = image
    residuals, errors = (torch.stack(list(each), dim=1) for each in zip(*columns, strict=True))
    return residuals.cpu().numpy(), errors.double().cpu().numpy()


def _anderson(cell: Cell, x: Tensor, z0: Tensor, max_steps: int) -> Array:
    """Residuals of Anderson acceleration; NaN after a sample has reached rounding."""
    options = SolverOptions("anderson", 16.0 * torch.finfo(z0.dtype).eps, max_steps)
    residuals = _solved(cell, x, z0, options)[2]
    return torch.stack(residuals, dim=1).cpu().numpy()[:, :max_steps]


def _jacobian_facts(cell: Cell, x: Tensor, limit: Tensor) -> tuple[Any, Array, Array]:
    """Leading eigenvalues, growth of the adjoint, and errors of its truncations, of each sample."""
    with torch.enable_grad():
        z = limit.detach().requires_grad_()
        image = cell(z, x)
    if not image.requires_grad:
        raise InputError("cell(z, x) does not depend on z differentiably: its Jacobian cannot be measured.")

    def transposed(v: Tensor) -> Tensor:
        return torch.autograd.grad(image, z, v, retain_graph=True)[0]

    shape, generator = (COTANGENTS, *limit.shape), torch.Generator().manual_seed(0)
    draws = torch.randn(shape, generator=generator, dtype=torch.float64).to(limit)
    return (_leading_eigenvalues(transposed, draws[0]), *_adjoint_errors(transposed, list(draws)))


def _leading_eigenvalues(product: Product, v: Tensor) -> Any:
    """Eigenvalues of largest modulus of each sample, (samples, some), complex."""
    size = v.shape[1]
    for _ in range(POWER_STEPS if size > KRYLOV else 0):
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
    return np.take_along_axis(values, np.argsort(-np.abs(values), axis=1)[:, :EIGENVALUES], axis=1)


def _adjoint_errors(product: Product, cotangents: list[Tensor]) -> tuple[Array, Array]:
    """‖t‖/‖w‖ and ‖t − t_k‖/‖t‖ for k = 0, 1, …, roots of means over random cotangents w."""
    squares = []
    for w in cotangents:
        terms = [w.double()]
        for _ in range(2 * ADJOINT_TERMS - 1):
            terms.append(product(terms[-1].to(w)).double())
        rests = torch.stack(terms).flip(0).cumsum(0).flip(0).square().sum(dim=2)
        squares.append(torch.cat([rests, terms[0].square().sum(dim=1)[None]]).T.cpu().numpy())
    mean = np.mean(squares, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(mean[:, 0] / mean[:, -1]), np.sqrt(mean[:, :ADJOINT_TERMS] / mean[:, :1])


__all__ = ["measure_cell", "measure_network"]
