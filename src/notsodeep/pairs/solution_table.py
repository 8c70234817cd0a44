"""The solution of the pair equation, tabulated over the norms and the angles that a data set has.

A pair of samples enters the equation ρ = f P(ρ; q_i, q_j) + r through three numbers: two variances and r.  Its solution
F(ρ(r)), F'(ρ(r)) is interpolated by Chebyshev polynomials in log q_i, log q_j and t, where t is a coordinate of r in
which the solution is smooth up to and including ρ = ±1, for kinked and for saturated activations alike: docs/theory.md
(3.27) to (3.31).  No pair then needs a Newton step.  What a tile of pairs needs of it, `local_table` cuts out.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict

import numpy as np
from numpy.polynomial.chebyshev import chebder
from numpy.typing import NDArray

from notsodeep.gaussian.dual_grid import aligned, dual_grid
from notsodeep.gaussian.shapes import Shape
from notsodeep.linalg.chebyshev import chebyshev_basis, chebyshev_coefficients, chebyshev_nodes, clenshaw
from notsodeep.pairs.compiled_nodes import solve_at_nodes
from notsodeep.pairs.table_orders import AIM, lebesgue, more_orders, orders_needed, sizes_along, tail_of
from notsodeep.pairs.table_proof import Ellipse, ellipse_of, ellipse_of_range
from notsodeep.pairs.table_range import Range, coordinate, distance_at, slope_of_coordinate
from notsodeep.validation import Array

# Interpolation error accepted, relative to √(S_i S_j) and √(E1_i E1_j).
ACCEPTED = 4e-11
# Nodes tried to see how fast coefficients fall; as many are then used as that asks for.
ANGLE_PROBES = (32, 64, 128)
VARIANCE_PROBES = (8, 16, 32, 56)
MOST_KINKED = 48
# Orders more than a few probes ask for: where the derivative of F's series is not accurate enough for F', it needs
# coefficients of its own, which doubles the time of a tile.
SPARE = 3
ATTEMPTS = 3
# Nodes that a table may have, in all, in order that the number of those in t is one that is proved to be enough; for
# fewer pairs than that far fewer, which would take longer to tabulate than to look up.
AFFORDABLE, AFFORDABLE_FOR_FEW = 40_000, 1_000
KEPT = 64
# log2 of the odds d/(1-d) from which on the cone at equal norms and angle zero is far.
NEAR = -8
# Least g = 1 - f S/q for which √g is smooth enough.
LEAST_SHARE = 0.3
# From this log2 of the odds on roots are tried for t, which may need this many orders more than (3.28).
NEAREST_ROOT, MORE_ORDERS = -12, 6
# F' comes from the derivative of F's series as long as it is not more than this many times as sensitive as F.
STEEPEST_RISE = 300.0
# What rounding leaves of r, (κ c + shifts)/(s_i s_j).
ROUNDING = 4e-16
# Coefficients below this say nothing: values at the nodes are off by as much.
LOST_IN_ROUNDING = 1e-15
# About how many angles are integrated for a table, and the seconds from which on that is announced.
ANGLES_IN_ALL, PATIENCE = 300, 10.0


class SolutionTable:
    """Coefficients of F/√(S_i S_j) and F'/√(E1_i E1_j) of the solution, and of the ends R₊ and R₋ of r.

    Attributes:
        epsilon: width of the coordinate's smooth middle, the length scale of the activation over the largest s;
            infinite if t is made of roots.
        start, stop: range of t.
        plain_ends: the ends of r are ±√(g_i g_j), g = 1 - f S/q, and not tabulated.
        series: (2, K, M, M) coefficients of F and F' in t, log q_i and log q_j.
        end_series: (2, M, M) coefficients of 1 - R₊ and 1 + R₋.
        error: estimated error of any value, relative as above, for r as it is given.
        rounding: how much more the rounding of r may change values.
        proved: proved bound of the part of the error that comes from interpolation in t, (3.37); infinite without one.
    """

    def __init__(self, shape: Shape, feedback: float, extent: Range, affordable: int = AFFORDABLE) -> None:
        self.shape, self.feedback, self.extent, self.affordable = shape, feedback, extent, affordable
        self.odd = shape.parity == -1
        self.plain_ends = feedback > 0.0 and self._may_have_plain_ends()
        largest = float(np.exp(0.5 * max(extent.rows[1], extent.columns[1])))
        self.epsilon = min(1.0, shape.feature / largest)
        self.start, self.stop = extent.ends(self.epsilon)
        if shape.features_anywhere:
            self._announce()
        self.ellipse: Ellipse | None = None
        self.angles = self._angle_count()
        # Of few pairs the logarithm costs less than to look for a way around it.
        if extent.near >= NEAREST_ROOT and self.angles and affordable == AFFORDABLE:
            self._prefer_roots()
        self.variances = self._variance_count()
        self.ellipse = self._ellipse()
        self.proved = np.inf
        self._prefer_proof()
        self.resolved = False
        self.error = self.rounding = np.inf
        # The counts come from a few probes; where the whole table shows a larger error it gets more nodes.
        for _ in range(ATTEMPTS if self.angles > 0 and self.variances > 0 else 0):
            self._build()
            if self.resolved:
                break
            sizes = [sizes_along(self.series, axis) for axis in (1, 2, 3)]
            more = more_orders(sizes[0]), max(more_orders(sizes[1]), more_orders(sizes[2]))
            if not any(more):
                # The error is not one of orders that were left out as far as coefficients show.
                more = 2 + self.angles // 4, 2 + self.variances // 3
            self.angles += more[0]
            self.variances += more[1] if self.variances > 1 else 0

    def _may_have_plain_ends(self) -> bool:
        """Whether r may have other ends than those at which |ρ| = 1: F is smooth there, or that end is far.

        And g = 1 - f S/q must not come close to zero, where its root is not smooth.
        """
        shape, extent = self.shape, self.extent
        if shape.kinked_pieces is not None:
            return True
        q = np.exp(
            np.linspace(min(extent.rows[0], extent.columns[0]), max(extent.rows[1], extent.columns[1]), 9)
        )
        least = float((1.0 - self.feedback * shape.second_moment(q) / q).min())
        return least >= LEAST_SHARE and (not shape.kinks or extent.near >= NEAR)

    def _announce(self) -> None:
        """Say beforehand when the table of a function of the user's, which may change anywhere, will take long."""
        rows, columns = (np.exp(np.array(part[1:])) for part in (self.extent.rows, self.extent.columns))
        angle = 2.0 * np.arcsin(np.sqrt(self._distances(np.array([self.start]))[0]))
        seconds = np.inf
        # The first time the function is resolved as far as it is needed.
        for _ in range(3):
            begin = time.thread_time()
            self._on_grid(rows, columns, angle)
            seconds = min(seconds, ANGLES_IN_ALL * (time.thread_time() - begin))
        if seconds > PATIENCE:
            warnings.warn(
                "No series can be bounded on these rows, and the activation is a function of which nothing but its "
                f"values is known: the table of its kernels takes about {seconds:.0f} s, once in a process. Rows "
                "scaled to norm 1 take less.",
                stacklevel=2,
            )

    # --- how many nodes -------------------------------------------------------------------------------------------

    def _angle_count(self) -> int:
        """How many angles resolve the solution at a few variances; 0 if too many."""
        rows, columns = (self._probed(part) for part in (self.extent.rows, self.extent.columns))
        for count in ANGLE_PROBES:
            series = chebyshev_coefficients(self._solutions(rows, columns, count)[0], 1)
            needed = orders_needed(sizes_along(series, 1))
            if needed is not None:
                # And the derivative of F's series, if F' can come from there.
                rise = self._steepest_rise(rows, columns)
                steeper = (
                    orders_needed(rise * sizes_along(chebder(series[0], axis=0), 0))
                    if rise <= STEEPEST_RISE
                    else None
                )
                return max(needed, steeper or 0) + SPARE + 1
        return 0

    def _probed(self, ends: tuple[float, float]) -> Array:
        """Variances at which coefficients are looked at: the extreme ones; kinks away from zero matter between them."""
        places = ends if self.shape.kinked_pieces is None else (*ends, 0.5 * (ends[0] + ends[1]))
        return np.exp(np.unique(places))

    def _steepest_rise(self, rows: Array, columns: Array) -> float:
        """The largest F'/(dF/dz), relative to √(E1_i E1_j), at the near end of the table."""
        near = self._distances(np.array([self.start]))[0]
        energy, steep = self._scales(rows, columns)
        fast = slope_of_coordinate(np.maximum(near, 1e-30), self.epsilon, both_ends=self.extent.both_ends)
        width = 2.0 - np.add(*self.ends(rows, columns))
        rises = energy / np.maximum(steep * width * np.sqrt(np.multiply.outer(rows, columns)), 1e-300)
        return float(2.0 / (self.stop - self.start) * fast[0] * rises.max())

    def _prefer_roots(self) -> None:
        """Take roots for t where they do not need many more orders: a logarithm costs about as much as these."""
        before = self.epsilon, self.start, self.stop, self.angles
        self.epsilon = np.inf
        self.start, self.stop = self.extent.ends(self.epsilon)
        self.angles = self._angle_count()
        if not 0 < self.angles <= before[-1] + MORE_ORDERS:
            self.epsilon, self.start, self.stop, self.angles = before

    def _ellipse(self) -> Ellipse | None:
        """The ellipse in t within which the solution is known to be analytic for all norms of the table, (3.36)."""
        rows, columns = (np.exp(np.linspace(*part, 33)) for part in (self.extent.rows, self.extent.columns))
        steepest = float(self._scales(rows, columns)[1].max())
        if self.feedback > 0.0 and not (self.plain_ends and self.feedback * steepest < 1.0):
            return None
        return ellipse_of_range(self.extent, self.start, self.stop, self.epsilon)

    def _prefer_proof(self) -> None:
        """Take as many nodes in t as (3.37) asks for, if that is affordable."""
        if self.ellipse is None or not (self.angles and self.variances):
            return
        rows, columns = (np.exp(np.unique(part)) for part in (self.extent.rows, self.extent.columns))
        rise = self._steepest_rise(rows, columns)
        enough = self.ellipse.orders(AIM, rise if rise <= STEEPEST_RISE else 0.0)
        if enough is not None and enough * self.variances**2 <= self.affordable:
            self.angles = max(self.angles, enough)

    def _variance_count(self) -> int:
        """How many variances resolve F and F' at a few angles of Λ; 0 if too many."""
        extent = self.extent
        if extent.rows == extent.columns and extent.rows[0] == extent.rows[1]:
            return 1
        near, far = self._distances(np.linspace(self.start, self.stop, 3))
        angles = np.clip(2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)), 1e-7, np.pi - 1e-7)
        for count in VARIANCE_PROBES:
            rows, columns = self._nodes(extent.rows, count), self._nodes(extent.columns, count)
            stacked = np.stack(self._on_grid(rows, columns, angles)[0])
            counts = [
                orders_needed(sizes_along(chebyshev_coefficients(stacked, axis), axis)) for axis in (-1, -2)
            ]
            if None not in counts:
                needed = max(part for part in counts if part is not None)
                # The nearest pairs of a kinked function can go another way, and that is cheaper than many nodes.
                return 0 if self.shape.kinked_pieces is not None and needed > MOST_KINKED else needed + SPARE
        return 0

    def _distances(self, t: Array) -> tuple[Array, Array]:
        return distance_at(t, self.epsilon, both_ends=self.extent.both_ends)

    def _nodes(self, ends: tuple[float, float], count: int) -> Array:
        middle, half = 0.5 * (ends[1] + ends[0]), 0.5 * (ends[1] - ends[0])
        return np.exp(middle + half * chebyshev_nodes(count)) if count > 1 else np.exp(np.array([middle]))

    def _scales(self, rows: Array, columns: Array) -> tuple[Array, Array]:
        """√(S_i S_j) and √(E1_i E1_j)."""
        energy, steep = (
            [np.sqrt(np.maximum(moment(side), 1e-300)) for side in (rows, columns)]
            for moment in (self.shape.second_moment, self.shape.derivative_second_moment)
        )
        return np.multiply.outer(*energy), np.multiply.outer(*steep)

    # --- solutions at nodes ---------------------------------------------------------------------------------------

    def _on_grid(self, rows: Array, columns: Array, angles: Array) -> tuple[tuple[Array, Array], float]:
        """F/√(S_i S_j) and F'/√(E1_i E1_j) at angles of Λ, and half of what exchanging the variables changes."""
        scales = self._scales(rows, columns)
        found = dual_grid(self.shape, rows, columns, angles)
        if self.shape.kinked_pieces is not None:
            # Price's integral is symmetric.
            return (found[0] / scales[0], found[1] / scales[1]), 0.0
        same = rows is columns or np.array_equal(rows, columns)
        turned = found if same else dual_grid(self.shape, columns, rows, angles)
        pairs = [
            (one / scale, other.transpose(0, 2, 1) / scale)
            for one, other, scale in zip(found, turned, scales, strict=True)
        ]
        error = max(float(np.abs(one - other).max(initial=0.0)) for one, other in pairs)
        value, slope = (0.5 * (one + other) for one, other in pairs)
        return (value, slope), error

    def ends(self, rows: Array, columns: Array) -> tuple[Array, Array]:
        """1 - R₊ and 1 + R₋ for every two variances, (3.27): the distances of r at ρ = ±1 to ±1, to all their digits.

        Where nothing happens at ρ = ±1, or where tables do not reach it, R± = ±√(g_i g_j) with g = 1 - f S/q, the
        largest |r| that rows of these norms have: then d is that of the rows themselves, and no end has to be
        tabulated.  (Kinks away from zero make r at ρ = ±1 a function with a kink at q_i = q_j.)
        """
        if self.feedback == 0.0:
            zero = np.zeros((len(rows), len(columns)))
            return zero, zero
        if self.plain_ends:
            taken = [
                np.minimum(self.feedback * self.shape.second_moment(q) / q, 1.0 - 1e-6)
                for q in (rows, columns)
            ]
            away = -np.expm1(0.5 * np.add.outer(*(np.log1p(-part) for part in taken)))
            return away, away
        product = np.sqrt(np.multiply.outer(rows, columns))
        plus, minus = aligned(self.shape, rows, columns)
        return self.feedback * plus / product, -self.feedback * minus / product

    def _solutions(self, rows: Array, columns: Array, count: int) -> tuple[Array, Array, Array, float]:
        """F and F' (2, count, rows, columns), scaled, at nodes of t; the ends; the error of the nodes."""
        nodes = self.start + (self.stop - self.start) * 0.5 * (1.0 + chebyshev_nodes(count))
        near, far = self._distances(nodes)
        ends = self.ends(rows, columns)
        if self.feedback == 0.0:
            found, error = self._on_grid(rows, columns, 2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)))
        else:
            # Kinks away from zero have layers in the angle of Λ that those in r need not have.
            inner = count + 8 if self.shape.kinked_pieces is None else 2 * count
            found, error = self._solve(rows, columns, near, far, ends, inner)
        return np.stack(found), *ends, error

    def _solve(
        self, rows: Array, columns: Array, near: Array, far: Array, ends: tuple[Array, Array], count: int
    ) -> tuple[tuple[Array, Array], float]:
        """Newton's method on the interpolant of F and F' in the angle of Λ; also the error of its values."""
        energy, steep = self._scales(rows, columns)
        epsilon = min(1.0, self.shape.feature / float(np.sqrt(max(rows.max(), columns.max()))))
        product = np.sqrt(np.multiply.outer(rows, columns))
        above, below = ends
        width = 2.0 - above - below
        most = 1.0 + self.feedback * float((steep).max())
        # 1 - ρ and 1 + ρ at the solution are at least their r-distance over the largest 1 - f F'.
        least = max(float(near.min() * width.min() / most / 2.0), 1e-15)
        last = max(float(far.min() * width.min() / most / 2.0), 1e-15)
        first, final = coordinate(np.array([least, 1.0 - last]), np.array([1.0 - least, last]), epsilon)
        first, final, proved = float(first), float(final), 0.0
        if self.ellipse is not None and self.proved <= AIM:
            # And F in the angle of Λ by as many nodes as are proved to be enough.
            inner = ellipse_of(first, final, epsilon)
            count = max(count, (inner and inner.orders(0.003 * AIM)) or 0)
            proved = np.inf if inner is None else inner.error(count)
            self.proved = max(self.proved, proved)
        places = first + (final - first) * 0.5 * (1.0 + chebyshev_nodes(count))
        parts = distance_at(places, epsilon)
        found, error = self._on_grid(rows, columns, 2.0 * np.arctan2(*np.sqrt(parts)))
        error += proved if proved <= AIM else 0.0
        values, slopes = (
            np.ascontiguousarray(chebyshev_coefficients(part, 0).transpose(1, 2, 0)) for part in found
        )
        value, slope = np.empty((2, *width.shape, len(near)))
        solve_at_nodes(
            values, slopes, self.feedback * energy / product, self.feedback * steep, above, width[:, :, None] * near,
            width[:, :, None] * far, epsilon, first, final, least, last, rows is columns, value, slope,
        )  # fmt: skip
        return (value.transpose(2, 0, 1), slope.transpose(2, 0, 1)), error

    # --- the table ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        rows = columns = self._nodes(self.extent.rows, self.variances)
        if self.extent.columns != self.extent.rows:
            columns = self._nodes(self.extent.columns, self.variances)
        self.proved = np.inf if self.ellipse is None else self.ellipse.error(self.angles)
        table, *ends, node_error = self._solutions(rows, columns, self.angles)
        node_error *= lebesgue(self.angles) * lebesgue(self.variances) ** 2
        series = chebyshev_coefficients(table, 1)
        self.series = chebyshev_coefficients(chebyshev_coefficients(series, 2), 3)
        self.end_series = chebyshev_coefficients(chebyshev_coefficients(np.stack(ends), 1), 2)
        lost = self._cut_rounding()
        # Bounds of the coefficients of each order in log q_i and in log q_j.
        self.order_sizes = [
            np.abs(self.series).max(axis=0).sum(axis=(0, 2 - axis))
            + np.abs(self.end_series).max(axis=0).sum(axis=1 - axis)
            for axis in (0, 1)
        ]
        sizes = [sizes_along(self.series, axis) for axis in (1, 2, 3)]
        missed, self._checked, self.rounding = self._missed()
        tails = [tail_of(part) for part in sizes]
        self._rise_tail = tail_of(sizes_along(chebder(self.series[0], axis=0), 0))
        if self.ellipse is not None and self.proved <= AIM:
            tails[0], self._rise_tail = self.proved, self.ellipse.slope_error(self.angles)
        self.error = sum(tails) + node_error + missed + lost
        self._other_errors = tails[1] + tails[2] + node_error
        self.resolved = self.error <= ACCEPTED

    def _cut_rounding(self) -> float:
        """Leave out the last orders in t, which are nothing but rounding; returns a bound of what they add up to."""
        above = np.flatnonzero(sizes_along(self.series, 1) > LOST_IN_ROUNDING)
        kept = min(int(above[-1]) + SPARE if len(above) else SPARE, self.series.shape[1])
        lost = float(np.abs(self.series[:, kept:]).sum(axis=(1, 2, 3)).max())
        self.series = np.ascontiguousarray(self.series[:, :kept])
        return lost

    def slope_error(self, rise: float) -> float:
        """Estimated error of F' by (3.33), relative to √(E1_i E1_j), where F' is up to `rise` times dF/dz.

        z is t mapped to [-1, 1].  What the orders left out of F are in its derivative, the errors at points between the
        nodes where F' is not steeper, and the errors in log q, which F' by itself has as well.
        """
        rises, errors = self._checked
        near = errors[rises <= 2.0 * rise]
        return rise * self._rise_tail + float(near.max(initial=0.0)) + self._other_errors

    def _missed(self) -> tuple[float, tuple[Array, Array], float]:
        """Largest error at points between the nodes (random variances and angles of Λ), and what rounding of r adds.

        Between them, for each point, F' over dF/dz and the error of F' by (3.33).
        """
        generator = np.random.default_rng(0)
        logs = [generator.uniform(*part, 5) for part in (self.extent.rows, self.extent.columns)]
        logs[0][:2], logs[1][:2] = self.extent.rows, self.extent.columns
        q = np.exp(logs[0]), np.exp(logs[1])
        near, far = self._distances(generator.uniform(self.start, self.stop, 5))
        truth, _ = self._on_grid(*q, 2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)))
        above, below = self.ends(*q)
        # The distance of r to its end, from that of ρ.
        pull = self.feedback * self._scales(*q)[0] / np.sqrt(np.multiply.outer(*q))
        goal = 2.0 * near[:, None, None] - (above - pull * truth[0])
        width = 2.0 - above - below
        inside = goal / width
        vectors = [
            self._vectors(*part) for part in zip(logs, (self.extent.rows, self.extent.columns), strict=True)
        ]
        whole = np.einsum("pkmn,am,bn->pkab", self.series, *vectors, optimize=True)
        found_ends = np.einsum("pmn,am,bn->pab", self.end_series, *vectors, optimize=True)
        # Distances as the compiled loop has them: to the ends that the table has.
        near_end = inside if self.plain_ends else inside + (above - found_ends[0]) / width
        missed = rounding = 0.0
        for coefficients, part in zip(whole, truth, strict=True):
            found, covered = self._at(coefficients, near_end)
            moved, _ = self._at(coefficients, near_end + ROUNDING / width)
            missed = max(missed, float((np.abs(found - part) * covered).max()))
            rounding = max(rounding, float((np.abs(moved - found) * covered).max()))
        energy, steep = self._scales(*q)
        found, covered = self._at(chebder(whole[0]), near_end)
        speed = slope_of_coordinate(
            np.clip(near_end, 1e-30, 1.0), self.epsilon, both_ends=self.extent.both_ends
        )
        rise = 2.0 / (self.stop - self.start) * speed / width * energy / np.sqrt(np.multiply.outer(*q))
        slope = -rise * found / (1.0 - self.feedback * rise * found)
        wrong = np.abs(slope / steep - truth[1])
        return missed, ((rise / steep)[covered], wrong[covered]), rounding

    def _at(self, series: Array, inside: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The sum of a series at distances d, and which of them are within the table."""
        z = (2.0 * self._place(inside) - self.start - self.stop) / (self.stop - self.start)
        covered = (np.abs(z) <= 1.0) & (inside >= 0.0) & (inside <= 1.0)
        return clenshaw(series[:, None], np.clip(z, -1.0, 1.0)), covered

    def _place(self, inside: Array) -> Array:
        """t at distances d."""
        near = np.clip(inside, 0.0, 1.0)
        return coordinate(near, 1.0 - near, self.epsilon, both_ends=self.extent.both_ends)

    def _vectors(self, logs: Array, ends: tuple[float, float]) -> Array:
        """Chebyshev polynomials at log q of the samples, (samples, variance nodes)."""
        if ends[0] == ends[1]:
            # One variance: the interpolant is its own middle.
            return chebyshev_basis(np.zeros(len(logs)), self.variances)
        return chebyshev_basis((2.0 * logs - ends[0] - ends[1]) / (ends[1] - ends[0]), self.variances)


_TABLES: OrderedDict[tuple[object, ...], SolutionTable] = OrderedDict()
_LOCK = threading.Lock()


def solution_table(shape: Shape, feedback: float, extent: Range, pairs: float = AFFORDABLE) -> SolutionTable:
    """The table of this equation over this range, for so many pairs; the last few are kept."""
    affordable = AFFORDABLE if pairs >= AFFORDABLE else AFFORDABLE_FOR_FEW
    key, better = (shape, feedback, extent, affordable), (shape, feedback, extent, AFFORDABLE)
    with _LOCK:
        if better in _TABLES:
            key = better
        if key not in _TABLES:
            _TABLES[key] = SolutionTable(shape, feedback, extent, affordable)
            while len(_TABLES) > KEPT:
                _TABLES.popitem(last=False)
        _TABLES.move_to_end(key)
        return _TABLES[key]
