"""Forecasts of cells: rates from perturbations of the equilibrium, curves from the covariances between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from notsodeep.cells.layouts import Layout
from notsodeep.cells.rates import Perturbations
from notsodeep.cells.sample_terms import equilibrium_terms, loop_step, own_dual
from notsodeep.cells.second_moments import DualOf, Moments, SampleTerms, Vector
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.forecasts.forecast_result import Forecast, GradientForecast, continued
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mehler, second_moment
from notsodeep.models.cell_models import CellModel
from notsodeep.validation import Array

# Steps whose covariances are computed, and the residual at which that ends: later ones fall with the rate.
MOST_STEPS, SMALL = 32, 1e-4
# Terms of Mehler's series between two steps.
TERMS = 64
# Rows with more distinct norms are interpolated between as many, in log ‖x‖².
NORMS = 12
# Stands for a rate that does not exist.
LARGE = 1e6
# Steps after which the last residuals may show a mode of the norm that is slower than the rate of perturbations.
LATE = 12


@dataclass(frozen=True)
class _Predicted:
    """Numbers for each sample: both ends of the spectrum of the Jacobian, curves, and the growth of the adjoint."""

    ends: Array
    residuals: Array
    errors: Array
    adjoint: Array


def forecast_cell(model: CellModel, X: Any, max_steps: int) -> Forecast:
    """Predict what plain iteration of a cell does with each sample, in the wide limit."""
    values = model.check_samples(X)
    if not np.abs(values).reshape(len(values), -1).max(axis=1).all():
        raise InputError("A sample of norm zero has no direction to forecast: remove rows that are zero.")
    steps = max_steps if model.steps is None else model.steps
    graph, positions = (
        model.cell.samples == "graph",
        values.shape[2:] if model.cell.samples == "images" else (),
    )
    layout = Layout("graph") if graph else Layout("own", tuple(positions))
    if graph or positions:
        numbers = _predict(model, layout, layout.gram(values, values))
    else:
        numbers = _through_norms(model, layout, np.einsum("ij,ij->i", values, values))
    rate = np.abs(numbers.ends).max(axis=1)
    rate = np.maximum(rate, _late_ratio(numbers.residuals))
    residuals = continued(numbers.residuals, rate, steps)
    columns = steps if model.steps is None else steps + 1
    errors = continued(numbers.errors, rate, columns)
    errors[~(rate < 1.0)] = np.nan
    settled = rate < 1.0
    gradient = GradientForecast(
        np.where(settled, np.sqrt(numbers.adjoint), np.inf),
        np.where(settled, 1.0, np.inf)[:, None],
        np.where(settled, rate, 1.0),
    )
    return Forecast(
        "predicted", str(model), rate, residuals, errors, gradient, _no_anderson,
        loop_steps=model.steps, eigenvalues=numbers.ends,
    )  # fmt: skip


def _no_anderson() -> Array:
    raise InputError(
        "Anderson acceleration is forecast for DEQ, ConvDEQ and GraphDEQ; of a cell, measure it on a network."
    )


def _through_norms(model: CellModel, layout: Layout, squares: Array) -> _Predicted:
    """Rows differ only in norm: predict a few norms and interpolate."""
    nodes, place = np.unique(squares, return_inverse=True)
    if len(nodes) <= NORMS:
        found = _predict(model, layout, nodes.reshape(-1, 1, 1))
        return _Predicted(*(part[place.reshape(-1)] for part in vars(found).values()))
    nodes = np.concatenate([nodes[:1], np.geomspace(nodes[0], nodes[-1], NORMS)[1:-1], nodes[-1:]])
    known = _predict(model, layout, nodes.reshape(-1, 1, 1))

    def spread(part: Array) -> Array:
        return np.asarray(PchipInterpolator(np.log(nodes), part)(np.log(squares)))

    curves = [np.exp(spread(np.log(np.maximum(part, 1e-300)))) for part in (known.residuals, known.errors)]
    # The adjoint may be infinite: its inverse is zero there.
    inverse = np.maximum(spread(1.0 / known.adjoint), 0.0)
    adjoint = np.divide(1.0, inverse, out=np.full_like(inverse, np.inf), where=inverse > 0.0)
    return _Predicted(spread(np.clip(known.ends, -LARGE, LARGE)), curves[0], curves[1], adjoint)


def _predict(model: CellModel, layout: Layout, gram: Array) -> _Predicted:
    """Numbers of samples one by one."""
    cell = model.cell
    moments, curve, norms = _trajectory(model, layout, gram)
    try:
        perturbed = Perturbations(cell, layout, *equilibrium_terms(cell, layout, gram))
        ends = np.stack([perturbed.edge(1.0), -perturbed.edge(-1.0)], axis=-1)
        adjoint = perturbed.adjoint_growth()
    except ConvergenceError:
        if model.steps is None:
            raise
        # A loop takes its steps whether there is an equilibrium or not.
        ends, adjoint = np.full((*gram.shape[:2], 2), np.inf), np.full(gram.shape[:2], np.inf)
    ends, adjoint = _of_samples(layout, ends, np.max), _of_samples(layout, adjoint, np.mean)
    last = cell.last, curve.shape[1] - 1
    errors = [np.ones(len(curve))]
    for step in range(curve.shape[1] - 1):
        cross = _of_samples(layout, layout.diagonal(moments.of((cell.last, step), last)), np.mean)
        square = norms[:, step] + norms[:, -1] - 2.0 * cross
        errors.append(np.sqrt(np.maximum(square, 0.0) / np.maximum(norms[:, -1], 1e-300)))
    known = np.stack(errors, axis=1)
    # The last state stands for the equilibrium: errors near it are continued from a few steps before.
    kept = max(1, known.shape[1] - 6)
    return _Predicted(ends, curve, known[:, :kept], adjoint)


def _trajectory(model: CellModel, layout: Layout, gram: Array) -> tuple[Moments, Array, Array]:
    """Moments of the states of all steps, residuals (samples, steps) and mean squares of the states."""
    cell, terms = model.cell, SampleTerms()
    moments = Moments(cell, layout, terms, terms, gram, _between_steps(terms, layout))
    curve: list[Array] = []
    norms: list[Array] = []
    for step in range(MOST_STEPS):
        loop_step(cell, layout, terms, moments, step)
        place = cell.last, step
        size = _of_samples(layout, layout.diagonal(moments.of(place, place)), np.mean)
        if not step:
            curve.append(np.ones(len(size)))
        else:
            before = cell.last, step - 1
            cross = _of_samples(layout, layout.diagonal(moments.of(before, place)), np.mean)
            square = np.maximum(norms[-1] + size - 2.0 * cross, 0.0)
            curve.append(np.sqrt(square / np.maximum(size, 1e-300)))
        norms.append(size)
        if not np.isfinite(size).all() or (curve[-1] < SMALL).all() or size.max() > 1e12:
            break
    return moments, np.stack(curve, axis=1), np.stack(norms, axis=1)


def _between_steps(terms: SampleTerms, layout: Layout) -> DualOf:
    """F between two steps of one sample by Mehler's series, whose coefficients are computed once for each step.

    What the series leaves out is taken for its next term: exact for equal steps, and good to about 1e-8 otherwise.
    """
    exact = own_dual(terms, layout)
    known: dict[tuple[Activation, Vector], tuple[Array, Array]] = {}

    def coefficients(phi: Activation, vector: Vector) -> tuple[Array, Array]:
        if (phi, vector) not in known:
            q = terms.variances[vector].reshape(-1)
            table = mehler(phi, q, TERMS)
            rest = np.asarray(second_moment(phi, q)) - (table**2).sum(axis=1)
            known[phi, vector] = table, np.sqrt(np.maximum(rest, 0.0))
        return known[phi, vector]

    def dual(phi: Activation, one: Vector, two: Vector, covariance: Array) -> tuple[Array, Array]:
        if layout.kind != "own" or one == two or phi.shape.is_homogeneous:
            return exact(phi, one, two, covariance)
        (first, rest), (second, other) = coefficients(phi, one), coefficients(phi, two)
        scale = np.sqrt(terms.variances[one] * terms.variances[two]).reshape(-1)
        rho = np.clip(covariance.reshape(-1) / np.maximum(scale, 1e-300), -1.0, 1.0)
        powers = rho[:, None] ** np.arange(TERMS + 1)
        value = np.einsum("ik,ik,ik->i", first, second, powers[:, :-1]) + rest * other * powers[:, -1]
        return value.reshape(covariance.shape), np.zeros(covariance.shape)

    return dual


def _of_samples(layout: Layout, values: Array, reduce: Any) -> Array:
    """One number (or row of numbers) for each sample from those of its positions or nodes."""
    if layout.kind == "graph":
        return np.asarray(reduce(values, axis=1))
    count = int(np.prod(layout.positions)) if layout.positions else 1
    flat = values[:, 0]
    return np.asarray(reduce(flat.reshape(count, -1, *flat.shape[1:]), axis=0))


def _late_ratio(curve: Array) -> Array:
    """The last ratio of residuals where it has settled: the mode of the norm, if that is slower."""
    if curve.shape[1] < LATE:
        return np.zeros(len(curve))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = curve[:, -3:] / curve[:, -4:-1]
    steady = np.ptp(ratios, axis=1) < 0.005 * ratios[:, -1]
    return np.where(steady & (curve[:, -1] > SMALL) & (ratios[:, -1] < 1.0), ratios[:, -1], 0.0)


__all__ = ["forecast_cell"]
