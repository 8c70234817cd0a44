"""What single positions of samples contribute to their pairs: moments of the activation at their variances."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.log_table import SMALLEST, LogTable
from notsodeep.validation import Array

# Values at which a moment is interpolated at once.
CHUNK = 1 << 16
# Powers of the scale s with which moments of a homogeneous shape grow: E[φ(s ξ)^k] = s^k E[φ(ξ)^k].
GROWTH = {"mean": 0.5, "rise": 0.0, "energy": 1.0, "slope_energy": 0.0}
# Distance from a kink at which slopes are compared, and a difference that is a jump.
NEAR, JUMP = 1e-6, 1e-4
# Orders of Mehler's series that a first guess takes as they are, by the parity of the activation.
ORDERS = {-1: tuple(range(1, 17, 2)), 0: tuple(range(8)), 1: tuple(range(0, 16, 2))}


def _moments(phi: Activation) -> dict[str, Callable[[Array], Array]]:
    """M_0, M_1, S and E1 of the shape, as functions of the variance."""
    shape = phi.shape
    return {
        "mean": lambda q: shape.mean_derivative(q, 0),
        "rise": lambda q: shape.mean_derivative(q, 1),
        "energy": shape.second_moment,
        "slope_energy": shape.derivative_second_moment,
    }


def energy(phi: Activation, variances: Array) -> Array:
    """S(q) = E[φ(√q ξ)²] at variances of any form."""
    value = phi.amplitude**2 * _moment(phi, "energy", variances)
    if phi.offset:
        value += 2.0 * phi.amplitude * phi.offset * _moment(phi, "mean", variances) + phi.offset**2
    return np.where(variances > 0.0, value, float(phi(0.0)) ** 2)


def _moment(phi: Activation, name: str, variances: Array) -> Array:
    """A moment of the shape of an activation at many variances of any form."""
    flat, function = np.maximum(phi.gain**2 * variances.reshape(-1), SMALLEST), _moments(phi)[name]
    if phi.shape.is_homogeneous:
        return np.asarray(float(function(np.ones(1))[0]) * flat ** GROWTH[name]).reshape(variances.shape)
    parts = [
        at_many(lambda q: np.asarray(function(q))[:, None], flat[k : k + CHUNK], (name, phi.shape))[:, 0]
        for k in range(0, len(flat), CHUNK)
    ]
    return np.concatenate(parts).reshape(variances.shape)


class MomentTable:
    """The moments of an activation over the variances of a data set.

    Args:
        phi: the activation.
        variances: of its pre-activations, flat and positive; none if nothing has any signal.
    """

    def __init__(self, phi: Activation, variances: Array) -> None:
        self.phi = phi
        functions = _moments(phi)
        self.table = self.coefficients = None
        if phi.shape.is_homogeneous:
            self.units = {name: float(function(np.ones(1))[0]) for name, function in functions.items()}
        elif len(variances):
            self.table = LogTable(phi.gain**2 * variances)
            self.coefficients = self.table.of(lambda q: np.stack([f(q) for f in functions.values()], axis=1))
        # An odd shape with an offset is not odd.
        self.parity = 0 if phi.offset and phi.shape.parity == -1 else phi.shape.parity
        self._series: Array | None = None
        kinks = np.array(phi.shape.kinks, dtype=float)
        beside = NEAR * (1.0 + np.abs(kinks))
        jumps = phi.shape(kinks + beside, 1) - phi.shape(kinks - beside, 1)
        # Where only a higher derivative jumps, the slope changes by about the distance of the two places.
        self.kinked = bool(np.any(np.abs(jumps) > JUMP))

    def series(self, variances: Array) -> Array:
        """Mehler coefficients of the shape of the ORDERS of the parity of the activation, (orders, …)."""
        orders, shape = ORDERS[self.parity], self.phi.shape
        flat = np.maximum(self.phi.gain**2 * variances.reshape(-1), SMALLEST)
        if shape.is_homogeneous:
            found = shape.mehler(np.ones(1), orders[-1] + 1)[:, orders] * np.sqrt(flat)[:, None]
        elif self.table is None:
            found = np.zeros((len(flat), len(orders)))
        else:
            if self._series is None:
                self._series = self.table.of(lambda q: shape.mehler(q, orders[-1] + 1)[:, orders])
            found = self.table.evaluate(self._series, flat)
        return np.asarray(found.T.reshape(len(orders), *variances.shape))

    def __call__(self, variances: Array) -> tuple[Array, ...]:
        """M_0, M_1, √S and √E1 of the shape at variances of any form; a position without signal is at rest."""
        still = variances <= 0.0
        inner = np.maximum(self.phi.gain**2 * variances, SMALLEST)
        if self.table is None or self.coefficients is None:
            mean, rise, whole, steep = (
                self.units[name] * inner**power if self.phi.shape.is_homogeneous else np.zeros_like(inner)
                for name, power in GROWTH.items()
            )
        else:
            found = self.table.evaluate(self.coefficients, inner.reshape(-1))
            mean, rise, whole, steep = (part.reshape(variances.shape).copy() for part in found.T)
        if still.any():
            at_rest = np.zeros(1)
            mean[still], rise[still] = self.phi.shape(at_rest)[0], self.phi.shape(at_rest, 1)[0]
            whole[still], steep[still] = mean[still] ** 2, rise[still] ** 2
        return mean, rise, np.sqrt(np.maximum(whole, 0.0)), np.sqrt(np.maximum(steep, 0.0))


class Positions:
    """Moments at the positions of some samples, (samples, positions), in the layout of fields.

    Args:
        moments: the moments of the activation.
        variances: of the pre-activations, (samples, positions).
        alone: what the input alone gives of them; the same if not given.
        layout: the layout of fields.

    Attributes:
        root, inverse: √q and 1/√q; both zero for a position without any signal.
        still: there are such positions.
        lifted: the activation has an offset.
        kinked: its slope jumps somewhere.
        parity: of the activation, +1 even, -1 odd, 0 neither.
    """

    def __init__(
        self, moments: MomentTable, variances: Array, layout: Layout, alone: Array | None = None
    ) -> None:
        self.phi, self.layout, self._variances, self._alone = moments.phi, layout, variances, alone
        self._table = moments
        dead = variances <= 0.0
        root = np.sqrt(np.where(dead, 0.0, variances))
        self.root = layout.side(root)
        self.inverse = layout.side(np.divide(1.0, root, out=np.zeros_like(root), where=~dead))
        self.kinked, self.parity = moments.kinked, moments.parity
        self.still, self.lifted = bool(dead.any()), moments.phi.offset != 0.0

    @property
    def inner(self) -> Array:
        """Variances of the bare shape, g² q, without borders."""
        return np.maximum(self.phi.gain**2 * self._variances, SMALLEST)

    @cached_property
    def _moments(self) -> tuple[Array, ...]:
        return self._table(self._variances)

    @cached_property
    def growth(self) -> Array:
        """√(q over what the input alone gives)."""
        growth = np.ones_like(self._variances)
        if self._alone is not None:
            np.sqrt(np.divide(self._variances, self._alone, out=growth, where=self._alone > 0.0), out=growth)
        return self.layout.side(growth)

    @cached_property
    def mean(self) -> Array:
        """M_0 = E[φ], the mean of the activation at every position."""
        return self.layout.side(self.phi.amplitude * self._moments[0] + self.phi.offset)

    @cached_property
    def rise(self) -> Array:
        """M_1 = E[φ'], its mean slope."""
        return self.layout.side(self.phi.amplitude * self.phi.gain * self._moments[1])

    @cached_property
    def energy(self) -> Array:
        """√S, without the offset."""
        return self.layout.side(self.phi.amplitude * self._moments[2])

    @cached_property
    def steep(self) -> Array:
        """√E1, the root of the mean squared slope."""
        return self.layout.side(self.phi.amplitude * self.phi.gain * self._moments[3])

    @cached_property
    def series(self) -> NDArray[np.float32]:
        """The first terms of Mehler's series, the root of what is left of S after them behind, (samples, terms, …)."""
        found = self._table.series(self._variances)
        rest = np.sqrt(np.maximum(self._moments[2] ** 2 - np.sum(found**2, axis=0), 0.0))
        terms = self.phi.amplitude * np.concatenate([found, rest[None]])
        if self.phi.offset:
            terms[0] += self.phi.offset
        return np.ascontiguousarray(self.layout.side(terms.swapaxes(0, 1)), dtype=np.float32)

    @cached_property
    def lift(self) -> Array:
        """Half of what an offset adds to F."""
        offset = self.phi.offset
        return self.layout.side(self.phi.amplitude * offset * self._moments[0] + 0.5 * offset**2)


__all__ = ["MomentTable", "Positions", "energy"]
