"""`forecast`: what a solver will do with a model, before a network exists."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.forecasts.covariance_fields import Fields, fields_of, has_fields
from notsodeep.forecasts.forecast_result import SAFE_RATE, Forecast, GradientForecast
from notsodeep.forecasts.probability import settling_probability
from notsodeep.forecasts.solver_recursion import Anderson, error_curve, residual_curve
from notsodeep.validation import Array, as_count

MAX_STEPS = 200
# Rows with more distinct norms than this are interpolated between as many norms, in log ‖x‖².
NORMS = 24
# Numbers of fields that are followed at once; steps of Anderson acceleration, and numbers that it keeps.
CHUNK = 1 << 16
ANDERSON_STEPS, KEPT = 80, 1 << 23
# Samples for which the largest safe σ_a² is sought, and steps within which their variances must settle.
ADVISED, SEARCHED = 8, 600


def forecast(
    model: Any, X: Any, width: int | None = None, *, z0: Any = None, max_steps: int = MAX_STEPS
) -> Forecast:
    """Predict what a solver does with each sample, from a model alone; or measure it on a network or cell.

    Predictions are exact for wide networks with random weights. A model of rows depends on the norms of the samples
    alone, so that any number of rows costs as much as a few; a graph is one sample.

    Args:
        model: a `DEQ`, `ConvDEQ` or `GraphDEQ`; or, to measure, a network of `notsodeep.nets` that solves an
            equilibrium, or any callable `cell(z, x)` of torch with `z0`.
        X: samples as the model takes them; for a cell whatever its second argument is, the first axis counting samples.
        width: units of the network, for the probability that it has an equilibrium; None for the wide limit.
        z0: for a cell, the first state, the first axis counting samples.
        max_steps: most evaluations of the cell in `residuals`; counts of steps beyond it follow the rate.
    """
    steps = as_count(max_steps, "max_steps")
    if z0 is None and not hasattr(model, "parameters"):
        return predict(model, X, width, steps)
    if width is not None or (z0 is not None and hasattr(model, "spec")):
        raise InputError("width is for models, and z0 for a cell of your own: leave it out.")
    from notsodeep.forecasts.measured import measure_cell, measure_network

    if not (hasattr(model, "spec") and hasattr(model, "cell")):
        return measure_cell(model, X, z0, steps)
    initial = None
    if has_fields(model.spec):
        with suppress(ConvergenceError):
            initial = predict(model.spec, X, None, steps)
    return measure_network(model, X, steps, initial)


def predict(model: Any, X: Any, width: int | None, max_steps: int) -> Forecast:
    """The forecast of a model in the wide limit."""
    fields = fields_of(model, X)
    spread = fields.spread_rate
    rate = np.maximum(spread, fields.norm_rate)
    residuals = _curves(residual_curve, fields, max_steps)
    errors = _curves(error_curve, fields, residuals.shape[1])
    errors = _joined([errors, residuals])[: len(rate)]
    errors[rate >= 1.0] = np.nan
    chance = error = None
    if width is not None:
        chance, error = settling_probability(model.activation.name, rate, as_count(width, "width"))
    return Forecast(
        "predicted", str(model), rate, residuals, errors, _gradient(fields, spread),
        partial(_curves, _anderson, fields, max_steps), chance, error, width,
        safe_gain=partial(_safe_gain, fields),
    )  # fmt: skip


def _anderson(fields: Fields, max_steps: int) -> Array:
    """Residuals of Anderson acceleration; after the last step that is followed they fall as the last ones did."""
    steps = min(max_steps, ANDERSON_STEPS, max(12, int(np.sqrt(KEPT / fields.forcing.size))))
    curve = Anderson(fields, steps).run()
    if curve.shape[1] < steps or steps == max_steps:
        return curve
    factor = (curve[:, -1:] / curve[:, -9:-8]) ** 0.125
    return np.concatenate([curve, curve[:, -1:] * factor ** np.arange(1, max_steps - steps + 1)], axis=1)


def _curves(compute: Callable[[Fields, int], Array], fields: Fields, max_steps: int) -> Array:
    """Curves of all samples: rows through a few norms, images in parts."""
    forcing = fields.forcing
    if forcing.shape[1:] != (1,):
        at_once = max(1, (CHUNK if compute is not _anderson else 1) // forcing[0].size)
        parts = [replace(fields, forcing=forcing[i : i + at_once]) for i in range(0, len(forcing), at_once)]
        return _joined([compute(part, max_steps) for part in parts])
    nodes, place = np.unique(forcing, return_inverse=True)
    if len(nodes) <= NORMS:
        return np.asarray(compute(replace(fields, forcing=nodes[:, None]), max_steps)[place.reshape(-1)])
    nodes = np.concatenate([nodes[:1], np.geomspace(nodes[0], nodes[-1], NORMS)[1:-1], nodes[-1:]])
    logs = np.log(np.maximum(compute(replace(fields, forcing=nodes[:, None]), max_steps), 1e-300))
    return np.asarray(np.exp(CubicSpline(np.log(nodes), logs)(np.log(forcing[:, 0]))))


def _joined(parts: list[Array]) -> Array:
    """Curves below each other; shorter ones, which have reached rounding, are continued by their last value."""
    columns = max(part.shape[1] for part in parts)
    missing = [((0, 0), (0, columns - part.shape[1])) for part in parts]
    return np.concatenate([np.pad(part, more, "edge") for part, more in zip(parts, missing, strict=True)])


def _gradient(fields: Fields, rate: Array) -> GradientForecast:
    """The adjoint: its terms are orthogonal to each other in a wide network, and later ones fall with the rate."""
    terms, settled = fields.adjoint_terms, rate < 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = terms[:, -1:] * (rate**2 / (1.0 - rate**2))[:, None]
        sums = np.cumsum(np.concatenate([rest, terms[:, ::-1]], axis=1), axis=1)[:, ::-1]
        errors = np.where(settled[:, None], np.sqrt(sums / sums[:, :1]), np.inf)
        norm = np.where(settled, np.sqrt(sums[:, 0] / terms[:, 0]), np.inf)
    return GradientForecast(norm, errors, np.where(settled, rate, 1.0))


def _safe_gain(fields: Fields) -> tuple[float, float]:
    """The largest σ_a² at which no sample has a rate above the safe one, and the present σ_a²."""
    order = np.argsort(fields.total(fields.forcing))
    some = fields.forcing[np.unique(order[np.linspace(0, len(order) - 1, ADVISED).astype(int)])]

    def is_safe(gain: float) -> bool:
        try:
            other = replace(fields, feedback=gain, forcing=some, max_steps=SEARCHED)
            return bool(np.maximum(other.spread_rate, other.norm_rate).max() <= SAFE_RATE)
        except ConvergenceError:
            return False

    gains = np.geomspace(1e-3, 1e3, 13)
    above = next((i for i, gain in enumerate(gains) if not is_safe(gain)), None)
    if not above:
        return (np.inf if above is None else 0.0), fields.feedback
    low, high = float(gains[above - 1]), float(gains[above])
    while high - low > 2e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_safe(middle) else (low, middle)
    return low, fields.feedback


__all__ = ["forecast", "predict"]
