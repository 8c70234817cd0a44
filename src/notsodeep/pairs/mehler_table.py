"""Mehler coefficients of all samples, and up to which correlation each number of terms is enough, (3.15)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs.sample_moments import Side
from notsodeep.validation import Array, IntArray

LEVELS: tuple[int, ...] = (
    *range(4, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 256, 32),
    *range(256, 512, 64), *range(512, 1025, 128),
)  # fmt: skip
TRUNCATION = 1e-14


class MehlerTable:
    """a_k/s for every sample, and up to which |ρ| each number of terms keeps its error below TRUNCATION, (3.15)."""

    def __init__(self, shape: Shape, left: Side, right: Side, terms: int, want_slope: bool) -> None:
        exact = shape.series_terms
        terms = terms if exact is None else exact
        self.terms, self.parity = terms, shape.parity
        first = 1 if self.parity == -1 else 0
        stride = 1 if self.parity == 0 else 2
        self.left, tails = _packed(shape, left, terms, first, stride, want_slope)
        self.right = self.left
        if right is not left:
            self.right, others = _packed(shape, right, terms, first, stride, want_slope)
            tails = np.sqrt(tails * others)
        counts = np.array([level for level in LEVELS if level < terms] + [terms])
        limits = _limits(tails[:, counts - 1], counts)
        if exact is not None:
            limits[-1] = np.inf
        # How many of the first `count` orders are kept: first, first + stride, …
        self.levels = (counts - first + stride - 1) // stride
        self.limits = np.maximum.accumulate(limits)
        keep = self.levels > 0
        self.levels, self.limits = self.levels[keep], self.limits[keep]
        self.complete = terms >= LEVELS[-1] or bool(self.limits[-1] > 1.0)


def _packed(
    shape: Shape, side: Side, terms: int, first: int, stride: int, want_slope: bool
) -> tuple[Array, Array]:
    """The nonzero rows a_k/s (terms × n, contiguous), and the worst relative energy beyond each number of terms.

    Row 0 of the tails is for F, row 1 for F': Σ a_k² = S and Σ k a_k² = q E1.
    """
    table = at_many(lambda q: shape.mehler(q, terms), side.inner, ("mehler", shape, terms))
    rows = table[:, first::stride].T / side.root
    return np.ascontiguousarray(rows), _tails(table, side.inner, side.energy, side.slope_energy, want_slope)


def _tails(table: Array, variances: Array, energy: Array, slope_energy: Array, want_slope: bool) -> Array:
    """The worst relative energy beyond each number of terms: of F, and of F' if it is wanted."""
    squares = table**2
    missing = [1.0 - np.cumsum(squares, axis=1) / np.maximum(energy, 1e-300)[:, None]]
    terms = table.shape[1]
    if want_slope:
        total = np.maximum(variances * slope_energy, 1e-300)[:, None]
        missing.append(1.0 - np.cumsum(squares * np.arange(terms), axis=1) / total)
    # Rounding hides tails below this; a constant activation has no energy at all and nothing is missing.
    noise = 2e-16 * np.sqrt(np.arange(1.0, terms + 1.0))
    return np.stack([np.maximum(part.max(axis=0), noise) for part in missing])


@lru_cache(maxsize=256)
def reach(shape: Shape, low: float, high: float, terms: int, want_slope: bool) -> float:
    """About up to which |ρ| this many terms are enough for variances from exp(low) to exp(high)."""
    q = np.exp(np.linspace(low, high, 5))
    moments = shape.second_moment(q), shape.derivative_second_moment(q)
    tails = _tails(shape.mehler(q, terms), q, *moments, want_slope)
    return float(_limits(tails[:, -1:], np.array([terms]))[0])


def _limits(tails: Array, counts: IntArray) -> Array:
    """The largest |ρ| with tail · |ρ|^count below TRUNCATION (one power less for the derivative), for each count."""
    orders = np.maximum(counts - np.arange(float(len(tails)))[:, None], 1.0)
    limits = ((TRUNCATION / tails) ** (1.0 / orders)).min(axis=0)
    # A series that converges at ρ = 1 may be used a rounding error beyond it.
    return np.asarray(np.minimum(limits, 1.0 + 1e-6))


def terms_for(correlation: float) -> int:
    """A number of terms that is enough at this |ρ| whatever the activation, rounded up so that few occur."""
    if correlation >= 1.0:
        return LEVELS[-1]
    needed = np.log(TRUNCATION) / np.log(max(correlation, 1e-3))
    return next((terms for terms in (16, 32, 64, 128, 256, 512) if terms >= needed), LEVELS[-1])
