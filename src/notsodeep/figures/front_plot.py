"""The candidates of a distillation: what they cost, and how often they differ from the teacher."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.row_selection import needed
from notsodeep.figures.style import colour, panel, point_style, styled, tidy_log
from notsodeep.records import Row, Rows, chosen, grouped

# Kinds of candidates with their words, in the order of the colours.
_FITS = {
    "cut": "DEQ cut, nothing fitted",
    "closed form": "closed form",
    "fitted": "all weights fitted",
}


@styled
def plot_front(front: Any, ax: Axes | None = None, until: float | None = None) -> Axes:
    """Time against the share of rows with another class than the teacher's, of every candidate of a distillation.

    A line joins the students that no cheaper one excels, another one the DEQ cut after more and more steps. Several
    rows of one name (seeds) are averaged. A candidate that never differed is drawn at half a row; for a single output
    the relative error of the outputs takes the place of the share. Thin lines reach up to the share that is exceeded
    with a chance of 5 % only, by which the result is chosen.

    Args:
        front: what `distill` returned, or its `rows()`.
        ax: where to draw; a new figure if not given.
        until: the share of rows with the same class that was wanted, drawn as a line; of what `distill` returned its
            own.
    """
    axes = panel(ax)
    if hasattr(front, "front"):
        front, until = front.rows(), front.until if until is None else until
    found = [_averaged(group) for group in grouped(needed(front, "candidate"), "name").values()]
    has_classes = found[0]["agreement"] is not None
    for number, (fit, words) in enumerate(_FITS.items()):
        part = chosen(found, fit=fit)
        style = point_style(number) | {"linestyle": "-" if fit == "cut" else "none", "label": words}
        if part:
            axes.plot([row["milliseconds"] for row in part], [row["height"] for row in part], **style)
    bounds = [row for row in found if row.get("lower") is not None] if has_classes else []
    if bounds:
        axes.vlines(
            [row["milliseconds"] for row in bounds],
            [row["height"] for row in bounds],
            [max(row["height"], 100.0 * (1.0 - row["lower"])) for row in bounds],
            color="0.8",
            linewidth=0.8,
            zorder=0,
            label="95 % certain",
        )
    best = _unexcelled([row for row in found if row["fit"] != "cut"])
    axes.plot(
        [row["milliseconds"] for row in best],
        [row["height"] for row in best],
        color=colour(6),
        linestyle=":",
        linewidth=1.0,
        label="best student",
        zorder=1,
    )
    for row in chosen(found, chosen=True):
        ring: dict[str, Any] = {"s": 90, "facecolors": "none", "edgecolors": colour(6), "linewidths": 1.2}
        axes.scatter([row["milliseconds"]], [row["height"]], label="the result", **ring)
    teacher = float(np.mean([row["teacher_milliseconds"] for row in found]))
    axes.axvline(teacher, color=colour(3), linestyle="-.", linewidth=1.2, label="the teacher's time")
    if until is not None and has_classes and until < 1.0:
        axes.axhline(100.0 * (1.0 - until), color="0.5", linewidth=0.8, linestyle="--", label="wanted")
    axes.set(xscale="log", yscale="log", xlabel="ms for 1000 rows")
    axes.set_ylabel("rows with another class (%)" if has_classes else "relative error of the outputs (%)")
    tidy_log(axes.xaxis)
    tidy_log(axes.yaxis)
    axes.legend()
    return axes


def _averaged(rows: list[Row]) -> Row:
    """One row of a name, with the mean time and what is drawn upwards, in percent."""
    same = [row["agreement"] for row in rows]
    if same[0] is None:
        heights = [row["relative_error"] for row in rows]
    else:
        heights = [max(1.0 - share, 0.5 / row["rows"]) for share, row in zip(same, rows, strict=True)]
    times = [row["milliseconds"] for row in rows]
    return {**rows[0], "milliseconds": float(np.mean(times)), "height": 100.0 * float(np.mean(heights))}


def _unexcelled(rows: Rows) -> list[Row]:
    """The rows that nothing quicker is at least as faithful as."""
    kept: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["milliseconds"], row["height"])):
        if not kept or row["height"] < kept[-1]["height"]:
            kept.append(row)
    return kept
