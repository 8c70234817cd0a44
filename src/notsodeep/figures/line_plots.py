"""Plots of numbers against a size, from rows of experiments: errors, accuracies, losses and norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from notsodeep.figures.row_selection import NUMBERS, averaged, needed, title
from notsodeep.figures.style import line_style, panel, point_style, styled, tidy_log
from notsodeep.records import Rows, grouped
from notsodeep.validation import Array

# An error that falls more slowly than this power of the size contradicts a line that falls with its root.
_LEAST_EXPONENT = 0.25


@styled
def plot_errors(rows: Rows, ax: Axes | None = None, by: tuple[str, ...] = ("activation",)) -> Axes:
    """Plot relative errors against the number of samples, with bars over seeds and, if they fall, a line n^(-1/2)."""
    return draw_decay(panel(ax), needed(rows, "error"), "n", by, "number of samples $n$", r"$n^{-1/2}$")


def draw_decay(axes: Axes, rows: Rows, x: str, by: tuple[str, ...], x_label: str, slope: str) -> Axes:
    """Plot relative errors against a size on logarithmic axes, one line with bars for each group of rows."""
    lines = {key: averaged(group, x, "relative") for key, group in grouped(rows, *by).items()}
    for number, (key, (place, mean, spread)) in enumerate(lines.items()):
        label = ", ".join(
            f"$m$ = {part}" if name == "width" else title(part) for name, part in zip(by, key, strict=True)
        )
        # The lower end of a bar stays positive, as a logarithmic axis needs.
        ends = np.stack([np.minimum(spread, 0.9 * mean), spread])
        axes.errorbar(place, mean, yerr=ends, capsize=2.0, label=label, **point_style(number))
    _draw_slope(axes, list(lines.values()), slope)
    axes.set(xscale="log", yscale="log", xlabel=x_label, ylabel="relative error (‖·‖₂)")
    tidy_log(axes.yaxis)
    mark_sizes(axes, np.unique(np.concatenate([place for place, _, _ in lines.values()])))
    axes.legend()
    return axes


def _draw_slope(axes: Axes, lines: list[tuple[Array, Array, Array]], label: str) -> None:
    """Draw a line that falls with the root of the size below all others, unless one of these hardly falls."""
    if any(mean[-1] > mean[0] * (place[0] / place[-1]) ** _LEAST_EXPONENT for place, mean, _ in lines):
        return
    ends = [place[[0, -1]] for place, _, _ in lines]
    start, stop = min(end[0] for end in ends), max(end[1] for end in ends)
    if stop > start:
        level = 0.7 * min(float(np.min(mean * np.sqrt(place / start))) for place, mean, _ in lines)
        place = np.array([start, stop])
        axes.plot(
            place, level * np.sqrt(start / place), color="0.4", linestyle=":", linewidth=1.0, label=label
        )


def mark_sizes(axes: Axes, sizes: Array) -> None:
    """Set ticks at the measured sizes, as plain numbers; at every second one if they are many."""
    step = -(-len(sizes) // 6)
    axes.set_xticks(sizes[::-1][::step][::-1])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


@styled
def plot_losses(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot the loss per sample by step of gradient descent, one line for each width and seed."""
    axes = panel(ax)
    for row, style in _trainings(rows):
        losses = np.asarray(row["losses"], dtype=float) / float(row["n"])
        axes.plot(row["steps"], np.where(losses > 0, losses, np.nan), **style)
    axes.set(yscale="log", xlabel="step of gradient descent", ylabel=r"loss per sample $\Phi/n$")
    axes.legend(title="width $m$")
    return axes


@styled
def plot_norms(rows: Rows, ax: Axes | None = None) -> Axes:
    """Plot ‖W‖₂ along gradient descent, and the line 1 below which the equilibrium is unique."""
    axes = panel(ax)
    for row, style in _trainings(rows):
        axes.plot(row["steps"], row["norms"], **style)
    axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1.0)
    axes.set(xlabel="step of gradient descent", ylabel=r"$\|W(\tau)\|_2$")
    axes.legend(title="width $m$")
    return axes


def _trainings(rows: Rows) -> list[tuple[Any, dict[str, Any]]]:
    """Rows of training by width, each with its style; only the first seed of a width has a label."""
    found = []
    widths = grouped(sorted(needed(rows, "training"), key=lambda row: float(row["width"])), "width")
    for number, ((width,), group) in enumerate(widths.items()):
        for seed, row in enumerate(group):
            style = line_style(number) | {"linewidth": 1.1, "alpha": 1.0 if seed == 0 else 0.5}
            found.append((row, style | {"label": f"{width}" if seed == 0 else "_"}))
    return found


