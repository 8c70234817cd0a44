"""Cells at a finite width: networks with random weights are drawn and measured, because no formula is known."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from notsodeep.errors import ConvergenceError
from notsodeep.forecasts.cell_forecast import forecast_cell
from notsodeep.forecasts.forecast_result import Forecast, GradientForecast, continued
from notsodeep.forecasts.jacobian_products import ADJOINT_TERMS
from notsodeep.forecasts.measured import measure_network
from notsodeep.forecasts.plain_iteration import SETTLES
from notsodeep.models.cell_models import CellModel
from notsodeep.nets import network
from notsodeep.validation import Array

# Networks that are drawn, and rows that are measured: further ones have the answers of the nearest norm.
NETWORKS, ROWS = 10, 8


def forecast_of_draws(
    model: CellModel, X: Any, width: int, max_steps: int | None, seconds: float
) -> Forecast:
    """The medians over networks of a width, beside the prediction for wide ones."""
    values = model.check_samples(X)
    chosen, nearest = _chosen(model, values)
    draws: list[Forecast] = []
    end = time.monotonic() + seconds
    for seed in range(NETWORKS):
        net = network(model, values.shape[1:], width, 1, seed=seed, dtype=torch.float64)
        steps = max_steps if model.steps is None else model.steps
        share = max(end - time.monotonic(), 0.1 * seconds) / (NETWORKS - seed)
        draws.append(measure_network(net, values[chosen], steps, share, None))  # type: ignore[arg-type]
    settled = np.array([one.outcome == SETTLES for one in draws])
    columns = max(one.residuals.shape[1] for one in draws) if model.steps is None else model.steps
    wide: Forecast | None = None
    with suppress(ConvergenceError):
        wide = forecast_cell(model, X, columns)
    rate = _median([one.rate for one in draws])
    probability, count = settled.mean(axis=0), len(draws)
    # One success and one failure are added, so that no error is zero.
    shrunk = (settled.sum(axis=0) + 1.0) / (count + 2.0)
    outcome = [SETTLES if share > 0.5 else _most_frequent(draws, i) for i, share in enumerate(probability)]
    # A network without an equilibrium is infinitely far from it.
    far = [continued(one.errors, one.rate, columns + (model.steps is not None)) for one in draws]
    errors = _median([np.nan_to_num(each, nan=np.inf) for each in far])
    errors[np.isinf(errors)] = np.nan
    gradients = [np.broadcast_to(one.gradient.errors, (len(rate), ADJOINT_TERMS)) for one in draws]
    gradient = GradientForecast(
        _median([one.gradient.adjoint_norm for one in draws])[nearest],
        _median(gradients)[nearest],
        np.minimum(rate, 1.0)[nearest],
    )
    residuals = _median([continued(one.residuals, one.rate, columns) for one in draws])
    return Forecast(
        "measured", str(model), rate[nearest], residuals[nearest], errors[nearest], gradient,
        partial(_anderson, draws, nearest), probability[nearest],
        np.sqrt(shrunk * (1.0 - shrunk) / count)[nearest], f"the share of {count} networks", width, model.steps,
        eigenvalues=np.full((len(nearest), 1), np.nan) if wide is None else wide.eigenvalues, initial=wide,
        outcome=np.array(outcome)[nearest], seconds=seconds, draws=tuple(draws),
    )  # fmt: skip


def _chosen(model: CellModel, values: Array) -> tuple[Any, Any]:
    """Indices of samples that are measured, and of each sample the place of the one that answers for it."""
    samples = 1 if model.cell.samples == "graph" else len(values)
    if model.cell.samples != "rows" or samples <= ROWS:
        return np.arange(len(values)), np.arange(samples)
    norms = np.linalg.norm(values, axis=1)
    chosen = np.argsort(norms)[np.linspace(0, samples - 1, ROWS).astype(int)]
    return chosen, np.abs(norms[:, None] - norms[chosen]).argmin(axis=1)


def _median(values: list[Array]) -> Array:
    return np.asarray(np.median(np.stack(values), axis=0))


def _most_frequent(draws: list[Forecast], sample: int) -> str:
    names, counts = np.unique([one.outcome[sample] for one in draws], return_counts=True)
    return str(max(zip(counts, names, strict=True), key=lambda pair: (pair[1] != SETTLES, pair[0]))[1])


def _anderson(draws: list[Forecast], nearest: Any) -> Array:
    """Medians of the residuals of Anderson acceleration."""
    curves = [one.anderson_residuals for one in draws]
    columns = max(curve.shape[1] for curve in curves)
    known = [continued(curve, np.zeros(len(curve)), columns) for curve in curves]
    return np.asarray(_median(known)[nearest])


__all__ = ["forecast_of_draws"]
