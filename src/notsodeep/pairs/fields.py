"""F and F' over fields of pairs: all positions of two samples at once, for models that share weights over positions.

A field holds the covariances of one sample at positions s (rows of the field) with others (columns).  What depends on
the variances alone is prepared once for a field; the covariance then changes from step to step of a solver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs.compiled_fields import ROUNDING, STRIP
from notsodeep.pairs.compiled_series import FAST
from notsodeep.pairs.field_series import TRUNCATION, FieldSeries, field_series
from notsodeep.pairs.solution_table import SolutionTable, solution_table
from notsodeep.pairs.table_range import END, Range, coordinate
from notsodeep.validation import Array, IntArray

# Values at which a moment is interpolated at once.
CHUNK = 1 << 16
# Longest range of log q of a table. Smaller variances of a smooth activation take a series of a few terms.
LONGEST = 11.0
FEW_TERMS = 10
# Pairs of positions are timed before the others, until it took so long or there were so many.
PROBE_SECONDS, MOST_PROBED = 0.05, 4096
# Variances are floored here where they are divided by; a position without any signal is dealt with by itself.
SMALLEST = 1e-200


def moment(phi: Activation, name: str, variances: Array) -> Array:
    """A moment of the shape of an activation at many variances of any form; `name` is a method of `Shape`."""
    shape = phi.shape
    flat = np.maximum(phi.gain**2 * variances.reshape(-1), SMALLEST)
    function: Callable[[Array], Array] = {
        "mean": lambda q: shape.mean_derivative(q, 0),
        "rise": lambda q: shape.mean_derivative(q, 1),
        "energy": shape.second_moment,
        "slope_energy": shape.derivative_second_moment,
    }[name]
    if shape.is_homogeneous:
        # E[φ(s ξ)^k] = s^k E[φ(ξ)^k]; slopes do not know s.
        power = {"mean": 0.5, "rise": 0.0, "energy": 1.0, "slope_energy": 0.0}[name]
        return np.asarray(float(function(np.ones(1))[0]) * flat**power).reshape(variances.shape)
    parts = [
        at_many(lambda q: np.asarray(function(q))[:, None], flat[k : k + CHUNK], (name, shape))[:, 0]
        for k in range(0, len(flat), CHUNK)
    ]
    return np.concatenate(parts).reshape(variances.shape)


def energy(phi: Activation, variances: Array) -> Array:
    """S(q) = E[φ(√q ξ)²] at variances of any form."""
    value = phi.amplitude**2 * moment(phi, "energy", variances)
    if phi.offset:
        value += 2.0 * phi.amplitude * phi.offset * moment(phi, "mean", variances) + phi.offset**2
    return np.where(variances > 0.0, value, float(phi(0.0)) ** 2)


class Positions:
    """What single positions contribute to their pairs, in the units of the shape.

    Attributes:
        inner: variances g² q, floored above zero.
        root: their roots.
        inverse: one over the root; zero for a position without any signal.
        mean, rise: M_0 and M_1 of the shape.
        energy, steep: √S and √E1.
        still: positions without any signal.
    """

    def __init__(self, phi: Activation, variances: Array) -> None:
        self.still = variances <= 0.0
        self.inner = np.maximum(phi.gain**2 * variances, SMALLEST)
        self.root = np.sqrt(np.where(self.still, 0.0, self.inner))
        self.inverse = np.divide(1.0, self.root, out=np.zeros_like(self.root), where=~self.still)
        self.mean = moment(phi, "mean", variances)
        self.rise = moment(phi, "rise", variances)
        self.energy = np.sqrt(moment(phi, "energy", variances))
        self.steep = np.sqrt(moment(phi, "slope_energy", variances))
        if self.still.any():
            at_rest = np.zeros(1)
            self.mean[self.still] = phi.shape(at_rest)[0]
            self.rise[self.still] = phi.shape(at_rest, 1)[0]
            self.energy[self.still] = np.abs(self.mean[self.still])
            self.steep[self.still] = np.abs(self.rise[self.still])

    def take(self, index: object) -> Positions:
        """Some of them, or all in another form."""
        part = object.__new__(Positions)
        part.__dict__ = {name: values[index] for name, values in self.__dict__.items()}
        return part

    def turned(self) -> Positions:
        """The same with the two axes exchanged."""
        part = object.__new__(Positions)
        part.__dict__ = {name: np.ascontiguousarray(values.T) for name, values in self.__dict__.items()}
        return part


class Field(Protocol):
    """F and F' of a bare shape as functions of the covariance, at fixed variances."""

    def __call__(self, covariance: Array, want_slope: bool) -> tuple[Array, Array | None]:
        """F and, if wanted, F' at every pair of the field."""


