"""Any vectorised callable as a shape: resolved by piecewise polynomials, so that nothing about it is taken on trust.

On every panel the callable must be a polynomial of degree 15 to 13 digits, or the panel is halved.  A smooth function
needs few halvings; a kink or a jump that was not declared never resolves and is found, located and refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.gaussian import quadrature
from notsodeep.gaussian.shapes import FINER, Shape, in_chunks

Array = NDArray[np.float64]

DEGREE = quadrature.NODES - 1
RESOLVED = 1e-13
FIRST_LOOK = 64.0
# Panels shorter than this, relative to their position, mean that the function is not smooth there.
NARROWEST = 2.0**-30


class Custom(Shape):
    """A user's callable, with declared kinks and, if given, its derivative."""

    most_panels = 20_000
    features_at_zero = False

    def __init__(
        self,
        function: Callable[[Array], Array],
        derivative: Callable[[Array], Array] | None,
        kinks: tuple[float, ...],
        name: str | None = None,
    ) -> None:
        self.function = function
        self.derivative = derivative
        self.kinks = tuple(sorted(kinks))
        self.name = getattr(function, "__name__", "custom") if name is None else name
        self.parity = 0
        self.feature = 1.0
        self._panels = lru_cache(maxsize=16)(self._resolve)
        self._panels(FIRST_LOOK)
        self._check_continuity()
        if derivative is not None:
            self._check_derivative(derivative)

    def __repr__(self) -> str:
        return f"custom({self.name})"

    def __reduce__(self) -> tuple[type[Custom], tuple[object, ...]]:
        return Custom, (self.function, self.derivative, self.kinks)

    def values(self, x: Array) -> Array:
        """The callable on x, checked: same shape, real, finite."""
        with np.errstate(all="ignore"):
            result = np.asarray(self.function(x))
        return self._checked(x, result)

    def _checked(self, x: Array, result: Array) -> Array:
        if result.shape != x.shape:
            raise InputError(
                f"The activation {self.name!r} returned shape {result.shape} for input of shape {x.shape}. "
                "It must work elementwise on arrays: wrap a scalar function in numpy.vectorize."
            )
        if np.iscomplexobj(result) or not np.all(np.isfinite(result)):
            self._refuse_value(float(x.flat[int(np.argmin(np.isfinite(result)))]))
        return result.astype(np.float64)

    def _refuse_value(self, position: float) -> None:
        raise InputError(
            f"The activation {self.name!r} is not a finite real number at x = {position:.6g}. Its Gaussian moments "
            "need it there: use a version that does not overflow, or scale the data down."
        )

    def __call__(self, x: Array, order: int = 0) -> Array:
        if order == 0:
            return self.values(x)
        if order == 1 and self.derivative is not None:
            return np.asarray(self.derivative(x), dtype=np.float64)
        limit = FIRST_LOOK
        while limit < np.max(np.abs(x), initial=0.0):
            limit *= 2.0
        edges, coefficients = self._panels(limit)
        panel = np.clip(np.searchsorted(edges, x) - 1, 0, len(edges) - 2)
        left, right = edges[panel], edges[panel + 1]
        table = np.asarray(np.polynomial.chebyshev.chebder(coefficients, m=order, axis=1), dtype=np.float64)
        local = (2.0 * x - left - right) / (right - left)
        value = _clenshaw(table, panel, local)
        return np.asarray(value * (2.0 / (right - left)) ** order)

    def nodes(self) -> Array:
        """Points over ±FIRST_LOOK dense enough to see everything the callable does there: nodes of each panel."""
        edges, _ = self._panels(FIRST_LOOK)
        local = np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
        return np.asarray((edges[:-1, None] + np.diff(edges)[:, None] * (1.0 + local) / 2.0).ravel())

    def _resolve(self, limit: float) -> tuple[Array, Array]:
        """Panel edges over [-limit, limit] and Chebyshev coefficients (panels × 16) on each."""
        # Edges at odd numbers: a kink that nobody declared would hide at an edge, and kinks like round numbers.
        graded = quadrature.graded_edges(1.0, np.inf, limit)
        odd = np.unique(np.where(np.abs(graded) < limit, graded * 0.9134 + 0.0871, graded))
        start = np.union1d(odd, np.array(self.kinks, dtype=np.float64))
        start = start[np.abs(start) <= limit]
        nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
        transform = np.asarray(np.linalg.inv(np.polynomial.chebyshev.chebvander(nodes, DEGREE)), np.float64)
        left, right = start[:-1], start[1:]
        lefts, rights, tables = [left[:0]], [right[:0]], [np.empty((0, DEGREE + 1))]
        # All panels of one generation at once; those that are not resolved are halved for the next.
        while len(left):
            series, resolved = self._generation(left, right, nodes, transform)
            lefts.append(left[resolved])
            rights.append(right[resolved])
            tables.append(series[resolved])
            left, right = left[~resolved], right[~resolved]
            centre, half = (left + right) / 2.0, (right - left) / 2.0
            narrow = half < NARROWEST * np.maximum(1.0, np.abs(centre))
            if narrow.any():
                self._refuse(float(centre[narrow].min()))
            if 2 * len(left) + sum(len(table) for table in tables) > self.most_panels:
                self._refuse(float(centre.min()))
            left, right = np.concatenate([left, centre]), np.concatenate([centre, right])
        order = np.argsort(np.concatenate(lefts))
        edges = np.append(np.concatenate(lefts)[order], np.concatenate(rights).max())
        return edges, np.concatenate(tables)[order]

    def _generation(
        self, left: Array, right: Array, nodes: Array, transform: Array
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Chebyshev coefficients on each of these panels, and whether they are the function."""
        centre, half = (left + right)[:, None] / 2.0, (right - left)[:, None] / 2.0
        probe = np.linspace(-0.97, 0.97, 7)
        samples, probed = self.values(centre + half * nodes), self.values(centre + half * probe)
        series = samples @ transform.T
        size = np.maximum(np.abs(samples).max(axis=1), 1e-3 * half[:, 0])
        fitted = np.polynomial.chebyshev.chebval(probe, series.T)
        miss = np.maximum(np.abs(fitted - probed).max(axis=1), np.abs(series[:, -2:]).max(axis=1))
        # Rounding of x itself moves the value by slope · eps · |x|: not a lack of smoothness.
        steepest = np.abs(np.diff(samples)).max(axis=1) / half[:, 0]
        rounding = 4e-16 * np.maximum(np.abs(left), np.abs(right)) * steepest
        allowed = RESOLVED * size + 8.0 * rounding + 4.0 * self._noise(centre + half * nodes).max(axis=1)
        return series, miss <= allowed

    def _noise(self, x: Array) -> Array:
        """Rounding errors in the values, where something is known about them."""
        return np.zeros_like(x)

    def _refuse(self, position: float) -> None:
        if any(abs(position - kink) < 1e-6 * max(1.0, abs(kink)) for kink in self.kinks):
            raise InputError(
                f"The activation {self.name!r} is not smooth beside its declared kink at {position:.9g} (it jumps, "
                "or has an infinite slope). Continuous functions with finite slopes on both sides are supported."
            )
        declared = ", ".join(f"{kink:g}" for kink in (*self.kinks, round(position, 7)))
        raise InputError(
            f"The activation {self.name!r} is not smooth at x ≈ {position:.9g}. If it has a kink there, declare it: "
            f"custom_activation(f, kinks=({declared},)); a jump is not supported."
        )

    def _check_continuity(self) -> None:
        kinks = np.array(self.kinks)
        size = 1.0 + np.abs(self.values(kinks))
        gaps = np.abs(self.values(np.nextafter(kinks, np.inf)) - self.values(np.nextafter(kinks, -np.inf)))
        if np.any(gaps > 1e-9 * size):
            raise InputError(
                f"The activation {self.name!r} jumps at {kinks[int(np.argmax(gaps / size))]:g}. Only continuous "
                "functions are supported: replace the jump by a steep slope."
            )

    def _check_growth(self, scale: float) -> None:
        """The square of the function, under the bell, must have died out where the quadrature stops."""
        points = np.linspace(-quadrature.REACH, quadrature.REACH, 201)
        heights = self.values(scale * points) ** 2 * np.exp(-0.5 * points**2)
        if max(heights[0], heights[-1]) > 1e-14 * heights.max():
            raise InputError(
                f"The activation {self.name!r} grows too fast for pre-activations of standard deviation {scale:.4g}: "
                "its second moment is beyond double precision. Scale the data down or use a slower activation."
            )

    def _check_derivative(self, derivative: Callable[[Array], Array]) -> None:
        x = np.linspace(-8.0, 8.0, 257) + 0.0123
        x = x[[all(abs(v - kink) > 1e-3 for kink in self.kinks) for v in x]]
        given = np.asarray(derivative(x), dtype=np.float64)
        self.derivative = None
        measured = self(x, 1)
        self.derivative = derivative
        scale = max(1.0, float(np.abs(measured).max()))
        if given.shape != x.shape or not np.allclose(given, measured, atol=1e-6 * scale, rtol=0.0):
            worst = (
                float(x[int(np.argmax(np.abs(given - measured)))]) if given.shape == x.shape else float(x[0])
            )
            raise InputError(
                f"The derivative given for {self.name!r} is not the derivative of the function near x = {worst:.4g}. "
                "Correct it, or leave it out: it is then computed from the function."
            )

    def breakpoints(self, limit: float) -> Array:
        """The edges of the panels on which the callable was resolved."""
        reach = FIRST_LOOK
        while reach < limit:
            reach *= 2.0
        edges, _ = self._panels(reach)
        return edges

    def local_length(self, x: float) -> float:
        """Length of the panel around x on which the callable was resolved."""
        edges = self.breakpoints(abs(x) + 1.0)
        place = min(max(int(np.searchsorted(edges, x, side="right")), 1), len(edges) - 1)
        return float(edges[place] - edges[place - 1])

    def rule(self, scales: Array, degree: int = 0) -> tuple[Array, Array]:
        """One row of nodes for each scale, split at the resolved panels."""
        self._check_growth(float(scales.max()))
        edges = self.breakpoints(quadrature.REACH * float(scales.max()))
        return quadrature.split_rule(np.maximum(scales, 1e-150), edges, degree)

    def _finer_second_moment(self, q: Array) -> Array:
        edges = self.breakpoints(quadrature.REACH * float(np.sqrt(q.max())))
        halved = np.sort(np.concatenate([edges, 0.5 * (edges[1:] + edges[:-1])]))
        scales = np.sqrt(np.maximum(q, 1e-300))
        points, weights = quadrature.split_rule(scales, halved, FINER)
        return np.asarray((self(scales[:, None] * points) ** 2 * weights).sum(axis=1))

    def mehler(self, q: Array, terms: int) -> Array:
        """Rows of nodes differ, so the Hermite functions are summed row by row."""

        def block(part: Array) -> Array:
            scales = np.sqrt(part)
            points, weights = self.rule(scales, terms)
            weighted = weights * self(scales[:, None] * points)
            previous, current = np.zeros_like(points), np.ones_like(points)
            result = np.empty((len(part), terms))
            for k in range(terms):
                result[:, k] = np.einsum("ij,ij->i", weighted, current)
                advanced = (points * current - np.sqrt(k) * previous) / np.sqrt(k + 1.0)
                previous, current = current, advanced
            return result

        return in_chunks(block, q, 40_000)


def _clenshaw(table: Array, panel: NDArray[np.intp], local: Array) -> Array:
    """Σ_k table[panel, k] T_k(local), each point with the coefficients of its own panel."""
    later = np.zeros_like(local)
    latest = np.zeros_like(local)
    for k in range(table.shape[1] - 1, 0, -1):
        later, latest = 2.0 * local * later - latest + table[panel, k], later
    return np.asarray(table[panel, 0] + local * later - latest)
