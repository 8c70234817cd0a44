"""Images for the page: the digits or those of a file, downscaled so that the page responds quickly."""

from __future__ import annotations

import numpy as np

from notsodeep.cli.scenario import PreparedSamples
from notsodeep.data import as_images
from notsodeep.errors import InputError
from notsodeep.validation import Array, root_mean_square_norm
from notsodeep_lab.explorer.choice import PageData

# Pixels per side: the kernel of two images needs all pairs of their positions.
SIDE = 4


def small_images(data: PageData) -> PreparedSamples:
    """Return the samples as images (n, channels, height, width) with |x(s)|² = 1 on average over positions.

    Raises:
        InputError: if the data have no images.
    """
    if data.source == "digits":
        samples = data.samples()
        images = as_images("digits", samples.rows)
    elif data.upload is not None and data.upload.image_shape is not None:
        samples = data.samples()
        images = samples.rows.reshape(len(samples.rows), *data.upload.image_shape)
    else:
        raise InputError(
            "A convolutional network needs images: choose handwritten digits, or a NPY file of shape (n, height, "
            "width) or (n, channels, height, width). Or choose a dense network."
        )
    small = shrunk(images, SIDE)
    height, width = images.shape[2:]
    note = f"Images of {height} × {width} pixels"
    if small.shape != images.shape:
        note += f" were downscaled to {small.shape[2]} × {small.shape[3]} by averaging over blocks"
    rows = small / root_mean_square_norm(np.moveaxis(small, 1, -1).reshape(-1, small.shape[1]))
    return PreparedSamples(rows, samples.labels, None, 1.0, (*samples.notes, f"{note}."))


def shrunk(images: Array, side: int) -> Array:
    """Downscale images (n, channels, height, width) to at most `side` pixels per side by averaging over blocks."""
    for axis in (2, 3):
        factor = -(-images.shape[axis] // side)
        kept = images.shape[axis] // factor
        last = np.moveaxis(images, axis, -1)[..., : kept * factor]
        images = np.moveaxis(last.reshape(*last.shape[:-1], kept, factor).mean(axis=-1), -1, axis)
    return np.ascontiguousarray(images)
