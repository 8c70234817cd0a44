"""Draw the figure of each experiment from its rows: `draw(name, rows)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from notsodeep.errors import InputError
from notsodeep.figures.style import legend_below, new_figure, styled
from notsodeep_lab.plots.bar_plots import plot_race
from notsodeep_lab.plots.experiment_lines import (
    plot_accuracy,
    plot_depths,
    plot_draws,
    plot_errors,
    plot_losses,
    plot_norms,
    plot_widths,
)
from notsodeep_lab.plots.learning_plots import plot_double_descent, plot_learning_rows
from notsodeep_lab.plots.loop_plots import plot_loops
from notsodeep_lab.plots.row_selection import Rows, chosen, grouped, needed, title
from notsodeep_lab.plots.row_spectra import plot_activations, plot_prediction, plot_spectra

# A title, and a function that draws into given axes.
Panel = tuple[str, Callable[[Axes], Any]]
# Characters across the page in titles and in a legend; inches per line of a legend.
_TITLE_LETTERS = 84
_LEGEND_LETTERS = 100
_LINE = 0.15


def arrange(panels: Sequence[Panel], columns: int, height: float = 2.3) -> Figure:
    """Arrange panels in a grid, row by row; a legend that all panels share is drawn once, below."""
    columns = max(1, min(columns, len(panels)))
    figure, grid = new_figure(columns, height, rows=-(-len(panels) // columns))
    places = grid[: len(panels)]
    for axes, (heading, draw_into) in zip(places, panels, strict=True):
        draw_into(axes)
        lines = [fill(heading, _TITLE_LETTERS // columns), axes.get_title()]
        axes.set_title("\n".join(line for line in lines if line))
    for axes in grid[len(panels) :]:
        axes.remove()
    legends = [legend for axes in places if (legend := axes.get_legend()) is not None]
    words = [[text.get_text() for text in (legend.get_title(), *legend.get_texts())] for legend in legends]
    if len(places) > 1 and words and all(same == words[0] for same in words):
        _share_legend(figure, places[0], legends)
    else:
        _legends_below(figure, places, columns)
    return figure


def _share_legend(figure: Figure, axes: Axes, legends: Sequence[Legend]) -> None:
    handles, labels = axes.get_legend_handles_labels()
    heading = legends[0].get_title().get_text()
    for legend in legends:
        legend.remove()
    columns = min(len(labels), max(1, _LEGEND_LETTERS // (6 + max(map(len, labels)))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=heading or None)


def _legends_below(figure: Figure, places: Sequence[Axes], columns: int) -> None:
    """Move each legend below its panel and increase the height of the figure accordingly."""
    entries = []
    for axes in places:
        if (legend := axes.get_legend()) is not None:
            heading = legend.get_title().get_text()
            legend_below(axes, title=heading or None)
            entries.append(len(legend.get_texts()) + bool(heading))
        else:
            entries.append(0)
    extra = sum(max(entries[first : first + columns]) for first in range(0, len(entries), columns))
    figure.set_figheight(figure.get_figheight() + _LINE * extra)


def _spectra(rows: Rows, fields: tuple[str, ...], sources: Sequence[str] | None = None) -> list[Panel]:
    """One panel of histograms per group of spectrum rows, with the distances of the group."""
    selected = needed([*rows], "spectrum")
    both = grouped([*selected, *chosen(rows, kind="distance")], *fields)
    return [
        (title(*key), partial(plot_spectra, group, sources=sources))
        for key, group in both.items()
        if chosen(group, kind="spectrum")
    ]


def _panels(
    rows: Rows, fields: Sequence[str], plot: Callable[..., Any], *words: str, **options: Any
) -> list[Panel]:
    """One panel per group of rows with equal values of these fields, which form its title."""
    groups = grouped(rows, *fields)
    return [(title(*words, *key), partial(plot, group, **options)) for key, group in groups.items()]


def _draw_aistats(rows: Rows) -> Figure:
    selected = needed(rows, "training")
    names = [name for (name,) in grouped(selected, "data")]
    panels: list[Panel] = [
        (title(name, rate), partial(plot_losses, chosen(selected, data=name, rate=rate)))
        for (rate,) in grouped(selected, "rate")
        for name in names
    ]
    return arrange([*panels, *_panels(selected, ["data"], plot_norms)], len(names), 2.0)


def _draw_twin_spectra(rows: Rows, fields: tuple[str, ...], sources: Sequence[str] | None = None) -> Figure:
    """Draw spectra of models and of their twins, and below them the activations of both."""
    activations = chosen(rows, kind="activation")
    below = _panels(activations, fields, plot_activations, "activations")
    return arrange([*_spectra(rows, fields, sources), *below], columns=2)


def _draw_iclr_1(rows: Rows) -> Figure:
    first = _spectra(rows, ("data",), ("deq", "equivalent"))
    second = _spectra(rows, ("data",), ("deq", "refined", "monte-carlo"))
    return arrange([*first, *second], columns=2)


def _draw_accuracy(rows: Rows) -> Figure:
    selected = needed(rows, "accuracy")
    by_activation = [row for group in grouped(selected, "activation").values() for row in group]
    panels = _panels(by_activation, ("activation", "data"), plot_accuracy)
    return arrange(panels, columns=min(3, len(grouped(selected, "data"))))


def _draw_errors(rows: Rows, fields: tuple[str, ...], by: str, columns: int) -> Figure:
    return arrange(_panels(needed(rows, "error"), fields, plot_errors, by=(by,)), columns)


def _draw_spectrum(rows: Rows) -> Figure:
    # Only one of several draws has a density.
    predictions = [row for row in chosen(rows, kind="prediction") if "grid" in row]
    drawn = [*predictions, *chosen(rows, kind="spectrum")]
    both = grouped(drawn, "activation", "kernel", "n", "p")
    panels = [
        (title(*names, f"n = {n}, p = {p}"), partial(plot_prediction, group))
        for (*names, n, p), group in both.items()
        if chosen(group, kind="prediction")
    ]
    if not panels:
        needed(rows, "prediction")
    return arrange(panels, columns=2)


def _draw_twins(rows: Rows) -> Figure:
    shown = {
        "accuracy": "accuracy",
        "agreement": "agreement with the DEQ",
        "inference_seconds": "inference time",
        "epoch_seconds": "time per epoch",
    }
    return arrange(
        [(heading, partial(plot_race, rows, field)) for field, heading in shown.items()], columns=2
    )


def _draw_width(rows: Rows) -> Figure:
    panels = _panels(needed(rows, "width"), ["kernel"], plot_widths)
    if chosen(rows, kind="draws"):
        panels.append(("mean of several networks, CK", partial(plot_draws, rows)))
    return arrange(panels, columns=2)


def _draw_conv_twins(rows: Rows) -> Figure:
    selected = needed(rows, "image-twin")
    columns = len(grouped(selected, "readout")) * len(grouped(selected, "kernel"))
    return arrange(
        _panels(selected, ("activation", "readout", "kernel"), plot_depths), columns=min(columns, 4)
    )


def _draw_learning_curves(rows: Rows) -> Figure:
    first = _panels(needed(rows, "learning"), ("activation", "data"), plot_learning_rows)
    second = _panels(needed(rows, "double-descent"), ("activation", "data"), plot_double_descent)
    return arrange([*first, *second], columns=2)


def _draw_loops(rows: Rows) -> Figure:
    return arrange(_panels(needed(rows, "loop"), ("data",), plot_loops), columns=1)


DRAWINGS: dict[str, Callable[[Rows], Figure]] = {
    "aistats-1": _draw_aistats,
    "hld-1": partial(_draw_twin_spectra, fields=("kernel",), sources=("deq", "twin")),
    "iclr-1": _draw_iclr_1,
    "iclr-2": partial(_draw_twin_spectra, fields=("data",), sources=("deq", "twin")),
    "iclr-3": _draw_accuracy,
    "icml-error": partial(_draw_errors, fields=("data", "kernel"), by="activation", columns=3),
    "icml-matching": partial(_draw_twin_spectra, fields=("activation", "data")),
    "icml-accuracy": _draw_accuracy,
    "refined": partial(_draw_errors, fields=("data", "kernel", "activation"), by="form", columns=2),
    "spectrum": _draw_spectrum,
    "twins": _draw_twins,
    "conv-twins": _draw_conv_twins,
    "width": _draw_width,
    "learning-curves": _draw_learning_curves,
    "loops": _draw_loops,
}


def has_figure(name: str) -> bool:
    """Whether the experiment has a figure."""
    return name in DRAWINGS


@styled
def draw(name: str, rows: Rows) -> Figure:
    """Draw the figure of an experiment from its rows.

    Raises:
        InputError: if the experiment has no figure, or the rows lack what it needs.
    """
    if name not in DRAWINGS:
        raise InputError(f"No figure for {name!r}. Experiments with figures: {', '.join(DRAWINGS)}.")
    return DRAWINGS[name](rows)
