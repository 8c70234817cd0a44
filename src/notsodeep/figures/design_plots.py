"""Plots of designed networks beside the models that they replace."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from notsodeep.designs import Design
from notsodeep.designs.families import plain_layers
from notsodeep.equivalents.equivalent import kernel_distance
from notsodeep.errors import InputError
from notsodeep.figures.style import COLOURS, MARKERS, panel, styled
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.validation import Array

# Numbers of samples whose kernel entries are drawn: rows, and images.
_ROWS, _IMAGES = 60, 12
# Samples for a design without data: dimension of rows, height and width of images.
_DIMENSION, _SIDE = 10, 6


@styled
def plot_design(design: Design, ax: Axes | None = None, X: ArrayLike | None = None) -> Axes:
    """Plot how far kernel entries of the design and of a plain layer are from those of the model.

    Every point is a pair of samples. Each network has its best factor, which a ridge or a learning rate absorbs.

    Args:
        design: the design.
        ax: axes to draw into; a new figure if None.
        X: samples, of which the first 60 rows or 12 images are used; if None, random ones of norm about τ0.
    """
    axes, model = panel(ax), design.model
    if model is None:
        raise InputError(
            "The model of this design has a custom activation and was not saved: nothing to compare."
        )
    is_of_images = isinstance(model, ConvDEQ)
    samples = _random_samples(design.tau0, is_of_images) if X is None else np.asarray(X, dtype=np.float64)
    samples = samples[: _IMAGES if is_of_images else _ROWS]
    which = "ntk" if design.kernel == "both" else design.kernel
    networks: dict[str, Any] = {"twin": design.network}
    if isinstance(model, DEQ | ConvDEQ):
        networks = {"plain layer": plain_layers(model, 1, design.tau0), **networks}
    kernel = exact_kernel(model, samples, kernel=which)
    pairs, scale = np.triu_indices(len(kernel)), float(np.diag(kernel).mean())
    for number, (name, network) in enumerate(networks.items()):
        other = exact_kernel(network, samples, kernel=which)
        distance = kernel_distance(kernel, other)
        axes.plot(
            kernel[pairs] / scale,
            100.0 * (distance.factor * other - kernel)[pairs] / scale,
            MARKERS[number],
            color=COLOURS[1 - number],
            markersize=2.0,
            label=name,
        )
    axes.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    axes.set(
        xlabel="kernel entry of the model (mean diagonal: 1)",
        ylabel="difference (% of the diagonal)",
        title=f"{design.family} for the {which.upper()}",
    )
    axes.legend()
    return axes


def _random_samples(tau0: float, is_of_images: bool) -> Array:
    """Gaussian rows of mean squared norm τ0², or images whose pixels have that mean square."""
    generator = np.random.default_rng(0)
    if is_of_images:
        return tau0 * generator.standard_normal((_IMAGES, 1, _SIDE, _SIDE))
    return np.asarray(tau0 / np.sqrt(_DIMENSION) * generator.standard_normal((_ROWS, _DIMENSION)))
