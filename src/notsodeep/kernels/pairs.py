"""All pairs of two sets of samples through one activation: F and F', with or without feedback.

A `PairSolver` is prepared once from the variances of the samples and then applied to tiles of the Gram matrix, from
any number of threads.  Three ways, from fast to careful: a fitted polynomial (activations with one kink at zero),
the Mehler series with as many terms as its error bound asks for, and the evaluators of `gaussian.bivariate` for the
rest.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.shapes import Shape
from notsodeep.kernels import compiled, homogeneous
from notsodeep.kernels.near import NearPairs
from notsodeep.kernels.sides import Equation, Side
from notsodeep.results import KernelInfo

Array = NDArray[np.float64]

LEVELS: tuple[int, ...] = (
    *range(4, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 256, 32),
    *range(256, 512, 64), *range(512, 1025, 128),
)  # fmt: skip
TRUNCATION = 1e-14


class PairSolver:
    """F and F' for tiles of pairs; thread-safe."""

    def __init__(
        self, phi: Activation, left: Array, right: Array | None, equation: Equation, *, want_slope: bool
    ) -> None:
        """Prepare for samples with variances `left` (rows) and `right` (columns; None for the same samples)."""
        self.phi, self.equation, self.want_slope = phi, equation, want_slope
        self.left = Side(phi, left, equation)
        self.right = self.left if right is None else Side(phi, right, equation)
        self.feedback = phi.gain**2 * phi.amplitude**2 * equation.feedback
        self.kappa = phi.gain**2 * equation.gain
        self._lock = threading.Lock()
        self._table: MehlerTable | None = None
        self._fit = None
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
            diagonal: the tile is on the diagonal of a symmetric matrix; its diagonal has closed moments.
            near: nearly parallel pairs, whose slope needs more digits than c has; their distances are moved on to
                the next layer.
        """
        if diagonal:
            # ρ = 1 on the diagonal would ask for the careful way; its values are known and put in below.
            c = c.copy()
            np.fill_diagonal(c, 0.0)
        value = np.empty_like(c)
        slope = np.empty_like(c) if self.want_slope else np.empty((0, 0))
        if self._fit is not None:
            info = self._fitted(c, rows, columns, value, slope)
        else:
            info = self._series(c, rows, columns, value, slope)
        phi = self.phi
        info = info.provided(phi.caveat, phi.shape.inaccuracy / self._margin())
        value *= phi.amplitude**2
        if phi.offset:
            value += self.left.lift[rows, None]
            value += self.right.lift[columns]
        value[self.left.silent[rows]] = 0.0
        value[:, self.right.silent[columns]] = 0.0
        if diagonal:
            np.fill_diagonal(value, self.left.value(phi)[rows])
        if not self.want_slope:
            return value, None, info
        slope *= (phi.amplitude * phi.gain) ** 2
        if near is not None:
            near.correct(phi, self.equation, (self.left, self.right), slope, rows, columns)
        if diagonal:
            np.fill_diagonal(slope, self.left.slope(phi)[rows])
        return value, slope, info

    def _sides(self, rows: slice, columns: slice) -> tuple[Array, Array, Array, Array]:
        return (
            self.left.shift[rows],
            self.right.shift[columns],
            self.left.root[rows],
            self.right.root[columns],
        )

    def _fitted(self, c: Array, rows: slice, columns: slice, value: Array, slope: Array) -> KernelInfo:
        fit = self._fit
        if fit is None:
            raise ConvergenceError("No fit was prepared.", "Use the series.")
        compiled.fit_tile(
            c, self.kappa, *self._sides(rows, columns), fit.highest, fit.middle, fit.lowest,
            fit.upper.value, fit.lower.value, fit.upper.slope, fit.lower.slope, self.want_slope, value, slope,
        )  # fmt: skip
        return KernelInfo(0, 0.0, fit.error, 0)

    def _series(self, c: Array, rows: slice, columns: slice, value: Array, slope: Array) -> KernelInfo:
        todo = np.empty(c.shape, dtype=np.bool_)
        table = self._grown(0.2)
        while True:
            steps, residual, highest, left_over = compiled.mehler_tile(
                c, self.kappa, *self._sides(rows, columns), table.left, table.right, rows.start, columns.start,
                self.feedback, table.levels, table.limits, table.parity, self.want_slope, value, slope, todo,
            )  # fmt: skip
            if left_over == 0 or table.complete:
                break
            larger = self._grown(highest)
            if larger is table:
                break
            table = larger
        careful = KernelInfo(0, 0.0, 0.0, 0)
        if left_over:
            careful = self._careful(c, rows, columns, value, slope, np.nonzero(todo))
        amplified = (TRUNCATION + residual) / self._margin()
        return KernelInfo(steps, residual, amplified, 0).merge(careful)

    def _margin(self) -> float:
        """1 - σ_a² max|F'|: what an error of F is divided by on its way through the equation."""
        steepest = float(np.sqrt(self.left.slope_energy.max() * self.right.slope_energy.max()))
        return max(1.0 - self.feedback * steepest, 1e-3)

    def _grown(self, correlation: float) -> MehlerTable:
        """The table, with enough terms for |ρ| up to `correlation`, or as many as there may be."""
        with self._lock:
            table = self._table
            while table is None or not (table.complete or table.limits[-1] >= correlation):
                terms = 16 if table is None else min(2 * table.terms, LEVELS[-1])
                if correlation > 0.5:
                    terms = max(terms, 64)
                table = MehlerTable(self.phi.shape, self.left, self.right, terms, self.want_slope)
            self._table = table
            return table

    def _careful(
        self,
        c: Array,
        rows: slice,
        columns: slice,
        value: Array,
        slope: Array,
        where: tuple[NDArray[np.intp], ...],
    ) -> KernelInfo:
        """Newton's method on the listed pairs with the evaluators that hold at any correlation."""
        i, j = where
        shift_left, shift_right, root_left, root_right = self._sides(rows, columns)
        q1, q2 = self.left.inner[rows][i], self.right.inner[columns][j]
        bound = root_left[i] * root_right[j]
        target = self.kappa * c[i, j] + shift_left[i] + shift_right[j]
        covariance, steps, residual = solve_pairs(self.phi.shape, q1, q2, target, bound, self.feedback)
        f, df = shape_dual(self.phi.shape, q1, q2, covariance)
        value[i, j] = f
        if self.want_slope:
            slope[i, j] = df
        return KernelInfo(steps, residual, (1e-12 + residual) / self._margin(), len(i))


