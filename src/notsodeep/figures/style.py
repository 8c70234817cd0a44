"""What all figures share: size, colours, dashes, and how a figure is written.

Sizes are those of a two-column paper: a panel is one column wide and its smallest text has 7 points, so that a figure
can be set without being scaled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from notsodeep.files import atomic_write

# Okabe and Ito's palette: told apart by colour-blind readers, and by markers and dashes in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# The same on a dark page, paper and ink included: told apart by colour-blind readers too.
_DARK = {
    "#ffffff": "#0e1117",
    "#000000": "#f0f2f6",
    "#0072b2": "#4db2ff",
    "#d55e00": "#ff9248",
    "#009e73": "#2fd6a6",
    "#cc79a7": "#e79cc5",
    "#56b4e9": "#3b78a8",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")

COLUMN = 3.4  # inches: a column of a two-column paper
PAGE = 7.0  # inches: both columns
SMALLEST = 7.0  # points
_LABELS = 27.0  # points that tick labels and axis label take below the axes
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
# Files carry no date, so that drawing again gives the same file.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "ModDate": None},
}

P = ParamSpec("P")
T = TypeVar("T")


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """Run a drawing function under STYLE: titles and legends take their sizes when they are made."""

    @wraps(function)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with mpl.rc_context(STYLE):
            return function(*args, **kwargs)

    return drawn


@styled
def new_figure(columns: int = 1, height: float = 2.5, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of panels, row after row, drawn without any window system.

    Args:
        columns: panels side by side; two or more share the width of a page.
        height: of one row of panels, in inches.
        rows: of panels.
    """
    width = COLUMN if columns == 1 else PAGE
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


@styled
def quick_panel(height: float = 2.5, below: int = 0) -> tuple[Figure, Axes]:
    """A figure of one panel with margins that are given, not computed: drawn in half the time.

    Args:
        height: in inches.
        below: lines of a legend under the axes.
    """
    figure = Figure(figsize=(COLUMN, height))
    foot = (_LABELS + 12.0 * below + 4.0) / 72.0
    left, bottom, top = 0.52 / COLUMN, foot / height, 1.0 - 0.24 / height
    return figure, figure.add_axes((left, bottom, 0.97 - left, top - bottom))


def panel(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure one column wide."""
    return new_figure()[1][0] if ax is None else ax


def colour(number: int) -> str:
    """The colour of line `number`, counted round."""
    return COLOURS[number % len(COLOURS)]


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of line `number`: told apart without colour too."""
    return {"color": colour(number), "linestyle": DASHES[number % len(DASHES)]}


def point_style(number: int) -> dict[str, Any]:
    """Colour, dashes and marker of line `number` through measured points."""
    return line_style(number) | {"marker": MARKERS[number % len(MARKERS)]}


def tidy_log(axis: Axis) -> None:
    """Few tick labels on a logarithmic axis: 1, 2, 5 where it spans little, powers of ten where it spans much."""
    low, high = axis.get_view_interval()
    if high < 30.0 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below(axes: Axes, title: str | None = None) -> None:
    """A legend under the axes, where it hides nothing."""
    # In points below the axes, where tick labels and axis label end, whatever the height of the panel.
    place = axes.transAxes + ScaledTranslation(0.0, -_LABELS / 72.0, axes.figure.dpi_scale_trans)
    axes.legend(loc="upper center", title=title, bbox_to_anchor=(0.5, 0.0), bbox_transform=place)


def save(figure: Figure, path: Path) -> Path:
    """Write the figure, completely or not at all; the ending chooses png, svg or pdf."""
    with atomic_write(path) as temporary, mpl.rc_context(STYLE):
        figure.savefig(temporary, metadata=_METADATA.get(path.suffix))
    return path


def svg(figure: Figure) -> bytes:
    """The figure as the content of an SVG file."""
    return _content(figure, "svg")


def dark_svg(figure: Figure) -> bytes:
    """The figure as the content of an SVG file for a dark page: ink and paper exchanged, the palette lighter."""
    text = re.sub("(?<=: )#[0-9a-f]{6}", lambda found: _on_dark(found[0]), svg(figure).decode("utf-8"))
    # Letters have no colour of their own in the file.
    ink = f'<style type="text/css">svg{{fill: {_DARK["#000000"]}}} '
    return text.replace('<style type="text/css">', ink, 1).encode("utf-8")


def _on_dark(colour: str) -> str:
    """The colour that stands for another on a dark page; greys are turned round."""
    is_grey = colour[1:3] == colour[3:5] == colour[5:7]
    other = f"#{0xFFFFFF - int(colour[1:], 16):06x}" if is_grey and colour < "#c0" else colour
    return _DARK.get(colour, other)


def png(figure: Figure) -> bytes:
    """The figure as the content of a PNG file."""
    return _content(figure, "png")


def _content(figure: Figure, ending: str) -> bytes:
    content = BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(content, format=ending, metadata=_METADATA.get(f".{ending}"))
    return content.getvalue()
