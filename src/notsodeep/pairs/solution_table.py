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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.gaussian.dual_grid import aligned, dual_grid
from notsodeep.gaussian.shapes import Shape
from notsodeep.linalg.chebyshev import chebyshev_basis, chebyshev_coefficients, chebyshev_nodes, clenshaw
from notsodeep.pairs.sample_moments import Side
from notsodeep.validation import Array

# Interpolation errors aimed at, relative to √(S_i S_j) and √(E1_i E1_j), and accepted.
AIM = 5e-12
ACCEPTED = 4e-11
# Nodes tried to see how fast coefficients fall; as many are then used as that asks for.
ANGLE_PROBES = (32, 64, 128)
VARIANCE_PROBES = (8, 16, 32, 56)
MOST_KINKED = 32
ATTEMPTS = 3
# d/(1-d) beyond 2^±END is taken up to the end.
END = 36
# log q is rounded outwards to multiples of this, so that data sets that are alike share a table.
LOG_STEP = 0.125
KEPT = 64


@dataclass(frozen=True)
class Range:
    """What a table covers.

    Attributes:
        rows: smallest and largest log q of the rows.
        columns: the same of the columns.
        near: log2 of the smallest d/(1 - d), where d = (R₊ - r)/(R₊ - R₋); -END or less stands for d = 0.
        far: log2 of the largest d/(1 - d); END or more stands for d = 1.
    """

    rows: tuple[float, float]
    columns: tuple[float, float]
    near: int
    far: int

    @classmethod
    def of(
        cls, rows: Array, columns: Array, seen: tuple[float, float, float], known: SolutionTable | None
    ) -> Range:
        """The range of these log q, of the distances seen and of a known table, rounded outwards.

        Seen are the smallest and the largest d and the smallest 1 - d.
        """
        smallest, largest, opposite = seen
        near = _exponent(smallest, 1.0 - smallest) - 1
        far = _exponent(largest, opposite) + 2
        if known is not None:
            near, far = min(near, known.extent.near), max(far, known.extent.far)
        return cls(_rounded(rows), _rounded(columns), max(near, -END), min(far, END))

    def ends(self, epsilon: float) -> tuple[float, float]:
        """The range of t."""
        odds = np.array([2.0**self.near if self.near > -END else 0.0, 2.0 ** min(self.far, END)])
        near, far = odds / (1.0 + odds), 1.0 / (1.0 + odds)
        if self.far >= END:
            near[1], far[1] = 1.0, 0.0
        low, high = coordinate(near, far, epsilon)
        return float(low), float(high)


def _rounded(logs: Array) -> tuple[float, float]:
    low, high = float(logs.min()), float(logs.max())
    if high - low <= 1e-12:
        return low, low
    return float(np.floor(low / LOG_STEP) * LOG_STEP), float(np.ceil(high / LOG_STEP) * LOG_STEP)


def _exponent(part: float, rest: float) -> int:
    """log2 of part/rest, rounded down."""
    if part <= 0.0:
        return -END
    return END if rest <= 0.0 else int(np.floor(np.log2(part / rest)))


def coordinate(distance: Array, opposite: Array, epsilon: float) -> Array:
    """t of d and 1 - d, (3.28): asinh(√d/ε) less the same of the opposite end."""
    near, far = np.sqrt(distance), np.sqrt(opposite)
    return np.asarray(np.log((near + np.hypot(near, epsilon)) / (far + np.hypot(far, epsilon))))


def distance_at(t: Array, epsilon: float) -> tuple[Array, Array]:
    """d and 1 - d at a coordinate, by bisection of the half angle."""
    low, high = np.zeros_like(t), np.full_like(t, np.pi / 2)
    for _ in range(80):
        middle = 0.5 * (low + high)
        below = coordinate(np.sin(middle) ** 2, np.cos(middle) ** 2, epsilon) < t
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.sin(low) ** 2, np.cos(low) ** 2


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
        error: estimated error of any value, relative as above.
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
        self.error = np.inf
        # The counts come from a few probes; where the whole table shows a larger error it gets more nodes.
        for _ in range(ATTEMPTS if self.angles > 0 and self.variances > 0 else 0):
            self._build()
            if self.resolved:
                break
            self.angles += 2 + self.angles // 4
            self.variances += 2 + self.variances // 3 if self.variances > 1 else 0

    def covers(self, smallest: float, largest: float, opposite: float) -> bool:
        """Whether distances d of this range, 1 - d at least `opposite`, are within the table."""
        extent = self.extent
        below = extent.near <= -END or smallest >= 2.0**extent.near * (1.0 - smallest) * (1.0 - 1e-9)
        return below and (extent.far >= END or largest <= 2.0**extent.far * opposite * (1.0 + 1e-9))

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
        # One more column and row of the same kind: the ends of r.
        stacked = np.concatenate([series.reshape(-1, *plus.shape), plus[None], minus[None]])
        stacked = chebyshev_coefficients(chebyshev_coefficients(stacked, 1), 2)
        tails = [_tail(_sizes(series, 1)), _tail(_sizes(stacked, 1)), _tail(_sizes(stacked, 2))]
        left, singular, right = np.linalg.svd(stacked.reshape(-1, len(columns)), full_matrices=False)
        rank = max(1, int(np.sum(singular > 0.1 * AIM)))
        factors = (left[:, :rank] * singular[:rank]).reshape(*stacked.shape[:2], rank)
        # The compiled loop takes four at a time.
        padding = -rank % 4
        self.row_factors = np.pad(factors.transpose(1, 0, 2), ((0, 0), (0, 0), (0, padding)))
        self.column_factors = np.pad(right[:rank].T, ((0, 0), (0, padding)))
        self.rank = rank + padding
        self.error = sum(tails) + node_error + self._missed()
        self.resolved = self.error <= ACCEPTED

    def _missed(self) -> float:
        """Largest error at points between the nodes: random variances and angles of Λ."""
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
        t = coordinate(np.clip(inside, 0.0, 1.0), np.clip(1.0 - inside, 0.0, 1.0), self.epsilon)
        z = (2.0 * t - self.start - self.stop) / (self.stop - self.start)
        covered = np.abs(z) <= 1.0
        count = self.angles
        errors = [
            np.abs(clenshaw(whole[k : k + count][:, None], z) - part) * covered
            for k, part in zip((0, count), truth, strict=True)
        ]
        return max(float(error.max()) for error in errors)

    @property
    def floor(self) -> float:
        """The smallest d that the table covers."""
        odds = 2.0**self.extent.near if self.extent.near > -END else 0.0
        return odds / (1.0 + odds) * (1.0 - 1e-9)

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


