"""Forecasts measured on a network or on any torch cell z ← cell(z, x), samples along the first axis.

Plain iteration says whether a sample settles. Where it does not, other methods look for an equilibrium, so that its
eigenvalues can say why. Eigenvalues are those of the transposed Jacobian of each sample, whose products reverse-mode
differentiation gives.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.forecasts.cell_in_float64 import CellInFloat64
from notsodeep.forecasts.forecast_result import Forecast, GradientForecast
from notsodeep.forecasts.jacobian_products import Product, adjoint_errors, late_growth, spectrum
from notsodeep.forecasts.plain_iteration import GROWS, SETTLES, Clock, iterate
from notsodeep.nets import CellNet, EquilibriumNet, SolverOptions
from notsodeep.nets.cell_equilibrium import ForwardProblem
from notsodeep.nets.fixed_point_solvers import solve
from notsodeep.validation import Array

# Random cotangents, and numbers in the states that are measured at once.
COTANGENTS, BATCH = 2, 1 << 17
# Shares of the time after which plain iteration, and the search for equilibria that it did not reach, end.
ITERATION_SHARE, SEARCH_SHARE = 0.6, 0.8
# Evaluations for which errors are measured in a second pass, and evaluations of each stage of the search.
ERROR_STEPS, SEARCH_STEPS = 200, 200
# The step at an equilibrium that was found beside the first step of the iteration, and its norm beside the largest.
SHORTER, FARTHER = 1e-6, 10.0
# A share of an error that is left after all evaluations, above which its decay need not show in the steps.
INVISIBLE = 0.1
# Products of the damped Jacobian that check an advice to damp.
DAMPED_STEPS = 200


def measure_network(
    net: EquilibriumNet | CellNet, X: Any, max_steps: int | None, seconds: float, initial: Forecast | None
) -> Forecast:
    """Residuals, eigenvalues and gradients of a network on the samples X, beside the forecast of its model."""
    x = torch.as_tensor(net.spec.check_samples(X), dtype=net.readout.dtype, device=net.readout.device)
    states = (len(x), net.layer_size)
    words = f"network of {net.spec} with {net.units} units"
    narrow = net.readout.dtype is not torch.float64
    if net.coupled_samples:
        # The nodes of a graph are one sample.
        net.check_shape(tuple(x.shape))
        cell = CellInFloat64(
            lambda z, rows: net.cell(z[0], rows[0])[None], states, x.new_zeros(1, *states), x[None], narrow
        )
    else:
        cell = CellInFloat64(net.cell, states[1:], x.new_zeros(states), x, narrow)
    return _measured(cell, words, max_steps, seconds, initial)


def measure_cell(model: Any, X: Any, z0: Any, max_steps: int | None, seconds: float) -> Forecast:
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
    name = getattr(model, "__name__", type(model).__name__)
    words = f"cell {name} with states {shape}"
    return _measured(CellInFloat64(model, shape, start, x), words, max_steps, seconds, None)


def _measured(
    cell: CellInFloat64, words: str, max_steps: int | None, seconds: float, initial: Forecast | None
) -> Forecast:
    clock = Clock(seconds)
    with cell.untouched(), torch.no_grad():
        path = iterate(cell, max_steps, clock, ITERATION_SHARE)
        settled = path.outcome == SETTLES
        limit, known = path.last, settled.copy()
        late = torch.from_numpy(np.flatnonzero(~settled)).to(limit.device)
        if len(late):
            grows = torch.from_numpy(path.outcome == GROWS).to(limit.device)[:, None]
            limit[late], found = _sought(cell, late, torch.where(grows, cell.start, limit)[late], clock)
            size = torch.linalg.vector_norm(limit[late], dim=1).cpu().numpy()
            known[~settled] = found & (size <= FARTHER * path.largest[~settled])
        errors = _errors(cell, limit, path.residuals.shape[1], clock)
        eigenvalues, rate, norms, truncated = _jacobian_facts(cell, limit, np.flatnonzero(known), clock)
    # Rounding gives nilpotent Jacobians small eigenvalues.
    nilpotent = np.logical_and(path.vanishes, rate < 1.0)
    eigenvalues[nilpotent], rate[nilpotent] = 0.0, 0.0
    errors[~known] = np.nan
    unknown = np.where(np.char.startswith(path.outcome, "not within"), path.factor, np.inf)
    rate = np.where(known, rate, np.where(np.isnan(unknown), np.inf, unknown))
    outcome = np.where(settled & (rate >= 1.0), "unstable", path.outcome)
    # So slow a mode looks constant over these evaluations.
    count = path.residuals.shape[1]
    hidden = known & ~settled & (rate < 1.0) & (np.minimum(rate, 1.0) ** count > INVISIBLE)
    outcome = np.where(hidden, f"not within {count} evaluations", outcome)
    settled &= rate < 1.0
    gradient = GradientForecast(
        np.where(settled, norms, np.inf),
        np.where(settled[:, None], truncated, np.inf),
        np.where(settled, rate, 1.0),
    )
    anderson = partial(_anderson, cell, path.residuals.shape[1])
    return Forecast(
        "measured", words, rate, path.residuals, errors, gradient, anderson,
        eigenvalues=eigenvalues, initial=initial, outcome=outcome, seconds=seconds,
        precision=str(cell.dtype).removeprefix("torch."),
        damped_rate=partial(_damped_rate, cell, limit, known),
    )  # fmt: skip


def _sought(cell: CellInFloat64, rows: Tensor, z: Tensor, clock: Clock) -> tuple[Tensor, Array]:
    """Equilibria of samples that plain iteration does not reach, and whether they are some."""
    options = SolverOptions(max_steps=SEARCH_STEPS)

    def step(state: Tensor, chosen: Tensor) -> Tensor:
        # An image that is not finite ends the search.
        return cell(state, cell.inputs[chosen]) if not clock.over(SEARCH_SHARE) else state * np.nan

    found, report = solve(ForwardProblem(step, rows, z), options)
    solved = report.residuals <= options.tolerance_for(cell.dtype)
    found = torch.where(solved[:, None], found, z)
    # Far away, steps are small beside any state.
    moved, first = (
        torch.linalg.vector_norm(cell(state, cell.inputs[rows]) - state, dim=1)
        for state in (found, cell.start[rows])
    )
    solved &= moved <= SHORTER * first
    return found, solved.cpu().numpy()


def _anderson(cell: CellInFloat64, steps: int) -> Array:
    """Residuals of Anderson acceleration; NaN after a sample has reached rounding."""
    residuals: list[Tensor] = []

    def recorded(z: Tensor, rows: Tensor) -> Tensor:
        image = cell(z, cell.inputs[rows])
        moved = torch.linalg.vector_norm((image - z).double(), dim=1)
        size = torch.linalg.vector_norm(image.double(), dim=1)
        residuals.append(z.new_full((len(cell.start),), float("nan"), dtype=torch.float64))
        residuals[-1][rows] = torch.where(moved == 0.0, moved, moved / size)
        return image

    options = SolverOptions("anderson", 16.0 * torch.finfo(cell.dtype).eps, steps)
    rows = torch.arange(len(cell.start), device=cell.start.device)
    with cell.untouched(), torch.no_grad():
        solve(ForwardProblem(recorded, rows, recorded(cell.start, rows)), options)
    return torch.stack(residuals, dim=1).cpu().numpy()[:, :steps]


def _errors(cell: CellInFloat64, limit: Tensor, columns: int, clock: Clock) -> Array:
    """‖z_k − z*‖/‖z*‖ in a second pass, (samples, columns); NaN in columns that it does not reach."""
    z, scale = cell.start, torch.linalg.vector_norm(limit, dim=1)
    errors = np.full((len(z), columns), np.nan)
    for column in range(min(columns, ERROR_STEPS)):
        distance = torch.linalg.vector_norm(z - limit, dim=1)
        errors[:, column] = torch.where(distance == 0.0, distance, distance / scale).double().cpu().numpy()
        if clock.over(SEARCH_SHARE):
            break
        z = cell(z, cell.inputs)
    return errors


def _transposed(cell: CellInFloat64, x: Tensor, limit: Tensor) -> Product:
    """Products of the transposed Jacobian of each sample."""
    with torch.enable_grad():
        z = limit.detach().clone().requires_grad_()
        image = cell(z, x)

    def transposed(v: Tensor) -> Tensor:
        return torch.autograd.grad(image, z, v, retain_graph=True)[0]

    return transposed


def _jacobian_facts(
    cell: CellInFloat64, limit: Tensor, rows: Any, clock: Clock
) -> tuple[Any, Array, Array, Array]:
    """Leading eigenvalues, the rate, growth of the adjoint, and errors of its truncations; NaN for other rows."""
    results: list[Any] = [np.full((len(limit), 1), np.nan, dtype=np.complex128)]
    results += [np.full(len(limit), np.nan), np.full(len(limit), np.nan), np.full((len(limit), 1), np.nan)]
    at_once = max(1, BATCH // limit.shape[1])
    for first in range(0, len(rows), at_once):
        part, share = rows[first : first + at_once], min(1.0, (first + at_once) / len(rows))
        over = partial(clock.over, SEARCH_SHARE + (1.0 - SEARCH_SHARE) * share)
        places = torch.from_numpy(part).to(limit.device)
        product = _transposed(cell, cell.inputs[places], limit[places])
        draws = _draws(limit[places], 0)
        found = spectrum(product, draws[0], over)
        facts = found.eigenvalues, found.rate, *adjoint_errors(product, list(draws), over)
        for number, values in enumerate(facts):
            if results[number].shape[1:] != values.shape[1:]:
                results[number] = np.repeat(results[number], values.shape[1], axis=1)
            results[number][part] = values
    return results[0], results[1], results[2], results[3]


def _draws(like: Tensor, seed: int) -> Tensor:
    """Random cotangents of these states."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((COTANGENTS, *like.shape), generator=generator, dtype=torch.float64).to(like)


def _damped_rate(cell: CellInFloat64, limit: Tensor, known: Array, share: float) -> float:
    """The rate of z + η (f(z) − z) for a share η, of the slowest sample: the growth of late products."""
    rows = torch.from_numpy(np.flatnonzero(known)).to(limit.device)
    with cell.untouched():
        product = _transposed(cell, cell.inputs[rows], limit[rows])
        growth = late_growth(
            lambda v: (1.0 - share) * v + share * product(v), _draws(limit[rows], 1)[0], DAMPED_STEPS
        )
    return float(growth.max())


__all__ = ["measure_cell", "measure_network"]