@dataclass(frozen=True)
class Method:
    """How fields of an activation are evaluated.

    Attributes:
        name: the way, as in `KernelInfo.ways`.
        error: error of F relative to √(S_i S_j).
        field: makes the evaluator of positions (rows) with others (columns).
        linear, bent: F = linear · c + bent · √(q q') J(ρ), if it is of this form, (3.20).
        table: the table of F and F', if there is one.
        covers_all: no variance is too small for the table.
        series: the Mehler series, if it serves all correlations.
        one_by_one: every pair of positions is integrated by itself, which takes long.
    """

    name: str
    error: float
    field: Callable[[Positions, Positions], Field]
    linear: float = 0.0
    bent: float | None = None
    table: FieldTable | None = None
    covers_all: bool = False
    series: FieldSeries | None = None
    one_by_one: bool = False


def method_for(phi: Activation, variances: list[Array]) -> Method:
    """The fastest way to evaluate fields of this activation over these variances."""
    shape = phi.shape
    if shape.is_homogeneous and shape.pieces is not None:
        slopes = shape.pieces.slopes
        linear = ((slopes[-1] + slopes[0]) / 2.0) ** 2
        bent = ((slopes[-1] - slopes[0]) / 2.0) ** 2 * 2.0 / np.pi
        return Method(
            "closed form", 1e-14, lambda left, right: _Homogeneous(linear, bent, left, right), linear, bent
        )
    if shape.kinked_pieces is None:
        inner = np.concatenate([phi.gain**2 * part[part > 0.0] for part in variances])
        series = field_series(shape, inner) if len(inner) else None
        if series is not None:
            return Method(
                "series",
                TRUNCATION,
                lambda left, right: _Powers(series, left, right),
                series=series,
            )
        # Kinks away from zero leave F without derivatives where q = q' and ρ = 1: no table resolves that.
        tabulated = len(inner) > 0 and not any(shape.kinks)
        table = _table(shape, inner) if tabulated else None
        if table is not None:
            everything = bool(inner.min() >= table.smallest)
            return Method(
                "table",
                table.error,
                lambda left, right: _Tabulated(table, left, right),
                table=table,
                covers_all=everything,
            )
        probe = np.ones(1)
        if shape.pair_moments(probe, probe, 0.5 * probe) is not None:
            return Method("closed form", 1e-14, lambda left, right: _Careful(shape, left, right))
    way = "quadrature" if shape.kinked_pieces is None else "integral"
    return Method(way, 1e-12, lambda left, right: _Careful(shape, left, right), one_by_one=True)


def seconds_for(method: Method, phi: Activation, variances: Array, entries: int) -> float:
    """How long it takes to evaluate F and F' once for so many pairs of positions, from a few of these variances."""
    if not method.one_by_one:
        return 0.0
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


def _table(shape: Shape, variances: Array) -> FieldTable | None:
    """A table of F itself (the feedback is zero) that covers all correlations; None if it cannot be resolved."""
    high = float(np.log(variances.max()))
    low = max(float(np.log(variances.min())), high - LONGEST if not shape.kinks else -np.inf)
    try:
        ends = Range.of(np.array([low, high]), np.array([low, high]), (0.0, 1.0, 0.0), None)
        far = 0 if shape.parity == -1 else END
        table = solution_table(shape, 0.0, Range(ends.rows, ends.columns, -END, far))
    except InputError:
        return None
    return FieldTable(table) if table.resolved else None


class FieldTable:
    """A table of F and F', in the forms that fields need.

    Attributes:
        smallest: the smallest variance that it covers.
        orders: number of coefficients of F and F' together.
    """

    def __init__(self, table: SolutionTable) -> None:
        self.solution = table
        self.error, self.odd, self.angles, self.shape = table.error, table.odd, table.angles, table.shape
        self.epsilon, self.start, self.stop = table.epsilon, table.start, table.stop
        self.smallest = float(np.exp(table.extent.rows[0])) * (1.0 - 1e-9)
        self.orders = 2 * table.angles

    def rows_of(self, variances: Array) -> Array:
        """The coefficients at these variances, (positions, 2K, rank)."""
        logs = np.log(np.maximum(variances, self.smallest))
        return self.solution.row_tables(logs)

    def columns_of(self, variances: Array) -> Array:
        """What they are multiplied with, (positions, rank)."""
        logs = np.log(np.maximum(variances, self.smallest))
        return self.solution.column_vectors(logs)


def in_strips(values: Array, width: int = STRIP) -> Array:
    """(positions, …) as (strips, …, width), which compiled loops read in order; the last strip is filled up."""
    missing = -len(values) % width
    filled = np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) if missing else values
    return np.ascontiguousarray(np.moveaxis(filled.reshape(-1, width, *values.shape[1:]), 1, -1))


