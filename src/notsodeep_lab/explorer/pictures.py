"""The figures of the page as SVG text, light or dark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from notsodeep import figures
from notsodeep.figures.curve_plots import plot_forecast
from notsodeep.figures.style import line_style, point_style, styled
from notsodeep.forecasts import Forecast
from notsodeep_lab.explorer.answers import RESIDUAL, SMALL_RESIDUAL, median_steps
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.computations import LAYERS, STEPS, Depths, Twin, depths_of, forecast_of, twin_of
from notsodeep_lab.plots.page_figures import dark_svg, quick_panel

_PAIRS = 400
_WITH_LABELS = (
    "Predicted by leaving out one sample at a time, each network with its best ridge. Bars: 95 % bounds of the "
    "difference from the best number of steps, sample by sample. A network is enough if its bar stays above the lower "
    "end of the grey band, one point below the best. No bar: the kernel is the same to 0.1 %. Plain network: the same "
    "activation, no feedback."
)
_WITHOUT_LABELS = (
    "Error of the kernel up to a factor, which a ridge or a learning rate absorbs. Without labels a number of steps is "
    "enough below 0.1 %, the dotted line."
)


@dataclass(frozen=True)
class Picture:
    """A figure with its words.

    Attributes:
        title: heading above the figure.
        words: description of the figure, for screen readers.
        caption: caption below the figure.
        draw: function that draws into given axes.
    """

    title: str
    words: str
    caption: str
    draw: Callable[[Any], Any]

    def svg(self, *, dark: bool) -> str:
        """Draw the figure as SVG text."""
        figure, axes = quick_panel()
        styled(self.draw)(axes)
        return (dark_svg if dark else figures.svg)(figure).decode("utf-8")


def picture_of(kind: str, choice: Choice) -> Picture:
    """Return the figure "forecast", "depths", "entries" or "eigenvalues" of a choice."""
    if kind == "forecast":
        return _forecast(forecast_of(choice))
    if kind == "depths":
        return _depths(depths_of(choice))
    return _entries(twin_of(choice)) if kind == "entries" else _eigenvalues(twin_of(choice))


@lru_cache(maxsize=64)
def drawn(kind: str, choice: Choice, dark: bool) -> str:
    """Draw a figure as SVG text, cached by choice and theme."""
    return picture_of(kind, choice).svg(dark=dark)


def _forecast(forecast: Forecast) -> Picture:
    """Residuals and errors by step."""

    def draw(axes: Any) -> None:
        plot_forecast(forecast, axes)
        last = np.median(forecast.steps(SMALL_RESIDUAL))
        axes.set_title("")
        axes.set_xlim(0.0, min(float(last), 40.0) + 2.0)
        axes.set_ylim(0.3 * SMALL_RESIDUAL, 2.0)
        for level in (RESIDUAL, SMALL_RESIDUAL):
            axes.axhline(level, color="0.6", linestyle=":", linewidth=0.8, zorder=0)
        _legend_above(axes)

    return Picture(
        "Does it settle?",
        f"Predicted residual and error by step on a logarithmic axis; the median sample needs "
        f"{median_steps(forecast, RESIDUAL)} steps to {RESIDUAL:g}.",
        "Residual: how far a step moves the state. Error: how far the state is from its equilibrium. Lines: the median "
        "sample; bands: all samples. Predicted for wide networks with random weights.",
        draw,
    )


def _depths(depths: Depths) -> Picture:
    """Accuracy by number of steps, and of plain networks by number of layers."""
    shown = f"{depths.curve.measure} after {', '.join(map(str, STEPS))} steps and at the equilibrium"
    if depths.curve.scores is None:
        words = f"Kernel error after {', '.join(map(str, STEPS))} steps, on a logarithmic axis."
        return Picture(
            "How deep must it be?", words, _WITHOUT_LABELS, lambda axes: _draw_errors(axes, depths)
        )
    words = f"Predicted {shown}, beside plain networks of 1 to {LAYERS[-1]} layers."
    return Picture("How deep must it be?", words, _WITH_LABELS, lambda axes: _draw_depths(axes, depths))


def _draw_depths(axes: Any, depths: Depths) -> None:
    best = 100.0 * float(depths.curve.accuracy.max())
    lines = {"network, steps": depths.steps, "plain network, layers": tuple(depths.plain.values())}
    for number, shift, (label, line) in zip((0, 2), (-0.08, 0.08), lines.items(), strict=True):
        places = np.arange(len(line)) + shift
        axes.plot(places, [100.0 * one.score for one in line], label=label, **point_style(number))
        ends = best - 100.0 * np.array([[one.high for one in line], [one.low for one in line]])
        axes.vlines(places, *ends, linewidth=1.0, color=line_style(number)["color"])
    axes.axhspan(best - 100.0 * depths.steps[0].limit, best, color="0.5", alpha=0.25, linewidth=0.0)
    axes.set(xlabel="steps or layers (∞: the equilibrium)", ylabel=f"{depths.curve.measure} (%)")
    axes.set_xticks(range(len(depths.steps)), [*map(str, STEPS), "∞"])
    _legend_above(axes)


def _draw_errors(axes: Any, depths: Depths) -> None:
    errors = [100.0 * max(one.high, 1e-9) for one in depths.steps[:-1]]
    axes.plot(range(len(errors)), errors, **point_style(0))
    axes.axhline(100.0 * depths.steps[0].limit, color="0.4", linestyle=":", linewidth=1.0)
    axes.set(yscale="log", xlabel="steps", ylabel="kernel error (%)")
    axes.set_xticks(range(len(errors)), [*map(str, STEPS)])


def _legend_above(axes: Any) -> None:
    """Put the legend above the axes in one row, where it covers nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 0.98), ncols=3, borderaxespad=0.0)


def _entries(twin: Twin) -> Picture:
    """Kernel entries of the twin and of 1 plain layer against those of the DEQ."""

    def draw(axes: Any) -> None:
        own, others = twin.kernels["DEQ"], {name: twin.kernels[name] for name in twin.errors}
        rows, columns = np.triu_indices(len(own), 1)
        some = np.random.default_rng(0).permutation(len(rows))[:_PAIRS]
        pairs = rows[some], columns[some]
        for number, (name, matrix) in reversed(list(enumerate(others.items(), 1))):
            style = point_style(number) | {"linestyle": "none", "markersize": 2.0, "alpha": 0.7}
            axes.plot(own[pairs], matrix[pairs], label=name, **style)
        axes.axline((own[pairs].mean(),) * 2, slope=1.0, color="0.5", linewidth=0.8, zorder=0)
        axes.set(xlabel="kernel of the DEQ", ylabel="kernel, best factor")
        _legend_above(axes)

    return Picture(
        "Kernel entries",
        f"Kernel entries of {_PAIRS} pairs of samples: the twin and 1 plain layer against the DEQ.",
        f"Each point is one of {_PAIRS} pairs of samples. On the line the kernels agree. Twin and plain layer are "
        "multiplied by their best constant factor, which a ridge or a learning rate absorbs.",
        draw,
    )


def _eigenvalues(twin: Twin) -> Picture:
    """Eigenvalues of the three kernels by rank."""
    spectra: dict[str, Any] = {name: np.linalg.eigvalsh(matrix) for name, matrix in twin.kernels.items()}
    return Picture(
        "Eigenvalues",
        "Eigenvalues of the three kernels by rank on logarithmic axes.",
        "Eigenvalues of the same three kernel matrices, largest first. The twin covers the DEQ where they agree.",
        lambda axes: _legend_above(figures.plot_eigenvalues(spectra, axes)),
    )
