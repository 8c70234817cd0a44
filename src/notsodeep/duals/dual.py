"""F = E[φ(u)φ(v)] and F' = E[φ'(u)φ'(v)] for stacks of tiles of Gaussian pairs, with an error bound.

    dual = Dual(phi, variances, pairs)              # chooses the methods once, see `duals.methods`
    left, right = dual.rows(q), dual.columns(p)     # (stack, n) and (stack, m) variances
    dual.tiles(left, right, covariance, value, slope)

Entry (t, i, j) of the arrays (stack, n, m) belongs to u with variance q[t, i], v with variance p[t, j] and their
covariance.  Rows of samples are one tile, a stack of one; images read by weights for each position are a stack of
positions; pooled images are one tile whose rows and columns are positions.
"""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import dataclass
from itertools import product

import numpy as np
from numba import njit

from notsodeep.duals import gelu, pieces
from notsodeep.duals.homogeneous import homogeneous_tiles, slopes_of
from notsodeep.duals.methods import Methods
from notsodeep.duals.series import ALLOWED, series_tiles
from notsodeep.duals.sides import Mask, PreparedSide, Side
from notsodeep.duals.sine_cosine import wave_tiles
from notsodeep.duals.strips import OPTIONS, SOME, WIDTH
from notsodeep.duals.table import table_tiles
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.validation import Array, IntArray

# Errors of the closed forms and of quadrature, relative to √(S S') and √(E1 E1'); and of what is called rough.
CLOSED, QUADRATURE, ROUGH = 1e-14, 1e-12, 1e-8
# Pairs from which on quadrature may take long, pairs that are timed beforehand, and seconds that are announced.
ANNOUNCED, PROBED, PATIENCE = 512, 16, 10.0
NOTHING = np.zeros((0, 0, 0))


@dataclass(frozen=True)
class DualEvidence:
    """How tiles were obtained.

    Attributes:
        methods: the methods that were used.
        error: bound on the error of F relative to √(S S'), and of F' relative to √(E1 E1').
        fallback_pairs: number of pairs that were integrated one by one.
    """

    methods: tuple[str, ...] = ()
    error: float = 0.0
    fallback_pairs: int = 0

    def merge(self, other: DualEvidence) -> DualEvidence:
        """The evidence of two computations together."""
        return DualEvidence(
            tuple(sorted({*self.methods, *other.methods})),
            max(self.error, other.error),
            self.fallback_pairs + other.fallback_pairs,
        )


@dataclass(frozen=True)
class Tiles:
    """One stack of tiles: what is given, where results are written, and how accurate they should be.

    Attributes:
        left: the rows.
        right: the columns.
        covariance: covariances (stack, n, m); beyond ±√(q q') they count as that bound.
        value: F is written here.
        slope: F' is written here.
        bend: dF'/dc is written here, for Newton's method: it is less accurate than the others.  May be empty.
        lower: only pairs below the diagonal of a square tile are needed.
        rough: errors of about 1e-8 are accepted.
    """

    left: Side
    right: Side
    covariance: Array
    value: Array
    slope: Array
    bend: Array
    lower: bool
    rough: bool

    @property
    def bends(self) -> bool:
        """Whether dF'/dc is needed."""
        return self.bend.size > 0

    @property
    def results(self) -> tuple[Array, Array, Array]:
        """F, F' and dF'/dc."""
        return self.value, self.slope, self.bend


