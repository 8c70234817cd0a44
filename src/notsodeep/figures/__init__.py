"""Figures: functions take rows or arrays and `ax=None`, and return the Axes; `draw` makes that of an experiment."""

from notsodeep.extras import needed

needed("matplotlib", "A figure (notsodeep.figures)")

from notsodeep.figures.bars import plot_race
from notsodeep.figures.base import COLOURS, DASHES, MARKERS, STYLE, new_figure, png, quick_panel, save, svg
from notsodeep.figures.dark import darkened
from notsodeep.figures.designs import plot_design
from notsodeep.figures.kernels import plot_eigenvalues, plot_kernel, plot_spectrum
from notsodeep.figures.lines import (
    plot_accuracy,
    plot_draws,
    plot_epochs,
    plot_errors,
    plot_losses,
    plot_norms,
    plot_widths,
)
from notsodeep.figures.papers import DRAWINGS, draw
from notsodeep.figures.spectra import plot_activations, plot_prediction, plot_spectra

__all__ = [
    "COLOURS",
    "DASHES",
    "DRAWINGS",
    "MARKERS",
    "STYLE",
    "darkened",
    "draw",
    "new_figure",
    "plot_accuracy",
    "plot_activations",
    "plot_design",
    "plot_draws",
    "plot_eigenvalues",
    "plot_epochs",
    "plot_errors",
    "plot_kernel",
    "plot_losses",
    "plot_norms",
    "plot_prediction",
    "plot_race",
    "plot_spectra",
    "plot_spectrum",
    "plot_widths",
    "png",
    "quick_panel",
    "save",
    "svg",
]
