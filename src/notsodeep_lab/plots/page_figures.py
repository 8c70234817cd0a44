"""Figures of the explorer's page: quick to draw, and in a palette for dark pages."""

from __future__ import annotations

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from notsodeep.figures.style import COLUMN, LABELS, styled, svg

# The palette for a dark page, background and text included.
_DARK = {
    "#ffffff": "#0e1117",
    "#000000": "#f0f2f6",
    "#0072b2": "#4db2ff",
    "#d55e00": "#ff9248",
    "#009e73": "#2fd6a6",
    "#cc79a7": "#e79cc5",
    "#56b4e9": "#3b78a8",
}


@styled
def quick_panel(height: float = 2.5) -> tuple[Figure, Axes]:
    """Create a figure of one panel with fixed margins, which halves the time to draw it; height in inches."""
    figure = Figure(figsize=(COLUMN, height))
    left, bottom, top = 0.52 / COLUMN, (LABELS + 4.0) / 72.0 / height, 1.0 - 0.24 / height
    return figure, figure.add_axes((left, bottom, 0.97 - left, top - bottom))


def dark_svg(figure: Figure) -> bytes:
    """Return the content of an SVG file of the figure for a dark page, with a lighter palette."""
    text = re.sub("(?<=: )#[0-9a-f]{6}", lambda found: _on_dark(found[0]), svg(figure).decode("utf-8"))
    # Letters have no colour of their own in the file.
    ink = f'<style type="text/css">svg{{fill: {_DARK["#000000"]}}} '
    return text.replace('<style type="text/css">', ink, 1).encode("utf-8")


def _on_dark(colour: str) -> str:
    """Return the colour for a dark page; greys are inverted."""
    is_grey = colour[1:3] == colour[3:5] == colour[5:7]
    other = f"#{0xFFFFFF - int(colour[1:], 16):06x}" if is_grey and colour < "#c0" else colour
    return _DARK.get(colour, other)
