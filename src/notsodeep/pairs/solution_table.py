"""The solution of the pair equation, tabulated over the norms and the angles that a data set has.

A pair of samples enters the equation ρ = f P(ρ; q_i, q_j) + r through three numbers: two variances and r.  Its solution
F(ρ(r)), F'(ρ(r)) is interpolated by Chebyshev polynomials in log q_i, log q_j and t, where t is a coordinate of r in
which the solution is smooth up to and including ρ = ±1, for kinked and for saturated activations alike: docs/theory.md
(3.27) to (3.31).  A pair then costs one product of a row's table with a column's vector and one Clenshaw sum: no Newton
steps.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from notsodeep.gaussian.dual_grid import aligned, dual_grid
from notsodeep.gaussian.shapes import Shape
from notsodeep.linalg.chebyshev import chebyshev_basis, chebyshev_coefficients, chebyshev_nodes, clenshaw
from notsodeep.pairs.compiled_series import RANK_STEP
from notsodeep.pairs.table_range import Range, coordinate, distance_at
from notsodeep.validation import Array

# Interpolation errors aimed at, relative to √(S_i S_j) and √(E1_i E1_j), and accepted.
AIM = 5e-12
ACCEPTED = 4e-11
# Nodes tried to see how fast coefficients fall; as many are then used as that asks for.
ANGLE_PROBES = (32, 64, 128)
VARIANCE_PROBES = (8, 16, 32, 56)
MOST_KINKED = 32
ATTEMPTS = 3
KEPT = 64
# The ends of r are subtracted from r: they are kept this much more precisely than values.
END_WEIGHT = 1e3
# What rounding leaves of r, (κ c + shifts)/(s_i s_j).
ROUNDING = 4e-16


def _sizes(coefficients: Array, axis: int) -> Array:
    """Largest coefficient of each order along an axis."""
    moved = np.moveaxis(np.abs(coefficients), axis, 0)
    return np.asarray(moved.reshape(len(moved), -1).max(axis=1))


def _needed(sizes: Array) -> int | None:
    """How many coefficients leave less than AIM; None if they have not died out."""
    rest = np.cumsum(sizes[::-1])[::-1]
    count = int(np.argmax(rest < AIM)) if np.any(rest < AIM) else len(sizes)
    return None if count > len(sizes) - 3 else count


def _tail(sizes: Array) -> float:
    """Estimate of the sum of all coefficients that were left out: the last ones continued at their own rate."""
    if len(sizes) < 7:
        return 0.0
    last, before = float(sizes[-2:].max()), float(sizes[-6:-4].max())
    rate = float(min((last / max(before, 1e-300)) ** 0.25, 0.9))
    return last * rate / (1.0 - rate)


class SolutionTable:
    """Coefficients of F/√(S_i S_j) and F'/√(E1_i E1_j) of the solution, and of the ends R₊ and R₋ of r.

    Attributes:
        epsilon: width of the coordinate's smooth middle, the length scale of the activation over the largest s.
        start, stop: range of t.
        row_factors: (variance nodes, 2K + 2, rank): contracted with the row's Chebyshev vector.
        column_factors: (variance nodes, rank): contracted with the column's.
        lengths: number of orders in t that are not zero, for each RANK_STEP of the rank.
        error: estimated error of any value, relative as above, for r as it is given.
        rounding: how much more the rounding of r may change values.
    """

    def __init__(self, shape: Shape, feedback: float, extent: Range) -> None:
        self.shape, self.feedback, self.extent = shape, feedback, extent
        self.odd = shape.parity == -1
        largest = float(np.exp(0.5 * max(extent.rows[1], extent.columns[1])))
        self.epsilon = min(1.0, shape.feature / largest)
        self.start, self.stop = extent.ends(self.epsilon)
        self.angles = self._angle_count()
        self.variances = self._variance_count()
        self.resolved = False
        self.error = self.rounding = np.inf
        # The counts come from a few probes; where the whole table shows a larger error it gets more nodes.
        for _ in range(ATTEMPTS if self.angles > 0 and self.variances > 0 else 0):
            self._build()
            if self.resolved:
                break
            self.angles += 2 + self.angles // 4
            self.variances += 2 + self.variances // 3 if self.variances > 1 else 0

    # --- how many nodes -------------------------------------------------------------------------------------------

    def _angle_count(self) -> int:
        """How many angles resolve the solution at the extreme variances; 0 if too many."""
        rows, columns = (np.exp(np.unique(part)) for part in (self.extent.rows, self.extent.columns))
        for count in ANGLE_PROBES:
            series = chebyshev_coefficients(self._solutions(rows, columns, count)[0], 1)
            needed = _needed(_sizes(series, 1))
            if needed is not None:
                return needed + 2
        return 0

    def _variance_count(self) -> int:
        """How many variances resolve F and F' at a few angles of Λ; 0 if too many."""
        extent = self.extent
        if extent.rows == extent.columns and extent.rows[0] == extent.rows[1]:
            return 1
        near, far = distance_at(np.linspace(self.start, self.stop, 3), self.epsilon)
        angles = np.clip(2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)), 1e-7, np.pi - 1e-7)
        for count in VARIANCE_PROBES:
            rows, columns = self._nodes(extent.rows, count), self._nodes(extent.columns, count)
            stacked = np.stack(self._on_grid(rows, columns, angles)[0])
            counts = [_needed(_sizes(chebyshev_coefficients(stacked, axis), axis)) for axis in (-1, -2)]
            if None not in counts:
                needed = max(part for part in counts if part is not None)
                # The nearest pairs of a kinked function can go another way, and that is cheaper than many nodes.
                return (
                    0 if self.shape.kinked_pieces is not None and needed > MOST_KINKED else max(needed + 1, 2)
                )
        return 0

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
        """R₊ and R₋ for every two variances, (3.27): r at ρ = ±1.

        Kinks away from zero make r at ρ = ±1 a function with a kink at q_i = q_j; their tables use ±√(g_i g_j) with
        g = 1 - f S/q instead, the largest |r| that rows of these norms have, where d is that of the rows themselves.
        """
        if self.feedback == 0.0:
            one = np.ones((len(rows), len(columns)))
            return one, -one
        if self.shape.kinked_pieces is not None:
            own = [
                np.sqrt(np.maximum(1.0 - self.feedback * self.shape.second_moment(q) / q, 1e-6))
                for q in (rows, columns)
            ]
            return np.multiply.outer(*own), -np.multiply.outer(*own)
        product = np.sqrt(np.multiply.outer(rows, columns))
        plus, minus = aligned(self.shape, rows, columns)
        return 1.0 - self.feedback * plus / product, -1.0 - self.feedback * minus / product

    def _solutions(self, rows: Array, columns: Array, count: int) -> tuple[Array, Array, Array, float]:
        """F and F' (2, count, rows, columns), scaled, at nodes of t; R₊, R₋; the error of the nodes."""
        nodes = self.start + (self.stop - self.start) * 0.5 * (1.0 + chebyshev_nodes(count))
        near, far = distance_at(nodes, self.epsilon)
        ends = self.ends(rows, columns)
        if self.feedback == 0.0:
            found, error = self._on_grid(rows, columns, 2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)))
        else:
            found, error = self._solve(rows, columns, near, far, ends, count + 8)
        return np.stack(found), *ends, error

    def _solve(
        self, rows: Array, columns: Array, near: Array, far: Array, ends: tuple[Array, Array], count: int
    ) -> tuple[tuple[Array, Array], float]:
        """Newton's method on the interpolant of F and F' in the angle of Λ; also the error of its values."""
        energy, steep = self._scales(rows, columns)
        product = np.sqrt(np.multiply.outer(rows, columns))
        plus, minus = ends
        width = plus - minus
        most = 1.0 + self.feedback * float((steep).max())
        # 1 - ρ and 1 + ρ at the solution are at least their r-distance over the largest 1 - f F'.
        least = max(float(near.min() * width.min() / most / 2.0), 1e-15)
        last = max(float(far.min() * width.min() / most / 2.0), 1e-15)
        first, final = coordinate(np.array([least, 1.0 - last]), np.array([1.0 - least, last]), self.epsilon)
        places = first + (final - first) * 0.5 * (1.0 + chebyshev_nodes(count))
        below, above = distance_at(places, self.epsilon)
        found, error = self._on_grid(rows, columns, 2.0 * np.arctan2(np.sqrt(below), np.sqrt(above)))
        series = [chebyshev_coefficients(part, 0)[:, None] for part in found]
        gain = self.feedback * energy / product
        top = (1.0 - plus) / np.where(gain > 0, gain, 1.0)
        goal = near[:, None, None] * width
        opposite = far[:, None, None] * width
        half = np.clip(goal / (goal + opposite), least, 1.0 - last)
        for _ in range(60):
            t = coordinate(half, 1.0 - half, self.epsilon)
            z = (2.0 * t - first - final) / (final - first)
            f, df = (clenshaw(part, z) for part in series)
            gap = 2.0 * half - gain * (top - f) - goal
            step = gap / (2.0 * np.maximum(1.0 - self.feedback * steep * df, 1e-4))
            moved = np.clip(
                half - step, np.maximum(0.1 * half, least), 1.0 - np.maximum(0.1 * (1.0 - half), last)
            )
            change = np.abs(moved - half).max()
            half = moved
            if change <= 1e-15:
                break
        t = coordinate(half, 1.0 - half, self.epsilon)
        z = (2.0 * t - first - final) / (final - first)
        return (clenshaw(series[0], z), clenshaw(series[1], z)), error

    # --- the table ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        rows, columns = (
            self._nodes(part, self.variances) for part in (self.extent.rows, self.extent.columns)
        )
        table, plus, minus, node_error = self._solutions(rows, columns, self.angles)
        series = chebyshev_coefficients(table, 1)
        # Between F and F' two more of the same kind: the ends of r, as their distances to ±1, which lose no digits.
        ends = END_WEIGHT * np.stack([1.0 - plus, 1.0 + minus])
        stacked = np.concatenate([series[0], ends, series[1]])
        stacked = chebyshev_coefficients(chebyshev_coefficients(stacked, 1), 2)
        tails = [_tail(_sizes(series, 1)), _tail(_sizes(stacked, 1)), _tail(_sizes(stacked, 2))]
        left, singular, right = np.linalg.svd(stacked.reshape(-1, len(columns)), full_matrices=False)
        rank = max(1, int(np.sum(singular > 0.1 * AIM)))
        padding = -rank % RANK_STEP
        factors = (left[:, :rank] * singular[:rank]).reshape(*stacked.shape[:2], rank)
        factors[self.angles : self.angles + 2] /= END_WEIGHT
        self.row_factors = np.pad(factors.transpose(1, 0, 2), ((0, 0), (0, 0), (0, padding)))
        self.column_factors = np.pad(right[:rank].T, ((0, 0), (0, padding)))
        self.rank = rank + padding
        dropped = self._shorten()
        missed, self.rounding = self._missed()
        self.error = sum(tails) + node_error + dropped + missed
        self.resolved = self.error <= ACCEPTED

    def _shorten(self) -> float:
        """Drop high orders in t of the later ranks; returns a bound of what that changes.

        `lengths` has how many orders are left in each step of the rank.
        """
        bound = np.abs(self.row_factors).sum(axis=0) * np.abs(self.column_factors).sum(axis=0)
        orders = self.angles
        sizes = np.maximum(bound[:orders], bound[orders + 2 :]).reshape(orders, -1, RANK_STEP).sum(axis=2)
        rest = np.cumsum(sizes[::-1], axis=0)[::-1]
        self.lengths = np.maximum(np.sum(rest > 0.2 * AIM, axis=0), 1)
        dropped = 0.0
        for number, length in enumerate(self.lengths):
            step = slice(number * RANK_STEP, (number + 1) * RANK_STEP)
            dropped += float(rest[length, number]) if length < orders else 0.0
            self.row_factors[:, length:orders, step] = 0.0
            self.row_factors[:, orders + 2 + length :, step] = 0.0
        return dropped

    def _missed(self) -> tuple[float, float]:
        """Largest error at points between the nodes (random variances and angles of Λ), and what rounding of r adds."""
        generator = np.random.default_rng(0)
        logs = [generator.uniform(*part, 5) for part in (self.extent.rows, self.extent.columns)]
        logs[0][:2], logs[1][:2] = self.extent.rows, self.extent.columns
        q = np.exp(logs[0]), np.exp(logs[1])
        near, far = distance_at(generator.uniform(self.start, self.stop, 5), self.epsilon)
        truth, _ = self._on_grid(*q, 2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)))
        plus, minus = self.ends(*q)
        # The distance of r to its end, from that of ρ.
        pull = self.feedback * self._scales(*q)[0] / np.sqrt(np.multiply.outer(*q))
        goal = 2.0 * near[:, None, None] - ((1.0 - plus) - pull * truth[0])
        inside = goal / (plus - minus)
        first = np.einsum("am,mkr->akr", self._vectors(logs[0], self.extent.rows), self.row_factors)
        second = self._vectors(logs[1], self.extent.columns) @ self.column_factors
        whole = np.einsum("akr,br->kab", first, second)
        count = self.angles
        # Distances as the compiled loop has them: to the ends that the table has.
        width = plus - minus
        near_end = inside + ((1.0 - plus) - whole[count]) / width
        missed = rounding = 0.0
        for start, part in zip((0, count + 2), truth, strict=True):
            found, covered = self._at(whole[start : start + count], near_end)
            moved, _ = self._at(whole[start : start + count], near_end + ROUNDING / width)
            missed = max(missed, float((np.abs(found - part) * covered).max()))
            rounding = max(rounding, float((np.abs(moved - found) * covered).max()))
        return missed, rounding

    def _at(self, series: Array, inside: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The sum of a series at distances d, and which of them are within the table."""
        t = coordinate(np.clip(inside, 0.0, 1.0), np.clip(1.0 - inside, 0.0, 1.0), self.epsilon)
        z = (2.0 * t - self.start - self.stop) / (self.stop - self.start)
        return clenshaw(series[:, None], np.clip(z, -1.0, 1.0)), np.abs(z) <= 1.0

    def row_tables(self, logs: Array) -> Array:
        """For each sample of a row its coefficients, (samples, 2K + 2, rank)."""
        count, orders, rank = self.row_factors.shape
        vectors = self._vectors(logs, self.extent.rows)
        return np.asarray((vectors @ self.row_factors.reshape(count, -1)).reshape(-1, orders, rank))

    def column_vectors(self, logs: Array, width: int) -> Array:
        """What they are multiplied with, for the samples of the columns in strips: (strips, rank, width)."""
        vectors = self._vectors(logs, self.extent.columns) @ self.column_factors
        padding = -len(vectors) % width
        # Strips are filled up with a sample that exists, so that nothing overflows there.
        vectors = np.concatenate([vectors, np.repeat(vectors[:1], padding, axis=0)])
        return np.ascontiguousarray(vectors.reshape(-1, width, self.rank).transpose(0, 2, 1))

    def _vectors(self, logs: Array, ends: tuple[float, float]) -> Array:
        """Chebyshev polynomials at log q of the samples, (samples, variance nodes)."""
        if ends[0] == ends[1]:
            # One variance: the interpolant is its own middle.
            return chebyshev_basis(np.zeros(len(logs)), self.variances)
        return chebyshev_basis((2.0 * logs - ends[0] - ends[1]) / (ends[1] - ends[0]), self.variances)


_TABLES: OrderedDict[tuple[object, ...], SolutionTable] = OrderedDict()
_LOCK = threading.Lock()


def solution_table(shape: Shape, feedback: float, extent: Range) -> SolutionTable:
    """The table of this equation over this range; the last few are kept."""
    key = (shape, feedback, extent)
    with _LOCK:
        if key not in _TABLES:
            _TABLES[key] = SolutionTable(shape, feedback, extent)
            while len(_TABLES) > KEPT:
                _TABLES.popitem(last=False)
        _TABLES.move_to_end(key)
        return _TABLES[key]
