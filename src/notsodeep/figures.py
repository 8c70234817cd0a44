"""Figures: functions take rows or arrays and `ax=None`, and return the Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from notsodeep.designs import Design
from notsodeep.equivalents.spectrum import LimitingSpectrum
from notsodeep.files import written_whole

Array = NDArray[np.float64]

# Okabe and Ito's palette: told apart by colour-blind readers, and by markers and dashes in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": 120,
    "savefig.bbox": "tight",
}


def new_figure(columns: int = 1, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """A figure with a row of panels, drawn without any window system."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.6 * columns, height), layout="constrained")
        panels = figure.subplots(1, columns, squeeze=False)[0]
    return figure, list(panels)


def _panel(ax: Axes | None) -> Axes:
    return new_figure()[1][0] if ax is None else ax


def plot_eigenvalues(spectra: Mapping[str, Array], ax: Axes | None = None) -> Axes:
    """Eigenvalues by rank on logarithmic axes, one line for each named spectrum."""
    axes = _panel(ax)
    for number, (name, values) in enumerate(spectra.items()):
        ordered = np.sort(np.asarray(values))[::-1]
        positive = ordered[ordered > 0]
        axes.loglog(
            np.arange(1, len(positive) + 1),
            positive,
            color=COLOURS[number % len(COLOURS)],
            linestyle=("-", "--", "-.", ":")[number // 2 % 4],
            label=name,
            linewidth=1.6,
        )
    axes.set_xlabel("rank of the eigenvalue")
    axes.set_ylabel("eigenvalue")
    axes.legend(fontsize=8, frameon=False)
    return axes


def plot_kernel(
    kernel: Array, labels: Sequence[Any] | Array, ax: Axes | None = None, title: str = ""
) -> Axes:
    """A kernel matrix as correlations, samples sorted by class, classes marked on the axes."""
    axes = _panel(ax)
    codes = np.asarray(labels)
    order = np.argsort(codes, kind="stable")
    root = np.sqrt(np.diag(kernel))
    correlation = (kernel / np.outer(root, root))[np.ix_(order, order)]
    image = axes.imshow(
        correlation, cmap="viridis", interpolation="nearest", vmin=float(correlation.min()), vmax=1.0
    )
    axes.figure.colorbar(image, ax=axes, label="correlation of the features", shrink=0.85)
    names, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    axes.set_xticks(starts + counts / 2, [str(name) for name in names])
    axes.set_yticks(starts + counts / 2, [str(name) for name in names])
    axes.set_xlabel("class")
    axes.set_ylabel("class")
    if title:
        axes.set_title(title)
    return axes


def plot_spectrum(
    spectrum: LimitingSpectrum, eigenvalues: Array | None = None, ax: Axes | None = None
) -> Axes:
    """Predicted density (line), atoms and isolated eigenvalues (markers), over a histogram of exact eigenvalues."""
    axes = _panel(ax)
    low, high = float(spectrum.edges.min()), float(spectrum.edges.max())
    margin = 0.03 * (high - low)
    wide = bool(len(spectrum.isolated)) and float(spectrum.isolated.max()) > 3.0 * high and low > 0.0
    if eigenvalues is not None:
        inside = eigenvalues[(eigenvalues >= low - margin) & (eigenvalues <= high + margin)]
        heights, bins = np.histogram(
            inside, bins=np.geomspace(inside.min(), inside.max(), 61) if wide else 60
        )
        # Of all n eigenvalues, so that it can be laid under the density without the isolated ones.
        axes.stairs(
            heights / (len(eigenvalues) * np.diff(bins)),
            bins,
            fill=True,
            color=COLOURS[5],
            alpha=0.6,
            label="exact kernel",
        )
    axes.plot(spectrum.grid, spectrum.density, color=COLOURS[0], linewidth=1.8, label="predicted, no data")
    if len(spectrum.isolated):
        axes.plot(
            spectrum.isolated, np.zeros(len(spectrum.isolated)), MARKERS[3], color=COLOURS[1], clip_on=False,
            zorder=3, label="isolated, predicted",
        )  # fmt: skip
    if eigenvalues is not None:
        outside = eigenvalues[(eigenvalues < low - margin) | (eigenvalues > high + margin)]
        axes.plot(
            outside,
            np.zeros(len(outside)),
            "x",
            color=COLOURS[6],
            clip_on=False,
            zorder=4,
            label="isolated, exact",
        )
    axes.set_ylim(bottom=0.0)
    if wide:
        axes.set_xscale("log")
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    axes.legend(fontsize=8, frameon=False)
    return axes


def plot_design(design: Design, ax: Axes | None = None) -> Axes:
    """The model's activation and the designed ones, where their pre-activations live."""
    axes = _panel(ax)
    for number, curve in enumerate(design.curves()):
        axes.plot(
            curve.x, curve.y, color=COLOURS[number % len(COLOURS)], linestyle=("-", "--", "-.", ":")[number % 4],
            linewidth=1.8, label=curve.label,
        )  # fmt: skip
    axes.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlabel("pre-activation (±3.5 standard deviations)")
    axes.set_ylabel("activation, centred")
    axes.set_title(f"{design.family} for the {design.kernel}: {'exact' if design.exact else 'closest'}")
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return axes


def save(figure: Figure, path: Path) -> Path:
    """Write the figure whole or not at all; the ending chooses png, svg or pdf."""
    with written_whole(path) as temporary, mpl.rc_context(STYLE):
        figure.savefig(temporary)
    return path
