"""The methods by which the pairs of one activation are computed, chosen once from the activation and the variances.

Every pair (`every_pair`):
    constant       the activation does not depend on its argument
    homogeneous    one kink at zero: closed form, `duals.homogeneous`
    wave           sine and cosine: closed form, `duals.sine_cosine`
    series         everything else: Mehler's series, `duals.series`, and for pairs that it does not reach (`beyond`):
        pieces         straight pieces with kinks anywhere: closed form, `duals.pieces`
        gelu           GELU: closed form, `duals.gelu`
        table          other activations that are smooth away from zero, `duals.table`
        quadrature     what is left: kinks of a callable away from zero, and too few pairs for a table
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from notsodeep.duals import table
from notsodeep.duals.pieces import StraightPieces
from notsodeep.duals.series import ALLOWED, Series
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array

# Variances are floored here: a variable of variance zero is the limit of this one.
SMALLEST = 1e-200
# Most terms of the series that do not vanish, by what computes the pairs beyond it.
MOST_TERMS = {"gelu": 24, "pieces": 128, "table": 128, "quadrature": 512}
# Fewer pairs than this are integrated without a table: milliseconds for a pair, for one of a callable a hundred.
TABLE_PAIRS, TABLE_PAIRS_CALLABLE = 256, 32
# Variances at which the length of the series is chosen.
PROBES = 9
# Relative rounding of tails over the square of the kink in standard deviations, up to FAR of them; the error beyond.
TAIL_ERROR, FAR, BEYOND_FAR = 1e-15, 25.0, 1e-9
# Ends of ranges of log variances are multiples of this.
STEP = 0.5


class Methods:
    """The methods for one activation over a range of variances.

    Args:
        phi: the activation.
        variances: the variances that will occur, of any form, or numbers that span them.
        pairs: about how many pairs will be evaluated: a table is built for many only.
        allowed: what the series may leave out of F and F', relative to √(S S') and √(E1 E1').
    """

    def __init__(
        self, phi: Activation, variances: Array, pairs: int = 1 << 40, allowed: float = ALLOWED
    ) -> None:
        # A constant is added at the end: hard_sigmoid without it is odd.
        shape, level = phi.shape.without_level()
        if shape is not phi.shape:
            phi = replace(phi, shape=shape, offset=phi.offset + phi.amplitude * level)
        self.phi, self.pairs, self.allowed = phi, pairs, allowed
        inner = phi.gain**2 * np.asarray(variances, dtype=np.float64).reshape(-1)
        inner = inner[inner > SMALLEST]
        logs = np.log([inner.min(), inner.max()]) if len(inner) else np.zeros(2)
        if not shape.features_anywhere:
            # Rounded outwards: what is chosen for a range is kept for the next call.  A callable may not exist there.
            logs = np.array([np.floor(logs[0] / STEP), np.ceil(logs[1] / STEP)]) * STEP
        self.range = float(logs[0]), float(logs[1])
        self.probes = probes_of(self.range)

    @cached_property
    def every_pair(self) -> str:
        """The method that computes every pair, or "series", which leaves some to `beyond`."""
        shape = self.phi.shape
        if self.is_constant:
            return "constant"
        if shape.is_homogeneous and shape.pieces is not None:
            return "homogeneous"
        return "series" if shape.quarter is None else "wave"

    @cached_property
    def beyond(self) -> str:
        """The method for pairs that the series does not reach."""
        shape = self.phi.shape
        if shape.pieces is not None:
            return "pieces"
        if shape.is_gelu:
            return "gelu"
        needed = TABLE_PAIRS_CALLABLE if shape.features_anywhere else TABLE_PAIRS
        return "quadrature" if any(shape.kinks) or self.pairs < needed else "table"

    @cached_property
    def is_constant(self) -> bool:
        """Whether the activation is a constant."""
        if self.phi.amplitude == 0.0 or self.phi.gain == 0.0:
            return True
        return not np.any(self.phi.shape.derivative_second_moment(self.probes))

    @cached_property
    def tail_error(self) -> float:
        """Relative error of moments of straight pieces that are zero but in tails, such as relu(x - 2).

        Rounding of the kink over the scale, h, is an error of h² times as much of exp(-h²/2).
        """
        pieces = self.phi.shape.pieces
        h = pieces.silent_reach / np.sqrt(np.exp(self.range[0])) if pieces is not None else 0.0
        return TAIL_ERROR * h**2 if h <= FAR else BEYOND_FAR

    @cached_property
    def series(self) -> Series:
        """The series, as long as every correlation needs, or of the maximum number of terms."""
        return _series_for(self.phi.shape, self.range, MOST_TERMS[self.beyond], self.allowed)[0]

    @cached_property
    def straight(self) -> StraightPieces:
        """The closed form of straight pieces."""
        return _straight_for(self.phi, self.range)

    @cached_property
    def bands(self) -> list[table.Band]:
        """Ranges of log variances of the tables; smaller variances are left to the series with every other."""
        order = max(int(self.series.orders[-1]) - 1, 1)
        shares = _series_for(self.phi.shape, self.range, MOST_TERMS[self.beyond], self.allowed)[1]
        reach = np.exp(0.5 * (np.log(self.allowed) - np.log(shares)) / order)
        needed = self.probes[reach * reach.min() < 1.0 + 1e-6]
        if not len(needed):
            needed = self.probes[-1:]
        # The probe below the first one that needs a table may need it as well.
        first = max(int(np.searchsorted(self.probes, needed[0])) - 1, 0)
        return table.bands(np.log(self.probes[[first, -1]]))

    def table(self, own: int, other: int) -> table.DualTable | None:
        """The table of two bands, of rows and of columns; None if it cannot be resolved."""
        return table.table(self.phi.shape, self.bands[own], self.bands[other])


def probes_of(logs: tuple[float, float]) -> Array:
    """A few variances between the ends of a range of their logarithms."""
    return np.exp(np.linspace(*logs, PROBES))


@lru_cache(maxsize=256)
def _straight_for(phi: Activation, logs: tuple[float, float]) -> StraightPieces:
    """The closed form of straight pieces over a range of variances."""
    if phi.shape.pieces is None:
        raise ValueError("The activation is not composed of straight pieces.")
    return StraightPieces(phi, phi.shape.pieces, probes_of(logs))


@lru_cache(maxsize=256)
def _series_for(shape: Shape, logs: tuple[float, float], most: int, allowed: float) -> tuple[Series, Array]:
    """The series that serves every correlation over a range of variances, or the longest; shares beyond its terms."""
    inner, longest = probes_of(logs), Series(shape, most, allowed)
    shares = longest.shares(
        inner, longest.coefficients(inner), shape.second_moment(inner), shape.derivative_second_moment(inner)
    )
    enough = np.flatnonzero((shares <= allowed).all(axis=0))
    level = int(enough[0]) if len(enough) else len(longest.counts) - 1
    return Series(shape, int(longest.counts[level]), allowed), shares[:, level]


__all__ = ["SMALLEST", "Methods", "probes_of"]