# --- tables of one equation, by groups of norms -------------------------------------------------------------------

# A longer range of log q is cut into groups, with a table for every two of them.
LONGEST = 6.5
# Kinks away from zero need shorter ones: at equal norms and angle zero F' has the tip of a cone.
LONGEST_KINKED = 1.25
# log2 of the odds d/(1-d) from which on a table is not tried again without its nearest pairs.
LEAST_NEAR = -4


class NormGroups:
    """log q of one set of samples, and the group of each."""

    def __init__(
        self, variances: Array, still: NDArray[np.bool_], low: float, high: float, longest: float
    ) -> None:
        # Samples of variance zero are computed another way; here they only must not be in it.
        self.logs = np.clip(np.log(np.where(still, 1.0, variances)), low, high)
        self.logs[still] = low
        count = max(1, int(np.ceil((high - low) / longest - 1e-9)))
        width = (high - low) / count
        place = np.floor((self.logs - low) / width) if width > 0 else np.zeros_like(self.logs)
        self.groups = np.minimum(place, count - 1).astype(np.intp)


class TableFamily:
    """The tables that the pairs of two sets of samples need; thread-safe.

    `left` and `right` have the variances (`inner`) of the samples and which of them vanish (`still`).
    """

    def __init__(self, shape: Shape, feedback: float, left: Side, right: Side) -> None:
        self.shape, self.feedback = shape, feedback
        moving = [side.inner[~side.still] for side in (left, right)]
        both = np.concatenate(moving)
        low, high = (float(np.log(part)) for part in ((both.min(), both.max()) if len(both) else (1.0, 1.0)))
        longest = LONGEST if shape.kinked_pieces is None else LONGEST_KINKED
        self.left = NormGroups(left.inner, left.still, low, high, longest)
        self.right = self.left if right is left else NormGroups(right.inner, right.still, low, high, longest)
        self._tables: dict[tuple[int, int], SolutionTable] = {}
        self._floors: dict[tuple[int, int], int] = {}
        self._resolved = True
        self._lock = threading.Lock()

    def known(self, key: tuple[int, int]) -> SolutionTable | None:
        """The table of two groups, if there is one already."""
        return self._tables.get(key)

    def covered(self, key: tuple[int, int], table: SolutionTable, seen: tuple[float, float, float]) -> bool:
        """Whether the table has these distances, or has been given up for the nearest of them."""
        given_up = self._floors.get(key, -END) > -END
        return table.covers(*seen) or (given_up and table.covers(1.0, seen[1], seen[2]))

    def given_up(self, key: tuple[int, int]) -> bool:
        """Whether no table of these groups could be resolved."""
        return self._floors.get(key, -END) == END

    def extended(self, key: tuple[int, int], seen: tuple[float, float, float]) -> SolutionTable | None:
        """A table that covers these distances and what an earlier one covered; None if it cannot be resolved."""
        with self._lock:
            if not self._resolved or self.given_up(key):
                return None
            rows = self.left.logs[self.left.groups == key[0]]
            columns = self.right.logs[self.right.groups == key[1]]
            if key[0] == key[1]:
                rows = columns = np.concatenate([rows, columns])
            extent = Range.of(rows, columns, seen, self._tables.get(key))
            while True:
                extent = replace(extent, near=max(extent.near, self._floors.get(key, -END)))
                try:
                    table = solution_table(self.shape, self.feedback, extent)
                except InputError:
                    # The rounded range reaches where a callable outgrows the bell.
                    self._resolved = False
                    return None
                if table.resolved:
                    self._tables[key] = table
                    return table
                # Kinks away from zero make a cone at equal norms and angle zero: the nearest pairs go another way.
                self._floors[key] = min(extent.near + 3, LEAST_NEAR)
                if extent.near >= min(LEAST_NEAR, extent.far - 3):
                    self._floors[key] = END
                    return None
