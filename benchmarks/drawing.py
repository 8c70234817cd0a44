"""Figures and tables of docs/evidence, drawn by the script that makes their rows: what all of them share.

A script registers its figures with `drawn` and its tables with `marked_table`; `publish` draws and fills those of the
script that runs. It is called after measuring, or alone with --figure-only.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from harness import RESULTS, ROOT, Row, filled, markdown_table, read_rows, write_atomically
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from notsodeep.figures import COLOURS, MARKERS, new_figure, save
from notsodeep.figures.style import COLUMN, styled

EVIDENCE, IMAGES = ROOT / "docs" / "evidence", ROOT / "docs" / "images" / "evidence"
Draw = Callable[[Axes], Any]
# By name: the module, and what it does.
FIGURES: dict[str, tuple[str, Callable[[], Figure]]] = {}
TABLES: dict[tuple[str, str], tuple[str, Callable[[], list[Row]]]] = {}
GREY = "0.4"
LOSS, WIN = COLOURS[1], COLOURS[0]
POINT: dict[str, Any] = {"linestyle": "none", "markersize": 3.5}
CROSS: dict[str, Any] = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.4, "color": LOSS}


def drawn(name: str, height: float = 2.7, width: float = COLUMN) -> Callable[[Draw], Draw]:
    """Register a function that draws into axes as the figure of this name."""

    def register(function: Draw) -> Draw:
        @styled
        def draw() -> Figure:
            figure, (axes,) = new_figure(1, height)
            figure.set_figwidth(width)
            function(axes)
            return figure

        FIGURES[name] = function.__module__, draw
        return function

    return register


def marked_table(page: str, mark: str) -> Callable[[Callable[[], list[Row]]], Callable[[], list[Row]]]:
    """Register a function that gives the rows between two marks of a page of docs/evidence."""

    def register(function: Callable[[], list[Row]]) -> Callable[[], list[Row]]:
        TABLES[page, mark] = function.__module__, function
        return function

    return register


def publish() -> None:
    """Draw the figures and fill the tables of the script that runs."""
    for name, (module, draw) in FIGURES.items():
        if module == "__main__":
            print(save(draw(), IMAGES / f"{name}.svg"))
    for (page, mark), (module, rows) in TABLES.items():
        if module == "__main__":
            path = EVIDENCE / f"{page}.md"
            marks, text = (
                (f"<!-- table: {mark} -->", f"<!-- end: {mark} -->"),
                path.read_text(encoding="utf-8"),
            )
            write_atomically(path, filled(text, *marks, markdown_table(rows())))


def with_figure_only(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The parsed arguments; with --figure-only the figures are drawn, and the script ends."""
    parser.add_argument("--figure-only", action="store_true", help="draw the figures from the kept rows")
    options = parser.parse_args()
    if options.figure_only:
        publish()
        sys.exit()
    return options


def rows_of(name: str) -> list[Row]:
    """Rows of a table of benchmarks/results."""
    return read_rows(RESULTS / f"{name}.csv")[1]


def column(rows: Sequence[Row], name: str) -> np.ndarray:
    """Numbers of a column, NaN where there is none."""
    return np.array([np.nan if row[name] is None else float(row[name]) for row in rows])


def number_in(text: str, place: int = 0) -> float:
    """A number of a text such as `97.8 to 99.6`."""
    return float(re.findall(r"-?[0-9.]+", text)[place])


def ticks(axis: Axis, *values: float) -> None:
    """Mark these values, as plain numbers, and no others."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_minor_locator(NullLocator())


def marked(number: int, **more: Any) -> dict[str, Any]:
    """Colour and marker of a kind of points."""
    return {"color": COLOURS[number], "marker": MARKERS[number], **POINT, **more}


def legend_below(axes: Axes, place: float = -0.17, columns: int = 2) -> None:
    """Put the legend under the axis label, at the right."""
    axes.legend(
        loc="upper right", bbox_to_anchor=(1.02, place), ncols=columns, columnspacing=0.8, handletextpad=0.3
    )


def downwards(axes: Axes, names: Iterable[str]) -> None:
    """Write names at the rows of the panel, the first one at the top."""
    axes.set_yticks(range(len(list(names))), [name.replace(", ", ",\n") for name in names])
    axes.invert_yaxis()


def diagonal(axes: Axes, low: float, high: float) -> None:
    """The line of equal values."""
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8, zorder=0, label="equal")
