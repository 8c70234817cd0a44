"""`forecast`: what a solver will do with a model, before a network exists; `phase_diagram`: over two parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from notsodeep.cells.layouts import Layout
from notsodeep.cells.rates import Perturbations
from notsodeep.cells.sample_terms import equilibrium_terms
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.forecasts.cell_forecast import forecast_cell
from notsodeep.forecasts.covariance_fields import SMALLEST_FORCING, Fields, fields_of
from notsodeep.forecasts.forecast_result import (
    SAFE_PROBABILITY,
    SAFE_RATE,
    Forecast,
    GradientForecast,
    PhaseDiagram,
    continued,
)
from notsodeep.forecasts.solver_recursion import SMALLEST, Anderson, distance_curve
from notsodeep.forecasts.width_effects import log_growth, settling_probability
from notsodeep.models import DEQ
from notsodeep.models.cell_models import CellModel
from notsodeep.progress import progress_bar
from notsodeep.validation import Array, as_count, as_floats, as_number

MAX_STEPS = 200
# Rows with more distinct norms than this are interpolated between as many norms, in log ‖x‖².
NORMS = 24
# Numbers of fields that are followed at once; steps of Anderson acceleration, and numbers that it keeps.
CHUNK = 1 << 16
ANDERSON_STEPS, KEPT = 80, 1 << 23
# Samples for which the largest safe σ_a² is sought.
ADVISED = 8


@progress_bar("forecast")
def forecast(
    model: Any,
    X: Any,
    width: int | None = None,
    *,
    z0: Any = None,
    max_steps: int | None = None,
    seconds: float = 30.0,
) -> Forecast:
    """Predict what a solver does with each sample, from a model alone; or measure it on a network or cell.

    Predictions are exact for wide networks with random weights. A model of rows depends on the norms of the samples
    alone, so that any number of rows costs as much as a few; a graph is one sample.

    Args:
        model: a `DEQ`, `ConvDEQ` or `GraphDEQ`, or an explicit loop of one, such as `deq.unrolled(8)`; or, to measure,
            a network of `notsodeep.nets` that solves an equilibrium, or any torch callable `cell(z, x)` with `z0`.
        X: samples as the model takes them; for a cell its second argument, with samples along the first axis.
        width: units of the network, for the rate, residuals and errors of the median network of this width and the
            probability that it has an equilibrium; None for the wide limit. General cells have no formula for it: ten
            networks are drawn and measured, in some seconds.
        z0: for a cell, the first state, with samples along the first axis.
        max_steps: largest number of evaluations of the cell in `residuals`; predicted steps beyond it follow the rate.
            If None, 200 for a prediction, and for a measurement as many as are needed to say whether the state settles,
            grows or oscillates. A loop has its own number of steps.
        seconds: time that a measurement may take; samples that have no answer by then are "not within N evaluations".
    """
    steps = MAX_STEPS if max_steps is None else as_count(max_steps, "max_steps")
    limit = as_number(seconds, "seconds", positive=True)
    if z0 is None and not hasattr(model, "parameters"):
        if _is_general(model) and width is not None:
            from notsodeep.forecasts.drawn_networks import forecast_of_draws

            return forecast_of_draws(model, X, as_count(width, "width"), max_steps, limit)
        return _predict(model, X, width, steps)
    if width is not None or (z0 is not None and hasattr(model, "spec")):
        raise InputError("width is for models, and z0 for a cell of your own: leave it out.")
    from notsodeep.forecasts.measured import measure_cell, measure_network

    if not (hasattr(model, "spec") and hasattr(model, "cell")):
        return measure_cell(model, X, z0, max_steps, limit)
    initial = None
    with suppress(ConvergenceError):
        initial = _predict(model.spec, X, None, steps)
    return measure_network(model, X, max_steps, limit, initial)


def _is_general(model: Any) -> bool:
    """Whether a model is a cell that has no name of its own."""
    return isinstance(model, CellModel) and model.shorthand is None


def _predict(model: Any, X: Any, width: int | None, max_steps: int) -> Forecast:
    """The forecast of a model: in the wide limit, or of the median network of a width.

    A new class of models registers with `fields_of`. Cells that have no name of their own are predicted by
    perturbations and the covariances between steps.
    """
    if isinstance(model, CellModel):
        if model.shorthand is None:
            return forecast_cell(model, X, max_steps)
        return _predict(model.shorthand, X, width, max_steps)
    fields = fields_of(model, X)
    loop = fields.loop_steps
    try:
        spread, norm = fields.spread_rate, fields.norm_rate
    except ConvergenceError:
        # A loop takes its steps whether there is an equilibrium or not.
        if loop is None:
            raise
        spread = norm = np.full(len(fields.forcing), np.inf)
    wide_rate = np.maximum(spread, norm)
    rate, chance, error, remark = _at_width(fields, spread, norm, width)
    residuals = _curves(distance_curve, fields, loop or max_steps)
    still = np.ones(len(wide_rate))
    # A curve that has reached rounding stays there.
    residuals = continued(residuals, still, loop or residuals.shape[1])
    columns = loop + 1 if loop else residuals.shape[1]
    errors = np.full((len(rate), columns), np.nan)
    if np.isfinite(wide_rate).all():
        errors = continued(_curves(partial(distance_curve, to_limit=True), fields, columns), still, columns)
    if width is not None and (wide_rate < 1.0).any():
        size = width / fields.concentration
        residuals, errors = (_at_size(size, spread, norm, curve) for curve in (residuals, errors))
    errors[rate >= 1.0] = np.nan
    return Forecast(
        "predicted", str(model), rate, residuals, errors, _gradient(fields, spread),
        partial(_curves, _anderson, fields, loop or max_steps), chance, error, remark, width, loop,
        safe_gain=partial(_safe_gain, fields, width),
    )  # fmt: skip


def _at_width(
    fields: Fields, spread: Array, norm: Array, width: int | None
) -> tuple[Array, Array | None, Array | None, str]:
    """The rate of the median network of a width, the probability of an equilibrium, its error, and a remark."""
    rate = np.maximum(spread, norm)
    if width is None:
        return rate, None, None, ""
    chance = settling_probability(fields.phi.name, rate, as_count(width, "width"))
    if (rate < 1.0).any():
        # Late steps multiply errors by the spectral radius of a matrix of this size.
        growth = log_growth(width / fields.concentration, np.array([1e6, 1e6 + 1.0]))
        rate = np.maximum(spread * np.exp(np.diff(growth, axis=1)[:, 0]), norm)
    return rate, *chance


def _at_size(size: Array, spread: Array, norm: Array, curve: Array) -> Array:
    """Curves of samples whose Jacobians are like matrices of these sizes; the mode of the norm is as in the limit."""
    steps = np.arange(curve.shape[1], dtype=np.float64)
    share = np.minimum(spread / np.maximum(norm, 1e-300), 1.0)
    excess = log_growth(size, steps) + steps * np.log(np.maximum(share, 1e-300))[:, None]
    # Where the norm is the slower mode, directions count once they have overtaken it.
    excess = np.where(share[:, None] < 1.0, np.maximum(excess, 0.0), excess)
    grown = np.minimum(curve * np.exp(np.minimum(excess, 700.0)), np.maximum(curve, 1.0))
    return np.where((curve > SMALLEST) & (np.maximum(spread, norm) < 1.0)[:, None], grown, curve)


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
        parts = [forcing[i : i + at_once] for i in range(0, len(forcing), at_once)]
        curves = [compute(replace(fields, forcing=part), max_steps) for part in parts]
        columns = max(curve.shape[1] for curve in curves)
        return np.concatenate([continued(curve, np.ones(len(curve)), columns) for curve in curves])
    nodes, place = np.unique(forcing, return_inverse=True)
    if len(nodes) <= NORMS:
        return np.asarray(compute(replace(fields, forcing=nodes[:, None]), max_steps)[place.reshape(-1)])
    nodes = np.concatenate([nodes[:1], np.geomspace(nodes[0], nodes[-1], NORMS)[1:-1], nodes[-1:]])
    logs = np.log(np.maximum(compute(replace(fields, forcing=nodes[:, None]), max_steps), 1e-300))
    return np.asarray(np.exp(CubicSpline(np.log(nodes), logs)(np.log(forcing[:, 0]))))


def _gradient(fields: Fields, rate: Array) -> GradientForecast:
    """The adjoint: its terms are orthogonal to each other in a wide network, and later ones fall with the rate."""
    settled = rate < 1.0
    terms = fields.adjoint_terms if np.isfinite(rate).all() else np.ones((len(rate), 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = terms[:, -1:] * (rate**2 / (1.0 - rate**2))[:, None]
        sums = np.cumsum(np.concatenate([rest, terms[:, ::-1]], axis=1), axis=1)[:, ::-1]
        errors = np.where(settled[:, None], np.sqrt(sums / sums[:, :1]), np.inf)
        norm = np.where(settled, np.sqrt(sums[:, 0] / terms[:, 0]), np.inf)
    return GradientForecast(norm, errors, np.where(settled, rate, 1.0))


def _safe_gain(fields: Fields, width: int | None) -> tuple[float, float]:
    """The largest σ_a² at which no sample has a rate above the safe one, and the present σ_a².

    With a width the rate is that of the median network, and enough networks must have an equilibrium.
    """
    order = np.argsort(fields.total(fields.forcing))
    some = fields.forcing[np.unique(order[np.linspace(0, len(order) - 1, ADVISED).astype(int)])]

    def is_safe(gain: float) -> bool:
        try:
            other = replace(fields, feedback=gain, forcing=some)
            rate, chance, *_ = _at_width(other, other.spread_rate, other.norm_rate, width)
        except ConvergenceError:
            return False
        return bool(rate.max() <= SAFE_RATE and (chance is None or chance.min() >= SAFE_PROBABILITY))

    gains = np.geomspace(1e-3, 1e3, 13)
    above = next((i for i, gain in enumerate(gains) if not is_safe(gain)), None)
    if not above:
        return (np.inf if above is None else 0.0), fields.feedback
    low, high = float(gains[above - 1]), float(gains[above])
    while high - low > 2e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_safe(middle) else (low, middle)
    return low, fields.feedback


@progress_bar("phase diagram")
def phase_diagram(
    make_model: Callable[[float, float], Any],
    gain: Sequence[float],
    injection: Sequence[float],
    norm: float = 1.0,
) -> PhaseDiagram:
    """Compute contraction rates over a grid of two parameters.

    Args:
        make_model: `make_model(gain, injection)` returns a `DEQ`, `ConvDEQ`, `GraphDEQ`, or an `Equilibrium` of rows.
            For images and graphs the rate is that where every position has an input of this norm, far from borders.
            A model whose state is zero, without injection and bias, has the rate NaN: residuals are not defined.
        gain: values of its first argument.
        injection: values of its second argument.
        norm: ‖x‖ of a sample.
    """
    columns, rows = as_floats(gain, "gain", ndim=1), as_floats(injection, "injection", ndim=1)
    if not len(columns) or not len(rows):
        raise InputError("gain and injection need at least one value each.")
    length = as_number(norm, "norm", positive=True)
    rate = [[_rate(make_model(float(a), float(b)), length) for a in columns] for b in rows]
    return PhaseDiagram(columns, rows, np.array(rate), length)


def _rate(model: Any, norm: float) -> float:
    """The rate of a sample of this norm; infinite where variances have no fixed point, NaN where the state is zero."""
    X = np.full((1, 1), norm)
    try:
        if not isinstance(model, CellModel) or model.shorthand is not None:
            named = getattr(model, "shorthand", model)
            dense = getattr(named, "dense", named)
            forcing = dense.sigma_b2 * norm**2 + dense.bias2 if isinstance(dense, DEQ) else np.inf
            if forcing < SMALLEST_FORCING and not dense.activation(np.zeros(1))[0]:
                return np.nan
            fields = fields_of(dense, X)
            return float(np.maximum(fields.spread_rate, fields.norm_rate)[0])
        if model.cell.samples != "rows":
            raise InputError(
                "phase_diagram takes cells of rows: images and graphs have a rate for each sample."
            )
        layout = Layout("own")
        solved = equilibrium_terms(model.cell, layout, X[None] ** 2)
        last = model.cell.last, 0
        if not solved[1].of(last, last).any():
            return np.nan
        return float(Perturbations(model.cell, layout, *solved).rate()[0, 0])
    except ConvergenceError:
        return np.inf


__all__ = ["forecast", "phase_diagram"]
