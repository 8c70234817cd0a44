"""Models beside each other as bars, from rows of races."""

from __future__ import annotations

from textwrap import fill

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.base import COLOURS, SMALLEST, panel, styled, tidy_log
from notsodeep.figures.rows import Row, Rows, grouped, needed, title
from notsodeep.figures.spectra import NUMBERS

# Field of a row, factor to the unit drawn, label with the unit, whether the axis is logarithmic.
MEASURES: dict[str, tuple[float, str, bool]] = {
    "accuracy": (100.0, "test accuracy (%)", False),
    "agreement": (100.0, "agreement (% of samples)", False),
    "inference_seconds": (1e3, "ms per 1000 samples", True),
    "memory": (2.0**-20, "MiB", True),
    "epoch_seconds": (1.0, "s per epoch", True),
}
_HATCHES = ("", "/////", ".....")


@styled
def plot_race(rows: Rows, field: str, ax: Axes | None = None) -> Axes:
    """One measure of every model, mean over seeds, in groups by data, activation and what was trained."""
    axes = panel(ax)
    factor, label, logarithmic = MEASURES[field]
    found = [row for row in needed(rows, "race") if row.get(field) is not None]
    groups = grouped(found, *_varying(found, "data", "activation", "mode", "width"))
    models = [model for (model,) in grouped(found, "model")]
    size = 0.8 / max(1, len(models))
    for number, model in enumerate(models):
        values = [factor * _mean(group, model, field) for group in groups.values()]
        places = np.arange(len(groups)) + (number - (len(models) - 1) / 2) * size
        hue = NUMBERS.get(str(model), 5)
        bars = axes.bar(
            places, values, size * 0.92, color=COLOURS[hue], hatch=_HATCHES[number % 3], edgecolor="white",
            linewidth=0.0, label=title(model),
        )  # fmt: skip
        texts = ["" if np.isnan(value) else f"{value:.3g}" for value in values]
        axes.bar_label(bars, texts, fontsize=SMALLEST, padding=2, rotation=90)
    axes.set_xticks(
        np.arange(len(groups)), ["\n".join(fill(title(part), 9) for part in key) for key in groups]
    )
    axes.set_ylabel(label)
    if logarithmic:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** 0.25)
        tidy_log(axes.yaxis)
    else:
        _zoom(axes, [factor * float(row[field]) for row in found])
    return axes


def _varying(rows: Rows, *fields: str) -> list[str]:
    """The fields that tell groups apart: those with more than one value, the data at least."""
    return [name for name in fields if name == "data" or len(grouped(rows, name)) > 1]


def _mean(rows: list[Row], model: str, field: str) -> float:
    values = [float(row[field]) for row in rows if row["model"] == model]
    return float(np.mean(values)) if values else float("nan")


def _zoom(axes: Axes, values: list[float]) -> None:
    """Percentages from a round number below the least one, as differences of one per cent are the point."""
    low, high = max(0.0, 5.0 * np.floor((min(values) - 2.0) / 5.0)), max(values)
    axes.set_ylim(low, low + 1.25 * (high - low))  # the numbers stand above the bars
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 100.0])
