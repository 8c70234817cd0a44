"""A function of the variance at many points, from few: Chebyshev interpolation in log q.

Gaussian moments are analytic in log q in a strip of half-width π/2 whatever the activation (the activation enters as a
fixed function, the variance only through the bell), so a few dozen nodes serve thousands of samples to 15 digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

Array = NDArray[np.float64]

COUNTS = (16, 32, 64, 128)
# Segments in log q: over a longer one, an error small against the largest value would be large against the smallest.
SEGMENT = np.log(16.0)
TOLERANCE = 2e-15


def at_many(function: Callable[[Array], Array], points: Array) -> Array:
    """function(points) for positive points; `function` maps m points to m rows and is called on few of them.

    The error is relative to the largest row of each segment; where the interpolation does not resolve the function,
    or is not worth it, the function is called on all points.
    """
    if len(points) <= 2 * COUNTS[0]:
        return function(points)
    logs = np.log(points)
    segment = np.floor((logs - logs.min()) / SEGMENT).astype(np.intp)
    result: Array | None = None
    for number in np.unique(segment):
        members = np.flatnonzero(segment == number)
        rows = _one_segment(function, points[members], logs[members])
        if result is None:
            result = np.empty((len(points), *rows.shape[1:]))
        result[members] = rows
    return function(points) if result is None else result


def _one_segment(function: Callable[[Array], Array], points: Array, logs: Array) -> Array:
    low, high = float(logs.min()), float(logs.max())
    if high - low < 1e-15:
        return np.repeat(function(points[:1]), len(points), axis=0)
    for count in COUNTS:
        if len(points) <= 2 * count:
            break
        angles = np.pi * (np.arange(count) + 0.5) / count
        values = function(np.exp(0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles)))
        coefficients = dct(values.reshape(count, -1), axis=0) / count
        coefficients[0] *= 0.5
        # The last quarter, not the last one: an even or odd function has every other coefficient zero.
        if np.abs(coefficients[-count // 4 :]).max() <= TOLERANCE * np.abs(coefficients).max():
            local = np.clip((2.0 * logs - low - high) / (high - low), -1.0, 1.0)
            basis = np.cos(np.arccos(local)[:, None] * np.arange(count))
            return np.asarray((basis @ coefficients).reshape(len(points), *values.shape[1:]))
    return function(points)
