"""Plot the test error of looped networks against the number of steps, from rows of an experiment."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.curve_plots import mark_sizes
from notsodeep.figures.style import line_style, panel, styled
from notsodeep_lab.plots.row_selection import Rows, chosen, grouped, needed


@styled
def plot_loops(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot predicted lines, one for each number of training steps, and the mean of the widest networks as points."""
    axes, selected = panel(ax), needed(rows, "loop")
    widest = chosen(selected, width=max(row["width"] for row in selected))
    for number, ((trained,), group) in enumerate(grouped(widest, "train_steps").items()):
        points = {steps: part for (steps,), part in grouped(group, "steps").items()}
        steps = sorted(points)
        style = {"color": line_style(number)["color"]}
        axes.plot(steps, [points[k][0]["predicted"] for k in steps], label=f"{trained}", **style)
        means = [np.mean([row["measured"] for row in points[k]]) for k in steps]
        axes.plot(steps, means, linestyle="none", marker="os^"[number % 3], markersize=3.5, **style)
        axes.axvline(trained, linestyle=":", linewidth=0.8, **style)
    axes.set(xscale="log", xlabel="steps at run time $k$", ylabel="test mean squared error")
    mark_sizes(axes, np.array(steps, dtype=float))
    axes.legend(title="K, steps of training; lines: predicted; points: networks")
    return axes
