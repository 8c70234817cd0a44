"""F and F' over all correlations and the variances of a data set, as sums of products of functions of one variance.

    F(q, q', ρ) = Σ_k T_k(z(ρ)) Σ_r ± f_kr(q) f_kr(q')                                       docs/theory.md (10.17)

A Chebyshev sum in a coordinate z of the angle; its coefficients are symmetric functions of the two variances, and the
eigenvectors of each of them are few.  What a position contributes depends on its own variance alone, so that it is
computed once for a sample.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from notsodeep.gaussian.dual_grid import dual_grid
from notsodeep.gaussian.shapes import Shape
from notsodeep.linalg.chebyshev import chebyshev_basis, chebyshev_coefficients, chebyshev_nodes
from notsodeep.pairs.table_range import coordinate, distance_at
from notsodeep.validation import Array, IntArray

# Errors relative to √(S S') and √(E1 E1'): aimed at, and accepted.
AIM, ACCEPTED = 1e-11, 4e-11
# Distance of an angle from its ends, in units of the smallest angle over which F changes.
OFF_ENDS = 1e-6
# Nodes that are tried.
ANGLES = (16, 24, 32, 48, 64, 96, 128, 192)
VARIANCES = (8, 12, 16, 24, 32, 48, 64)
# What F and F' may leave out at each level of accuracy: the first is for the first Newton step.
LEVELS = ((1e-6, 1e-3), (1e-9, 3e-10), (0.0, 0.0))
# Terms are added up two at a time.
PAIR = 2
ATTEMPTS = 3
KEPT = 32


@dataclass(frozen=True)
class Angle:
    """The coordinate of a correlation in which F is smooth: θ itself, or (3.28) where F changes quickly near the ends.

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
        near = float(coordinate(np.zeros(1), np.ones(1), self.epsilon)[0])
        return near, 0.0 if self.odd else -near

    def at(self, place: Array) -> Array:
        """The angle θ at places from 1 (ρ = 1) to -1."""
        start, stop = self.ends
        t = start + 0.5 * (1.0 - place) * (stop - start)
        if not self.epsilon:
            return np.asarray(t)
        near, far = distance_at(t, self.epsilon)
        return np.asarray(2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)))


