"""One-dimensional Gaussian moments of an activation at variance q = s² (docs/theory.md, section 2).

Every function takes q as a number or an array and returns the same form.  Closed forms where there are any,
quadrature on graded panels otherwise; scaling and shifting are applied here, so that shapes know nothing of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import MAX_ORDER
from notsodeep.validation import Array


def _variances(q: ArrayLike) -> tuple[Array, tuple[int, ...]]:
    array = np.asarray(q, dtype=np.float64)
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise InputError("A variance q must be finite and not negative.")
    return np.ascontiguousarray(array.reshape(-1)), array.shape


def mean_derivative(phi: Activation, q: ArrayLike, k: int = 0) -> Any:
    """Mean derivative M_k(q) = E[φ^(k)(√q ξ)], k = 0, 1, 2, (2.1)."""
    if not 0 <= k <= MAX_ORDER:
        raise InputError(f"Mean derivatives of order 0 to {MAX_ORDER} are available, not {k}.")
    flat, form = _variances(q)
    factor = phi.amplitude * phi.gain**k
    # The mean derivative of a shape with a kink may be infinite at q = 0; a constant has none all the same.
    value = factor * phi.shape.mean_derivative(phi.gain**2 * flat, k) if factor else np.zeros_like(flat)
    return (value + phi.offset if k == 0 else value).reshape(form)[()]


def second_moment(phi: Activation, q: ArrayLike) -> Any:
    """Second moment S(q) = E[φ(√q ξ)²], (2.2)."""
    flat, form = _variances(q)
    inner = phi.gain**2 * flat
    value = phi.amplitude**2 * phi.shape.second_moment(inner)
    if phi.offset:
        value = value + 2.0 * phi.amplitude * phi.offset * phi.shape.mean_derivative(inner, 0) + phi.offset**2
    return value.reshape(form)[()]


def second_moment_slope(phi: Activation, q: ArrayLike) -> Any:
    """Derivative S'(q) = dS/dq of the second moment, (2.3)."""
    flat, form = _variances(q)
    if phi.amplitude == 0.0 or phi.gain == 0.0:
        return np.zeros(form)[()]
    inner = phi.gain**2 * flat
    value = phi.amplitude**2 * phi.shape.second_moment_slope(inner)
    if phi.offset:
        # dM_0/dq = M_2/2, (2.5).
        value = value + phi.amplitude * phi.offset * phi.shape.mean_derivative(inner, 2)
    return (phi.gain**2 * value).reshape(form)[()]


def derivative_second_moment(phi: Activation, q: ArrayLike) -> Any:
    """Second moment of the slope E1(q) = E[φ'(√q ξ)²], (2.4)."""
    flat, form = _variances(q)
    value = (phi.amplitude * phi.gain) ** 2 * phi.shape.derivative_second_moment(phi.gain**2 * flat)
    return value.reshape(form)[()]


def mehler(phi: Activation, q: ArrayLike, terms: int) -> Array:
    """Mehler coefficients a_k(q) = E[φ(√q ξ) He_k(ξ)]/√k! for k < terms, as (len(q), terms), (2.6)."""
    if terms < 1:
        raise InputError(f"A Mehler series needs at least one term, not {terms}.")
    flat, _ = _variances(q)
    table = (
        phi.amplitude * np.sign(phi.gain) ** np.arange(terms) * phi.shape.mehler(phi.gain**2 * flat, terms)
    )
    table[:, 0] += phi.offset
    return np.asarray(table)
