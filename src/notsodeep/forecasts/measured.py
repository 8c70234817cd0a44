"""Forecasts measured on a network or on any torch cell z ← cell(z, x), samples along the first axis."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.forecasts.forecast_result import Forecast, GradientForecast
from notsodeep.nets import CellNet, EquilibriumNet, SolverOptions
from notsodeep.nets.cell_analysis import CellProblem, adjoint_errors, leading_eigenvalues, relative_change
from notsodeep.nets.fixed_point_solvers import solve
from notsodeep.validation import Array

# Random cotangents, and numbers in the states that are measured at once.
COTANGENTS, BATCH = 2, 1 << 17


def measure_network(
    net: EquilibriumNet | CellNet, X: Any, max_steps: int, initial: Forecast | None
) -> Forecast:
    """Residuals, eigenvalues and gradients of a network on the samples X, beside the forecast of its model."""
    if net.coupled_samples:
        raise InputError(
            "Forecasts of the network of a graph are not available: forecast its model, a GraphDEQ."
        )
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
        raise InputError(
            f"X has shape {tuple(x.shape)} and z0 {tuple(start.shape)}: give one state per sample."
        )
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


def _measured(cell: Any, x: Tensor, z0: Tensor, words: str, max_steps: int, initial: Any) -> Forecast:
    with torch.no_grad():
        options = SolverOptions(max_steps=max(max_steps, 200))
        limit, report = solve(CellProblem.of(cell, x, z0), options)
        residuals, errors = _curves(cell, x, z0, limit, max_steps)
    lost = ~(report.residuals <= report.tolerance).cpu().numpy()
    at_once = max(1, BATCH // z0.shape[1])
    parts = [slice(i, i + at_once) for i in range(0, len(z0), at_once)]
    facts = [_jacobian_facts(cell, x[part], limit[part]) for part in parts]
    eigenvalues, norms, truncated = (np.concatenate(group) for group in zip(*facts, strict=True))
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


def _curves(cell: Any, x: Tensor, z: Tensor, limit: Tensor, max_steps: int) -> tuple[Array, Array]:
    """Residuals and errors of plain iteration, (samples, steps), until all residuals are rounding."""
    rounding, scale = 4.0 * torch.finfo(z.dtype).eps, torch.linalg.vector_norm(limit, dim=1)
    columns: list[tuple[Tensor, Tensor]] = []
    while len(columns) < max_steps and not (columns and bool((columns[-1][0] <= rounding).all())):
        image = cell(z, x)
        columns.append((relative_change(z, image), torch.linalg.vector_norm(z - limit, dim=1) / scale))
        z = image
    residuals, errors = (torch.stack(list(each), dim=1) for each in zip(*columns, strict=True))
    return residuals.cpu().numpy(), errors.double().cpu().numpy()


def _anderson(cell: Any, x: Tensor, z0: Tensor, max_steps: int) -> Array:
    """Residuals of Anderson acceleration; NaN after a sample has reached rounding."""
    options = SolverOptions("anderson", 16.0 * torch.finfo(z0.dtype).eps, max_steps)
    with torch.no_grad():
        problem = CellProblem.of(cell, x, z0)
        solve(problem, options)
    return torch.stack(problem.residuals, dim=1).cpu().numpy()[:, :max_steps]


def _jacobian_facts(cell: Any, x: Tensor, limit: Tensor) -> tuple[Any, Array, Array]:
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
    return (leading_eigenvalues(transposed, draws[0]), *adjoint_errors(transposed, list(draws)))


__all__ = ["measure_cell", "measure_network"]
