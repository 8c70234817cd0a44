"""All pairs of two sets of samples through one activation: F and F', with or without feedback.

A `PairSolver` is prepared once from the variances of the samples and then applied to tiles of the Gram matrix, from
any number of threads.  Four ways, from fast to careful: a fitted polynomial (activations with one kink at zero), the
Mehler series with as many terms as its error bound asks for, a table of the solution over the norms and angles that
the data have, and the evaluators of `gaussian.bivariate` for the rest.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.price import price_integral
from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs import compiled_series as compiled
from notsodeep.pairs import homogeneous
from notsodeep.pairs.near_parallel import NearPairs
from notsodeep.pairs.sample_moments import Equation, Side
from notsodeep.pairs.solution_table import TableFamily
from notsodeep.pairs.tiles import TILE
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

# Samples of a tile: neighbours, or any.
Where = slice | NDArray[np.intp]
# F and F' at covariances, of those pairs that the second argument selects.
Evaluator = Callable[[Array, Any], tuple[Array, Array]]

LEVELS: tuple[int, ...] = (
    *range(4, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 256, 32),
    *range(256, 512, 64), *range(512, 1025, 128),
)  # fmt: skip
TRUNCATION = 1e-14
# Beyond this many terms that do not vanish a table is cheaper than the series, where there is one.
SERIES_WORTH = 64
# Pairs timed before a long run, and the seconds from which on it is announced.
PROBED, PATIENCE = 4, 10.0
# Fewer pairs than this are not worth a table.
TABLE_WORTH = 64
# A tile with more than this share of pairs beyond the series says that the next tiles will be alike.
SHARE = 2e-4
# Price's integral costs about thirty times as much as a table: up to this share it takes what the series leaves.
SHARE_INTEGRATED = 0.02


class PairSolver:
    """F and F' for tiles of pairs; thread-safe."""

    def __init__(
        self, phi: Activation, left: Array, right: Array | None, equation: Equation, *, want_slope: bool
    ) -> None:
        """Prepare for samples with variances `left` (rows) and `right` (columns; None for the same samples)."""
        # A constant joins the forcing of the equation exactly; hard_sigmoid without it is odd.
        shape, level = phi.shape.without_level()
        phi = replace(phi, shape=shape, offset=phi.offset + phi.amplitude * level)
        self.phi, self.equation, self.want_slope = phi, equation, want_slope
        self.left = Side(phi, left, equation)
        self.right = self.left if right is None else Side(phi, right, equation)
        self.feedback = phi.gain**2 * phi.amplitude**2 * equation.feedback
        self.kappa = phi.gain**2 * equation.gain
        self._lock = threading.Lock()
        self._table: MehlerTable | None = None
        self._fit = None
        worth = len(self.left.root) * len(self.right.root) > TABLE_WORTH
        self._tables: TableFamily | None = None
        if worth and has_table(phi.shape):
            self._tables = TableFamily(phi.shape, self.feedback, self.left, self.right)
        self._series_first = True
        self._announced = False
        self._most_terms = LEVELS[-1]
        if self._tables is not None:
            self._most_terms = SERIES_WORTH * (2 if phi.shape.parity else 1)
        if phi.shape.pieces is not None and phi.shape.is_homogeneous:
            self._fit = homogeneous.fit(phi.shape.pieces.slopes, self.feedback)

    def tile(
        self, c: Array, rows: slice, columns: slice, *, diagonal: bool = False, near: NearPairs | None = None
    ) -> tuple[Array, Array | None, KernelInfo]:
        """Values F, slopes F' (if wanted) and the evidence, for the Gram entries c of these rows and columns.

        Args:
            c: entries of the Gram matrix (or of the kernel of the layer below).
            rows: which samples of the left side.
            columns: which samples of the right side.
            diagonal: the tile is on the diagonal of a symmetric matrix: its lower triangle is computed and mirrored,
                and its diagonal has closed moments.
            near: nearly parallel pairs, whose slope needs more digits than c has; their distances are moved on to
                the next layer.
        """
        value = np.zeros_like(c)
        slope = np.zeros_like(c) if self.want_slope else np.empty((0, 0))
        way = self._series if self._fit is None else self._fitted
        info = way(c, rows, columns, value, slope, lower=diagonal)
        phi = self.phi
        info = info.provided(phi.caveat, phi.shape.inaccuracy / self._margin())
        value *= phi.amplitude**2
        if phi.offset:
            value += self.left.lift[rows, None]
            value += self.right.lift[columns]
        value[self.left.silent[rows]] = 0.0
        value[:, self.right.silent[columns]] = 0.0
        if diagonal:
            value = _mirrored(value, self.left.value(phi)[rows])
        if not self.want_slope:
            return value, None, info
        slope *= (phi.amplitude * phi.gain) ** 2
        if near is not None:
            near.correct(phi, self.equation, (self.left, self.right), slope, rows, columns)
        if diagonal:
            slope = _mirrored(slope, self.left.slope(phi)[rows])
        return value, slope, info

    def _sides(self, rows: Where, columns: Where) -> tuple[Array, Array, Array, Array]:
        return (
            self.left.shift[rows],
            self.right.shift[columns],
            self.left.root[rows],
            self.right.root[columns],
        )

    def _fitted(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo:
        fit = self._fit
        if fit is None:
            raise ConvergenceError("No fit was prepared.", "Use the series.")
        compiled.fit_tile(
            c, self.kappa, *self._sides(rows, columns), fit.highest, fit.middle, fit.lowest,
            fit.upper.value, fit.lower.value, fit.upper.slope, fit.lower.slope, self.want_slope, lower, value, slope,
        )  # fmt: skip
        return KernelInfo(0, 0.0, fit.error, 0, ("fit",))

    def _series(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo:
        if not self._series_first and self._tables is not None:
            info = self._looked_up(c, rows, columns, value, slope, lower=lower)
            if info is not None:
                return info
        todo = np.zeros(c.shape, dtype=np.bool_)
        table = self._grown(0.2)
        while True:
            steps, residual, highest, left_over = compiled.mehler_tile(
                c, self.kappa, *self._sides(rows, columns), table.left, table.right, rows.start, columns.start,
                self.feedback, table.levels, table.limits, table.parity, self.want_slope, lower, value, slope, todo,
            )  # fmt: skip
            if left_over == 0 or table.complete or table.terms >= self._most_terms:
                break
            larger = self._grown(highest)
            if larger is table:
                break
            table = larger
        few = self.phi.shape.kinked_pieces is not None and left_over <= SHARE_INTEGRATED * c.size
        if left_over and self._tables is not None and not few:
            self._series_first = left_over < SHARE * c.size
            info = self._looked_up(c, rows, columns, value, slope, lower=lower)
            if info is not None:
                return info
            # Without a table the series takes as many terms as there may be.
            self._tables, self._most_terms = None, LEVELS[-1]
            return self._series(c, rows, columns, value, slope, lower=lower)
        if left_over and self.phi.shape.quarter is not None:
            return self._closed(c, rows, columns, value, slope, lower=lower)
        amplified = (TRUNCATION + residual) / self._margin()
        info = KernelInfo(steps, residual, amplified, 0, ("series",))
        if left_over:
            info = info.merge(self._careful(c, rows, columns, value, slope, np.nonzero(todo)))
        return info

    def _closed(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo:
        """The whole tile by the closed forms of sin and cos."""
        sine = self.phi.shape.quarter == 0
        steps, residual = compiled.wave_tile(
            c,
            self.kappa,
            *self._sides(rows, columns),
            self.feedback,
            sine,
            self.want_slope,
            lower,
            value,
            slope,
        )
        if residual > 1e-12:
            raise no_solution(1, residual)
        return KernelInfo(steps, residual, (TRUNCATION + residual) / self._margin(), 0, ("closed form",))

    def _looked_up(
        self, c: Array, rows: slice, columns: slice, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo | None:
        """The whole tile from solution tables, extended until they cover it; None if they cannot be resolved."""
        tables = self._tables
        if tables is None:
            return None
        groups = tables.left.groups[rows], tables.right.groups[columns]
        kinds = np.unique(groups[0]), np.unique(groups[1])
        info = KernelInfo(0, 0.0, 0.0, 0)
        if len(kinds[0]) == len(kinds[1]) == 1:
            part = self._from_table(
                (int(kinds[0][0]), int(kinds[1][0])), c, rows, columns, value, slope, lower=lower
            )
            if part is None:
                return None
            info = info.merge(part)
        else:
            if lower:
                # Both triangles are computed here; the diagonal, which is known, must not ask for ρ = 1.
                c = c.copy()
                np.fill_diagonal(c, 0.5 * c.diagonal())
            for first in kinds[0]:
                for second in kinds[1]:
                    i, j = np.flatnonzero(groups[0] == first), np.flatnonzero(groups[1] == second)
                    block = np.ix_(i, j)
                    key, where, cross = (
                        (int(first), int(second)),
                        (rows.start + i, columns.start + j),
                        c[block],
                    )
                    # Of one set of samples the table of two groups serves both ways.
                    turned = first < second and self.right is self.left
                    if turned:
                        key, where, cross = key[::-1], where[::-1], cross.T
                    values, slopes = np.zeros(cross.shape), np.zeros(cross.shape)
                    part = self._from_table(key, cross, *where, values, slopes, lower=False)
                    if part is None:
                        return None
                    value[block] = values.T if turned else values
                    if self.want_slope:
                        slope[block] = slopes.T if turned else slopes
                    info = info.merge(part)
        self._set_still(rows, columns, value, slope)
        return info

    def _from_table(
        self,
        key: tuple[int, int],
        c: Array,
        rows: Where,
        columns: Where,
        value: Array,
        slope: Array,
        *,
        lower: bool,
    ) -> KernelInfo | None:
        """Pairs of two groups of norms from the table of these groups."""
        tables = self._tables
        if tables is None:
            return None
        c = np.ascontiguousarray(c)
        table = tables.known(key)
        todo = np.zeros(c.shape, dtype=np.bool_)
        energy, steep = self._roots(rows, columns)
        left_over = 0
        while True:
            if table is None:
                table = tables.extended(key, self._first_look(c, rows, columns, lower=lower))
            if table is None:
                return self._integrated(c, rows, columns, value, slope, lower=lower)
            *seen, left_over = compiled.table_tile(
                c, self.kappa, *self._sides(rows, columns), table.row_tables(tables.left.logs[rows]),
                table.column_vectors(tables.right.logs[columns], compiled.WIDTH), *energy, *steep, table.epsilon,
                table.start, table.stop, table.floor, table.odd, self.want_slope, lower, value, slope, todo,
            )  # fmt: skip
            if tables.covered(key, table, (seen[0], seen[1], seen[2])):
                break
            table = tables.extended(key, (seen[0], seen[1], seen[2]))
            if table is None:
                return self._integrated(c, rows, columns, value, slope, lower=lower)
        info = KernelInfo(0, 0.0, table.error / self._margin(), 0, ("table",))
        if left_over:
            info = info.merge(self._careful(c, rows, columns, value, slope, np.nonzero(todo)))
        return info

    def _integrated(
        self, c: Array, rows: Where, columns: Where, value: Array, slope: Array, *, lower: bool
    ) -> KernelInfo | None:
        """All pairs by Price's integral; None for activations that do not have it."""
        if self.phi.shape.kinked_pieces is None:
            return None
        everything = np.tril_indices(len(c), -1) if lower else np.indices(c.shape).reshape(2, -1)
        return self._careful(c, rows, columns, value, slope, (everything[0], everything[1]))

    def _set_still(self, rows: slice, columns: slice, value: Array, slope: Array) -> None:
        """A sample of variance zero is independent of all others: F = M_0 M_0 and F' = M_1 M_1."""
        still = self.left.still[rows], self.right.still[columns]
        if not (still[0].any() or still[1].any()):
            return
        chosen = still[0][:, None] | still[1]
        left, right = self.left.means(self.phi.shape), self.right.means(self.phi.shape)
        value[chosen] = np.multiply.outer(left[0][rows], right[0][columns])[chosen]
        if self.want_slope:
            slope[chosen] = np.multiply.outer(left[1][rows], right[1][columns])[chosen]

    def _first_look(
        self, c: Array, rows: Where, columns: Where, *, lower: bool
    ) -> tuple[float, float, float]:
        """About the smallest and the largest d of a tile, and the smallest 1 - d: from the angles of what enters."""
        shift_left, shift_right, root_left, root_right = self._sides(rows, columns)
        own = [
            np.sqrt(np.maximum(1.0 - self.feedback * side.energy[part] / side.inner[part], 1e-6))
            for side, part in ((self.left, rows), (self.right, columns))
        ]
        cosine = (self.kappa * c + shift_left[:, None] + shift_right) / np.multiply.outer(
            own[0] * root_left, own[1] * root_right
        )
        if lower:
            cosine = cosine[np.tril_indices(len(cosine), -1)]
        if self.phi.shape.parity == -1:
            cosine = np.abs(cosine)
        low, high = (float(np.clip(part, -1.0, 1.0)) for part in (cosine.min(), cosine.max()))
        return 0.5 * (1.0 - high), 0.5 * (1.0 - low), 0.5 * (1.0 + low)

    def _roots(self, rows: Where, columns: Where) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """√S and √E1 of the rows and the columns."""
        sides = (self.left, rows), (self.right, columns)
        energy = tuple(np.sqrt(side.energy[part]) for side, part in sides)
        steep = tuple(np.sqrt(side.slope_energy[part]) for side, part in sides)
        return (energy[0], energy[1]), (steep[0], steep[1])

    def _margin(self) -> float:
        """1 - σ_a² max|F'|: what an error of F is divided by on its way through the equation."""
        steepest = float(np.sqrt(self.left.slope_energy.max() * self.right.slope_energy.max()))
        return max(1.0 - self.feedback * steepest, 1e-3)

    def _grown(self, correlation: float) -> MehlerTable:
        """The table, with enough terms for |ρ| up to `correlation`, or as many as there may be."""
        with self._lock:
            table = self._table
            while table is None or not (
                table.complete or table.terms >= self._most_terms or table.limits[-1] >= correlation
            ):
                terms = 16 if table is None else min(2 * table.terms, LEVELS[-1])
                if correlation > 0.5:
                    terms = min(max(terms, 64), self._most_terms)
                table = MehlerTable(self.phi.shape, self.left, self.right, terms, self.want_slope)
            self._table = table
            return table

    def _careful(
        self,
        c: Array,
        rows: Where,
        columns: Where,
        value: Array,
        slope: Array,
        where: tuple[NDArray[np.intp], ...],
    ) -> KernelInfo:
        """Newton's method on the listed pairs with the evaluators that hold at any correlation."""
        i, j = where
        shift_left, shift_right, root_left, root_right = self._sides(rows, columns)
        bound = root_left[i] * root_right[j]
        target = self.kappa * c[i, j] + shift_left[i] + shift_right[j]
        evaluate = self._evaluator(_places(rows)[i], _places(columns)[j])
        self._announce(evaluate, np.clip(target, -bound, bound))
        covariance, steps, residual = solve_pairs(evaluate, target, bound, self.feedback)
        f, df = evaluate(covariance, slice(None))
        value[i, j] = f
        if self.want_slope:
            slope[i, j] = df
        way = "quadrature" if self.phi.shape.kinked_pieces is None else "integral"
        return KernelInfo(steps, residual, (1e-12 + residual) / self._margin(), len(i), (way,))

    def _announce(self, evaluate: Evaluator, covariance: Array) -> None:
        """Say beforehand when pairs that have to be integrated one by one will take long."""
        if self._announced or self.phi.shape.kinked_pieces is not None or len(covariance) < 20 * PROBED:
            return
        begin = time.perf_counter()
        evaluate(covariance[:PROBED], slice(PROBED))
        seconds = (time.perf_counter() - begin) / PROBED * len(covariance) * (5 if self.feedback else 1)
        if seconds > PATIENCE:
            self._announced = True
            warnings.warn(
                f"{len(covariance)} pairs of a tile of {TILE} × {TILE} are too correlated for a series, and the "
                f"activation {self.phi} has no table: they are integrated one by one, about {seconds:.0f} s a tile.",
                stacklevel=2,
            )

    def _evaluator(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Evaluator:
        """F and F' of these samples as a function of their covariances, for a selection of the pairs."""
        shape, left, right = self.phi.shape, self.left, self.right
        pieces = shape.kinked_pieces
        if pieces is not None:
            scales = left.root[i], right.root[j]
            means = left.mean[i], right.mean[j], left.rise[i], right.rise[j]

            def by_integral(covariance: Array, chosen: Any) -> tuple[Array, Array]:
                return price_integral(
                    pieces,
                    scales[0][chosen],
                    scales[1][chosen],
                    covariance,
                    [part[chosen] for part in means],
                )

            return by_integral
        q1, q2 = left.inner[i], right.inner[j]
        return lambda covariance, chosen: shape_dual(shape, q1[chosen], q2[chosen], covariance)


def _places(where: Where) -> NDArray[np.intp]:
    return np.arange(where.start, where.stop) if isinstance(where, slice) else where


def has_table(shape: Shape) -> bool:
    """Whether the solution may be tabulated: closed forms that oscillate and kinks of callables are left out."""
    if shape.pieces is not None:
        return shape.kinked_pieces is not None
    return shape.quarter is None and shape.series_terms is None and all(kink == 0.0 for kink in shape.kinks)


def _mirrored(lower: Array, diagonal: Array) -> Array:
    """The symmetric matrix with this lower triangle and this diagonal."""
    triangle = np.tril(lower, -1)
    whole = triangle + triangle.T
    np.fill_diagonal(whole, diagonal)
    return whole


def solve_pairs(
    evaluate: Evaluator, target: Array, bound: Array, feedback: float
) -> tuple[Array, int, float]:
    """Λ = feedback · F(Λ) + target by Newton's method; returns Λ, steps and the worst relative residual."""
    covariance = np.clip(target, -bound, bound)
    if feedback == 0.0:
        return covariance, 0, 0.0
    active = np.arange(len(target))
    worst = 0.0
    for step in range(1, 61):
        f, df = evaluate(covariance[active], active)
        gap = feedback * f + target[active] - covariance[active]
        sizes = np.abs(gap) / bound[active]
        worst = float(sizes.max())
        move = gap / np.maximum(1.0 - feedback * df, compiled.STEEPEST)
        covariance[active] = np.clip(covariance[active] + move, -bound[active], bound[active])
        active = active[sizes > 1e-14]
        # Late in the iteration what is left of the gap is the rounding of F.
        if not len(active) or (step > 10 and worst < 1e-12):
            return covariance, step, worst
    raise no_solution(len(active), worst)


def no_solution(pairs: int, residual: float) -> ConvergenceError:
    """What is raised when Newton's method ends without a solution."""
    return ConvergenceError(
        f"The pair equation Λ = σ_a² F(Λ) + … did not converge for {pairs} pairs (residual {residual:.1e}).",
        "Lower sigma_a2: the map is too close to losing its contraction, σ_a² E[φ'φ'] ≥ 1.",
    )


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
        counts = [level for level in LEVELS if level < terms] + [terms]
        limits = [_limit(tails[:, level - 1], level) for level in counts]
        if exact is not None:
            limits[-1] = np.inf
        self.levels = np.array([len(range(first, level, stride)) for level in counts])
        self.limits = np.maximum.accumulate(np.array(limits))
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
    squares = table**2
    missing = [1.0 - np.cumsum(squares, axis=1) / np.maximum(side.energy, 1e-300)[:, None]]
    if want_slope:
        total = np.maximum(side.inner * side.slope_energy, 1e-300)[:, None]
        missing.append(1.0 - np.cumsum(squares * np.arange(terms), axis=1) / total)
    # Rounding hides tails below this; a constant activation has no energy at all and nothing is missing.
    noise = 2e-16 * np.sqrt(np.arange(1.0, terms + 1.0))
    tails = np.stack([np.maximum(part.max(axis=0), noise) for part in missing])
    rows = table[:, first::stride].T / side.root
    return np.ascontiguousarray(rows), tails


def _limit(tails: Array, terms: int) -> float:
    """The largest |ρ| with tail · |ρ|^terms below TRUNCATION (one power less for the derivative)."""
    orders = np.arange(terms, terms - len(tails), -1.0).clip(min=1.0)
    limits = (TRUNCATION / tails) ** (1.0 / orders)
    # A series that converges at ρ = 1 may be used a rounding error beyond it.
    return float(min(limits.min(), 1.0 + 1e-6))
