"""Common parts of the figures of docs/evidence: rows of benchmarks/results, one panel a column wide, styles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from harness import RESULTS, Row, read_rows
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from notsodeep.figures.style import COLOURS, COLUMN, MARKERS, new_figure, styled
from notsodeep_lab.plots.row_selection import chosen

FIGURES: dict[str, Callable[[], Figure]] = {}
GREY = "0.4"
LOSS, WIN = COLOURS[1], COLOURS[0]
POINT: dict[str, Any] = {"linestyle": "none", "markersize": 3.5}
CROSS: dict[str, Any] = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.4, "color": LOSS}


def rows_of(name: str) -> list[Row]:
    """Rows of a table of benchmarks/results."""
    return read_rows(RESULTS / f"{name}.csv")[1]


def reproduced(name: str, **fields: Any) -> list[Row]:
    """Stored rows of an experiment of `notsodeep reproduce`."""
    stored = json.loads((RESULTS / "reproduce" / f"{name}.json").read_text(encoding="utf-8"))
    return chosen(stored["rows"], **fields)


def drawn(
    name: str, height: float = 2.7, width: float = COLUMN
) -> Callable[[Callable[[Axes], Any]], Callable[[Axes], Any]]:
    """Register a function that draws into axes as the figure of this name."""

    def register(function: Callable[[Axes], Any]) -> Callable[[Axes], Any]:
        @styled
        def draw() -> Figure:
            figure, (axes,) = new_figure(1, height)
            figure.set_figwidth(width)
            function(axes)
            return figure

        FIGURES[name] = draw
        return function

    return register


def ticks(axis: Axis, *values: float) -> None:
    """Mark these values, as plain numbers, and no others."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_minor_locator(NullLocator())


def marked(number: int, **more: Any) -> dict[str, Any]:
    """Colour and marker of a kind of points."""
    return {"color": COLOURS[number], "marker": MARKERS[number], **POINT, **more}


def column(rows: Sequence[Row], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else float(row[name]) for row in rows])


def legend_below(axes: Axes, place: float = -0.17, columns: int = 2) -> None:
    """Put the legend under the axis label, at the right."""
    axes.legend(
        loc="upper right", bbox_to_anchor=(1.02, place), ncols=columns, columnspacing=0.8, handletextpad=0.3
    )


def downwards(axes: Axes, names: Iterable[str]) -> None:
    """Write names at the rows of the panel, the first one at the top."""
    axes.set_yticks(range(len(list(names))), [name.replace(", ", ",\n") for name in names])
    axes.invert_yaxis()


def number_in(text: str, place: int = 0) -> float:
    """A number of a text such as `97.8 to 99.6`."""
    return float(re.findall(r"-?[0-9.]+", text)[place])


def diagonal(axes: Axes, low: float, high: float, label: str = "equal") -> None:
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8, zorder=0, label=label)


def strips(axes: Axes, lines: dict[str, Sequence[float]], style: Callable[[float], dict[str, Any]]) -> None:
    """Draw the values of each line as points on a row of its own, spread over its height."""
    for place, values in enumerate(lines.values()):
        shift = np.linspace(-0.28, 0.28, len(values)) if len(values) > 1 else [0.0]
        for value, offset in zip(sorted(values), shift, strict=True):
            axes.plot(value, place + offset, **POINT | style(value))
    axes.set_yticks(range(len(lines)), list(lines))
    axes.set_ylim(len(lines) - 0.5, -0.5)
