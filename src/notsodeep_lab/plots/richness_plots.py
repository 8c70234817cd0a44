"""Plot what learning features changes in test error against the richness, from rows of an experiment."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from scipy import stats

from notsodeep.figures.style import line_style, panel, styled
from notsodeep_lab.plots.row_selection import NUMBERS, WORDS, Rows, chosen, grouped, needed


@styled
def plot_richness(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot the test error after learning minus that of the lazy kernel: mean over draws with 95 % intervals.

    Draws are left out whose learned equilibrium is not the one that iteration from zero reaches.
    """
    axes, selected = panel(ax), needed(rows, "error")
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    for number, name in enumerate(("deq", "twin")):
        groups = grouped(chosen(selected, model=name, reached=True), "richness")
        gammas = sorted(gamma for (gamma,) in groups)
        gains = [np.array([row["after_mse"] - row["lazy_mse"] for row in groups[(one,)]]) for one in gammas]
        half = [stats.t.ppf(0.975, len(one) - 1) * stats.sem(one) if len(one) > 1 else 0.0 for one in gains]
        # Slightly apart, so that intervals do not hide each other.
        places = np.array(gammas) * (0.97, 1.03)[number]
        style = {"color": line_style(NUMBERS[name])["color"], "marker": "os"[number], "label": WORDS[name]}
        axes.errorbar(places, [one.mean() for one in gains], half, markersize=4, capsize=2, **style)
    axes.set(xscale="log", xlabel="richness γ", ylabel="change of test error")
    ticks = sorted({row["richness"] for row in selected})
    axes.set_xticks(ticks, [f"{one:g}" for one in ticks], minor=False)
    axes.minorticks_off()
    axes.legend()
    return axes
