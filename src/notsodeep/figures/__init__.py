"""Figures: functions take rows or arrays and `ax=None`, and return the Axes."""

from notsodeep.extras import needed

needed("matplotlib", "A figure (notsodeep.figures)")

from notsodeep.figures.curve_plots import (
    plot_depth_curve,
    plot_forecast,
    plot_learning_curve,
    plot_loop_curve,
    plot_phase_diagram,
)
from notsodeep.figures.design_plots import plot_design
from notsodeep.figures.feature_plots import plot_kernel_change
from notsodeep.figures.front_plot import plot_front
from notsodeep.figures.spectrum_plots import plot_spectrum
from notsodeep.figures.style import (
    COLOURS,
    DASHES,
    MARKERS,
    STYLE,
    new_figure,
    save,
)

__all__ = [
    "COLOURS",
    "DASHES",
    "MARKERS",
    "STYLE",
    "new_figure",
    "plot_depth_curve",
    "plot_design",
    "plot_forecast",
    "plot_front",
    "plot_kernel_change",
    "plot_learning_curve",
    "plot_loop_curve",
    "plot_phase_diagram",
    "plot_spectrum",
    "save",
]
