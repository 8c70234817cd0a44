"""Plot accuracy, distance or noise against a size, from rows of experiments."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from notsodeep.figures.line_plots import draw_decay, mark_sizes
from notsodeep.figures.row_selection import NUMBERS, averaged, needed, title
from notsodeep.figures.style import panel, point_style, styled, tidy_log
from notsodeep.records import Rows, grouped


@styled
def plot_widths(rows: Rows, ax: Axes | None = None, by: tuple[str, ...] = ("activation", "model")) -> Axes:
    """Plot the distance of a network's kernel from its limit against the width, with a line of slope m^(-1/2)."""
    return draw_decay(panel(ax), needed(rows, "width"), "width", by, "width $m$", r"$m^{-1/2}$")


@styled
def plot_draws(rows: Rows, ax: Axes | None = None, by: tuple[str, ...] = ("activation", "width")) -> Axes:
    """Plot the noise of a Monte-Carlo kernel against the number of averaged networks."""
    label, slope = "number of networks averaged", r"$\mathrm{draws}^{-1/2}$"
    return draw_decay(panel(ax), needed(rows, "draws"), "draws", by, label, slope)


@styled
def plot_depths(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot the kernel error of networks against their number of layers, each with its best constant factor."""
    axes = panel(ax)
    selected = needed(rows, "image-twin")
    for number, ((network,), group) in enumerate(grouped(selected, "network").items()):
        place, mean, _ = averaged(group, "layers", "up_to_factor")
        axes.plot(place, mean, label=title(network), **point_style(number))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(yscale="log", xlabel="layers", ylabel="kernel error, best factor")
    tidy_log(axes.yaxis)
    axes.legend()
    return axes


@styled
def plot_accuracy(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot test accuracy against the width, with error bars of one standard deviation over seeds."""
    axes = panel(ax)
    selected = needed(rows, "accuracy")
    for (model,), group in grouped(selected, "model").items():
        place, mean, spread = averaged(group, "width", "accuracy")
        style = point_style(NUMBERS.get(str(model), 5))
        axes.errorbar(place, 100 * mean, yerr=100 * spread, capsize=2.0, label=title(model), **style)
    axes.set_xscale("log")
    mark_sizes(axes, np.unique([float(row["width"]) for row in selected]))
    axes.set(xlabel="width $m$", ylabel="test accuracy (%)")
    axes.legend()
    return axes


@styled
def plot_epochs(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot test accuracy after each epoch, one line per model."""
    axes = panel(ax)
    selected = [row for row in needed(rows, "epoch") if row.get("accuracy") is not None]
    for (model,), group in grouped(selected, "model").items():
        place, mean, _ = averaged(group, "epoch", "accuracy")
        axes.plot(place, 100 * mean, label=title(model), **point_style(NUMBERS.get(str(model), 5)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch", ylabel="test accuracy (%)")
    axes.legend()
    return axes