class _Homogeneous:
    """One kink at zero, (3.20)."""

    def __init__(self, linear: float, bent: float, left: Positions, right: Positions) -> None:
        self.linear, self.bent = linear, bent
        self.scale = self.bent * left.root * right.root
        self.inverse = left.inverse * right.inverse

    def __call__(self, covariance: Array, want_slope: bool) -> tuple[Array, Array | None]:
        rho = covariance * self.inverse
        np.clip(rho, -1.0, 1.0, out=rho)
        # Equal surroundings have ρ = 1 but for rounding, of which arcsin would make half of the digits.
        np.copyto(rho, np.sign(rho), where=np.abs(rho) > 1.0 - ROUNDING)
        angle = np.arcsin(rho)
        value = rho * angle
        np.multiply(rho, rho, out=rho)
        np.subtract(1.0, rho, out=rho)
        np.sqrt(rho, out=rho)
        value += rho
        value *= self.scale
        if self.linear:
            value += self.linear * covariance
        if not want_slope:
            return value, None
        angle *= self.bent
        angle += self.linear
        return value, angle


class _Careful:
    """Closed forms, Price's integral, or two-dimensional quadrature, pair by pair."""

    def __init__(self, shape: Shape, left: Positions, right: Positions) -> None:
        self.shape = shape
        form = np.broadcast_shapes(left.inner.shape, right.inner.shape)
        self.first, self.second = (
            np.broadcast_to(side.inner, form).reshape(-1).copy() for side in (left, right)
        )

    def __call__(self, covariance: Array, want_slope: bool) -> tuple[Array, Array | None]:
        value, slope = shape_dual(self.shape, self.first, self.second, covariance.reshape(-1))
        return value.reshape(covariance.shape), slope.reshape(covariance.shape)


class _Powers:
    """The Mehler series, (3.13), added up pair by pair."""

    def __init__(self, series: FieldSeries, left: Positions, right: Positions) -> None:
        self.powers = series.powers
        self.inverse = left.inverse * right.inverse
        self.rows = series.coefficients(left.inner.reshape(-1))
        columns = series.coefficients(right.inner.reshape(-1))
        # Position by position, or the same columns for all rows.
        beside = right.inner.shape[0] == left.inner.shape[0]
        self.columns = columns.reshape(*(right.inner.shape if beside else (1, -1)), series.terms)

    def __call__(self, covariance: Array, want_slope: bool) -> tuple[Array, Array | None]:
        rho = np.clip(covariance * self.inverse, -1.0, 1.0)
        value, slope = np.empty_like(rho), np.empty_like(rho)
        _add_powers(self.rows, self.columns, rho, *self.powers, value, slope)
        slope *= self.inverse
        return value, slope


@njit(cache=True, nogil=True, error_model="numpy")
def _add_powers(left, right, rho, first, stride, value, slope):  # type: ignore[no-untyped-def]
    """Σ_k left[i, k] right[i, j, k] ρ^(first + k stride) and its derivative, for every entry."""
    terms = left.shape[1]
    for i in range(rho.shape[0]):
        own = left[i]
        for j in range(rho.shape[1]):
            other, r = right[i if len(right) > 1 else 0, j], rho[i, j]
            x = r if stride == 1 else r * r
            total, rise = 0.0, 0.0
            for k in range(terms - 1, -1, -1):
                rise = rise * x + total
                total = total * x + own[k] * other[k]
            if stride == 2:
                rise = total + 2.0 * x * rise if first else 2.0 * r * rise
                total = r * total if first else total
            value[i, j] = total
            slope[i, j] = rise


