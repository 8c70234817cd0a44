"""The figure of each experiment: `draw(name, rows)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from notsodeep.errors import InputError
from notsodeep.figures.bars import plot_race
from notsodeep.figures.base import new_figure, styled
from notsodeep.figures.lines import (
    plot_accuracy,
    plot_draws,
    plot_errors,
    plot_losses,
    plot_norms,
    plot_widths,
)
from notsodeep.figures.rows import Rows, grouped, needed, of_kind, title
from notsodeep.figures.spectra import plot_activations, plot_prediction, plot_spectra

# A title, and what draws into the axes it is given.
Panel = tuple[str, Callable[[Axes], Any]]
_TITLE_LETTERS = 84  # of a line of titles across the page


def arrange(panels: Sequence[Panel], columns: int, height: float = 2.3) -> Figure:
    """Panels in a grid, row after row; a legend that all panels share stands once, below."""
    columns = max(1, min(columns, len(panels)))
    figure, places = new_figure(columns, height, rows=-(-len(panels) // columns))
    for axes, (heading, draw_into) in zip(places, panels, strict=False):
        draw_into(axes)
        lines = [fill(heading, _TITLE_LETTERS // columns), axes.get_title()]
        axes.set_title("\n".join(line for line in lines if line))
    for axes in places[len(panels) :]:
        axes.remove()
    _place_legends(figure, places[: len(panels)])
    return figure


def _place_legends(figure: Figure, places: Sequence[Axes]) -> None:
    entries = [axes.get_legend_handles_labels() for axes in places]
    legends = [axes.get_legend() for axes in places]
    titles = {"" if one is None else one.get_title().get_text() for one in legends}
    if len(places) < 2 or len({tuple(labels) for _, labels in entries}) > 1 or len(titles) > 1:
        for axes, one in zip(places, legends, strict=True):
            if one is not None:
                _make_room(axes, len(one.get_texts()))
        return
    for one in legends:
        if one is not None:
            one.remove()
    handles, labels = entries[0]
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(5, len(labels)), title=titles.pop() or None
    )


def _make_room(axes: Axes, entries: int) -> None:
    """Raise the upper end of the axis, so that a legend of so many entries stands above what is drawn."""
    share = min(0.6, 0.1 * entries)
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low, high * (high / low) ** share)
    else:
        axes.set_ylim(low, high + share * (high - low))


def _spectra(rows: Rows, fields: tuple[str, ...], sources: Sequence[str] | None = None) -> list[Panel]:
    """One panel of histograms for each group of spectrum rows, with the distances of that group."""
    found = needed([*rows], "spectrum")
    both = grouped([*found, *of_kind(rows, "distance")], *fields)
    return [
        (title(*key), partial(plot_spectra, group, sources=sources))
        for key, group in both.items()
        if of_kind(group, "spectrum")
    ]


def _activations(rows: Rows, field: str) -> list[Panel]:
    groups = grouped(of_kind(rows, "activation"), field)
    return [(title("activations", *key), partial(plot_activations, group)) for key, group in groups.items()]


def _draw_aistats(rows: Rows) -> Figure:
    found = needed(rows, "training")
    names = [name for (name,) in grouped(found, "data")]
    panels: list[Panel] = []
    for rate in [rate for (rate,) in grouped(found, "rate")]:
        for name in names:
            part = of_kind(found, "training", data=name, rate=rate)
            panels.append((title(name, rate), partial(plot_losses, part)))
    for name in names:
        panels.append((title(name), partial(plot_norms, of_kind(found, "training", data=name))))
    return arrange(panels, len(names), 2.0)


def _draw_hld(rows: Rows) -> Figure:
    return arrange([*_spectra(rows, ("kernel",), ("deq", "twin")), *_activations(rows, "kernel")], columns=2)


def _draw_iclr_1(rows: Rows) -> Figure:
    first = _spectra(rows, ("data",), ("deq", "equivalent"))
    second = _spectra(rows, ("data",), ("deq", "refined", "monte-carlo"))
    return arrange([*first, *second], columns=2)


def _draw_iclr_2(rows: Rows) -> Figure:
    return arrange([*_spectra(rows, ("data",), ("deq", "twin")), *_activations(rows, "data")], columns=2)


def _draw_matching(rows: Rows) -> Figure:
    return arrange([*_spectra(rows, ("activation", "data")), *_activations(rows, "activation")], columns=2)


def _draw_accuracy(rows: Rows) -> Figure:
    found = needed(rows, "accuracy")
    names = [name for (name,) in grouped(found, "data")]
    panels: list[Panel] = []
    for (activation,), group in grouped(found, "activation").items():
        for name in names:
            if part := of_kind(group, "accuracy", data=name):
                panels.append((title(activation, name), partial(plot_accuracy, part)))
    return arrange(panels, columns=min(3, len(names)))


def _draw_error(rows: Rows) -> Figure:
    groups = grouped(needed(rows, "error"), "data", "kernel")
    return arrange([(title(*key), partial(plot_errors, group)) for key, group in groups.items()], columns=3)


def _draw_refined(rows: Rows) -> Figure:
    groups = grouped(needed(rows, "error"), "data", "kernel", "activation")
    panels = [(title(*key), partial(plot_errors, group, by=("form",))) for key, group in groups.items()]
    return arrange(panels, columns=2)


def _draw_spectrum(rows: Rows) -> Figure:
    both = grouped(of_kind(rows, "prediction", "spectrum"), "data", "activation", "kernel")
    panels = [
        (title(*key), partial(plot_prediction, group))
        for key, group in both.items()
        if of_kind(group, "prediction")
    ]
    if not panels:
        needed(rows, "prediction")
    return arrange(panels, columns=2)


def _draw_twins(rows: Rows) -> Figure:
    shown = {
        "accuracy": "accuracy",
        "agreement": "same class as the DEQ",
        "inference_seconds": "time of inference",
        "memory": "memory of a training step",
    }
    return arrange(
        [(heading, partial(plot_race, rows, field)) for field, heading in shown.items()], columns=2
    )


def _draw_width(rows: Rows) -> Figure:
    groups = grouped(needed(rows, "width"), "kernel")
    panels = [(title(*key), partial(plot_widths, group)) for key, group in groups.items()]
    if of_kind(rows, "draws"):
        panels.append(("mean of several networks, CK", partial(plot_draws, rows)))
    return arrange(panels, columns=2)


DRAWINGS: dict[str, Callable[[Rows], Figure]] = {
    "aistats-1": _draw_aistats,
    "hld-1": _draw_hld,
    "iclr-1": _draw_iclr_1,
    "iclr-2": _draw_iclr_2,
    "iclr-3": _draw_accuracy,
    "icml-error": _draw_error,
    "icml-matching": _draw_matching,
    "icml-accuracy": _draw_accuracy,
    "refined": _draw_refined,
    "spectrum": _draw_spectrum,
    "twins": _draw_twins,
    "width": _draw_width,
}


@styled
def draw(name: str, rows: Rows) -> Figure:
    """The figure of an experiment from its rows.

    Raises:
        InputError: for a name without a figure, or rows that the figure cannot be drawn from.
    """
    if name not in DRAWINGS:
        raise InputError(f"There is no figure for {name!r}; there are figures for {', '.join(DRAWINGS)}.")
    return DRAWINGS[name](rows)
