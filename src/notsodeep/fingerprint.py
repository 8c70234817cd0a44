"""Fingerprints of models: a description and its hash, used by stores on disk and results.

A model of named activations and formulas is described completely, by its serial form (`to_dict`) with every digit:
different models have different fingerprints, equal ones the same. A callable has no serial form, and neither its name
nor its code determines what it computes. It is described by its values at many points over the range that the data
need, its declared kinks, and the values of its derivative where one was given.

What cannot be excluded for callables: that two of them differ only between the points, in a stretch narrower than about
a hundredth of its distance from zero; only outside of the range; or by less than about 1e-11 of the largest value
nearby. The last digits are left out because the libraries of two machines differ in them. Should these still disagree
(a value that lies just between two roundings), a store of the one is refused on the other, and never mixed up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from notsodeep.gaussian.activations import Activation, rebuilt
from notsodeep.gaussian.custom import FIRST_LOOK
from notsodeep.gaussian.quadrature import REACH
from notsodeep.gaussian.serial import activation_to_dict, affine_to_dict
from notsodeep.models.protocol import HasActivations, Model
from notsodeep.validation import Array

DIGITS = 32
# Number of points in each range, and number of ranges, each half as wide as the one before: fine detail near zero
# counts for samples of small norm.
_POINTS, _RANGES = 233, 24
_GOLDEN, _ODD = 0.6180339887498949, 1.0173
# Values are rounded to this fraction of the largest one in their range.
_UNIT = 2.0**-37
# Replaces values that are not finite; larger than any finite one.
_NOT_FINITE = 2.0**62


def fingerprint(model: Model, largest_norm: float = 0.0) -> str:
    """Hash the description of a model to hexadecimal digits, different for different models.

    Args:
        model: any model. Callables in it are compared by their values if it has `activations` (`HasActivations`).
        largest_norm: largest norm of the samples. It decides how far out callables are compared, at least within ±64.
    """
    return digest(describe(model, largest_norm))


def describe(model: Model, largest_norm: float = 0.0) -> dict[str, Any]:
    """Describe everything that determines what a model computes, as JSON values; arguments as in `fingerprint`."""
    if not isinstance(model, HasActivations) or all(rebuilt(phi) is not None for phi in model.activations):
        return model.to_dict()
    reach = REACH * float(np.sqrt(model.largest_variance(largest_norm)))
    return model.to_dict(lambda phi: _activation(phi, reach))


def digest(description: Any) -> str:
    """Hash a JSON value, independent of the order of its keys; numbers count to the last bit."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def differences(there: Any, here: Any, where: str = "") -> list[str]:
    """List the differences of two descriptions: "activation.parameters.c: 7.0 there, 9.0 here"."""
    if isinstance(there, dict) and isinstance(here, dict):
        keys = sorted(set(there) | set(here))
        pairs = [(f"{where}.{key}" if where else key, there.get(key), here.get(key)) for key in keys]
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = [(f"{where}[{place}]", *both) for place, both in enumerate(zip(there, here, strict=True), 1)]
    else:
        return [] if there == here else [f"{where}: {there} there, {here} here"]
    return [words for place, one, other in pairs for words in differences(one, other, place)]


# --- callables ----------------------------------------------------------------------------------------------------


def _activation(phi: Activation, reach: float) -> dict[str, Any]:
    """Describe an activation by its serial form, or a callable by its values at inputs within ±reach."""
    if rebuilt(phi) is not None:
        return activation_to_dict(phi)
    # The ranges over which a callable is resolved before it is integrated.
    limit = FIRST_LOOK
    while limit < abs(phi.gain) * reach:
        limit *= 2.0
    shape = phi.shape
    derivative = getattr(shape, "derivative", None)
    values = {
        "limit": limit,
        "values": _values(getattr(shape, "function", shape), limit),
        "derivative": None if derivative is None else _values(derivative, limit),
        "kinks": [float(kink) + 0.0 for kink in shape.kinks],
    }
    return {"callable": values, **affine_to_dict(phi)}


def _values(function: Callable[[Array], Any], limit: float) -> str:
    """Hash the values of a function at points within ±limit."""
    points = _points(limit)
    with np.errstate(all="ignore"):
        # One call for all points, of a copy: a callable may write into its argument.
        values = np.asarray(function(points.ravel().copy()), dtype=np.float64).reshape(points.shape)
    size = np.max(np.abs(values), axis=1, initial=0.0, where=np.isfinite(values), keepdims=True)
    # A power of two, so that dividing rounds nothing, and not the one at which many activations level off.
    unit = _UNIT * 2.0 ** np.ceil(np.log2(np.maximum(_ODD * size, 1e-200)))
    counts = np.where(np.isfinite(values), np.rint(values / unit), _NOT_FINITE)
    return hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest()[:DIGITS]


def _points(limit: float) -> Array:
    """Points over ±limit and over smaller and smaller ranges, one range in each row.

    Multiples of the golden ratio, modulo 1: spread evenly, and with no period that a function could share.
    """
    # The odd factor fills the last digits: values of x itself are then no ties between two roundings.
    spread = (2.0 * np.modf(_GOLDEN * np.arange(1.0, _POINTS + 1.0))[0] - 1.0) / _ODD
    return np.asarray(limit * 2.0 ** -np.arange(float(_RANGES))[:, None] * spread)


__all__ = ["describe", "differences", "digest", "fingerprint"]
