"""`forecast`: what a solver will do with a model, before a network exists (docs/theory.md, section 9)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.forecasts.covariance_fields import DiagonalFields, fields_of
from notsodeep.forecasts.probability import safe_rate, settling_probability
from notsodeep.forecasts.result import Forecast, GradientForecast
from notsodeep.forecasts.solver_recursion import Recursion, error_curve
from notsodeep.models import DEQ
from notsodeep.validation import Array, as_count

MAX_STEPS = 200
# Rows with more distinct norms than this are interpolated between as many norms, in log ‖x‖².
NORMS = 24
# Numbers in a field that are followed at once; steps and memory of Anderson acceleration, and numbers kept for it.
CHUNK = 1 << 16
ANDERSON_STEPS, MEMORY, KEPT = 80, 5, 1 << 24
# Residual from which on curves of graphs follow the rate.
TAIL = 1e-4
# Samples for which the largest safe σ_a² is sought.
ADVISED = 8


def forecast(model: Any, X: Any, width: int | None = None, *, z0: Any = None, max_steps: int = MAX_STEPS) -> Forecast:
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

    Raises:
        InputError: for samples that the model does not take, of norm zero or not finite, and for explicit networks.
        ConvergenceError: if the variance of the pre-activations has no fixed point.
    """
    steps = as_count(max_steps, "max_steps")
    if z0 is not None or hasattr(model, "parameters"):
        from notsodeep.forecasts.measured import measure

        if width is not None:
            raise InputError("width is for models: a network has its own. Leave it out.")
        return measure(model, X, z0, steps)
    return predict(model, X, width, steps)


def predict(model: Any, X: Any, width: int | None, max_steps: int) -> Forecast:
    """The forecast of a model in the wide limit."""
    fields = fields_of(model, X)
    spread = fields.spread_rate
    rate = np.maximum(spread, fields.norm_rate)
    residuals = _curves(partial(_residuals, max_steps=max_steps), fields)
    errors = _curves(partial(error_curve, steps=max_steps), fields)
    columns = min(residuals.shape[1], errors.shape[1])
    residuals, errors = residuals[:, :columns], errors[:, :columns]
    errors[rate >= 1.0] = np.nan
    chance = error = None
    if width is not None:
        chance, error = settling_probability(model.activation.name, rate, as_count(width, "width"))
    return Forecast(
        "predicted", str(model), rate, residuals, errors, _gradient(fields, spread), chance, error, width,
        anderson_curve=partial(_curves, partial(_anderson, max_steps=max_steps), fields),
        safe_gain=partial(_safe_gain, fields, safe_rate(model.activation.name, width)),
    )  # fmt: skip


def _residuals(fields: DiagonalFields, max_steps: int) -> Array:
    """Residuals of plain iteration."""
    curve = Recursion(fields, 0).run(max_steps)
    if not fields.has_exact_tail:
        rate = np.maximum(fields.spread_rate, fields.norm_rate)
        for row in np.flatnonzero((rate < 1.0) & (curve < TAIL).any(axis=1)):
            first = int(np.argmax(curve[row] < TAIL))
            curve[row, first:] = curve[row, first] * rate[row] ** np.arange(curve.shape[1] - first)
    return curve


def _anderson(fields: DiagonalFields, max_steps: int) -> Array:
    """Residuals of Anderson acceleration, sample by sample where fields are large."""
    size = fields.forcing[0].size
    if size * len(fields.forcing) > size and size > 1:
        parts = [_anderson(fields.part(slice(i, i + 1)), max_steps) for i in range(len(fields.forcing))]
        return _joined(parts)
    steps = min(max_steps, ANDERSON_STEPS, max(10, int(np.sqrt(KEPT / (5 * size)))))
    curve = Recursion(fields, MEMORY).run(steps)
    if len(curve[0]) < steps or steps == max_steps:
        return curve
    # Later residuals fall as the last ones did on average.
    factor = (curve[:, -1] / curve[:, -9]) ** 0.125
    return np.concatenate([curve, curve[:, -1:] * factor[:, None] ** np.arange(1, max_steps - steps + 1)], axis=1)


def _curves(compute: Any, fields: DiagonalFields) -> Array:
    """Curves of all samples: rows through a few norms, images in parts."""
    count = len(fields.forcing)
    if fields.forcing.shape[1:] == (1,):
        squares, place = np.unique(fields.forcing[:, 0], return_inverse=True)
        if len(squares) <= NORMS:
            return np.asarray(compute(_rows_at(fields, squares))[place])
        nodes = np.geomspace(squares[0], squares[-1], NORMS)
        # Rounding must not put a row outside of the nodes.
        nodes[0], nodes[-1] = squares[0], squares[-1]
        logs = np.log(np.maximum(compute(_rows_at(fields, nodes)), 1e-300))
        return np.asarray(np.exp(CubicSpline(np.log(nodes), logs)(np.log(fields.forcing[:, 0]))))
    at_once = max(1, CHUNK // fields.forcing[0].size)
    return _joined([compute(fields.part(slice(i, i + at_once))) for i in range(0, count, at_once)])


def _rows_at(fields: DiagonalFields, forcing: Array) -> DiagonalFields:
    return DiagonalFields(DEQ(fields.phi, fields.feedback, 1.0), forcing[:, None])


def _joined(parts: list[Array]) -> Array:
    """Curves below each other; shorter ones, which have reached rounding, are continued by their last value."""
    columns = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, columns - part.shape[1])), mode="edge") for part in parts])


def _gradient(fields: DiagonalFields, rate: Array) -> GradientForecast:
    """The adjoint: its terms are orthogonal to each other in a wide network, and later ones fall with the rate."""
    terms, settled = fields.adjoint_terms, rate < 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = terms[:, -1:] * (rate**2 / (1.0 - rate**2))[:, None]
        sums = np.cumsum(np.concatenate([rest, terms[:, ::-1]], axis=1), axis=1)[:, ::-1]
        errors = np.where(settled[:, None], np.sqrt(sums / sums[:, :1]), np.inf)
        norm = np.where(settled, np.sqrt(sums[:, 0] / terms[:, 0]), np.inf)
    return GradientForecast(norm, errors, np.where(settled, rate, 1.0))


def _safe_gain(fields: DiagonalFields, safe: float) -> tuple[float, float, float]:
    """The largest σ_a² at which no sample has a rate above `safe`, the present σ_a², and `safe`."""
    order = np.argsort(fields.forcing.reshape(len(fields.forcing), -1).sum(axis=1))
    chosen = np.unique(order[np.linspace(0, len(order) - 1, ADVISED).astype(int)])
    some = fields if fields.forcing.ndim > 2 else fields.part(chosen)

    def is_safe(gain: float) -> bool:
        try:
            other = some.with_feedback(gain)
            return bool(np.maximum(other.spread_rate, other.norm_rate).max() <= safe)
        except ConvergenceError:
            return False

    low = high = max(fields.feedback, 1e-3)
    while is_safe(high):
        low, high = high, 2.0 * high
        if high > 1e4:
            return np.inf, fields.feedback, safe
    while not is_safe(low):
        low, high = 0.5 * low, low
        if low < 1e-9:
            return 0.0, fields.feedback, safe
    while high - low > 2e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_safe(middle) else (low, middle)
    return low, fields.feedback, safe


__all__ = ["forecast", "predict"]
