"""Plot predicted and measured test error against the number of samples or the width, from rows of experiments."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.curve_plots import mark_sizes
from notsodeep.figures.style import line_style, panel, styled, tidy_log
from notsodeep.validation import Array
from notsodeep_lab.plots.row_selection import Row, Rows, grouped, needed, title


@styled
def plot_learning_rows(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot test accuracy against the number of training samples: predicted lines with bands, and measured points.

    Lines are dashed where they extrapolate beyond the pool of the prediction. Error bars are one standard deviation
    over training sets and networks.
    """
    axes = panel(ax)
    selected = needed(rows, "learning")
    for number, ((width,), group) in enumerate(grouped(selected, "width").items()):
        some = sorted(group, key=lambda row: float(row["n"]))
        style: dict[str, Any] = {"color": line_style(number)["color"]}
        n = _column(some, "n")
        low, high, predicted = (100.0 * _column(some, name) for name in ("low", "high", "predicted"))
        inside = sum(not row["extrapolated"] for row in some)
        axes.fill_between(n, low, high, alpha=0.15, linewidth=0.0, **style)
        axes.plot(n[:inside], predicted[:inside], **style)
        axes.plot(n[max(inside - 1, 0) :], predicted[max(inside - 1, 0) :], linestyle="--", **style)
        label = "kernel" if width is None else f"width {width}"
        _points(axes, some, n, 100.0, label, number)
    axes.set(xscale="log", xlabel="number of training samples $n$", ylabel="test accuracy (%)")
    mark_sizes(axes, np.unique(_column(selected, "n")))
    axes.legend(title="points: trained; lines: predicted (dashed: extrapolated)")
    return axes


@styled
def plot_double_descent(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot squared error against the width: predicted lines, measured points with error bars over networks."""
    axes = panel(ax)
    selected = needed(rows, "double-descent")
    for number, ((model,), group) in enumerate(grouped(selected, "model").items()):
        some = sorted(group, key=lambda row: float(row["width"]))
        style = {"color": line_style(number)["color"], "linestyle": ("-", "--")[number % 2]}
        axes.plot(_column(some, "width"), _column(some, "predicted"), **style)
        trained = [row for row in some if row["measured"] is not None]
        _points(axes, trained, _column(trained, "width"), 1.0, title(model), number)
    axes.axvline(
        float(selected[0]["n"]),
        color="0.4",
        linestyle=":",
        linewidth=1.0,
        label=f"$m = n = {selected[0]['n']}$",
    )
    axes.set(xscale="log", yscale="log", xlabel="width $m$", ylabel="test mean squared error")
    tidy_log(axes.yaxis)
    mark_sizes(axes, np.unique(_column([row for row in selected if row["measured"] is not None], "width")))
    axes.legend(title="points: trained; lines: predicted without data")
    return axes


def _points(axes: Axes, some: list[Row], place: Array, factor: float, label: str, number: int) -> None:
    """Draw measured points with error bars of one standard deviation."""
    style = {"color": line_style(number)["color"], "marker": "os^Dv"[number % 5], "markersize": 3.5}
    measured, spread = (factor * _column(some, name) for name in ("measured", "deviation"))
    axes.errorbar(place, measured, yerr=spread, linestyle="none", capsize=2.0, label=label, **style)


def _column(rows: list[Row], name: str) -> Array:
    return np.array([float(row[name]) for row in rows])