def solve_pairs(
    shape: Shape, q1: Array, q2: Array, target: Array, bound: Array, feedback: float
) -> tuple[Array, int, float]:
    """Λ = feedback · F(q1, q2, Λ) + target by Newton's method; returns Λ, steps and the worst relative residual."""
    covariance = np.clip(target, -bound, bound)
    if feedback == 0.0:
        return covariance, 0, 0.0
    active = np.arange(len(target))
    worst = 0.0
    for step in range(1, 61):
        f, df = shape_dual(shape, q1[active], q2[active], covariance[active])
        gap = feedback * f + target[active] - covariance[active]
        sizes = np.abs(gap) / bound[active]
        worst = float(sizes.max())
        move = gap / np.maximum(1.0 - feedback * df, compiled.STEEPEST)
        covariance[active] = np.clip(covariance[active] + move, -bound[active], bound[active])
        active = active[sizes > 1e-14]
        # Late in the iteration what is left of the gap is the rounding of F.
        if not len(active) or (step > 10 and worst < 1e-12):
            return covariance, step, worst
    raise ConvergenceError(
        f"The pair equation Λ = σ_a² F(Λ) + … did not converge for {len(active)} pairs (residual {worst:.1e}).",
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
    table = at_many(lambda q: shape.mehler(q, terms), side.inner)
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
