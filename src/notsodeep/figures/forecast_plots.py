"""Forecasts: residuals by step, and the phase diagram of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.style import COLOURS, line_style, panel, styled

# Rates at which colours end.
_LIGHT, _DARK = 0.0, 1.5


@styled
def plot_forecast(forecast: Any, ax: Axes | None = None, measured: Any = None) -> Axes:
    """Residuals and errors of the median sample by step, with the range over samples.

    Args:
        forecast: a `Forecast`.
        ax: axes to draw into; a new figure if not given.
        measured: residuals of a network, (samples, steps), drawn as points.
    """
    axes = panel(ax)
    curves = {"residual": forecast.residuals, "error": forecast.errors}
    for number, (name, values) in enumerate(curves.items()):
        shown = values[:, np.isfinite(values).any(axis=0)]
        if not shown.size:
            continue
        steps = np.arange(shown.shape[1])
        style = line_style(number)
        axes.plot(steps, np.nanmedian(shown, axis=0), label=f"{name}, {forecast.source}", **style)
        if len(shown) > 1:
            low, high = np.nanmin(shown, axis=0), np.nanmax(shown, axis=0)
            axes.fill_between(steps, low, high, color=style["color"], alpha=0.2, linewidth=0.0)
    if measured is not None:
        points = np.nanmedian(np.asarray(measured), axis=0)
        axes.plot(
            np.arange(len(points)), points, "o", color=COLOURS[-1], markersize=2.5, label="residual, network"
        )
    settled = int(np.sum(forecast.settles))
    axes.set(
        yscale="log",
        xlabel="step $k$",
        ylabel="relative to the norm of the state",
        title=f"{settled} of {len(forecast.rate)} samples settle, largest rate {np.nanmax(forecast.rate):.3g}",
    )
    axes.legend()
    return axes


@styled
def plot_phase_diagram(diagram: Any, ax: Axes | None = None) -> Axes:
    """Rates over gain and injection as colours, with the line where the rate is 1; white has no fixed point."""
    axes = panel(ax)
    rate = np.ma.masked_invalid(diagram.rate)
    mesh = axes.pcolormesh(
        diagram.gain, diagram.injection, rate, cmap="cividis", vmin=_LIGHT, vmax=_DARK, shading="nearest"
    )
    axes.figure.colorbar(mesh, ax=axes, label="rate per step", extend="max")
    finite = np.where(np.isfinite(diagram.rate), diagram.rate, 2.0 * _DARK)
    if min(finite.shape) > 1 and finite.min() < 1.0 < finite.max():
        axes.contour(diagram.gain, diagram.injection, finite, levels=[1.0], colors="white", linewidths=1.4)
    axes.set(
        xlabel=r"gain $\sigma_a^2$",
        ylabel=r"injection $\sigma_b^2$",
        title=f"‖x‖ = {diagram.norm:g}: rate 1 on the line",
    )
    return axes
