"""Plots of predicted spectra."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.equivalents.spectrum import LimitingSpectrum
from notsodeep.figures.style import COLOURS, panel, styled
from notsodeep.validation import Array


@styled
def plot_spectrum(
    spectrum: LimitingSpectrum, eigenvalues: Array | None = None, ax: Axes | None = None, title: str = ""
) -> Axes:
    """Plot the predicted density and isolated eigenvalues over a histogram of exact eigenvalues."""
    axes = panel(ax)
    axes.set_title(title)
    return draw_prediction(
        axes, spectrum.grid, spectrum.density, spectrum.edges, spectrum.isolated, eigenvalues
    )


def draw_prediction(
    axes: Axes, grid: Array, density: Array, edges: Array, isolated: Array, eigenvalues: Array | None
) -> Axes:
    """Plot a predicted spectrum from its parts; `edges` bound the pieces of the bulk."""
    low, high = float(edges.min()), float(edges.max())
    margin = 0.03 * (high - low)
    wide = bool(len(isolated)) and float(isolated.max()) > 3.0 * high and low > 0.0
    if eigenvalues is not None:
        inside = eigenvalues[(eigenvalues >= low - margin) & (eigenvalues <= high + margin)]
        if len(inside):
            _draw_share(axes, inside, len(eigenvalues), wide)
    if len(grid):
        axes.plot(grid, density, color=COLOURS[0], label="predicted, no data")
    draw_rug(axes, isolated, 1, COLOURS[1], "isolated, predicted")
    if eigenvalues is not None:
        outside = eigenvalues[(eigenvalues < low - margin) | (eigenvalues > high + margin)]
        draw_rug(axes, outside, 0, COLOURS[6], "isolated, exact")
    axes.set_ylim(bottom=0.0)
    if wide:
        axes.set_xscale("log")
    axes.set(xlabel="eigenvalue", ylabel="density")
    axes.legend()
    return axes


def draw_rug(axes: Axes, values: Array, line: int, ink: str, label: str = "_") -> None:
    """Draw values as ticks at the foot of a panel, which show places and no heights; `line` counts from below."""
    if len(values):
        heights = np.full(len(values), 0.03 + 0.07 * line)
        style: dict[str, Any] = {
            "linestyle": "none",
            "marker": "|",
            "markersize": 9.0,
            "markeredgewidth": 1.4,
        }
        axes.plot(values, heights, color=ink, transform=axes.get_xaxis_transform(), label=label, **style)


def _draw_share(axes: Axes, inside: Array, count: int, wide: bool) -> None:
    bins: Any = np.geomspace(inside.min(), inside.max(), 61) if wide and inside.min() > 0.0 else 60
    heights, edges = np.histogram(inside, bins=bins)
    # Relative to all eigenvalues, to match the density, which excludes the isolated ones.
    axes.stairs(
        heights / (count * np.diff(edges)),
        edges,
        fill=True,
        color=COLOURS[5],
        alpha=0.6,
        label="exact kernel",
    )