@styled
def plot_learning_curve(curve: Any, ax: Axes | None = None, measured: Any = None) -> Axes:
    """Plot a predicted learning curve with its band, dashed where it is extrapolated, and measured points.

    Args:
        curve: a `LearningCurve`.
        ax: where to draw; a new figure if not given.
        measured: rows (n, value) or (n, value, standard deviation).
    """
    axes = panel(ax)
    factor = 100.0 if curve.is_classification else 1.0
    style = {"color": line_style(len(axes.lines))["color"]}
    name = "kernel" if curve.width is None else f"width {curve.width}"
    _draw_curve(axes, curve, f"{name}, predicted", f"{name}, extrapolated", style)
    if measured is not None:
        rows = np.atleast_2d(np.asarray(measured, dtype=float))
        spread = factor * rows[:, 2] if rows.shape[1] > 2 else None
        points = {"linestyle": "none", "marker": "o", "capsize": 2.0, **style}
        axes.errorbar(rows[:, 0], factor * rows[:, 1], yerr=spread, label=f"{name}, measured", **points)
    _label_curve(axes, curve)
    axes.legend()
    return axes


@styled
def plot_learning_curves(curves: Mapping[str, Any], ax: Axes | None = None) -> Axes:
    """Plot predicted learning curves of several models with their bands, thin where they are extrapolated.

    Args:
        curves: `LearningCurve`s by "deq", "twin", "plain", or any other names.
        ax: where to draw; a new figure if not given.
    """
    axes = panel(ax)
    for place, (name, curve) in enumerate(curves.items()):
        # The curve on top may hide another: later ones are thinner, and their dashes let it through.
        style = line_style(NUMBERS.get(name, place)) | {"linewidth": 2.6 - 0.6 * place}
        _draw_curve(axes, curve, title(name), "_", style)
        _label_curve(axes, curve)
    axes.legend()
    return axes


def _draw_curve(axes: Axes, curve: Any, inside: str, beyond: str, style: dict[str, Any]) -> None:
    """Draw one curve with its band: within the samples, and beyond them by theory."""
    factor = 100.0 if curve.is_classification else 1.0
    values = factor * np.asarray(curve.accuracy if curve.is_classification else curve.mse)
    low, high = factor * np.asarray(curve.interval).T
    far = np.asarray(curve.extrapolated)
    axes.fill_between(curve.n, low, high, alpha=0.15, linewidth=0.0, color=style["color"])
    axes.plot(curve.n[~far], values[~far], label=inside, **style)
    if far.any():
        start = max(int(np.flatnonzero(far)[0]) - 1, 0)
        axes.plot(curve.n[start:], values[start:], label=beyond, **_beyond_style(style))


def _beyond_style(style: dict[str, Any]) -> dict[str, Any]:
    """Style the extrapolated part: dashed, or thinner if the line is dashed already."""
    return style | ({"linewidth": 0.8} if "linestyle" in style else {"linestyle": "--"})


def _label_curve(axes: Axes, curve: Any) -> None:
    axes.set(xscale="log", xlabel="number of training samples $n$")
    mark_sizes(axes, np.unique(np.asarray(curve.n, dtype=float)))
    axes.set_ylabel("test accuracy (%)" if curve.is_classification else "test mean squared error")


@styled
def plot_depth_curve(curve: Any, ax: Axes | None = None) -> Axes:
    """Accuracy against the number of steps, with intervals, and a line at the number of steps that is needed.

    Args:
        curve: a `DepthCurve`; its last point is the equilibrium.
        ax: where to draw; a new figure if not given.
    """
    axes = panel(ax)
    places, values = np.arange(len(curve.steps)), 100.0 * np.asarray(curve.accuracy)
    ends = np.abs(100.0 * np.asarray(curve.interval).T - values)
    axes.errorbar(places, values, yerr=ends, capsize=2.0, label=curve.measure, **point_style(0))
    needed = int(np.flatnonzero(curve.steps == curve.steps_needed)[0])
    axes.axvline(needed, color="0.4", linestyle=":", linewidth=1.0, label=f"needed: {curve.name(needed)}")
    axes.set_xticks(places, ["∞" if np.isinf(one) else f"{one:.0f}" for one in curve.steps])
    axes.set(xlabel="number of steps (∞: the equilibrium)", ylabel=f"{curve.measure} (%)")
    axes.legend()
    return axes


@styled
def plot_loop_curve(curve: Any, ax: Axes | None = None, measured: Any = None) -> Axes:
    """Plot the test error against the number of steps at run time, a mark at the steps of training, measured points.

    Args:
        curve: a `LoopCurve`.
        ax: where to draw; a new figure if not given.
        measured: rows (steps, mse) or (steps, mse, standard deviation).
    """
    axes = panel(ax)
    order = np.argsort(curve.steps)
    style = {"color": line_style(len(axes.collections))["color"]}
    axes.plot(curve.steps[order], curve.mse[order], label=f"trained with {curve.train_steps} steps", **style)
    axes.axvline(curve.train_steps, linestyle=":", linewidth=0.8, **style)
    rows = np.empty((0, 2)) if measured is None else np.atleast_2d(np.asarray(measured, dtype=float))
    spread = rows[:, 2] if rows.shape[1] > 2 else None
    axes.errorbar(rows[:, 0], rows[:, 1], yerr=spread, linestyle="none", marker="o", capsize=2.0, **style)
    axes.set(xscale="log", xlabel="number of steps at run time $k$", ylabel="test mean squared error")
    mark_sizes(axes, np.unique(curve.steps.astype(float)))
    axes.legend()
    return axes
