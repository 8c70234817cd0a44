"""F = E[φ(u)φ(v)] and F' = E[φ'(u)φ'(v)] for stacks of tiles of Gaussian pairs, with an error bound.

    dual = Dual(phi, variances, pairs)              # chooses the methods once, from the data
    left, right = dual.rows(q), dual.columns(p)     # (stack, n) and (stack, m) variances
    dual.tiles(left, right, covariance, value, slope)

Entry (t, i, j) of the arrays (stack, n, m) belongs to u with variance q[t, i], v with variance p[t, j] and their
covariance.  Rows of samples are one tile, a stack of one; images read by weights for each position are a stack of
positions; pooled images are one tile whose rows and columns are positions.

The methods, in the order in which they are tried:

    closed form    one kink at zero; sine and cosine
    series         Mehler's, for every pair whose correlation its error bound allows
    closed form    straight pieces with kinks anywhere, for the other pairs; Price's integral where it would cancel
    table          every other activation that is smooth away from zero, for the other pairs
    quadrature     what is left: kinks of a callable away from zero, and handfuls of pairs
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from notsodeep.duals import pieces, table
from notsodeep.duals.homogeneous import homogeneous_tiles, slopes_of
from notsodeep.duals.pieces import StraightPieces
from notsodeep.duals.series import ALLOWED, Series, SeriesSide, series_tiles
from notsodeep.duals.sine_cosine import wave_tiles
from notsodeep.duals.strips import OPTIONS, WIDTH, packed
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array, IntArray

Mask = NDArray[np.bool_]

# Variances are floored here: a variable of variance zero is the limit of this one.
SMALLEST = 1e-200
# Most terms of the series that do not vanish: where another method is as fast, and where there is only quadrature.
MOST, MOST_ALONE = 128, 512
# Fewer pairs than this are not worth a table: a pair takes milliseconds by quadrature, that of a callable a hundred.
TABLE_WORTH, TABLE_WORTH_CALLABLE = 256, 32
# Errors of the closed forms and of quadrature, relative to √(S S') and √(E1 E1').
CLOSED, QUADRATURE = 1e-14, 1e-12
# Pairs from which on quadrature may take long, pairs that are timed beforehand, and seconds that are announced.
ANNOUNCED, PROBED, PATIENCE = 512, 16, 10.0
# Variances at which the length of the series is chosen.
PROBES = 9
# Ends of ranges of log variances are multiples of this.
STEP = 0.5


@dataclass(frozen=True)
class Evidence:
    """How tiles were obtained.

    Attributes:
        methods: the methods that were used.
        error: bound on the error of F relative to √(S S'), and of F' relative to √(E1 E1').
        fallback_pairs: number of pairs that were integrated one by one.
    """

    methods: tuple[str, ...] = ()
    error: float = 0.0
    fallback_pairs: int = 0

    def merge(self, other: Evidence) -> Evidence:
        """The evidence of two computations together."""
        return Evidence(
            tuple(sorted({*self.methods, *other.methods})),
            max(self.error, other.error),
            self.fallback_pairs + other.fallback_pairs,
        )


class Prepared:
    """What depends on one variance, for the rows or the columns of tiles; computed when it is first needed."""

    def __init__(self, dual: Dual, variances: Array, *, columns: bool) -> None:
        self.dual, self.is_columns = dual, columns
        self.silent = variances == 0.0
        self.variances = np.maximum(variances, SMALLEST)
        self.root = np.sqrt(self.variances)
        self.inner = np.maximum(dual.phi.gain**2 * self.variances, SMALLEST)
        self._lock = threading.RLock()
        self._tables: dict[tuple[int, int], Array] = {}

    @cached_property
    def inverse(self) -> Array:
        """1/√q; of columns in strips (stack, strips, 1, WIDTH)."""
        inverse = np.asarray(1.0 / self.root)
        return packed(inverse[..., None]) if self.is_columns else inverse

    @cached_property
    def moments(self) -> Array:
        """M_0, M_1, S and E1 of the bare shape, (4, stack, n)."""
        with self._lock:
            shape, flat = self.dual.phi.shape, self.inner.reshape(-1)
            functions = {
                "M0": lambda q: shape.mean_derivative(q, 0),
                "M1": lambda q: shape.mean_derivative(q, 1),
                "S": shape.second_moment,
                "E1": shape.derivative_second_moment,
            }
            # One by one: an interpolation is as accurate as its largest value asks for.
            found = [
                at_many(partial(_as_rows, function), flat, (name, shape))[:, 0]
                for name, function in functions.items()
            ]
            return np.stack(found).reshape(4, *self.inner.shape)

    @cached_property
    def series(self) -> SeriesSide:
        """What the series needs."""
        with self._lock:
            return self.dual.series.side(
                self.inner, self.moments[2], self.moments[3], columns=self.is_columns
            )

    @cached_property
    def straight(self) -> tuple[Array, IntArray]:
        """What the closed form of straight pieces needs."""
        with self._lock:
            return self.dual.straight.side(self.inner, columns=self.is_columns)

    @cached_property
    def spread(self) -> Array:
        """√(q/S) of the shape: how much wider the variable is than what the activation makes of it."""
        return np.asarray(np.sqrt(self.inner / np.maximum(self.moments[2], 1e-300)))

    @cached_property
    def band(self) -> Array:
        """The band of variances of the tables, (stack, n)."""
        return np.asarray(table.band_numbers(np.log(self.inner), self.dual.bands))

    def table(self, own: int, other: int) -> Array:
        """What the table of two bands needs: `own` that of these variances."""
        with self._lock:
            if (own, other) not in self._tables:
                phi, side = self.dual.phi, int(self.is_columns)
                pair = (other, own) if side else (own, other)
                made = self.dual.table(*pair)
                flat = self.moments[2:].reshape(2, -1)
                roots = np.sqrt(np.maximum(flat, 0.0)) * np.array([[1.0], [phi.gain]]) * abs(phi.amplitude)
                factors = made.factors(self.inner.reshape(-1), side, (roots[0], roots[1]))
                factors = factors.reshape(*self.inner.shape, -1)
                self._tables[own, other] = packed(factors) if side else np.ascontiguousarray(factors)
            return self._tables[own, other]


def _as_rows(function: Callable[[Array], Array], q: Array) -> Array:
    """The values of a function as rows of one number each."""
    return np.asarray(function(q))[:, None]


@dataclass(frozen=True)
class Side:
    """The rows or the columns of tiles: some of those that were prepared together.

    A part of columns begins at a multiple of WIDTH.
    """

    prepared: Prepared
    part: slice

    def __getitem__(self, part: slice) -> Side:
        """Some of these, counted from the first."""
        start, stop, _ = part.indices(self.count)
        if self.prepared.is_columns and start % WIDTH:
            raise ValueError(f"A part of columns begins at a multiple of {WIDTH}, not at {start}.")
        return Side(self.prepared, slice(self.part.start + start, self.part.start + stop))

    @property
    def count(self) -> int:
        """Number of rows or columns."""
        return int(self.part.stop - self.part.start)

    def of(self, values: Array) -> Array:
        """This part of values (…, stack, n)."""
        return np.asarray(values[..., self.part])

    def strips(self, values: NDArray[Any]) -> NDArray[Any]:
        """This part of features: of rows (stack, n, …), of columns (stack, strips, …)."""
        part = self.part
        if self.prepared.is_columns:
            part = slice(part.start // WIDTH, -(-part.stop // WIDTH))
        # The compiled loops are made for contiguous arrays.
        return np.ascontiguousarray(values[:, part])

    @property
    def inverse(self) -> Array:
        """1/√q, of columns in strips."""
        return self.strips(self.prepared.inverse)

    @property
    def variances(self) -> Array:
        """The variances q, (stack, n)."""
        return self.of(self.prepared.variances)

    @property
    def root(self) -> Array:
        """Standard deviations √q of the rows or columns."""
        return self.of(self.prepared.root)

    @property
    def mean(self) -> Array:
        """M_0 = E[φ]."""
        phi = self.prepared.dual.phi
        mean = phi.amplitude * self.of(self.prepared.moments[0]) + phi.offset
        return np.where(self.silent, self.still, mean)

    @property
    def silent(self) -> Array:
        """Where the variance is zero."""
        return self.of(self.prepared.silent)

    @property
    def still(self) -> float:
        """The value of the activation at zero."""
        return float(self.prepared.dual.phi(0.0))

    @property
    def rise(self) -> Array:
        """M_1 = E[φ']."""
        phi = self.prepared.dual.phi
        return phi.amplitude * phi.gain * self.of(self.prepared.moments[1])

    @property
    def energy(self) -> Array:
        """S = E[φ²]."""
        phi, (mean, _, whole, _) = self.prepared.dual.phi, self.of(self.prepared.moments)
        energy = phi.amplitude**2 * whole + 2.0 * phi.amplitude * phi.offset * mean + phi.offset**2
        return np.where(self.silent, self.still**2, energy)

    @property
    def steep(self) -> Array:
        """E1 = E[φ'²]."""
        phi = self.prepared.dual.phi
        return (phi.amplitude * phi.gain) ** 2 * self.of(self.prepared.moments[3])

    @property
    def lift(self) -> Array:
        """Half of what an offset adds to F."""
        phi = self.prepared.dual.phi
        return phi.amplitude * phi.offset * self.of(self.prepared.moments[0]) + 0.5 * phi.offset**2


class Dual:
    """F and F' of one activation over the variances of one computation; thread-safe.

    Args:
        phi: the activation.
        variances: the variances that will occur, of any form, or numbers that span them.
        pairs: about how many pairs will be evaluated: few are not worth a table.
        allowed: what the series may leave out of F and F', relative to √(S S') and √(E1 E1').

    Attributes:
        careful: every pair is integrated by itself; set if a spot check did not confirm the other methods.
    """

    def __init__(
        self, phi: Activation, variances: Array, pairs: int = 1 << 40, allowed: float = ALLOWED
    ) -> None:
        # A constant is added at the end: hard_sigmoid without it is odd.
        shape, level = phi.shape.without_level()
        if shape is not phi.shape:
            phi = replace(phi, shape=shape, offset=phi.offset + phi.amplitude * level)
        self.phi, self.pairs, self.allowed, self.careful = phi, pairs, allowed, False
        inner = phi.gain**2 * np.asarray(variances, dtype=np.float64).reshape(-1)
        inner = inner[inner > SMALLEST]
        logs = np.log([inner.min(), inner.max()]) if len(inner) else np.zeros(2)
        if not shape.features_anywhere:
            # Rounded outwards: what is chosen for a range is kept for the next call.  A callable may not exist there.
            logs = np.array([np.floor(logs[0] / STEP), np.ceil(logs[1] / STEP)]) * STEP
        self.range = float(logs[0]), float(logs[1])
        self.probes = probes_of(self.range)
        self._lock = threading.Lock()

    @cached_property
    def is_constant(self) -> bool:
        """The activation is a constant."""
        if self.phi.amplitude == 0.0 or self.phi.gain == 0.0:
            return True
        return not np.any(self.phi.shape.derivative_second_moment(self.probes))

    @cached_property
    def has_table(self) -> bool:
        """A table may serve what the series does not."""
        shape = self.phi.shape
        worth = TABLE_WORTH_CALLABLE if shape.features_anywhere else TABLE_WORTH
        return shape.pieces is None and not any(shape.kinks) and self.pairs >= worth

    @cached_property
    def series(self) -> Series:
        """The series, as long as it needs to be for every correlation, or at most as long as it is worth."""
        shape = self.phi.shape
        most = MOST if shape.pieces is not None or self.has_table else MOST_ALONE
        return _series_for(shape, self.range, most, self.allowed)[0]

    @cached_property
    def straight(self) -> StraightPieces:
        """The closed form of straight pieces."""
        if self.phi.shape.pieces is None:
            raise ValueError("The activation is not made of straight pieces.")
        return StraightPieces(self.phi, self.phi.shape.pieces, self.probes)

    @cached_property
    def bands(self) -> list[table.Band]:
        """Ranges of log variances of the tables; smaller variances are left to the series with every other."""
        series, most = self.series, MOST if self.has_table else MOST_ALONE
        order = max(int(series.orders[-1]) - 1, 1)
        shares = _series_for(self.phi.shape, self.range, most, self.allowed)[1]
        reach = np.exp(0.5 * (np.log(self.allowed) - np.log(shares)) / order)
        needed = self.probes[reach * reach.min() < 1.0 + 1e-6]
        if not len(needed):
            needed = self.probes[-1:]
        # The probe below the first one that needs a table may need it as well.
        first = max(int(np.searchsorted(self.probes, needed[0])) - 1, 0)
        return table.bands(np.log(self.probes[[first, -1]]))

    def table(self, own: int, other: int) -> table.Table:
        """The table of two bands."""
        made = table.table(self.phi.shape, self.bands[own], self.bands[other])
        if made is None:
            raise ValueError("The table of these bands cannot be resolved.")
        return made

    def rows(self, variances: Array) -> Side:
        """Rows with these variances (stack, n)."""
        return Side(Prepared(self, variances, columns=False), slice(0, variances.shape[1]))

    def columns(self, variances: Array) -> Side:
        """Columns with these variances (stack, n)."""
        return Side(Prepared(self, variances, columns=True), slice(0, variances.shape[1]))

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
    ) -> Evidence:
        """Write F, F' and, where asked, dF'/dc of all pairs.

        Args:
            left: the rows.
            right: the columns.
            covariance: covariances (stack, n, m); beyond ±√(q q') they count as that bound.
            value: F is written here.
            slope: F' is written here.
            bend: dF'/dc is written here, for Newton's method: it is less accurate than the others.
            lower: only pairs below the diagonal of a square tile are needed.
        """
        phi, shape = self.phi, self.phi.shape
        if self.is_constant:
            value[:], slope[:] = left.mean[:, :, None] * right.mean[:, None, :], 0.0
            if bend is not None:
                bend[:] = 0.0
            return Evidence(("closed form",), CLOSED)
        bends = np.zeros((0, 0, 0)) if bend is None else bend
        if self.careful:
            wanted = np.ones(covariance.shape, dtype=np.bool_)
            if lower:
                wanted &= _below(covariance)
            evidence = self._integrate(
                left, right, covariance, value, slope, bends, np.nonzero(wanted), "quadrature"
            )
        elif shape.is_homogeneous and shape.pieces is not None:
            scale = (phi.amplitude * phi.gain) ** 2
            linear, bent = (scale * part for part in slopes_of(shape.pieces))
            homogeneous_tiles(
                covariance, left.root, left.inverse, right.root, right.inverse, linear, bent, bend is not None, lower,
                value, slope, bends,
            )  # fmt: skip
            evidence = Evidence(("closed form",), CLOSED)
        elif shape.quarter is not None:
            inner, others = (side.of(side.prepared.inner) for side in (left, right))
            turned = covariance if phi.gain == 1.0 else phi.gain**2 * covariance
            wave_tiles(turned, np.sqrt(inner), np.sqrt(others), shape.quarter == 0, lower, value, slope)
            if bend is not None:
                np.multiply(value, phi.amplitude**2 * phi.gain**4, out=bend)
            _scale(value, slope, bends[:0], phi.amplitude**2, (phi.amplitude * phi.gain) ** 2)
            evidence = Evidence(("closed form",), CLOSED)
        else:
            evidence = self._series(left, right, covariance, value, slope, bends, lower)
        if phi.offset:
            _lift(value, left.lift, right.lift)
        return evidence

    def _series(
        self, left: Side, right: Side, covariance: Array, value: Array, slope: Array, bend: Array, lower: bool
    ) -> Evidence:
        """The series for the pairs that it reaches, and what is next for the others."""
        series, phi = self.series, self.phi
        own, other = left.prepared.series, right.prepared.series
        todo = np.zeros((*covariance.shape[:2], -(-covariance.shape[2] // WIDTH)), dtype=np.bool_)
        rest = series_tiles(
            covariance, left.strips(own.terms), left.strips(own.tails), left.inverse, right.strips(other.terms),
            right.strips(other.tails), right.inverse, series.counts, series.orders, phi.shape.parity,
            np.log(series.allowed), series.finite, bend.size > 0, lower, value, slope, bend, todo,
        )  # fmt: skip
        if phi.amplitude != 1.0:
            square = phi.amplitude**2
            _scale(value, slope, bend, square, square)
        evidence = Evidence(("series",), series.allowed)
        if not rest:
            return evidence
        if phi.shape.pieces is None:
            return evidence.merge(self._rest(left, right, covariance, value, slope, bend, todo, lower))
        evidence = evidence.merge(Evidence(("closed form",), pieces.ERROR))
        self.straight.tiles(
            covariance, left.inverse, tuple(left.strips(part) for part in left.prepared.straight),
            left.of(own.reach), right.inverse, tuple(right.strips(part) for part in right.prepared.straight),
            right.of(other.reach), todo, value, slope, bend,
        )  # fmt: skip
        spreads = left.of(left.prepared.spread), right.of(right.prepared.spread)
        if spreads[0].max() * spreads[1].max() <= pieces.WIDE:
            return evidence
        wide = spreads[0][:, :, None] * spreads[1][:, None, :] > pieces.WIDE
        wanted = wide & self._wanted(left, right, covariance, todo, lower)
        return evidence.merge(
            self._integrate(left, right, covariance, value, slope, bend, np.nonzero(wanted), "integral")
        )

    def _rest(
        self,
        left: Side,
        right: Side,
        covariance: Array,
        value: Array,
        slope: Array,
        bend: Array,
        todo: Mask,
        lower: bool,
    ) -> Evidence:
        """Tables where there are any, quadrature for what they leave."""
        reaches = left.of(left.prepared.series.reach), right.of(right.prepared.series.reach)
        evidence, unresolved = Evidence(), []
        if self.has_table:
            bands = left.of(left.prepared.band), right.of(right.prepared.band)
            present = [np.unique(part[part >= 0]) for part in bands]
            for own, other in product(*(part.tolist() for part in present)):
                with self._lock:
                    made = table.table(self.phi.shape, self.bands[own], self.bands[other])
                if made is None:
                    unresolved.append((own, other))
                    continue
                table_args = left.prepared.table(own, other), right.prepared.table(other, own)
                table.table_tiles(
                    covariance, left.inverse, left.strips(table_args[0]), reaches[0], bands[0], right.inverse,
                    right.strips(table_args[1]), reaches[1], bands[1], made.starts, made.coordinate, own, other,
                    bend.size > 0, todo, value, slope, bend,
                )  # fmt: skip
                evidence = evidence.merge(Evidence(("table",), made.error))
            if not unresolved:
                return evidence
        wanted = self._wanted(left, right, covariance, todo, lower)
        if unresolved:
            some = np.zeros_like(wanted)
            for own, other in unresolved:
                some |= (bands[0] == own)[:, :, None] & (bands[1] == other)[:, None, :]
            wanted &= some
        return evidence.merge(
            self._integrate(left, right, covariance, value, slope, bend, np.nonzero(wanted), "quadrature")
        )

    def _wanted(self, left: Side, right: Side, covariance: Array, todo: Mask, lower: bool) -> Mask:
        """The pairs that the series does not reach, in the strips that `todo` names."""
        reaches = left.of(left.prepared.series.reach), right.of(right.prepared.series.reach)
        wanted = np.repeat(todo, WIDTH, axis=2)[:, :, : covariance.shape[2]]
        rho = np.abs(covariance) / (left.root[:, :, None] * right.root[:, None, :])
        wanted &= rho > reaches[0][:, :, None] * reaches[1][:, None, :]
        if lower:
            wanted &= _below(covariance)
        return wanted

    def _integrate(  # type: ignore[no-untyped-def]
        self,
        left: Side,
        right: Side,
        covariance: Array,
        value: Array,
        slope: Array,
        bend: Array,
        where,
        method: str,
    ) -> Evidence:
        """Pairs one by one, by Price's integral or two-dimensional quadrature; dF'/dc is taken for zero."""
        if not len(where[0]):
            return Evidence()
        phi = self.phi
        one = left.of(left.prepared.inner)[where[0], where[1]]
        two = right.of(right.prepared.inner)[where[0], where[2]]
        cross = phi.gain**2 * covariance[where]
        if method == "quadrature" and len(cross) >= ANNOUNCED:
            self._announce(one, two, cross)
        found = shape_dual(phi.shape, one, two, cross)
        if bend.size:
            bend[where] = 0.0
        value[where] = phi.amplitude**2 * found[0]
        slope[where] = (phi.amplitude * phi.gain) ** 2 * found[1]
        return Evidence((method,), QUADRATURE, len(where[0]))

    def _announce(self, one: Array, two: Array, cross: Array) -> None:
        """Say beforehand when pairs that are integrated one by one take long."""
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


def probes_of(logs: tuple[float, float]) -> Array:
    """A few variances between the ends of a range of their logarithms."""
    return np.exp(np.linspace(*logs, PROBES))


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


def _below(field: Array) -> Mask:
    """The pairs below the diagonal."""
    return np.tri(field.shape[1], field.shape[2], -1, dtype=np.bool_)


@njit(**OPTIONS)
def _scale(value, slope, bend, by, slope_by):  # type: ignore[no-untyped-def]
    """Multiply F by one number, F' and its derivative by another."""
    first, second, third = value.reshape(-1), slope.reshape(-1), bend.reshape(-1)
    for k in range(len(first)):
        first[k] *= by
    for k in range(len(second)):
        second[k] *= slope_by
    for k in range(len(third)):
        third[k] *= slope_by


@njit(**OPTIONS)
def _lift(value, left, right):  # type: ignore[no-untyped-def]
    """Add what an offset adds to F."""
    stack, rows, columns = value.shape
    for t in range(stack):
        for i in range(rows):
            own, line, others = left[t, i], value[t, i], right[t]
            for j in range(columns):
                line[j] += own + others[j]


__all__ = ["SMALLEST", "Dual", "Evidence", "Side"]
