"""Plot spectra and entries of kernels from rows of experiments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from notsodeep.errors import InputError
from notsodeep.figures.spectrum_plots import draw_prediction, draw_rug
from notsodeep.figures.style import COLOURS, line_style, panel, point_style, styled, tidy_log
from notsodeep.validation import Array
from notsodeep_lab.plots.row_selection import NUMBERS, Row, Rows, chosen, grouped, needed, words

_BINS = 50
# Symbols of the papers by kernel: of the DEQ, and of its equivalent.
_LETTERS = {"features": ("G", "Ḡ"), "preactivations": ("Λ", "Λ̄"), "ntk_preactivations": ("Π", "Π̄")}
_SYMBOLS = {"refined": "refined", "monte-carlo": "Monte Carlo", "printed": "printed"}


@styled
def plot_spectra(rows: Rows, ax: Axes | None = None, sources: Sequence[str] | None = None) -> Axes:
    """Plot histograms of eigenvalues on common bins, with the distances of the kernels as the title.

    Eigenvalues above the bulk are ticks at the foot of the panel, one row of ticks for each source.

    Args:
        rows: rows of kind "spectrum", one per histogram, and of kind "distance", for the title.
        ax: axes to draw into; a new figure if None.
        sources: which sources to draw, the first one filled; by default all.
    """
    axes = panel(ax)
    chosen = _chosen(needed(rows, "spectrum"), sources)
    values = [np.asarray(row["eigenvalues"], dtype=np.float64) for row in chosen]
    bins, scale = _common_bins(np.concatenate(values))
    top = _bulk_end(values[0], bins)
    for place, (row, eigenvalues, number) in enumerate(zip(chosen, values, _numbers(chosen), strict=True)):
        counts, _ = np.histogram(eigenvalues, bins=bins[: top + 1])
        first = {"fill": True, "color": COLOURS[5], "alpha": 0.6}
        style = first if row is chosen[0] else line_style(number) | {"linewidth": 1.2}
        axes.stairs(counts, bins[: top + 1], label=words(row.get("label") or row["source"]), **style)
        draw_rug(axes, eigenvalues[eigenvalues > bins[top]], place, str(style["color"]))
    axes.set(xscale=scale, yscale="log", xlabel="eigenvalue", ylabel="number of eigenvalues")
    axes.set_ylim(bottom=0.7)
    for axis in (axes.yaxis, axes.xaxis) if scale == "log" else (axes.yaxis,):
        tidy_log(axis)
    axes.set_title(_distances(rows, chosen))
    axes.legend()
    return axes


def _chosen(rows: Rows, sources: Sequence[str] | None) -> list[Row]:
    """The rows to draw, in the order of the sources; by default the DEQ first."""
    if sources is None:
        return sorted(rows, key=lambda row: row["source"] != "deq")
    matching = [row for source in sources for row in rows if row["source"] == source]
    if not matching:
        raise InputError(f"Nothing to draw: the rows have no spectrum of {', '.join(sources)}.")
    return matching


def _numbers(rows: Rows) -> list[int]:
    """Numbers of line styles: that of the source, or the next free one for a second row of the same source."""
    taken: list[int] = []
    for row in rows:
        number = NUMBERS.get(str(row["source"]), 4)
        while number in taken:
            number += 1
        taken.append(number)
    return taken


def _common_bins(values: Array) -> tuple[Array, str]:
    """Bins for all histograms: geometric if the largest eigenvalue is far above the median."""
    low, high = float(values.min()), float(values.max())
    if low > 0.0 and high > 8.0 * float(np.median(values)):
        return np.geomspace(low, high * (1 + 1e-9), _BINS + 1), "log"
    if low == high:
        high = low + 1.0
    return np.linspace(low, high, _BINS + 1), "linear"


def _bulk_end(values: Array, bins: Array) -> int:
    """Number of bins of the bulk: the last one with three eigenvalues ends it; all bins if there is none."""
    filled = np.flatnonzero(np.histogram(values, bins=bins)[0] >= 3)
    return int(filled[-1]) + 1 if len(filled) else len(bins) - 1


def _distances(rows: Rows, drawn: Rows) -> str:
    """The distances between the sources that are drawn, at their size, averaged over seeds."""
    sources, size = {str(row["source"]) for row in drawn}, drawn[0].get("n")
    main = [
        row
        for row in chosen(rows, kind="distance", main=True)
        if {str(row["first"]), str(row["second"])} <= sources and row.get("n") == size
    ]
    return "\n".join(_distance(group) for group in grouped(main, "first", "second", "reading").values())


def _distance(rows: Rows) -> str:
    letters = dict(
        zip(("deq", "equivalent"), _LETTERS.get(str(rows[0].get("kernel")), ("K", "K̄")), strict=True)
    )
    first, second = (
        (_SYMBOLS | letters).get(str(rows[0][end]), words(rows[0][end])) for end in ("first", "second")
    )
    papers = [row["paper"] for row in rows if row.get("paper") is not None]
    paper = f" (paper {papers[0]:g})" if papers else ""
    mean = float(np.mean([row["absolute"] for row in rows]))
    return f"‖{first} − {second}‖ = {mean:.3g}{paper}"


@styled
def plot_entries(rows: Rows, ax: Axes | None = None, sources: Sequence[str] = ("twin", "plain")) -> Axes:
    """Plot entries of kernels of networks, each with its best factor, against those of the DEQ."""
    axes = panel(ax)
    selected = _chosen(needed(rows, "entries"), sources)
    for row in reversed(selected):
        style = point_style(NUMBERS[str(row["source"])]) | {
            "linestyle": "none",
            "markersize": 2.5,
            "alpha": 0.7,
        }
        deq, other = np.array(row["deq"]), np.array(row["approximation"])
        factor = float(deq @ other / (other @ other))
        label = f"{words(row.get('label') or row['source'])}, times {factor:.3g}"
        axes.plot(deq, factor * other, label=label, **style)
    ends = [min(selected[0]["deq"]), max(selected[0]["deq"])]
    axes.plot(ends, ends, color="0.4", linewidth=0.8, zorder=0, label="equal")
    axes.set(xlabel="entry of the DEQ's kernel", ylabel="entry of the network's kernel, rescaled")
    axes.legend()
    return axes


@styled
def plot_prediction(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot a predicted spectrum over the histogram of exact eigenvalues, and mark isolated eigenvalues."""
    axes = panel(ax)
    predictions = {row["form"]: row for row in needed(rows, "prediction")}
    best = predictions.get("refined") or next(iter(predictions.values()))
    exact = chosen(rows, kind="spectrum")
    grid, density, edges, isolated = (
        np.array(best[name], dtype=float).ravel() for name in ("grid", "density", "edges", "isolated")
    )
    eigenvalues = np.array(exact[0]["eigenvalues"], dtype=float) if exact else None
    draw_prediction(axes, grid, density, edges, isolated, eigenvalues)
    if best["form"] != "asymptotic" and "asymptotic" in predictions:
        other = predictions["asymptotic"]
        axes.plot(
            other["grid"], other["density"], label="predicted, asymptotic", linewidth=1.0, **line_style(3)
        )
    axes.set_title(f"Kolmogorov distance {best['kolmogorov']:.3f}")
    axes.legend()
    return axes


@styled
def plot_isolated(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot predicted isolated eigenvalues, relative to the exact ones, by form of the prediction."""
    axes = panel(ax)
    for (form,), group in grouped(needed(rows, "prediction"), "form").items():
        exact, predicted = (
            np.concatenate([row[name] for row in group]) for name in ("isolated_exact", "isolated")
        )
        style = point_style(NUMBERS.get(str(form), 1)) | {"linestyle": "none", "markersize": 3.5}
        axes.plot(exact, 100.0 * (predicted / exact - 1.0), label=words(form), **style)
    axes.axhline(0.0, color="0.4", linewidth=0.8, zorder=0)
    axes.set(xscale="log", xlabel="exact isolated eigenvalue", ylabel="prediction − exact (%)")
    axes.legend()
    return axes
