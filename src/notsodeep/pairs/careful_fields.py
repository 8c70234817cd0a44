"""Fields of which every pair of positions is evaluated by itself: closed forms, integrals, quadrature."""

from __future__ import annotations

import time

import numpy as np

from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.pair_fields import FieldMethod, PairFields
from notsodeep.pairs.positions import Positions
from notsodeep.validation import Array, IntArray

# Pairs of positions are timed before the others, until it took so long or there were so many.
PROBE_SECONDS, MOST_PROBED = 0.05, 4096


class CarefulFields(FieldMethod):
    """F and F' by the most careful way there is, pair of positions by pair of positions."""

    def __init__(self, phi: Activation, layout: Layout) -> None:
        self.phi, self.layout = phi, layout
        probe = np.ones(1)
        self.one_by_one = phi.shape.pair_moments(probe, probe, 0.5 * probe) is None
        self.name = "quadrature" if self.one_by_one else "closed form"
        self.error = 1e-12 if self.one_by_one else 1e-14

    def side(self, positions: Positions, *, right: bool) -> Array:
        """The variances of the bare shape."""
        return self.layout.side(positions.inner)

    def sample_bytes(self) -> int:
        """One number for each position."""
        return 8 * self.layout.height * self.layout.width

    def evaluate(self, fields: PairFields, systems: IntArray, covariance: Array, level: int) -> None:
        """F and F' of these systems."""
        phi = self.phi
        sides = [np.zeros_like(covariance) for _ in range(2)]
        left, right = fields.left[fields.some], fields.right[fields.others]
        self.layout.combine(left, np.ones_like(right), sides[0])
        self.layout.combine(np.ones_like(left), right, sides[1])
        for system in systems:
            part = slice(fields.starts[system], fields.starts[system + 1])
            places = part.start + np.flatnonzero(fields.over[part])
            cross = phi.gain**2 * covariance[places]
            value, slope = shape_dual(phi.shape, sides[0][places], sides[1][places], cross)
            fields.value[places] = phi.amplitude**2 * value
            fields.slope[places] = (phi.amplitude * phi.gain) ** 2 * slope


def seconds_for_pairs(phi: Activation, variances: Array, entries: int) -> float:
    """How long it takes to evaluate F and F' once for so many pairs of positions, from a few of these variances."""
    usual, count, seconds = phi.gain**2 * variances[variances > 0.0], 1, 0.0
    if not len(usual):
        return 0.0
    # More at a time cost less each.
    while seconds < PROBE_SECONDS and count < MOST_PROBED:
        count *= 8
        left, right = np.resize(usual, count), np.resize(usual[::-1], count)
        cross = np.linspace(-0.9, 0.9, count) * np.sqrt(left * right)
        begin = time.perf_counter()
        shape_dual(phi.shape, left, right, cross)
        seconds = time.perf_counter() - begin
    return seconds / count * entries


__all__ = ["CarefulFields", "seconds_for_pairs"]
