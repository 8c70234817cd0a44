"""Compare models as bars, from rows of races."""

from __future__ import annotations

from textwrap import fill

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.style import SMALLEST, colour, panel, point_style, styled
from notsodeep.validation import Array
from notsodeep_lab.plots.row_selection import NUMBERS, Row, Rows, grouped, needed, title

# Field of a row, factor to the unit drawn, label with the unit, whether it is a share.
MEASURES: dict[str, tuple[float, str, bool]] = {
    "accuracy": (100.0, "test accuracy (%)", True),
    "agreement": (100.0, "agreement (%)", True),
    "inference_seconds": (1e3, "ms per 1000 samples", False),
    "epoch_seconds": (1.0, "s per epoch", False),
}
_HATCHES = ("", "/////", ".....")
_SHARE = 0.8  # share of the width of a group that its bars take
_ROOM = 1.3  # height of the axis relative to the largest value, for the numbers


@styled
def plot_race(rows: Rows, field: str, ax: Axes | None = None) -> Axes:
    """Plot one measure of every model, averaged over seeds, grouped by data, activation and training mode.

    Times are bars from zero. Shares are points with error bars of one standard deviation over seeds, on an
    axis that does not start at zero.
    """
    axes = panel(ax)
    factor, label, is_share = MEASURES[field]
    selected = [row for row in needed(rows, "race") if row.get(field) is not None]
    # Groups differ in the data and in fields with more than one value.
    varying = [name for name in ("activation", "mode", "width") if len(grouped(selected, name)) > 1]
    groups = grouped(selected, "data", *varying)
    models = [str(model) for (model,) in grouped(selected, "model")]
    tops = []
    for number, model in enumerate(models):
        values = [_mean_and_spread(group, model, field, factor) for group in groups.values()]
        mean, spread = (np.array(part, dtype=np.float64) for part in zip(*values, strict=True))
        places = np.arange(float(len(groups))) + (number - (len(models) - 1) / 2) * _SHARE / len(models)
        if is_share:
            style = point_style(NUMBERS.get(model, 5)) | {"linestyle": "none", "capsize": 2.0}
            axes.errorbar(places, mean, yerr=spread, label=title(model), **style)
        else:
            _draw_bars(axes, places, mean, number, model, _SHARE / len(models))
        tops.append(mean + spread if is_share else mean)
        _write_numbers(axes, places, tops[-1], mean)
    axes.set_xticks(
        np.arange(len(groups)), ["\n".join(fill(title(part), 9) for part in key) for key in groups]
    )
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_ylabel(label)
    axes.legend()
    _set_range(
        axes,
        float(np.nanmax(tops)),
        factor * min(float(row[field]) for row in selected) if is_share else None,
    )
    return axes


def _draw_bars(axes: Axes, places: Array, mean: Array, number: int, model: str, size: float) -> None:
    axes.bar(
        places, mean, 0.92 * size, color=colour(NUMBERS.get(model, 5)), hatch=_HATCHES[number % len(_HATCHES)],
        edgecolor="white", linewidth=0.0, label=title(model),
    )  # fmt: skip


def _write_numbers(axes: Axes, places: Array, top: Array, values: Array) -> None:
    for place, height, value in zip(places, top, values, strict=True):
        if not np.isnan(value):
            # Three digits, never in exponential notation.
            text = f"{value:.3g}" if value < 1e3 else f"{value:.0f}"
            axes.annotate(
                text, (place, height), (0, 4), textcoords="offset points", ha="center", va="bottom",
                rotation=90, fontsize=SMALLEST,
            )  # fmt: skip


def _mean_and_spread(rows: list[Row], model: str, field: str, factor: float) -> tuple[float, float]:
    values = [factor * float(row[field]) for row in rows if row["model"] == model]
    if not values:
        return float("nan"), 0.0
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _set_range(axes: Axes, largest: float, least_share: float | None) -> None:
    """Set the range from zero, or for shares from a round percentage below the smallest; with room for numbers."""
    low = 0.0 if least_share is None else max(0.0, 5.0 * float(np.floor((least_share - 2.0) / 5.0)))
    axes.set_ylim(low, low + _ROOM * (largest - low))
    if least_share is not None:
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 100.0])
