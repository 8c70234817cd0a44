"""Accuracies, distances and noise against a size, from rows of experiments."""

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
    """How far the kernel of one network is from its limit, against the width, and a line that falls as m^(-1/2)."""
    return draw_decay(panel(ax), needed(rows, "width"), "width", by, "width $m$", r"$m^{-1/2}$")


@styled
def plot_draws(rows: Rows, ax: Axes | None = None, by: tuple[str, ...] = ("activation", "width")) -> Axes:
    """The noise of a Monte-Carlo kernel against the number of networks it is the mean of."""
    label, slope = "number of networks averaged", r"$\mathrm{draws}^{-1/2}$"
    return draw_decay(panel(ax), needed(rows, "draws"), "draws", by, label, slope)


@styled
def plot_depths(rows: Rows, ax: Axes | None = None) -> Axes:
    """How far networks are from a DEQ against their number of layers, each with its best constant factor."""
    axes = panel(ax)
    found = needed(rows, "image-twin")
    for number, ((network,), group) in enumerate(grouped(found, "network").items()):
        place, mean, _ = averaged(group, "layers", "up_to_factor")
        axes.plot(place, mean, label=title(network), **point_style(number))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(yscale="log", xlabel="layers", ylabel="distance, best factor")
    tidy_log(axes.yaxis)
    axes.legend()
    return axes


@styled
def plot_accuracy(rows: Rows, ax: Axes | None = None) -> Axes:
    """Test accuracy against the width for each model, with bars of one standard deviation over seeds."""
    axes = panel(ax)
    found = needed(rows, "accuracy")
    for (model,), group in grouped(found, "model").items():
        place, mean, spread = averaged(group, "width", "accuracy")
        style = point_style(NUMBERS.get(str(model), 5))
        axes.errorbar(place, 100 * mean, yerr=100 * spread, capsize=2.0, label=title(model), **style)
    axes.set_xscale("log")
    mark_sizes(axes, np.unique([float(row["width"]) for row in found]))
    axes.set(xlabel="width $m$", ylabel="test accuracy (%)")
    axes.legend()
    return axes


@styled
def plot_epochs(rows: Rows, ax: Axes | None = None) -> Axes:
    """Test accuracy after each epoch, one line for each model."""
    axes = panel(ax)
    found = [row for row in needed(rows, "epoch") if row.get("accuracy") is not None]
    for (model,), group in grouped(found, "model").items():
        place, mean, _ = averaged(group, "epoch", "accuracy")
        axes.plot(place, 100 * mean, label=title(model), **point_style(NUMBERS.get(str(model), 5)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch", ylabel="test accuracy (%)")
    axes.legend()
    return axes
