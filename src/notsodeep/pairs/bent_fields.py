"""Fields of activations with one kink at zero, such as ReLU and |x|: a closed form, docs/theory.md (3.20)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.polynomial import Chebyshev, Polynomial

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs.compiled_mixing import OPTIONS
from notsodeep.pairs.compiled_strips import ROUNDING
from notsodeep.pairs.pair_fields import FieldMethod, PairFields
from notsodeep.validation import Array, IntArray


class BentFields(FieldMethod):
    """F = linear · c + bent · √(q q') J(ρ), with the two slopes of the activation."""

    name, error = "closed form", 1e-14

    def __init__(self, phi: Activation) -> None:
        self.linear, self.bent = bent_slopes(phi)

    def evaluate(self, fields: PairFields, systems: IntArray, covariance: Array, level: int) -> None:
        """F and F' of these systems."""
        _evaluate(
            covariance, fields.over, fields.scale, fields.starts, systems, self.linear, self.bent,
            fields.value, fields.slope,
        )  # fmt: skip


def bent_slopes(phi: Activation) -> tuple[float, float]:
    """The factors of the linear and of the bent part of F."""
    slopes = phi.shape.pieces.slopes  # type: ignore[union-attr]
    scale = (phi.amplitude * phi.gain) ** 2
    linear, bent = (slopes[-1] + slopes[0]) / 2.0, (slopes[-1] - slopes[0]) / 2.0
    return scale * linear**2, scale * bent**2 * 2.0 / np.pi


def _arccos_series(y: Array, integrated: bool) -> Array:
    """arccos(1 - y)/√y = √2 Σ (2n)!/(8ⁿ n!² (2n+1)) yⁿ, or ∫₀ʸ arccos(1 - t) dt/y^{3/2} by the same series."""
    total, factor, power = np.zeros_like(y), 1.0, np.ones_like(y)
    for n in range(120):
        total += factor / (2 * n + 1) / (n + 1.5 if integrated else 1.0) * power
        factor *= (2 * n + 1) * (2 * n + 2) / (8.0 * (n + 1) ** 2)
        power = power * y
    return np.asarray(np.sqrt(2.0) * total)


def bent_polynomial(degree: int, integrated: bool) -> tuple[float, ...]:
    """A polynomial for y from 0 to 1 in the place of that series."""
    fit = Chebyshev.interpolate(lambda y: _arccos_series(y, integrated), degree, domain=[0.0, 1.0])
    return tuple(float(c) for c in fit.convert(kind=Polynomial).coef)


# Both are right to 3e-15 on [0, 1].
ANGLE = bent_polynomial(16, False)
LAG = bent_polynomial(15, True)


@njit(**OPTIONS, inline="always")
def arccos_over_root(y):  # type: ignore[no-untyped-def]
    """arccos(1 - y)/√y."""
    p = ANGLE[16]
    p = p * y + ANGLE[15]
    p = p * y + ANGLE[14]
    p = p * y + ANGLE[13]
    p = p * y + ANGLE[12]
    p = p * y + ANGLE[11]
    p = p * y + ANGLE[10]
    p = p * y + ANGLE[9]
    p = p * y + ANGLE[8]
    p = p * y + ANGLE[7]
    p = p * y + ANGLE[6]
    p = p * y + ANGLE[5]
    p = p * y + ANGLE[4]
    p = p * y + ANGLE[3]
    p = p * y + ANGLE[2]
    p = p * y + ANGLE[1]
    return p * y + ANGLE[0]


@njit(**OPTIONS, inline="always")
def _lag(y):  # type: ignore[no-untyped-def]
    """(√(1-ρ²) - ρ arccos ρ)/y^{3/2} at ρ = 1 - y."""
    p = LAG[15]
    p = p * y + LAG[14]
    p = p * y + LAG[13]
    p = p * y + LAG[12]
    p = p * y + LAG[11]
    p = p * y + LAG[10]
    p = p * y + LAG[9]
    p = p * y + LAG[8]
    p = p * y + LAG[7]
    p = p * y + LAG[6]
    p = p * y + LAG[5]
    p = p * y + LAG[4]
    p = p * y + LAG[3]
    p = p * y + LAG[2]
    p = p * y + LAG[1]
    return p * y + LAG[0]


@njit(**OPTIONS)
def _evaluate(covariance, over, scale, starts, systems, linear, bent, value, slope):  # type: ignore[no-untyped-def]
    """F is even in ρ but for its linear part, F' odd but for a constant."""
    quarter = 0.5 * np.pi
    for number in systems:
        begin, end = starts[number], starts[number + 1]
        entry, inverse, size = covariance[begin:end], over[begin:end], scale[begin:end]
        found, risen = value[begin:end], slope[begin:end]
        for k in range(end - begin):
            rho = entry[k] * inverse[k]
            near = min(abs(rho), 1.0)
            # Equal surroundings have ρ = 1 but for rounding, of which the root would make half of the digits.
            near = 1.0 if near > 1.0 - ROUNDING else near
            y = 1.0 - near
            w = np.sqrt(y)
            angle = quarter - w * arccos_over_root(y)
            even = quarter * near + y * w * _lag(y)
            found[k] = bent * size[k] * even
            risen[k] = (linear + bent * np.copysign(angle, rho)) if inverse[k] > 0.0 else 0.0
        for k in range(end - begin):
            found[k] += linear * entry[k]


__all__ = ["BentFields", "arccos_over_root", "bent_polynomial", "bent_slopes"]
