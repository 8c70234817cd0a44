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
    axes.legend(fontsize=8)
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


def save(figure: Figure, path: Path) -> Path:
    """Write the figure whole or not at all; the ending chooses png, svg or pdf."""
    with written_whole(path) as temporary, mpl.rc_context(STYLE):
        figure.savefig(temporary)
    return path
