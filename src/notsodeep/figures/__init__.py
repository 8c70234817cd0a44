"""Figures: functions take rows or arrays and `ax=None`, and return the Axes."""

from notsodeep.extras import needed

needed("matplotlib", "A figure (notsodeep.figures)")

from notsodeep.figures.design_plots import plot_design
from notsodeep.figures.feature_plots import plot_kernel_change
from notsodeep.figures.forecast_plots import plot_forecast, plot_phase_diagram
from notsodeep.figures.front_plot import plot_front
from notsodeep.figures.line_plots import (
    plot_depth_curve,
    plot_errors,
    plot_learning_curve,
    plot_learning_curves,
    plot_losses,
    plot_norms,
)
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
    "plot_depth_curve",
    "plot_design",
    "plot_eigenvalues",
    "plot_errors",
    "plot_forecast",
    "plot_front",
    "plot_kernel",
    "plot_kernel_change",
    "plot_learning_curve",
    "plot_learning_curves",
    "plot_losses",
    "plot_norms",
    "plot_phase_diagram",
    "plot_spectrum",
    "png",
    "quick_panel",
    "save",
    "svg",
]