class _Tabulated:
    """The table of F and F' in (log q, log q', angle), contracted to the variances of the field."""

    def __init__(self, table: FieldTable, left: Positions, right: Positions) -> None:
        self.table = table
        rows = table.rows_of(left.inner.reshape(-1))
        columns = table.columns_of(right.inner.reshape(-1))
        if right.inner.shape[0] == left.inner.shape[0]:
            # Position by position: (positions, rank, samples).
            columns = columns.reshape(*right.inner.shape, -1).transpose(0, 2, 1)
        else:
            columns = columns.T
        self.series = np.ascontiguousarray(np.matmul(rows, columns))
        self.inverse = left.inverse * right.inverse
        self.energy = left.energy * right.energy
        self.steep = left.steep * right.steep
        small = (left.inner < table.smallest) | (right.inner < table.smallest)
        self.small = np.flatnonzero(small.reshape(-1)) if small.any() else None
        if self.small is not None:
            form = np.broadcast_shapes(left.inner.shape, right.inner.shape)
            first, second = (
                np.broadcast_to(side.inner, form).reshape(-1)[self.small] for side in (left, right)
            )
            shape = table.shape
            self.products = shape.mehler(first, FEW_TERMS) * shape.mehler(second, FEW_TERMS)

    def __call__(self, covariance: Array, want_slope: bool) -> tuple[Array, Array | None]:
        table = self.table
        rho = covariance * self.inverse
        np.clip(rho, -1.0, 1.0, out=rho)
        place = np.abs(rho) if table.odd else rho
        t = coordinate(0.5 * (1.0 - place), 0.5 * (1.0 + place), table.epsilon)
        t *= 2.0
        t -= table.start + table.stop
        t /= table.stop - table.start
        value, slope = np.empty_like(rho), np.empty_like(rho)
        _clenshaw(self.series, t, value, slope)
        value *= self.energy
        if table.odd:
            value *= np.sign(rho)
        slope *= self.steep
        if self.small is not None:
            self._few_terms(rho, value, slope)
        return value, slope

    def _few_terms(self, rho: Array, value: Array, slope: Array) -> None:
        """Where one variance is so small that its series has a few terms only, (3.13) and (3.14)."""
        places = self.small
        orders = np.arange(FEW_TERMS)
        power = rho.reshape(-1)[places][:, None] ** orders
        value.reshape(-1)[places] = np.sum(self.products * power, axis=1)
        scale = self.inverse.reshape(-1)[places]
        slope.reshape(-1)[places] = scale * np.sum(orders[1:] * self.products[:, 1:] * power[:, :-1], axis=1)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _clenshaw(series, place, value, slope):  # type: ignore[no-untyped-def]
    """Two Chebyshev sums for every entry: series (rows, 2K, columns), the first K for the value."""
    rows, orders, columns = series.shape
    count = orders // 2
    width = 64
    later, latest = np.zeros(width), np.zeros(width)
    second, first = np.zeros(width), np.zeros(width)
    for i in range(rows):
        for start in range(0, columns, width):
            here = min(width, columns - start)
            for j in range(here):
                later[j] = 0.0
                latest[j] = 0.0
                second[j] = 0.0
                first[j] = 0.0
            for k in range(count - 1, 0, -1):
                for j in range(here):
                    twice = 2.0 * place[i, start + j]
                    moved = series[i, k, start + j] + twice * later[j] - latest[j]
                    latest[j] = later[j]
                    later[j] = moved
                    turned = series[i, count + k, start + j] + twice * second[j] - first[j]
                    first[j] = second[j]
                    second[j] = turned
            for j in range(here):
                z = place[i, start + j]
                value[i, start + j] = series[i, 0, start + j] + z * later[j] - latest[j]
                slope[i, start + j] = series[i, count, start + j] + z * second[j] - first[j]


class PairField:
    """F and F' of a scaled and shifted activation over a field.

    Args:
        phi: the activation.
        method: how fields of it are evaluated.
        left: the positions of the rows of the field.
        right: those of its columns.
        own: places of the field where a position meets itself.  There F and F' are moments of one variable; from a
            correlation of 1 to rounding, F' of a kinked activation would have half of the digits.
    """

    def __init__(
        self,
        phi: Activation,
        method: Method,
        left: Positions,
        right: Positions,
        own: tuple[IntArray, IntArray] | None = None,
    ) -> None:
        self.phi = phi
        self.inner = method.field(left, right)
        self.lift = None
        if phi.offset:
            self.lift = phi.amplitude * phi.offset * (left.mean + right.mean) + phi.offset**2
        self.bound = left.root * right.root / phi.gain**2
        still = left.still | right.still
        self.still = np.nonzero(still) if still.any() else None
        if self.still is not None:
            # A position without signal is independent of every other.
            self.at_rest = (left.mean * right.mean)[self.still], (left.rise * right.rise)[self.still]
        self.own = own
        if own is not None:
            self.alone = (left.energy * right.energy)[own], (left.steep * right.steep)[own]

    def __call__(self, covariance: Array, want_slope: bool = True) -> tuple[Array, Array]:
        """F and F' at these covariances of pre-activations."""
        phi = self.phi
        value, slope = self.inner(phi.gain**2 * covariance if phi.gain != 1.0 else covariance, want_slope)
        if slope is None:
            slope = value
        elif self.still is not None:
            slope[self.still] = self.at_rest[1]
        if self.still is not None:
            value[self.still] = self.at_rest[0]
        if self.own is not None:
            value[self.own] = self.alone[0]
            if want_slope:
                slope[self.own] = self.alone[1]
        if phi.amplitude != 1.0:
            value *= phi.amplitude**2
        if self.lift is not None:
            value += self.lift
        if want_slope and phi.amplitude * phi.gain != 1.0:
            slope *= (phi.amplitude * phi.gain) ** 2
        return value, slope


__all__ = [
    "FieldTable",
    "Method",
    "PairField",
    "Positions",
    "energy",
    "in_strips",
    "method_for",
    "moment",
    "seconds_for",
]
