"""Forecasts: residuals by step, and the phase diagram of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.style import line_style, panel, styled

# Rate at which colours end.
_DARK = 1.5


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
    """Draw rates over gain and injection as colours, with the line where the rate is 1; white has no fixed point."""
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
