"""Plots of designed activations next to those they replace."""

from __future__ import annotations

import re

from matplotlib.axes import Axes

from notsodeep.designs import Design
from notsodeep.figures.style import legend_below, line_style, panel, styled

_LONGEST = 44  # characters of a label that fit under a panel


@styled
def plot_design(design: Design, ax: Axes | None = None) -> Axes:
    """Plot the model's activation and the designed ones, over the range of their inputs."""
    axes = panel(ax)
    for number, curve in enumerate(design.curves()):
        axes.plot(curve.x, curve.y, label=_short(curve.label), **line_style(number))
    axes.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    axes.set(
        xlabel="pre-activation (±3.5 standard deviations)",
        ylabel="activation" if design.target is None else "activation, centred",
        title=f"{design.family} for the {design.kernel}: {_verdict(design)}",
    )
    legend_below(axes)
    return axes


def _verdict(design: Design) -> str:
    """Describe in the title how well the design matches."""
    if design.misfit is not None:
        return f"kernels within {design.misfit:.1g}"
    return "four numbers agree" if design.exact else "closest"


def _short(label: str) -> str:
    """Shorten a label to the width of the panel: to the name of the activation, or to "formula"."""
    if len(label) <= _LONGEST:
        return label
    head, _, described = label.partition(": ")
    name = re.match(r"\w+", described)
    return f"{head}: {name[0] if name else 'formula'}"
