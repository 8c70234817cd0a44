"""Plot test error after learning against the richness, from rows of an experiment."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.style import line_style, panel, styled
from notsodeep_lab.plots.row_selection import NUMBERS, WORDS, Rows, chosen, grouped, needed


@styled
def plot_richness(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot the mean over draws with 95 % intervals, after learning (points) and for the lazy kernel (dotted)."""
    from scipy.stats import t as student

    axes, selected = panel(ax), needed(rows, "error")
    for number, name in enumerate(("deq", "twin")):
        groups = {
            richness: part for (richness,), part in grouped(chosen(selected, model=name), "richness").items()
        }
        gammas, colour = sorted(groups), line_style(NUMBERS[name])["color"]
        values = [np.array([row["after_mse"] for row in groups[one]]) for one in gammas]
        half = [
            student.ppf(0.975, max(len(v) - 1, 1)) * np.std(v) / np.sqrt(max(len(v) - 1, 1)) for v in values
        ]
        # Slightly apart, so that intervals do not cover each other.
        places = np.array(gammas) * (0.97, 1.03)[number]
        means = [float(v.mean()) for v in values]
        axes.errorbar(
            places, means, half, color=colour, marker="os"[number], markersize=4, capsize=2, label=WORDS[name]
        )
        lazy = float(np.mean([row["lazy_mse"] for row in groups[gammas[0]]]))
        axes.axhline(lazy, color=colour, linestyle=":", linewidth=1.0)
    axes.set(xscale="log", xlabel="richness γ", ylabel="test mean squared error")
    axes.set_ylim(bottom=0.0)
    axes.set_xticks(gammas, [f"{one:g}" for one in gammas])
    axes.minorticks_off()
    axes.legend(title="after learning; dotted: lazy kernel")
    return axes
