"""What depends on one variance only: the rows or the columns of tiles of pairs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.duals import gelu, pieces, table
from notsodeep.duals.methods import SMALLEST, Methods
from notsodeep.duals.series import SeriesSide
from notsodeep.duals.strips import WIDTH, packed
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.interpolation import at_many
from notsodeep.validation import Array, IntArray

Mask = NDArray[np.bool_]


class PreparedSide:
    """Moments, coefficients and factors for the variances of all rows or columns; computed when first needed.

    Args:
        methods: how pairs are computed.
        variances: the variances, (stack, n).
        columns: whether these are columns.
        rows: rows with the same variances, whose moments and coefficients are reused.
    """

    def __init__(
        self, methods: Methods, variances: Array, *, columns: bool, rows: PreparedSide | None = None
    ) -> None:
        self.methods, self.is_columns, self._rows = methods, columns, rows
        self.silent = variances == 0.0
        self.variances = np.maximum(variances, SMALLEST)
        self.root = np.sqrt(self.variances)
        self.inner = np.maximum(methods.phi.gain**2 * self.variances, SMALLEST)
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
        if self._rows is not None:
            return self._rows.moments
        with self._lock:
            shape, flat = self.methods.phi.shape, self.inner.reshape(-1)
            functions = {
                "M0": lambda q: shape.mean_derivative(q, 0),
                "M1": lambda q: shape.mean_derivative(q, 1),
                "S": shape.second_moment,
                "E1": shape.derivative_second_moment,
            }
            # One by one: the error of an interpolation is relative to its largest value.
            values = [
                at_many(partial(_as_rows, function), flat, (name, shape))[:, 0]
                for name, function in functions.items()
            ]
            return np.stack(values).reshape(4, *self.inner.shape)

    @cached_property
    def series(self) -> SeriesSide:
        """Coefficients of the series; those of rows contain the square of the amplitude."""
        bare = self.bare_series
        return bare.in_strips() if self.is_columns else bare.scaled(self.methods.phi.amplitude**2)

    @cached_property
    def bare_series(self) -> SeriesSide:
        """Coefficients of the series of the bare shape, as those of rows."""
        if self._rows is not None:
            return self._rows.bare_series
        with self._lock:
            return self.methods.series.side(self.inner, self.moments[2], self.moments[3])

    @cached_property
    def straight(self) -> tuple[Array, IntArray]:
        """Features for the closed form of straight pieces."""
        if self._rows is not None:
            return pieces.in_strips(*self._rows.straight)
        with self._lock:
            features = self.methods.straight.side(self.inner)
            return pieces.in_strips(*features) if self.is_columns else features

    @cached_property
    def spread(self) -> Array:
        """√(q/S) of the shape: how much wider the variable is than its image under the activation."""
        return np.asarray(np.sqrt(self.inner / np.maximum(self.moments[2], 1e-300)))

    @cached_property
    def band(self) -> IntArray:
        """The band of variances of the tables, (stack, n)."""
        return np.asarray(table.band_numbers(np.log(self.inner), self.methods.bands))

    @cached_property
    def covered(self) -> Mask:
        """Whether the method beyond the series serves every correlation: of each row, or of each strip of columns."""
        method = self.methods.beyond
        if method == "pieces":
            covered = self.spread <= np.sqrt(pieces.WIDE)
        elif method == "gelu":
            covered = self.inner >= gelu.SMALLEST
        else:
            covered = self.band >= 0 if method == "table" else np.zeros(self.inner.shape, dtype=np.bool_)
        covered = np.asarray(covered, dtype=np.bool_)
        if not self.is_columns:
            return covered
        strips = np.logical_and.reduceat(covered, np.arange(0, covered.shape[1], WIDTH), axis=1)
        return np.asarray(strips, dtype=np.bool_)

    def table_factors(self, own: int, other: int) -> Array:
        """Factors of the table of two bands: `own` that of these variances."""
        with self._lock:
            if (own, other) not in self._tables:
                phi, side = self.methods.phi, int(self.is_columns)
                dual_table = self.methods.table(*((other, own) if side else (own, other)))
                if dual_table is None:
                    raise ValueError("The table of these bands cannot be resolved.")
                flat = self.moments[2:].reshape(2, -1)
                roots = np.sqrt(np.maximum(flat, 0.0)) * np.array([[1.0], [phi.gain]]) * abs(phi.amplitude)
                factors = dual_table.factors(self.inner.reshape(-1), side, (roots[0], roots[1]))
                factors = factors.reshape(*self.inner.shape, -1)
                self._tables[own, other] = packed(factors) if side else np.ascontiguousarray(factors)
            return self._tables[own, other]


def _as_rows(function: Callable[[Array], Array], q: Array) -> Array:
    """The values of a function as rows of one number each."""
    return np.asarray(function(q))[:, None]


@dataclass(frozen=True)
class Side:
    """The rows or the columns of tiles: a part of those that were prepared together.

    A part of columns begins at a multiple of WIDTH.
    """

    prepared: PreparedSide
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

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """This part of values (…, stack, n)."""
        return np.asarray(values[..., self.part])

    def strips(self, values: NDArray[Any]) -> NDArray[Any]:
        """This part of features: of rows (stack, n, …), of columns (stack, strips, …)."""
        part = self.part
        if self.prepared.is_columns:
            part = slice(part.start // WIDTH, -(-part.stop // WIDTH))
        # The compiled loops need contiguous arrays.
        return np.ascontiguousarray(values[:, part])

    @property
    def phi(self) -> Activation:
        """The activation whose expectations are computed."""
        return self.prepared.methods.phi

    @property
    def inverse(self) -> Array:
        """1/√q, of columns in strips."""
        return self.strips(self.prepared.inverse)

    @property
    def covered(self) -> Mask:
        """Whether the method beyond the series serves every correlation, of columns in strips."""
        return self.strips(self.prepared.covered)

    @property
    def reach(self) -> Array:
        """The series serves pairs up to |ρ| = reach · reach', (stack, n)."""
        return self.of(self.prepared.series.reach)

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
        mean = self.phi.amplitude * self.of(self.prepared.moments[0]) + self.phi.offset
        return np.where(self.silent, self.still, mean)

    @property
    def silent(self) -> Mask:
        """Where the variance is zero."""
        return self.of(self.prepared.silent)

    @property
    def still(self) -> float:
        """The value of the activation at zero."""
        return float(self.phi(0.0))

    @property
    def rise(self) -> Array:
        """M_1 = E[φ']."""
        return self.phi.amplitude * self.phi.gain * self.of(self.prepared.moments[1])

    @property
    def energy(self) -> Array:
        """S = E[φ²]."""
        phi, (mean, _, whole, _) = self.phi, self.of(self.prepared.moments)
        energy = phi.amplitude**2 * whole + 2.0 * phi.amplitude * phi.offset * mean + phi.offset**2
        return np.where(self.silent, self.still**2, energy)

    @property
    def steep(self) -> Array:
        """E1 = E[φ'²]."""
        return (self.phi.amplitude * self.phi.gain) ** 2 * self.of(self.prepared.moments[3])

    @property
    def lift(self) -> Array:
        """Half of what an offset adds to F."""
        return (
            self.phi.amplitude * self.phi.offset * self.of(self.prepared.moments[0])
            + 0.5 * self.phi.offset**2
        )


__all__ = ["Mask", "PreparedSide", "Side"]
