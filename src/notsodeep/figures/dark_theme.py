"""A figure for a dark page: the same lines, with ink and paper exchanged."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

PAPER, INK, SOFT = "#0e1117", "#f0f2f6", "#a3a8b4"
# The palette of `base.COLOURS`, lighter: told apart on dark paper, by colour-blind readers too.
_LIGHTER = {
    "#0072b2": "#4db2ff",
    "#d55e00": "#ff9248",
    "#009e73": "#2fd6a6",
    "#cc79a7": "#e79cc5",
    "#56b4e9": "#3b78a8",
    "#000000": "#ffffff",
}


def darkened(figure: Figure) -> Figure:
    """The same figure, its colours changed in place for a dark page."""
    figure.set_facecolor(PAPER)
    for axes in figure.axes:
        _darken_axes(axes)
    return figure


def _darken_axes(axes: Axes) -> None:
    axes.set_facecolor(PAPER)
    axes.tick_params(which="both", colors=INK, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_edgecolor(SOFT)
    for artist in axes.findobj():
        _darken(artist)


def _darken(artist: Any) -> None:
    if isinstance(artist, Text):
        artist.set_color(INK)
    elif isinstance(artist, Line2D):
        artist.set_color(_lighter(artist.get_color()))
        artist.set_markerfacecolor(_lighter(artist.get_markerfacecolor()))
        artist.set_markeredgecolor(_lighter(artist.get_markeredgecolor()))
    elif isinstance(artist, Patch) and artist.get_visible():
        artist.set_facecolor(_lighter(artist.get_facecolor()))
    elif isinstance(artist, Collection) and artist.get_array() is None:
        artist.set_edgecolor([_lighter(colour) for colour in artist.get_edgecolor()])


def _lighter(colour: Any) -> Any:
    """The lighter colour of the palette, its opacity kept; greys are turned round; others stay."""
    if isinstance(colour, str) and colour == "none":
        return colour
    red, green, blue, opacity = to_rgba(colour)
    known = _LIGHTER.get(to_hex((red, green, blue)))
    if known is not None:
        return (*to_rgba(known)[:3], opacity)
    if red == green == blue and red < 0.75:
        return (1.0 - red, 1.0 - red, 1.0 - red, opacity)
    return (red, green, blue, opacity)


__all__ = ["darkened"]
