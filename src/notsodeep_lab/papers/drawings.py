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
from notsodeep_lab.plots.experiment_lines import (
    plot_accuracy_gaps,
    plot_draws,
    plot_errors,
    plot_last_losses,
    plot_losses,
    plot_widths,
)
from notsodeep_lab.plots.learning_plots import plot_double_descent, plot_learning_rows
from notsodeep_lab.plots.loop_plots import plot_loops
from notsodeep_lab.plots.richness_plots import plot_richness
from notsodeep_lab.plots.row_selection import Rows, chosen, grouped, needed, title
from notsodeep_lab.plots.row_spectra import plot_entries, plot_isolated, plot_prediction, plot_spectra

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
    first = chosen(selected, data=selected[0]["data"], rate="common")
    return arrange(
        [
            (title(first[0]["data"], "common"), partial(plot_losses, first)),
            ("last loss by width", partial(plot_last_losses, selected)),
        ],
        columns=2,
    )


def _draw_twin_spectra(rows: Rows, field: str, sources: Sequence[str] | None = None) -> Figure:
    """Draw spectra of models and of their twins, and below them entries of their kernels."""
    below = _panels(needed(rows, "entries"), [field], plot_entries, "entries")
    return arrange([*_spectra(rows, (field,), sources), *below], columns=2)


def _draw_matching(rows: Rows) -> Figure:
    """Draw the real data set alone: a mixture looks the same."""
    real = needed(rows, "entries")[-1]["data"]
    return _draw_twin_spectra(chosen(rows, data=real), "activation")


def _draw_iclr_1(rows: Rows) -> Figure:
    first = _spectra(rows, ("data",), ("deq", "equivalent"))
    second = _spectra(rows, ("data",), ("deq", "refined", "monte-carlo"))
    return arrange([*first, *second], columns=2)


def _draw_accuracy(rows: Rows) -> Figure:
    return arrange(_panels(needed(rows, "accuracy"), ["activation"], plot_accuracy_gaps), columns=2)


def _draw_errors(rows: Rows, fields: tuple[str, ...], by: tuple[str, ...]) -> Figure:
    return arrange(_panels(needed(rows, "error"), fields, plot_errors, by=by), columns=2)


def _draw_spectrum(rows: Rows) -> Figure:
    # Only one of several draws has a density.
    predictions = needed(rows, "prediction")
    first = next(row for row in predictions if "grid" in row)
    same = {name: first[name] for name in ("activation", "kernel", "n", "p")}
    drawn = [row for row in chosen(rows, **same) if row["kind"] == "spectrum" or "grid" in row]
    heading = title(first["activation"], first["kernel"], f"n = {first['n']}, p = {first['p']}")
    return arrange(
        [
            (heading, partial(plot_prediction, drawn)),
            ("isolated eigenvalues of all kernels", partial(plot_isolated, predictions)),
        ],
        columns=2,
    )


def _draw_width(rows: Rows) -> Figure:
    panels = _panels(needed(rows, "width"), ["kernel"], plot_widths)
    if chosen(rows, kind="draws"):
        panels.append(("mean of several networks, CK", partial(plot_draws, rows)))
    return arrange(panels, columns=2)


def _draw_learning_curves(rows: Rows) -> Figure:
    first = _panels(needed(rows, "learning"), ("activation", "data"), plot_learning_rows)
    second = _panels(needed(rows, "double-descent"), ("activation", "data"), plot_double_descent)
    return arrange([*first, *second], columns=2)


def _draw_loops(rows: Rows) -> Figure:
    return arrange(_panels(needed(rows, "loop"), ("data",), plot_loops), columns=1)


def _draw_features(rows: Rows) -> Figure:
    groups = grouped(needed(rows, "error"), "target", "n")
    panels: list[Panel] = [
        (f"{target}, {n} samples", partial(plot_richness, group)) for (target, n), group in groups.items()
    ]
    return arrange(panels, columns=1, height=1.7)


DRAWINGS: dict[str, Callable[[Rows], Figure]] = {
    "aistats-1": _draw_aistats,
    "hld-1": partial(_draw_twin_spectra, field="kernel", sources=("deq", "twin")),
    "iclr-1": _draw_iclr_1,
    "iclr-2": partial(_draw_twin_spectra, field="data", sources=("deq", "twin")),
    "iclr-3": _draw_accuracy,
    "icml-error": partial(_draw_errors, fields=("kernel",), by=("activation",)),
    "icml-matching": _draw_matching,
    "icml-accuracy": _draw_accuracy,
    "spectrum": _draw_spectrum,
    "width": _draw_width,
    "learning-curves": _draw_learning_curves,
    "loops": _draw_loops,
    "features": _draw_features,
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
