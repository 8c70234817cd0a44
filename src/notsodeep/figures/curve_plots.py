"""Plots of learning curves, depth curves, forecasts and phase diagrams."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from notsodeep.figures.style import line_style, panel, point_style, styled
from notsodeep.validation import Array

# Rate at which colours end.
_DARK = 1.5


def mark_sizes(axes: Axes, sizes: Array) -> None:
    """Set ticks at the measured sizes, as plain numbers; at every second one if they are many."""
    step = -(-len(sizes) // 6)
    axes.set_xticks(sizes[::-1][::step][::-1])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


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
    values = factor * np.asarray(curve.accuracy if curve.is_classification else curve.mse)
    low, high = factor * np.asarray(curve.interval).T
    far = np.asarray(curve.extrapolated)
    axes.fill_between(curve.n, low, high, alpha=0.15, linewidth=0.0, **style)
    axes.plot(curve.n[~far], values[~far], label=f"{name}, predicted", **style)
    if far.any():
        start = max(int(np.flatnonzero(far)[0]) - 1, 0)
        axes.plot(curve.n[start:], values[start:], label=f"{name}, extrapolated", linestyle="--", **style)
    _draw_measured(axes, measured, factor, label=f"{name}, measured", **style)
    axes.set(xscale="log", xlabel="number of training samples $n$")
    mark_sizes(axes, np.unique(np.asarray(curve.n, dtype=float)))
    axes.set_ylabel("test accuracy (%)" if curve.is_classification else "test mean squared error")
    axes.legend()
    return axes


def _draw_measured(axes: Axes, measured: Any, factor: float, **style: Any) -> None:
    """Draw measured rows (size, value) or (size, value, standard deviation), if there are any."""
    if measured is not None:
        rows = np.atleast_2d(np.asarray(measured, dtype=float))
        spread = factor * rows[:, 2] if rows.shape[1] > 2 else None
        style |= {"linestyle": "none", "marker": "o", "capsize": 2.0}
        axes.errorbar(rows[:, 0], factor * rows[:, 1], yerr=spread, **style)


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
def plot_forecast(forecast: Any, ax: Axes | None = None) -> Axes:
    """Draw residuals and errors of the median sample by step, with the range over samples."""
    axes = panel(ax)
    for number, name in enumerate(("residual", "error")):
        values = getattr(forecast, f"{name}s")
        shown = values[:, np.isfinite(values).any(axis=0)]
        if not shown.size:
            continue
        steps, style = np.arange(shown.shape[1]), line_style(number)
        axes.plot(steps, np.nanmedian(shown, axis=0), label=f"{name}, {forecast.source}", **style)
        if len(shown) > 1:
            ends = np.nanmin(shown, axis=0), np.nanmax(shown, axis=0)
            axes.fill_between(steps, *ends, color=style["color"], alpha=0.2, linewidth=0.0)
    settled, rate = int(np.sum(forecast.settles)), np.nanmax(forecast.rate)
    axes.set(yscale="log", xlabel="step $k$", ylabel="relative to the norm of the state")
    axes.set_title(f"{settled} of {len(forecast.rate)} samples settle, largest rate {rate:.3g}")
    axes.legend()
    return axes


@styled
def plot_phase_diagram(diagram: Any, ax: Axes | None = None) -> Axes:
    """Draw rates over gain and injection as colours, with the line where the rate is 1; white has no equilibrium."""
    axes, places = panel(ax), (diagram.gain, diagram.injection)
    rate = np.ma.masked_invalid(diagram.rate)
    mesh = axes.pcolormesh(*places, rate, cmap="cividis", vmin=0.0, vmax=_DARK, shading="nearest")
    axes.figure.colorbar(mesh, ax=axes, label="rate per step", extend="max")
    finite = np.where(np.isfinite(diagram.rate), diagram.rate, 2.0 * _DARK)
    if min(finite.shape) > 1 and finite.min() < 1.0 < finite.max():
        axes.contour(*places, finite, levels=[1.0], colors="white", linewidths=1.4)
    axes.set(xlabel=r"gain $\sigma_a^2$", ylabel=r"injection $\sigma_b^2$")
    axes.set_title(f"‖x‖ = {diagram.norm:g}: rate 1 on the line")
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
    style = {"color": line_style(len(axes.get_legend_handles_labels()[0]))["color"]}
    axes.plot(curve.steps[order], curve.mse[order], label=f"trained with {curve.train_steps} steps", **style)
    axes.axvline(curve.train_steps, linestyle=":", linewidth=0.8, **style)
    _draw_measured(axes, measured, 1.0, **style)
    axes.set(xscale="log", xlabel="number of steps at run time $k$", ylabel="test mean squared error")
    mark_sizes(axes, np.unique(curve.steps.astype(float)))
    axes.legend()
    return axes
