"""Plot errors, accuracy or noise against a size, losses and norms against steps, from rows of experiments."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.curve_plots import mark_sizes
from notsodeep.figures.style import line_style, panel, point_style, styled, tidy_log
from notsodeep.validation import Array
from notsodeep_lab.plots.row_selection import Rows, averaged, grouped, needed, title

# An error that falls more slowly than this power of the size contradicts a line that falls with its root.
_LEAST_EXPONENT = 0.25


@styled
def plot_errors(rows: Rows, ax: Axes | None = None, by: tuple[str, ...] = ("activation",)) -> Axes:
    """Plot relative errors against the number of samples, with bars over seeds and, if they fall, a line n^(-1/2)."""
    return draw_decay(panel(ax), needed(rows, "error"), "n", by, "number of samples $n$", r"$n^{-1/2}$")


def draw_decay(axes: Axes, rows: Rows, x: str, by: tuple[str, ...], x_label: str, slope: str) -> Axes:
    """Plot relative errors against a size on logarithmic axes, one line with bars for each group of rows."""
    others = [name for name in ("activation", "kernel") if name not in by]
    lines = []
    for number, (key, part) in enumerate(grouped(rows, *by).items()):
        label = ", ".join(
            f"$m$ = {value}" if name == "width" else title(value) for name, value in zip(by, key, strict=True)
        )
        # Groups that `by` does not tell apart have a line each, in the same style.
        for first, group in enumerate(grouped(part, *others).values()):
            place, mean, spread = averaged(group, x, "relative")
            # The lower end of a bar stays positive, as a logarithmic axis needs.
            ends = np.stack([np.minimum(spread, 0.9 * mean), spread])
            shown = "_" if first else label
            axes.errorbar(place, mean, yerr=ends, capsize=2.0, label=shown, **point_style(number))
            lines.append((place, mean, spread))
    _draw_slope(axes, lines, slope)
    axes.set(xscale="log", yscale="log", xlabel=x_label, ylabel="relative error (‖·‖₂)")
    tidy_log(axes.yaxis)
    mark_sizes(axes, np.unique(np.concatenate([place for place, _, _ in lines])))
    axes.legend()
    return axes


def _draw_slope(axes: Axes, lines: list[tuple[Array, Array, Array]], label: str) -> None:
    """Draw a line that falls with the root of the size below all others, unless one of these hardly falls."""
    if any(mean[-1] > mean[0] * (place[0] / place[-1]) ** _LEAST_EXPONENT for place, mean, _ in lines):
        return
    ends = [place[[0, -1]] for place, _, _ in lines]
    start, stop = min(end[0] for end in ends), max(end[1] for end in ends)
    if stop > start:
        level = 0.7 * min(float(np.min(mean * np.sqrt(place / start))) for place, mean, _ in lines)
        place = np.array([start, stop])
        axes.plot(
            place, level * np.sqrt(start / place), color="0.4", linestyle=":", linewidth=1.0, label=label
        )


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
def plot_accuracy_gaps(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot the accuracy of a network minus that of the DEQ against the width, with standard errors over seeds."""
    axes = panel(ax)
    selected = needed(rows, "accuracy")
    names = [name for (name,) in grouped(selected, "data")]
    for (data, model), group in grouped(selected, "data", "model").items():
        if model == "deq":
            continue
        references = [row for row in selected if row["data"] == data and row["model"] == "deq"]
        place, gap, error = _gaps(group, references)
        style = point_style(names.index(data)) | {"linestyle": "-" if model == "twin" else ":"}
        label = f"{title(data)}: {title(model)}"
        # Points of one width are drawn beside each other.
        shift = 1.0 + 0.04 * (names.index(data) - 1)
        axes.errorbar(shift * place, 100 * gap, yerr=100 * error, capsize=2.0, label=label, **style)
    axes.axhline(0.0, color="0.4", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    mark_sizes(axes, np.unique([float(row["width"]) for row in selected]))
    axes.set(xlabel="width $m$", ylabel="accuracy − the DEQ's (points)")
    axes.legend()
    return axes


def _gaps(rows: Rows, references: Rows) -> tuple[Array, Array, Array]:
    """Widths, differences of mean accuracies, and their standard errors."""
    (place, mean, spread), (_, other, other_spread) = (
        averaged(part, "width", "accuracy") for part in (rows, references)
    )
    counts = [len([row for row in rows if row["width"] == width]) for width in place]
    return place, mean - other, np.sqrt((spread**2 + other_spread**2) / counts)


@styled
def plot_losses(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot the loss per sample by step of gradient descent, one line for each width and seed."""
    axes = panel(ax)
    for row, style in _trainings(rows):
        losses = np.asarray(row["losses"], dtype=float) / float(row["n"])
        axes.plot(row["steps"], np.where(losses > 0, losses, np.nan), **style)
    axes.set(yscale="log", xlabel="step of gradient descent", ylabel=r"loss per sample $\Phi/n$")
    axes.legend(title="width $m$")
    return axes


@styled
def plot_last_losses(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot the last loss against the width, relative to that of the narrowest network, by data and step size."""
    axes = panel(ax)
    lines = grouped(needed(rows, "training"), "data", "rate")
    names, rates = ([name for (name,) in grouped(rows, field)] for field in ("data", "rate"))
    for (data, rate), group in lines.items():
        place, mean, _ = averaged(group, "width", "last_loss")
        style = point_style(names.index(data)) | {"linestyle": ("-", ":")[rates.index(rate) % 2]}
        axes.plot(place, mean / mean[0], label=f"{title(data)}: {rate}", **style)
    axes.axhline(1.0, color="0.4", linewidth=0.6, zorder=0)
    axes.set_xscale("log")
    mark_sizes(axes, np.unique([float(row["width"]) for row in rows]))
    axes.set(xlabel="width $m$", ylabel="last loss / that of the narrowest")
    axes.legend(title="data: step size")
    return axes


def _trainings(rows: Rows) -> list[tuple[Any, dict[str, Any]]]:
    """Rows of training by width, each with its style; only the first seed of a width has a label."""
    found = []
    widths = grouped(sorted(needed(rows, "training"), key=lambda row: float(row["width"])), "width")
    for number, ((width,), group) in enumerate(widths.items()):
        for seed, row in enumerate(group):
            style = line_style(number) | {"linewidth": 1.1, "alpha": 1.0 if seed == 0 else 0.5}
            found.append((row, style | {"label": f"{width}" if seed == 0 else "_"}))
    return found
