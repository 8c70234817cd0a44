"""Moments at many variances, and the largest variance of a pre-activation, which fixes the range of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, repeat

import numpy as np

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_variances
from notsodeep.gaussian.moments import second_moment, solve_variance
from notsodeep.models.programs import LayerInput
from notsodeep.validation import Array

# Where variances have no limit: the number of layers that are computed, and the growth at which that ends.
_LAYERS, _LIMITLESS = 100, 1e6


def moment_at(moment: Callable[[Activation, Array], Array], phi: Activation, variances: Array) -> Array:
    """A moment of one variable at many variances of any form, interpolated where that is cheaper."""
    if phi.shape.is_homogeneous and not phi.offset:
        unit, twice = (float(moment(phi, np.full(1, q))[0]) for q in (1.0, 2.0))
        return np.asarray(unit * variances if twice > 1.5 * unit else np.full(variances.shape, unit))
    flat = at_variances(lambda q: np.asarray(moment(phi, q)), variances.reshape(-1), (moment.__name__, phi))
    return flat.reshape(variances.shape)


def largest_recurrent_variance(
    phi: Activation, sigma_a2: float, sigma_b2: float, bias2: float, norm: float
) -> float:
    """The largest variance of a pre-activation of a DEQ, over all layers and all inputs of norms up to `norm`.

    Where the variance has no limit (a DEQ that is cut at a finite depth needs none): the largest over many layers.
    """
    forcing = sigma_b2 * _norms_up_to(norm) ** 2 + bias2
    try:
        limit = solve_variance(phi, sigma_a2, forcing).q
        return float(np.maximum(limit, forcing).max())
    except (ConvergenceError, InputError):
        return _followed(forcing, repeat(_layer(phi, sigma_a2, forcing), _LAYERS))


def largest_layer_variance(layers: Sequence[LayerInput], norm: float) -> float:
    """The largest variance of a pre-activation of an explicit network, for inputs of norms up to `norm`."""
    squares = _norms_up_to(norm) ** 2
    pairs = pairwise(layers)
    steps = [_layer(this.phi, after.weight, after.inject * squares + after.constant) for this, after in pairs]
    return _followed(layers[0].weight * squares + layers[0].constant, steps)


def _norms_up_to(norm: float) -> Array:
    """Zero and several norms up to the largest: in a later layer a smaller input can have the larger variance."""
    return norm * np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 9)])


def _layer(phi: Activation, weight: float, forcing: Array) -> Callable[[Array], Array]:
    """From the variances before φ to those before the next activation: weight · S(q) + forcing."""
    return lambda q: np.asarray(weight * second_moment(phi, q) + forcing)


def _followed(q: Array, layers: Iterable[Callable[[Array], Array]]) -> float:
    """The largest variance over the layers, as far as it can be computed."""
    largest, limit = float(q.max()), _LIMITLESS * (1.0 + float(q.max()))
    for layer in layers:
        try:
            q = layer(q)
        except InputError:
            # A callable that overflows: computing the kernel raises the error.
            break
        largest = max(largest, float(q.max()))
        if not largest <= limit:
            break
    return min(largest, limit)


__all__ = ["largest_layer_variance", "largest_recurrent_variance", "moment_at"]
