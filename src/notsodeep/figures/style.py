"""Size, colours and dashes that all figures share, and functions that save figures.

Sizes are those of a two-column paper: a panel is one column wide and its smallest text has 7 points, so that figures
need not be scaled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from notsodeep.files import atomic_write

# Okabe and Ito's palette, distinct for colour-blind readers; markers and dashes are distinct in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")

COLUMN = 3.4  # inches: a column of a two-column paper
PAGE = 7.0  # inches: both columns
SMALLEST = 7.0  # points
LABELS = 27.0  # points that tick labels and axis label take below the axes
STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
    "legend.fontsize": SMALLEST,
    "legend.title_fontsize": SMALLEST,
    "legend.handlelength": 2.2,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.0,
    "figure.dpi": 120,
    "savefig.dpi": 240,
    # Text stays text in PDF; the same rows give the same SVG, byte for byte.
    "pdf.fonttype": 42,
    "svg.hashsalt": "notsodeep",
}
# Files have no date: the same figure gives the same file.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "ModDate": None},
}

P = ParamSpec("P")
T = TypeVar("T")


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """Run a drawing function under STYLE: titles and legends take their sizes when they are created."""

    @wraps(function)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with mpl.rc_context(STYLE):
            return function(*args, **kwargs)

    return drawn


@styled
def new_figure(columns: int = 1, height: float = 2.5, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Create a figure with a grid of panels, without any window system.

    Args:
        columns: number of panels side by side; two or more share the width of a page.
        height: height of one row of panels, in inches.
        rows: number of rows of panels.
    """
    width = COLUMN if columns == 1 else PAGE
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def panel(ax: Axes | None) -> Axes:
    """Return the given axes, or those of a new figure one column wide."""
    return new_figure()[1][0] if ax is None else ax


def colour(number: int) -> str:
    """Return the colour of line `number`; colours repeat."""
    return COLOURS[number % len(COLOURS)]


def line_style(number: int) -> dict[str, Any]:
    """Return colour and dashes of line `number`; distinct without colour, too."""
    return {"color": colour(number), "linestyle": DASHES[number % len(DASHES)]}


def point_style(number: int) -> dict[str, Any]:
    """Return colour, dashes and marker of line `number` through measured points."""
    return line_style(number) | {"marker": MARKERS[number % len(MARKERS)]}


def tidy_log(axis: Axis) -> None:
    """Use few tick labels on a logarithmic axis: 1, 2, 5 on a short one, powers of ten on a long one."""
    low, high = axis.get_view_interval()
    if high < 30.0 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below(axes: Axes, title: str | None = None) -> None:
    """Put a legend under the axes."""
    # In points below the axes, where tick labels and axis label end, whatever the height of the panel.
    place = axes.transAxes + ScaledTranslation(0.0, -LABELS / 72.0, axes.figure.dpi_scale_trans)
    axes.legend(loc="upper center", title=title, bbox_to_anchor=(0.5, 0.0), bbox_transform=place)


def save(figure: Figure, path: Path | str) -> Path:
    """Write the figure, completely or not at all; the extension chooses png, svg or pdf."""
    path = Path(path)
    with atomic_write(path) as temporary, mpl.rc_context(STYLE):
        figure.savefig(temporary, metadata=_METADATA.get(path.suffix))
    return path
