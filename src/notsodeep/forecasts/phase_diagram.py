"""`phase_diagram`: the contraction rate of a model over feedback and injection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from notsodeep.cells.layouts import Layout
from notsodeep.cells.rates import Perturbations
from notsodeep.cells.sample_terms import equilibrium_terms
from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.moments import contraction_rates
from notsodeep.models import DEQ
from notsodeep.models.cell_models import CellModel
from notsodeep.validation import Array, as_floats, as_number


@dataclass(frozen=True, eq=False, repr=False)
class PhaseDiagram(Shown):
    """Rates of the models `make_model(gain, injection)` for samples of one norm.

    Attributes:
        gain: first arguments, along columns.
        injection: second arguments, along rows.
        rate: factor per step of a small error, (injections, gains); infinite where variances have no fixed point.
        norm: ‖x‖.
    """

    gain: Array
    injection: Array
    rate: Array
    norm: float

    def plot(self, ax: Any = None) -> Any:
        """Draw the rates as colours, with the line where the rate is 1; returns the Axes."""
        from notsodeep.figures import plot_phase_diagram

        return plot_phase_diagram(self, ax=ax)


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
    if isinstance(model, CellModel) and model.shorthand is None:
        return _cell_rate(model, norm)
    model = model.shorthand if isinstance(model, CellModel) else model
    dense = getattr(model, "dense", model)
    if not isinstance(dense, DEQ):
        raise InputError(
            f"make_model must return a DEQ, ConvDEQ, GraphDEQ or Equilibrium, not {type(model).__name__}."
        )
    forcing = dense.sigma_b2 * norm**2 + dense.bias2
    if forcing <= 0.0:
        raise InputError("Without injection and bias the state stays at zero: give injection > 0.")
    try:
        return float(contraction_rates(dense.activation, dense.sigma_a2, forcing).slowest)
    except ConvergenceError:
        return np.inf


def _cell_rate(model: CellModel, norm: float) -> float:
    """The rate of a cell of rows."""
    if model.cell.samples != "rows":
        raise InputError(
            "The phase diagram of a cell is for rows: images and graphs have a rate for each sample."
        )
    layout = Layout("own")
    try:
        solved = equilibrium_terms(model.cell, layout, np.full((1, 1, 1), norm**2))
        return float(Perturbations(model.cell, layout, *solved).rate()[0, 0])
    except ConvergenceError:
        return np.inf


__all__ = ["PhaseDiagram", "phase_diagram"]