class FieldTable:
    """The table of a shape.

    Args:
        shape: the activation before scaling.
        low: logarithm of the smallest variance.
        high: that of the largest.

    Attributes:
        angle: the coordinate of the correlation.
        resolved: the error is accepted.
        error: largest error found between the nodes.
        signs: ±1 of each term.
        first: number of the first term of each order of F and of F', (orders, 2).
        counts: how many of them count at each level of accuracy, (levels, orders, 2); even numbers.
        lengths: orders that count at each level, even numbers.
    """

    def __init__(self, shape: Shape, low: float, high: float) -> None:
        self.shape, self.low, self.high = shape, low, high
        self.resolved, self.error, self.signs = False, np.inf, np.zeros(0)
        odd = shape.parity == -1
        # Kinks at zero leave F smooth in θ; saturated functions change within 1/s of the ends.
        coordinates = Angle(0.0, odd), Angle(min(1.0, shape.feature * float(np.exp(-0.5 * high))), odd)
        sizes = {angle: self._sizes(angle) for angle in coordinates}
        found = [angle for angle in coordinates if min(sizes[angle]) > 0]
        if found:
            self.angle = min(found, key=lambda angle: sizes[angle][0])
            angles, variances = sizes[self.angle]
            for _ in range(ATTEMPTS):
                self._build(angles, variances)
                if self.resolved:
                    break
                # The counts come from a few probes.
                angles, variances = angles + 2 + angles // 4, variances + 2 + variances // 4

    def _sizes(self, angle: Angle) -> tuple[int, int]:
        """How many angles and variances resolve F and F' in a coordinate; 0 if too many."""
        self.angle = angle
        angles = self._angle_count()
        return angles, self._variance_count() if angles else 0

    def _grid(self, rows: Array, columns: Array, place: Array) -> Array:
        """F/√(S S') and F'/√(E1 E1') at log variances and places, (2, places, rows, columns)."""
        # Off the ends, where quadrature has nothing to say, by so little that a saturated function does not see it.
        off = min(1e-7, OFF_ENDS * self.shape.feature * float(np.exp(-0.5 * self.high)))
        angles = np.clip(self.angle.at(place), off, np.pi - off)
        found = dual_grid(self.shape, np.exp(rows), np.exp(columns), angles)
        return np.stack(
            [
                part / np.sqrt(np.multiply.outer(moment(np.exp(rows)), moment(np.exp(columns))))
                for part, moment in zip(found, self._moments, strict=True)
            ]
        )

    @property
    def _moments(self) -> tuple[Callable[[Array], Array], ...]:
        return self.shape.second_moment, self.shape.derivative_second_moment

    def _logs(self, place: Array) -> Array:
        return np.asarray(0.5 * (self.low + self.high) + 0.5 * (self.high - self.low) * place)

    def _angle_count(self) -> int:
        """How many angles resolve F and F' at extreme variances; 0 if too many."""
        some = self._logs(np.array([-1.0, 0.3, 1.0]))
        for count in ANGLES:
            series = chebyshev_coefficients(self._grid(some, some, chebyshev_nodes(count)), 1)
            needed = _needed(np.abs(series).max(axis=(0, 2, 3)))
            if needed:
                return needed
        return 0

    def _variance_count(self) -> int:
        """How many variances resolve F and F' at a few angles; 0 if too many."""
        if self.high - self.low < 1e-9:
            return 1
        for count in VARIANCES:
            logs = self._logs(chebyshev_nodes(count))
            series = chebyshev_coefficients(self._grid(logs, logs, np.array([-1.0, -0.4, 0.3, 0.8, 1.0])), 3)
            needed = _needed(np.abs(series).max(axis=(0, 1, 2)))
            if needed:
                return needed
        return 0

    def _build(self, angles: int, variances: int) -> None:
        angles += angles % 2
        logs = self._logs(chebyshev_nodes(variances)) if variances > 1 else np.array([self.high])
        series = chebyshev_coefficients(self._grid(logs, logs, chebyshev_nodes(angles)), 1)
        series = 0.5 * (series + series.swapaxes(2, 3))
        values, vectors = np.linalg.eigh(series)
        sizes = np.abs(values)
        order = np.argsort(-sizes, axis=2)
        self.first = np.zeros((angles, 2), dtype=np.intp)
        self.counts = np.zeros((len(LEVELS), angles, 2), dtype=np.intp)
        columns, signs, total = [], [], 0
        for k in range(angles):
            for kind in range(2):
                chosen = order[kind, k]
                chosen = chosen[sizes[kind, k, chosen] > 4.0 * AIM / angles]
                room = -len(chosen) % PAIR
                self.first[k, kind] = total
                for level, allowed in enumerate(LEVELS):
                    count = int(np.sum(sizes[kind, k, chosen] > 0.1 * allowed[kind]))
                    self.counts[level, k, kind] = count + count % PAIR
                total += len(chosen) + room
                columns.append(vectors[kind, k][:, chosen] * np.sqrt(sizes[kind, k, chosen]))
                columns.append(np.zeros((variances, room)))
                signs += [*np.sign(values[kind, k, chosen]), *[1.0] * room]
        self.signs = np.array(signs)
        # Two orders at a time.
        self.lengths = [
            2 * (int(np.max(np.nonzero(part.sum(axis=1))[0], initial=0)) // 2 + 1) for part in self.counts
        ]
        self.kinds = np.repeat(np.tile([0, 1], angles), np.diff(np.append(self.first.reshape(-1), total)))
        self.functions = chebyshev_coefficients(np.concatenate(columns, axis=1))
        self.error = self._missed()
        self.resolved = self.error <= ACCEPTED

    @property
    def terms(self) -> int:
        """Number of terms of F and F'."""
        return len(self.signs)

    def terms_for(self, level: int) -> tuple[IntArray, IntArray]:
        """The terms that count up to a level, and the number among them of the first of each order, (orders, 2)."""
        counts = self.counts[level].reshape(-1)
        first = np.cumsum(counts) - counts
        kept = np.repeat(self.first.reshape(-1) - first, counts) + np.arange(counts.sum())
        return kept.astype(np.intp), first.reshape(self.first.shape).astype(np.intp)

    def at(self, variances: Array) -> Array:
        """The functions f_kr of F/√S and F'/√E1 at some variances, (variances, terms)."""
        half = 0.5 * (self.high - self.low)
        place = (np.log(variances) - self.low - half) / half if half > 0.0 else np.zeros_like(variances)
        return np.asarray(chebyshev_basis(place, len(self.functions)) @ self.functions)

    def factors(self, variances: Array) -> Array:
        """The same of F and F' themselves."""
        roots = np.sqrt(np.stack([moment(variances) for moment in self._moments]))
        return np.asarray(self.at(variances) * roots[self.kinds].T)

    def _missed(self) -> float:
        """Largest error at points between the nodes, the two variables exchanged."""
        generator = np.random.default_rng(0)
        places = [np.concatenate([[-1.0, 1.0], generator.uniform(-1.0, 1.0, count)]) for count in (5, 5, 14)]
        rows, columns = self._logs(places[0]), self._logs(places[1])
        truth = self._grid(columns, rows, places[2]).swapaxes(2, 3)
        left, right = self.at(np.exp(rows)) * self.signs, self.at(np.exp(columns))
        basis = chebyshev_basis(places[2], len(self.first))
        worst = 0.0
        for kind in range(2):
            found = np.zeros_like(truth[kind])
            for k in range(len(self.first)):
                part = slice(self.first[k, kind], self.first[k, kind] + self.counts[-1, k, kind])
                found += basis[:, k, None, None] * (left[:, part] @ right[:, part].T)
            worst = max(worst, float(np.abs(found - truth[kind]).max()))
        return worst


def _needed(sizes: Array) -> int:
    """How many coefficients leave less than a tenth of AIM; 0 if they have not died out."""
    rest = np.cumsum(sizes[::-1])[::-1]
    count = int(np.argmax(rest < 0.1 * AIM)) if np.any(rest < 0.1 * AIM) else len(sizes)
    return count if 0 < count <= len(sizes) - 2 else 0


_TABLES: OrderedDict[tuple[object, ...], FieldTable] = OrderedDict()
_LOCK = threading.Lock()


def field_table(shape: Shape, low: float, high: float) -> FieldTable:
    """The table of a shape over this range of log variances; the last few are kept."""
    key = (shape, low, high)
    with _LOCK:
        if key not in _TABLES:
            _TABLES[key] = FieldTable(shape, low, high)
            while len(_TABLES) > KEPT:
                _TABLES.popitem(last=False)
        _TABLES.move_to_end(key)
        return _TABLES[key]


__all__ = ["AIM", "LEVELS", "Angle", "FieldTable", "field_table"]