class Dual(Methods):
    """F and F' of one activation over the variances of one computation; thread-safe.

    Args:
        phi: the activation.
        variances: the variances that will occur, of any form, or numbers that span them.
        pairs: about how many pairs will be evaluated: a table is built for many only.
        allowed: what the series may leave out of F and F', relative to √(S S') and √(E1 E1').

    Attributes:
        careful: every pair is integrated by itself; set if a spot check did not confirm the other methods.
    """

    def __init__(
        self, phi: Activation, variances: Array, pairs: int = 1 << 40, allowed: float = ALLOWED
    ) -> None:
        super().__init__(phi, variances, pairs, allowed)
        self.careful = False
        self._lock = threading.Lock()

    def rows(self, variances: Array) -> Side:
        """Rows with these variances (stack, n)."""
        return Side(PreparedSide(self, variances, columns=False), slice(0, variances.shape[1]))

    def columns(self, variances: Array) -> Side:
        """Columns with these variances (stack, n)."""
        return Side(PreparedSide(self, variances, columns=True), slice(0, variances.shape[1]))

    def columns_like(self, rows: Side) -> Side:
        """Columns with the variances of all rows that were prepared with these."""
        prepared = rows.prepared
        silenced = np.where(prepared.silent, 0.0, prepared.variances)
        return Side(PreparedSide(self, silenced, columns=True, rows=prepared), slice(0, silenced.shape[1]))

    def tiles(
        self,
        left: Side,
        right: Side,
        covariance: Array,
        value: Array,
        slope: Array,
        bend: Array | None = None,
        *,
        lower: bool = False,
        rough: bool = False,
    ) -> DualEvidence:
        """Write F, F' and, if `bend` is given, dF'/dc of all pairs; arguments as in `Tiles`."""
        tiles = Tiles(left, right, covariance, value, slope, NOTHING if bend is None else bend, lower, rough)
        if self.every_pair == "constant":
            value[:], slope[:] = left.mean[:, :, None] * right.mean[:, None, :], 0.0
            tiles.bend[:] = 0.0
            return DualEvidence(("closed form",), CLOSED)
        if self.careful:
            evidence = self._integrate(tiles, _all_pairs(tiles), "quadrature")
        elif self.every_pair == "homogeneous":
            evidence = self._homogeneous(tiles)
        elif self.every_pair == "wave":
            evidence = self._wave(tiles)
        else:
            evidence = self._series(tiles)
        if self.phi.offset:
            _lift(value, left.lift, right.lift)
        return evidence.merge(DualEvidence((), self.tail_error))

    def _homogeneous(self, tiles: Tiles) -> DualEvidence:
        """One kink at zero."""
        phi, left, right = self.phi, tiles.left, tiles.right
        if phi.shape.pieces is None:
            raise ValueError("The activation is not composed of straight pieces.")
        linear, bent = ((phi.amplitude * phi.gain) ** 2 * part for part in slopes_of(phi.shape.pieces))
        homogeneous_tiles(
            tiles.covariance, left.root, left.inverse, right.root, right.inverse, linear, bent, tiles.bends,
            tiles.lower, *tiles.results,
        )  # fmt: skip
        return DualEvidence(("closed form",), CLOSED)

    def _wave(self, tiles: Tiles) -> DualEvidence:
        """Sine and cosine, which are their own second derivative but for the sign."""
        phi, (value, slope, bend) = self.phi, tiles.results
        roots = (np.sqrt(side.of(side.prepared.inner)) for side in (tiles.left, tiles.right))
        turned = tiles.covariance if phi.gain == 1.0 else phi.gain**2 * tiles.covariance
        wave_tiles(turned, *roots, phi.shape.quarter == 0, tiles.lower, value, slope)
        if tiles.bends:
            np.multiply(value, phi.amplitude**2 * phi.gain**4, out=bend)
        value *= phi.amplitude**2
        slope *= (phi.amplitude * phi.gain) ** 2
        return DualEvidence(("closed form",), CLOSED)

    def _series(self, tiles: Tiles) -> DualEvidence:
        """The series for the pairs that it reaches, and `beyond` for the others."""
        left, right = tiles.left, tiles.right
        todo, evidence = self._mehler(tiles, left.covered, right.covered)
        if todo is None:
            return evidence
        if self.beyond == "pieces":
            return evidence.merge(self._pieces(tiles, todo))
        if self.beyond == "gelu":
            gelu.gelu_tiles(
                tiles.covariance, left.root, left.inverse, left.reach, right.root, right.inverse, right.reach,
                self.phi.gain, self.phi.amplitude**2, tiles.bends, todo, *tiles.results,
            )  # fmt: skip
            return evidence.merge(DualEvidence(("closed form",), gelu.ERROR))
        unresolved: Mask | None = None
        if self.beyond == "table":
            unresolved = self._unresolved(left, right)
            if unresolved is not None:
                # Nothing may be left to a table that does not exist.
                todo, _ = self._mehler(tiles, np.zeros_like(left.covered), np.zeros_like(right.covered))
            if todo is not None:
                evidence = evidence.merge(self._tables(tiles, todo))
            if unresolved is None:
                return evidence
        if todo is None:
            return evidence
        selected = self._beyond_reach(tiles, todo)
        if unresolved is not None:
            selected &= unresolved
        return evidence.merge(self._integrate(tiles, selected, "quadrature"))

    def _mehler(self, tiles: Tiles, rows: Mask, strips: Mask) -> tuple[IntArray | None, DualEvidence]:
        """The series.  Returns which pairs of each strip are left, None if there are none.

        Of covered `rows` and `strips` all pairs are left if the series does not reach one of them.
        """
        left, right, covariance, series = tiles.left, tiles.right, tiles.covariance, self.series
        own, other = left.prepared.series, right.prepared.series
        todo = np.zeros((*covariance.shape[:2], -(-covariance.shape[2] // WIDTH)), dtype=np.int8)
        allowed = max(series.allowed, ROUGH) if tiles.rough else series.allowed
        rest = series_tiles(
            covariance, left.strips(own.terms), left.strips(own.tails), left.inverse, rows,
            right.strips(other.terms), right.strips(other.tails), right.inverse, strips, series.counts,
            series.orders, self.phi.shape.parity, np.log(allowed), series.finite, tiles.bends, tiles.lower,
            *tiles.results, todo,
        )  # fmt: skip
        return todo if rest else None, DualEvidence(("series",), allowed)

    def _pieces(self, tiles: Tiles, todo: IntArray) -> DualEvidence:
        """Straight pieces; Price's integral where the closed form would cancel."""
        left, right = tiles.left, tiles.right
        self.straight.tiles(
            tiles.covariance, left.inverse, tuple(left.strips(part) for part in left.prepared.straight), left.reach,
            right.inverse, tuple(right.strips(part) for part in right.prepared.straight), right.reach, todo,
            tiles.rough, *tiles.results,
        )  # fmt: skip
        evidence = DualEvidence(("closed form",), pieces.ERROR)
        spreads = left.of(left.prepared.spread), right.of(right.prepared.spread)
        if spreads[0].max() * spreads[1].max() <= pieces.WIDE:
            return evidence
        wide = spreads[0][:, :, None] * spreads[1][:, None, :] > pieces.WIDE
        return evidence.merge(self._integrate(tiles, wide & self._beyond_reach(tiles, todo), "integral"))

    def _unresolved(self, left: Side, right: Side) -> Mask | None:
        """The pairs of variances for which there is no table; None if there are none."""
        bands, missing = (left.of(left.prepared.band), right.of(right.prepared.band)), []
        for own, other in _present(bands):
            with self._lock:
                if self.table(own, other) is None:
                    missing.append((bands[0] == own)[:, :, None] & (bands[1] == other)[:, None, :])
        return np.any(missing, axis=0) if missing else None

    def _tables(self, tiles: Tiles, todo: IntArray) -> DualEvidence:
        """Every table that exists for the variances of these tiles."""
        left, right, evidence = tiles.left, tiles.right, DualEvidence()
        bands = left.of(left.prepared.band), right.of(right.prepared.band)
        for own, other in _present(bands):
            dual_table = self.table(own, other)
            if dual_table is None:
                continue
            table_tiles(
                tiles.covariance, left.inverse, left.strips(left.prepared.table_factors(own, other)), left.reach,
                bands[0] == own, right.inverse, right.strips(right.prepared.table_factors(other, own)), right.reach,
                bands[1] == other, *dual_table.terms(tiles.rough), dual_table.coordinate, tiles.bends, todo,
                *tiles.results,
            )  # fmt: skip
            evidence = evidence.merge(DualEvidence(("table",), dual_table.error))
        return evidence

    def _beyond_reach(self, tiles: Tiles, todo: IntArray) -> Mask:
        """The pairs that the series does not reach, in the strips where some are left."""
        left, right, covariance = tiles.left, tiles.right, tiles.covariance
        selected = np.repeat(todo == SOME, WIDTH, axis=2)[:, :, : covariance.shape[2]]
        rho = np.abs(covariance) / (left.root[:, :, None] * right.root[:, None, :])
        selected &= rho > left.reach[:, :, None] * right.reach[:, None, :]
        return selected & _all_pairs(tiles)

    def _integrate(self, tiles: Tiles, selected: Mask, method: str) -> DualEvidence:
        """Pairs one by one, by Price's integral or two-dimensional quadrature; dF'/dc is taken for zero."""
        where = np.nonzero(selected)
        if not len(where[0]):
            return DualEvidence()
        phi, left, right = self.phi, tiles.left, tiles.right
        one = left.of(left.prepared.inner)[where[0], where[1]]
        two = right.of(right.prepared.inner)[where[0], where[2]]
        cross = phi.gain**2 * tiles.covariance[where]
        if method == "quadrature" and len(cross) >= ANNOUNCED:
            self._announce(one, two, cross)
        value, slope = shape_dual(phi.shape, one, two, cross)
        if tiles.bends:
            tiles.bend[where] = 0.0
        tiles.value[where] = phi.amplitude**2 * value
        tiles.slope[where] = (phi.amplitude * phi.gain) ** 2 * slope
        return DualEvidence((method,), QUADRATURE, len(where[0]))

    def _announce(self, one: Array, two: Array, cross: Array) -> None:
        """Warn beforehand when pairs that are integrated one by one take long."""
        step = max(1, len(cross) // PROBED)
        begin = time.perf_counter()
        shape_dual(self.phi.shape, one[::step], two[::step], cross[::step])
        seconds = (time.perf_counter() - begin) * step
        if seconds >= PATIENCE:
            warnings.warn(
                f"{len(cross)} pairs of a tile are too correlated for the series, and the activation {self.phi} has "
                f"kinks away from zero: they are integrated one by one, about {seconds:.0f} s a step and tile.",
                RuntimeWarning,
                stacklevel=2,
            )


def _present(bands: tuple[IntArray, IntArray]) -> list[tuple[int, int]]:
    """All pairs of bands that occur."""
    return list(product(*(np.unique(part[part >= 0]).tolist() for part in bands)))


def _all_pairs(tiles: Tiles) -> Mask:
    """All pairs that are needed."""
    form = tiles.covariance.shape
    if not tiles.lower:
        return np.ones(form, dtype=np.bool_)
    return np.broadcast_to(np.tri(form[1], form[2], -1, dtype=np.bool_), form)


@njit(**OPTIONS)
def _lift(value, left, right):  # type: ignore[no-untyped-def]
    """Add what an offset adds to F."""
    stack, rows, columns = value.shape
    for t in range(stack):
        for i in range(rows):
            own, line, others = left[t, i], value[t, i], right[t]
            for j in range(columns):
                line[j] += own + others[j]


__all__ = ["Dual", "DualEvidence", "Tiles"]
