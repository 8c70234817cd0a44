"""Plot the test error of looped networks against the number of steps, from rows of an experiment."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.curve_plots import mark_sizes
from notsodeep.figures.style import line_style, panel, styled
from notsodeep_lab.plots.row_selection import Rows, chosen, grouped, needed


@styled
def plot_loops(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot predicted lines, one for each rate, and the mean of the widest networks as points, for the middle K."""
    axes, selected = panel(ax), needed(rows, "loop")
    numbers, width = sorted({row["train_steps"] for row in selected}), max(row["width"] for row in selected)
    trained = numbers[len(numbers) // 2]
    for number, ((rate,), group) in enumerate(
        grouped(chosen(selected, width=width, train_steps=trained), "rate").items()
    ):
        points = {steps: part for (steps,), part in grouped(group, "steps").items()}
        steps, style = sorted(points), {"color": line_style(number)["color"]}
        axes.plot(steps, [points[k][0]["predicted"] for k in steps], label=f"{rate:g}", **style)
        means = [np.mean([row["measured"] for row in points[k]]) for k in steps]
        axes.plot(steps, means, linestyle="none", marker="os^"[number % 3], markersize=4.0, **style)
    axes.axvline(trained, linestyle=":", linewidth=0.8, color="0.4")
    axes.set(xscale="log", xlabel=f"steps at run time (trained: {trained})", ylabel="mean squared error")
    mark_sizes(axes, np.array([k for k in steps if k & (k - 1) == 0], dtype=float))
    axes.legend(title=f"rate (lines: predicted; points: width {width})")
    return axes
