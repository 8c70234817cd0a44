"""Figures: functions take rows or arrays and `ax=None`, and return the Axes."""

from notsodeep.extras import needed

needed("matplotlib", "A figure (notsodeep.figures)")

from notsodeep.figures.bar_plots import plot_race, plot_times
from notsodeep.figures.design_plots import plot_design
from notsodeep.figures.front_plot import plot_front
from notsodeep.figures.line_plots import (
    plot_accuracy,
    plot_depths,
    plot_draws,
    plot_epochs,
    plot_errors,
    plot_learning_curve,
    plot_learning_curves,
    plot_losses,
    plot_norms,
    plot_widths,
)
from notsodeep.figures.row_spectra import plot_activations, plot_prediction, plot_spectra
from notsodeep.figures.spectrum_plots import plot_eigenvalues, plot_kernel, plot_spectrum
from notsodeep.figures.style import (
    COLOURS,
    DASHES,
    MARKERS,
    STYLE,
    dark_svg,
    new_figure,
    png,
    quick_panel,
    save,
    svg,
)

__all__ = [
    "COLOURS",
    "DASHES",
    "MARKERS",
    "STYLE",
    "dark_svg",
    "new_figure",
    "plot_accuracy",
    "plot_activations",
    "plot_depths",
    "plot_design",
    "plot_draws",
    "plot_eigenvalues",
    "plot_epochs",
    "plot_errors",
    "plot_front",
    "plot_kernel",
    "plot_learning_curve",
    "plot_learning_curves",
    "plot_losses",
    "plot_norms",
    "plot_prediction",
    "plot_race",
    "plot_spectra",
    "plot_spectrum",
    "plot_times",
    "plot_widths",
    "png",
    "quick_panel",
    "save",
    "svg",
]
