"""A table of F and F' over all correlations and two ranges of variances, for activations without a closed form.

    F(q, q', ρ) = √(S S') Σ_k T_k(z(ρ)) Σ_r f_kr(q) g_kr(q')                                  docs/theory.md (10.17)

A Chebyshev sum in a coordinate z of the angle.  Each of its coefficients is a function of two variances, and the
singular vectors of that function are few.  By Price's theorem the table depends neither on the model nor on the data
but through the two ranges, which are rounded outwards: it is built once and reused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import njit

from notsodeep.duals.strips import (
    INLINE,
    OPTIONS,
    WIDTH,
    arccos_over_root,
    correlations,
    fill,
    logarithm,
    put_strip,
)
from notsodeep.errors import InputError
from notsodeep.gaussian.bivariate import dual_grid
from notsodeep.gaussian.shapes import Shape
from notsodeep.linalg.chebyshev import chebyshev_basis, chebyshev_coefficients, chebyshev_nodes
from notsodeep.validation import Array, IntArray

# Errors relative to √(S S') and √(E1 E1'): aimed at, and accepted.
AIM, ACCEPTED = 1e-11, 4e-11
# What rough values may leave out.
ROUGH = 3e-8
# Distance of an angle from its ends, in units of the smallest angle over which F changes.
OFF_ENDS = 1e-6
# Rows that are computed together: four, as `_add` is written.
ROWS = 4
# Numbers of nodes that are tried.
ANGLES = (64, 192)
VARIANCES = (8, 12, 16, 24, 32, 48, 64)
ATTEMPTS = 3
KEPT = 64

Band = tuple[float, float]


@dataclass(frozen=True)
class Angle:
    """The coordinate of a correlation in which F is smooth: θ itself, or (3.28) where F changes quickly near ρ = ±1.

    Attributes:
        epsilon: width of the smooth middle of (3.28), 0 for θ.
        odd: the function is odd, so that 0 ≤ ρ is enough.
    """

    epsilon: float
    odd: bool

    @property
    def ends(self) -> tuple[float, float]:
        """The coordinate at ρ = 1 and at the other end, -1 or 0."""
        if not self.epsilon:
            return 0.0, 0.5 * np.pi if self.odd else np.pi
        near = float(_coordinate(np.zeros(1), np.ones(1), self.epsilon)[0])
        return near, 0.0 if self.odd else -near

    def at(self, place: Array) -> Array:
        """The angle θ at places from 1 (ρ = 1) to -1; of (3.28) by bisection of the half angle."""
        start, stop = self.ends
        t = start + 0.5 * (1.0 - place) * (stop - start)
        if not self.epsilon:
            return np.asarray(t)
        low, high = np.zeros_like(t), np.full_like(t, np.pi / 2)
        for _ in range(80):
            middle = 0.5 * (low + high)
            below = _coordinate(np.sin(middle) ** 2, np.cos(middle) ** 2, self.epsilon) < t
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(2.0 * low)


def _coordinate(near: Array, far: Array, epsilon: float) -> Array:
    """arsinh(√d/ε) less the same of the opposite end, for d = (1 - ρ)/2 and 1 - d, (3.28)."""
    one, two = np.sqrt(near), np.sqrt(far)
    return np.asarray(np.log((one + np.hypot(one, epsilon)) / (two + np.hypot(two, epsilon))))


class DualTable:
    """The table of a shape.

    Args:
        shape: the activation before scaling.
        rows: logarithms of the smallest and largest variance of u.
        columns: the same of v.

    Attributes:
        angle: the coordinate of the correlation.
        resolved: the error is accepted.
        error: largest error between the nodes.
        starts: the first term of each order of F and of F', (orders, 2).
        stops: the end of their terms.
        rough_stops: the end of the terms that rough values need.
    """

    def __init__(self, shape: Shape, rows: Band, columns: Band) -> None:
        self.shape, self.bands = shape, (rows, columns)
        self.resolved, self.error = False, np.inf
        odd = shape.parity == -1
        # Kinks at zero leave F smooth in θ; saturated functions change within ℓ/s of the ends, s the smaller scale.
        scale = float(np.exp(-0.5 * min(rows[1], columns[1])))
        coordinates = Angle(0.0, odd), Angle(min(1.0, shape.feature * scale), odd)
        counts = self._angles(coordinates)
        if counts:
            self.angle = min(counts, key=lambda angle: counts[angle])
            sizes = counts[self.angle], self._variances(0), self._variances(1)
            for _ in range(ATTEMPTS if min(sizes) > 0 else 0):
                self._build(*sizes)
                if self.resolved:
                    break
                # The counts come from a few probes.
                angles, rows_count, columns_count = (count + 2 + count // 4 for count in sizes)
                sizes = angles, rows_count, columns_count

    def _angles(self, coordinates: tuple[Angle, ...]) -> dict[Angle, int]:
        """How many angles resolve F and F' in each coordinate in which some number does."""
        rows, columns = (self._logs(side, np.array([-1.0, 0.3, 1.0])) for side in (0, 1))
        for count in ANGLES:
            counts = {}
            for angle in coordinates:
                self.angle = angle
                series = chebyshev_coefficients(self._grid(rows, columns, chebyshev_nodes(count)), 1)
                counts[angle] = _needed(np.abs(series).max(axis=(0, 2, 3)))
            if any(counts.values()):
                return {angle: needed for angle, needed in counts.items() if needed}
        return {}

    def _variances(self, side: int) -> int:
        """How many variances of one side resolve F and F' at a few angles; 0 if too many."""
        if self.bands[side][1] - self.bands[side][0] < 1e-9:
            return 1
        other = self._logs(1 - side, np.array([-1.0, 0.1, 1.0]))
        for count in VARIANCES:
            logs = self._logs(side, chebyshev_nodes(count))
            pair = (logs, other) if side == 0 else (other, logs)
            series = chebyshev_coefficients(
                self._grid(*pair, np.array([-1.0, -0.4, 0.3, 0.8, 1.0])), 2 + side
            )
            needed = _needed(np.abs(np.moveaxis(series, 2 + side, 0)).reshape(count, -1).max(axis=1))
            if needed:
                return needed
        return 0

    def _logs(self, side: int, place: Array) -> Array:
        low, high = self.bands[side]
        return np.asarray(0.5 * (low + high) + 0.5 * (high - low) * place)

    def _grid(self, rows: Array, columns: Array, place: Array) -> Array:
        """F/√(S S') and F'/√(E1 E1') at log variances and places, (2, places, rows, columns)."""
        # Off the ends, where quadrature has nothing to say, by so little that a saturated function does not see it.
        highest = max(band[1] for band in self.bands)
        off = min(1e-7, OFF_ENDS * self.shape.feature * float(np.exp(-0.5 * highest)))
        angles = np.clip(self.angle.at(place), off, np.pi - off)
        grid = dual_grid(self.shape, np.exp(rows), np.exp(columns), angles)
        roots = [[np.sqrt(moment(np.exp(side))) for side in (rows, columns)] for moment in self._moments]
        return np.stack([part / np.multiply.outer(*root) for part, root in zip(grid, roots, strict=True)])

    @property
    def _moments(self):  # type: ignore[no-untyped-def]
        return self.shape.second_moment, self.shape.derivative_second_moment

    def _build(self, angles: int, *variances: int) -> None:
        angles += angles % 2
        logs = [
            self._logs(side, chebyshev_nodes(count)) if count > 1 else np.array([self.bands[side][1]])
            for side, count in enumerate(variances)
        ]
        series = chebyshev_coefficients(self._grid(logs[0], logs[1], chebyshev_nodes(angles)), 1)
        left, sizes, right = np.linalg.svd(series, full_matrices=False)
        functions: tuple[list[Array], list[Array]] = [], []
        starts, stops, rough_stops = (np.zeros((angles, 2), dtype=np.intp) for _ in range(3))
        total = 0
        for kind in range(2):
            for k in range(angles):
                # Four terms at a time.
                count, rough = (int(np.sum(sizes[kind, k] > 4.0 * aim / angles)) for aim in (AIM, ROUGH))
                room, roots = -count % 4, np.sqrt(sizes[kind, k, :count])
                parts = left[kind, k][:, :count] * roots, right[kind, k][:count].T * roots
                for side in range(2):
                    functions[side].append(np.pad(parts[side], ((0, 0), (0, room))))
                starts[k, kind], rough_stops[k, kind] = total, total + rough + -rough % 4
                total += count + room
                stops[k, kind] = total
        self.starts, self.stops, self.rough_stops = starts, stops, rough_stops
        self.functions = [chebyshev_coefficients(np.concatenate(parts, axis=1)) for parts in functions]
        self.error = self._missed()
        self.resolved = self.error <= ACCEPTED

    def factors(self, inner: Array, side: int, roots: tuple[Array, Array]) -> Array:
        """The functions of F and F' at flat variances of the shape, (n, terms); `roots` are √S and √E1 there.

        Variances outside of the band count as its ends.
        """
        low, high = self.bands[side]
        half = 0.5 * (high - low)
        place = (np.log(inner) - low - half) / half if half > 0.0 else np.zeros_like(inner)
        functions = self.functions[side]
        basis, first = chebyshev_basis(place, len(functions)), int(self.starts[0, 1])
        factors = np.empty((len(inner), functions.shape[1]))
        np.matmul(basis * roots[0][:, None], functions[:, :first], out=factors[:, :first])
        np.matmul(basis * roots[1][:, None], functions[:, first:], out=factors[:, first:])
        return factors

    def _missed(self) -> float:
        """Twice the largest error at points between the nodes."""
        generator = np.random.default_rng(0)
        places = [np.concatenate([[-1.0, 1.0], generator.uniform(-1.0, 1.0, count)]) for count in (5, 5, 14)]
        logs = [self._logs(side, places[side]) for side in (0, 1)]
        truth = self._grid(logs[0], logs[1], places[2])
        ones = tuple(np.ones((2, len(part))) for part in logs)
        left, right = (
            self.factors(np.exp(logs[side]), side, (ones[side][0], ones[side][1])) for side in (0, 1)
        )
        basis = chebyshev_basis(places[2], len(self.starts))
        worst = 0.0
        for kind in range(2):
            approximation = np.zeros_like(truth[kind])
            for k in range(len(self.starts)):
                part = slice(self.starts[k, kind], self.stops[k, kind])
                approximation += basis[:, k, None, None] * (left[:, part] @ right[:, part].T)
            worst = max(worst, float(np.abs(approximation - truth[kind]).max()))
        return 2.0 * worst

    def terms(self, rough: bool) -> tuple[IntArray, IntArray]:
        """First terms and ends of terms of the orders that are needed, an even number of them."""
        stops = self.rough_stops if rough else self.stops
        needed = np.flatnonzero((stops > self.starts).any(axis=1))
        orders = min(2 * (int(needed[-1]) // 2 + 1), len(stops)) if len(needed) else 2
        return self.starts[:orders], stops[:orders]

    @property
    def coordinate(self) -> tuple[float, float, float, bool]:
        """What the compiled loop needs to know of the angle."""
        return (self.angle.epsilon, *self.angle.ends, self.angle.odd)


def _needed(sizes: Array) -> int:
    """How many coefficients leave less than a tenth of AIM; 0 if they have not died out."""
    rest = np.cumsum(sizes[::-1])[::-1]
    count = int(np.argmax(rest < 0.1 * AIM)) if np.any(rest < 0.1 * AIM) else len(sizes)
    return count if 0 < count <= len(sizes) - 2 else 0


_TABLES: OrderedDict[tuple[Shape, Band, Band], DualTable | None] = OrderedDict()
_LOCK = threading.Lock()


def table(shape: Shape, rows: Band, columns: Band) -> DualTable | None:
    """The table of a shape over two ranges of log variances; None if it cannot be resolved.  The last few are kept."""
    key = (shape, rows, columns)
    with _LOCK:
        if key not in _TABLES:
            try:
                built: DualTable | None = DualTable(shape, rows, columns)
            except InputError:
                # The range reaches where a callable grows faster than the Gaussian decays.
                built = None
            _TABLES[key] = built if built is not None and built.resolved else None
            while len(_TABLES) > KEPT:
                _TABLES.popitem(last=False)
        _TABLES.move_to_end(key)
        return _TABLES[key]


def bands(logs: Array, step: float = 0.5, longest: float = 10.0) -> list[Band]:
    """Ranges of log variances that together hold all of these, rounded outwards, none much longer than `longest`."""
    low, high = float(np.floor(logs.min() / step) * step), float(np.ceil(logs.max() / step) * step)
    count = max(1, int(np.ceil((high - low) / longest)))
    edges = low + (high - low) * np.arange(count + 1) / count
    return [(float(a), float(b)) for a, b in pairwise(edges)]


def band_numbers(logs: Array, ranges: list[Band]) -> IntArray:
    """The band of each log variance, -1 below the first."""
    return np.searchsorted([low for low, _ in ranges], logs, side="right") - 1


@njit(**INLINE)
def _place(rho, angle, z, rate, ratio, bits):  # type: ignore[no-untyped-def]
    """The place z of correlations, and dz/dρ."""
    epsilon, start, stop, odd = angle
    width, square, quarter = 2.0 / (start - stop), epsilon * epsilon, 0.5 * np.pi
    if epsilon == 0.0:
        for j in range(WIDTH):
            y = 1.0 - abs(rho[j])
            root = np.sqrt(y)
            # The angle from the nearer end.
            theta = root * arccos_over_root(y)
            theta = theta if odd else quarter - np.copysign(quarter - theta, rho[j])
            z[j] = 1.0 + width * theta
            rate[j] = -width / max(root * np.sqrt(2.0 - y), 1e-8)
        return
    for j in range(WIDTH):
        size = abs(rho[j]) if odd else rho[j]
        near, far = 0.5 * (1.0 - size), 0.5 * (1.0 + size)
        one, two = np.sqrt(near), np.sqrt(far)
        three, four = np.sqrt(near + square), np.sqrt(far + square)
        ratio[j] = (one + three) / (two + four)
        rate[j] = -0.25 * width * (1.0 / max(one * three, 1e-8) + 1.0 / max(two * four, 1e-8))
    logarithm(ratio, bits, z)
    for j in range(WIDTH):
        z[j] = 1.0 + width * (z[j] - start)


@njit(**INLINE)
def _recursion(twice, now, before):  # type: ignore[no-untyped-def]
    """Clenshaw's recursion without its coefficient: `before` becomes 2z · now - before."""
    for j in range(len(before)):
        before[j] = twice[j] * now[j] - before[j]


@njit(**INLINE)
def _derived(twice, now, before, value):  # type: ignore[no-untyped-def]
    """The recursion for the derivative in z of a sum."""
    for j in range(len(before)):
        before[j] = twice[j] * now[j] - before[j] + 2.0 * value[j]


@njit(**INLINE)
def _add(a, b, c, d, right, first, last, total):  # type: ignore[no-untyped-def]
    """Add the products of the factors of four rows with those of a strip, which is read once for all of them."""
    for r in range(first, last, 4):
        a0, a1, a2, a3, b0, b1, b2, b3 = (
            a[r],
            a[r + 1],
            a[r + 2],
            a[r + 3],
            b[r],
            b[r + 1],
            b[r + 2],
            b[r + 3],
        )
        c0, c1, c2, c3, d0, d1, d2, d3 = (
            c[r],
            c[r + 1],
            c[r + 2],
            c[r + 3],
            d[r],
            d[r + 1],
            d[r + 2],
            d[r + 3],
        )
        strip = right[r * WIDTH : (r + 4) * WIDTH]
        for j in range(WIDTH):
            s0, s1, s2, s3 = strip[j], strip[j + WIDTH], strip[j + 2 * WIDTH], strip[j + 3 * WIDTH]
            total[j] += (a0 * s0 + a1 * s1) + (a2 * s2 + a3 * s3)
            total[j + WIDTH] += (b0 * s0 + b1 * s1) + (b2 * s2 + b3 * s3)
            total[j + 2 * WIDTH] += (c0 * s0 + c1 * s1) + (c2 * s2 + c3 * s3)
            total[j + 3 * WIDTH] += (d0 * s0 + d1 * s1) + (d2 * s2 + d3 * s3)


@njit(**OPTIONS)
def _clenshaw(left, chosen, right, starts, stops, z, twice, bends, work):  # type: ignore[no-untyped-def]
    """The sums of F, of F' and, with `bends`, of the derivative of F' in z of four rows, in `work` 0, 2 and 4."""
    v1, v2, d1, d2, e1, e2 = work[0], work[1], work[2], work[3], work[4], work[5]
    a, b, c, d = left[chosen[0]], left[chosen[1]], left[chosen[2]], left[chosen[3]]
    fill(work.reshape(-1), 0.0)
    for k in range(len(starts) - 1, -1, -2):
        _recursion(twice, v1, v2)
        _add(a, b, c, d, right, starts[k, 0], stops[k, 0], v2)
        if bends:
            _derived(twice, e1, e2, d1)
        _recursion(twice, d1, d2)
        _add(a, b, c, d, right, starts[k, 1], stops[k, 1], d2)
        _recursion(twice, v2, v1)
        _add(a, b, c, d, right, starts[k - 1, 0], stops[k - 1, 0], v1)
        if bends:
            _derived(twice, e2, e1, d2)
        _recursion(twice, d2, d1)
        _add(a, b, c, d, right, starts[k - 1, 1], stops[k - 1, 1], d1)
    # T_0 was counted with 2z like the others.
    for j in range(len(z)):
        e1[j] = e1[j] - z[j] * e2[j] - d2[j]
    for j in range(len(z)):
        v1[j] -= z[j] * v2[j]
    for j in range(len(z)):
        d1[j] -= z[j] * d2[j]


@njit(**INLINE)
def _finish(rho, odd, rate, own, others, value, bend):  # type: ignore[no-untyped-def]
    """The sign of an odd function, and the derivative in the covariance instead of in z."""
    for j in range(WIDTH):
        bend[j] *= rate[j] * own * others[j]
    if odd:
        for j in range(WIDTH):
            value[j] *= np.copysign(1.0, rho[j])
        for j in range(WIDTH):
            bend[j] *= np.copysign(1.0, rho[j])


@njit(**OPTIONS)
def table_tiles(  # type: ignore[no-untyped-def]
    covariance, inverse, left, reach, own, inverse_right, right, reach_right, other, starts, stops, angle, bends, todo,
    value, slope, bend,
):  # fmt: skip
    """F, F' and, with `bends`, dF'/dc of rows `own` and columns `other`, those of the two bands of the table.

    `todo` (stack, rows, strips) says which pairs are written: ALL of a strip, or SOME, those beyond reach · reach'.
    """
    stack, rows, columns = covariance.shape
    rho, z, twice, rate, ratio = (
        np.zeros(ROWS * WIDTH), np.zeros(ROWS * WIDTH), np.zeros(ROWS * WIDTH), np.zeros(ROWS * WIDTH), np.ones(WIDTH),
    )  # fmt: skip
    work, chosen = np.zeros((6, ROWS * WIDTH)), np.zeros(rows + ROWS, dtype=np.intp)
    bits = ratio.view(np.int64)
    for t in range(stack):
        for strip in range(right.shape[1]):
            begin, end = strip * WIDTH, min((strip + 1) * WIDTH, columns)
            members, others = other[t, begin:end], inverse_right[t, strip, 0]
            count = 0
            for i in range(rows if np.any(members) else 0):
                if todo[t, i, strip] and own[t, i]:
                    chosen[count] = i
                    count += 1
            # The last group is filled up with its last row.
            chosen[count : count + ROWS] = chosen[max(count - 1, 0)]
            for first in range(0, count, ROWS):
                for r in range(ROWS):
                    i, part = chosen[first + r], slice(r * WIDTH, (r + 1) * WIDTH)
                    correlations(covariance[t, i, begin:end], inverse[t, i], others, end - begin, rho[part])
                    _place(rho[part], angle, z[part], rate[part], ratio, bits)
                for j in range(ROWS * WIDTH):
                    twice[j] = 2.0 * z[j]
                _clenshaw(
                    left[t], chosen[first : first + ROWS], right[t, strip].reshape(-1), starts, stops, z, twice, bends,
                    work,
                )  # fmt: skip
                for r in range(min(ROWS, count - first)):
                    i, part = chosen[first + r], slice(r * WIDTH, (r + 1) * WIDTH)
                    _finish(
                        rho[part], angle[3], rate[part], inverse[t, i], others, work[0, part], work[4, part]
                    )
                    put_strip(
                        work[0, part], work[2, part], work[4, part], rho[part], todo[t, i, strip],
                        reach[t, i], reach_right[t, begin:end], members, bends,
                        value[t, i, begin:end], slope[t, i, begin:end], bend[t, i, begin:end] if bends else rho,
                    )  # fmt: skip


__all__ = ["DualTable", "band_numbers", "bands", "table", "table_tiles"]
