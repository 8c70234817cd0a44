"""The kernel after learning against the kernel before."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from notsodeep.figures.style import colour, panel, styled


@styled
def plot_kernel_change(adaptive: Any, ax: Axes | None = None) -> Axes:
    """Plot each entry of an `AdaptiveKernel` after learning against before, with standard errors.

    Colours separate pairs of samples whose targets have a positive inner product from other pairs.
    """
    axes = panel(ax)
    targets = adaptive.y.reshape(len(adaptive.y), -1)
    rows, columns = np.triu_indices(len(targets))
    alike = (targets @ targets.T)[rows, columns] > 0.0
    before, after, error = (
        one[rows, columns] for one in (adaptive.lazy_kernel, adaptive.kernel, adaptive.standard_error)
    )
    for number, (part, words) in enumerate(((alike, "targets alike"), (~alike, "targets opposed"))):
        style: dict[str, Any] = {"fmt": "o", "markersize": 2.5, "color": colour(number), "label": words}
        axes.errorbar(before[part], after[part], error[part], **style)
    ends = [min(before.min(), after.min()), max(before.max(), after.max())]
    axes.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
    words = f"alignment {adaptive.lazy_alignment:.2f} before, {adaptive.alignment:.2f} after"
    axes.set(xlabel="kernel before learning", ylabel="kernel after learning", title=words)
    axes.legend()
    return axes
