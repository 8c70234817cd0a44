"""The candidates of a distillation: their time, and how often they differ from the teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.style import colour, panel, point_style, styled, tidy_log

# Kinds of candidates with their labels, in the order of the colours.
_KINDS = {
    "cut": "cut",
    "refitted": "cut, readout refitted",
    "relaxed": "relaxed steps",
    "accelerated": "Anderson acceleration",
    "closed form": "own steps, closed form",
    "trained": "own steps, trained",
    "mlp": "MLP",
}


@styled
def plot_front(front: Any, ax: Axes | None = None, target_agreement: float | None = None) -> Axes:
    """Draw time against the share of rows with another class than the teacher's, for all candidates of a distillation.

    A line joins the candidates that no faster one excels. Several rows of one name (seeds) are averaged. A candidate
    that never differed is drawn at half a row; for a single output the share of variance not explained takes the place
    of the share of rows. Thin lines reach up to the bounds of the tests, by which one is chosen.

    Args:
        front: what `distill` returned, or its `rows()`.
        ax: where to draw; a new figure if None.
        target_agreement: the target, drawn as a line; that of `front` if None.
    """
    axes = panel(ax)
    if hasattr(front, "candidates"):
        front, target_agreement = front.rows(), target_agreement or front.target_agreement
    names = dict.fromkeys(row["name"] for row in front)
    rows = [_averaged([row for row in front if row["name"] == name]) for name in names]
    for number, (fit, words) in enumerate(_KINDS.items()):
        part = [row for row in rows if row["fit"] == fit]
        if part:
            axes.plot(*_places(part), **point_style(number) | {"linestyle": "none", "label": words})
    bounds = [row for row in rows if row.get("tested_risk") is not None]
    if bounds:
        times, heights = _places(bounds)
        tops = np.maximum(heights, [100.0 * (1.0 - row["interval"][0]) for row in bounds])
        axes.vlines(times, heights, tops, color="0.8", linewidth=0.8, zorder=0, label="bound of its test")
    line: dict[str, Any] = {"color": colour(6), "linestyle": ":", "linewidth": 1.0, "zorder": 1}
    axes.plot(*_places(_front(rows)), label="front", **line)
    ring: dict[str, Any] = {"s": 90, "facecolors": "none", "edgecolors": colour(6), "linewidths": 1.2}
    axes.scatter(*_places([row for row in rows if row["chosen"]]), label="chosen", **ring)
    teacher = float(np.mean([row["teacher_milliseconds"] for row in rows]))
    axes.axvline(teacher, color=colour(3), linestyle="-.", linewidth=1.2, label="the teacher's time")
    if target_agreement is not None and target_agreement < 1.0:
        height = 100.0 * (1.0 - target_agreement)
        axes.axhline(height, color="0.5", linewidth=0.8, linestyle="--", label="target")
    has_classes = not rows[0].get("single_output", False)
    axes.set(xscale="log", yscale="log", xlabel="ms for 1000 rows")
    axes.set_ylabel("rows with another class (%)" if has_classes else "variance not explained (%)")
    tidy_log(axes.xaxis)
    tidy_log(axes.yaxis)
    axes.legend()
    return axes


def _places(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Return times and heights of rows."""
    return [row["milliseconds"] for row in rows], [row["height"] for row in rows]


def _averaged(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return one row of a name, with the mean time and the height at which it is drawn, in percent."""
    smallest = [1e-6 if row.get("single_output") else 0.5 / row["rows"] for row in rows]
    heights = [max(1.0 - row["agreement"], least) for row, least in zip(rows, smallest, strict=True)]
    times = [row["milliseconds"] for row in rows]
    return {**rows[0], "milliseconds": float(np.mean(times)), "height": 100.0 * float(np.mean(heights))}


def _front(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Select the rows that no faster one equals in agreement."""
    kept: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["milliseconds"], row["height"])):
        if not kept or row["height"] < kept[-1]["height"]:
            kept.append(row)
    return kept
