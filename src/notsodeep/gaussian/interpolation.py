"""A function of the variance at many points, from few: Chebyshev interpolation in log q.

Gaussian moments are analytic in log q in a strip of half-width π/2 whatever the activation (the activation enters as a
fixed function, the variance only through the Gaussian), so a few dozen nodes serve thousands of samples to 15 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.linalg.chebyshev import LogInterval, chebyshev_basis, chebyshev_coefficients, clenshaw
from notsodeep.validation import Array

COUNTS = (16, 32, 64, 128)
# Segments in log q: over a longer one, an error small against the largest value would be large against the smallest.
SEGMENT = np.log(16.0)
TOLERANCE = 2e-15
# Last orders that add up to less than this, relative to the largest coefficient, are left out.
NOTHING = 1e-16
# log q is rounded outwards to multiples of this where coefficients are kept: data sets that are alike share them.
LOG_STEP = 0.125
KEPT = 1024
_SERIES: dict[Hashable, Array] = {}


def at_many(function: Callable[[Array], Array], points: Array, key: Hashable = None) -> Array:
    """function(points) for positive points; `function` maps m points to m rows and is called on few of them.

    The error is relative to the largest row of each segment; where the interpolation does not resolve the function,
    or is not worth it, the function is called on all points.  With a `key`, which must name the function completely,
    the interpolants are kept for the next call.
    """
    if len(points) <= 2 * COUNTS[0]:
        return function(points)
    logs = np.log(points)
    low, high = float(logs.min()), float(logs.max())
    if high - low < SEGMENT:
        return _one_segment(function, points, logs, key)
    segment = np.floor((logs - low) / SEGMENT).astype(np.intp)
    parts = {int(number): np.flatnonzero(segment == number) for number in np.unique(segment)}
    rows = [_one_segment(function, points[members], logs[members], key) for members in parts.values()]
    result = np.empty((len(points), *rows[0].shape[1:]))
    for members, values in zip(parts.values(), rows, strict=True):
        result[members] = values
    return result


def at_variances(function: Callable[[Array], Array], points: Array, key: Hashable) -> Array:
    """A scalar function of the variance at many points; exact zeros, which have no logarithm, on their own."""
    positive = points > 0
    result = np.empty_like(points)
    if positive.any():
        result[positive] = at_many(lambda q: function(q)[:, None], points[positive], key)[:, 0]
    if not positive.all():
        result[~positive] = function(np.zeros(1))[0]
    return result


def _one_segment(function: Callable[[Array], Array], points: Array, logs: Array, key: Hashable) -> Array:
    try:
        return _interpolated(function, points, logs, key)
    except (ConvergenceError, InputError):
        # The rounded range may reach where the function does not exist; the points themselves decide.
        if key is None:
            raise
        return _interpolated(function, points, logs, None)


def _interpolated(function: Callable[[Array], Array], points: Array, logs: Array, key: Hashable) -> Array:
    low, high = float(logs.min()), float(logs.max())
    if high - low < 1e-15:
        return np.repeat(function(points[:1]), len(points), axis=0)
    if key is not None:
        low, high = float(np.floor(low / LOG_STEP) * LOG_STEP), float(np.ceil(high / LOG_STEP) * LOG_STEP)
    coefficients = _SERIES.get((key, low, high)) if key is not None else None
    for count in COUNTS if coefficients is None else ():
        # What is kept for other calls may cost more than this one alone would pay.
        if key is None and len(points) <= 2 * count:
            break
        series = chebyshev_coefficients(function(LogInterval(low, high).nodes(count)))
        # The last quarter, not the last one: an even or odd function has every other coefficient zero.
        if np.abs(series[-count // 4 :]).max() <= TOLERANCE * np.abs(series).max():
            # Without the last orders, as far as these are nothing but rounding.
            sizes = np.abs(series).reshape(len(series), -1).max(axis=1)
            rest = np.cumsum(sizes[::-1])[::-1]
            coefficients = series[: max(1, int(np.sum(rest > NOTHING * sizes.max())))]
            if key is not None:
                if len(_SERIES) >= KEPT:
                    _SERIES.clear()
                _SERIES[key, low, high] = coefficients
            break
    if coefficients is None:
        return function(points)
    place = (2.0 * logs - low - high) / (high - low)
    if coefficients.shape[1:] == (1,):
        # One function: a recursion is cheaper than all cosines.
        return clenshaw(coefficients, np.clip(place, -1.0, 1.0))[:, None]
    basis = chebyshev_basis(place, len(coefficients))
    return np.tensordot(basis, coefficients, axes=1)
