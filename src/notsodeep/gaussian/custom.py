"""Any vectorised callable as a shape: resolved by piecewise polynomials, so that nothing about it is taken on trust.

On every panel the callable must be a polynomial of degree 15 to 13 digits, or the panel is halved.  A smooth function
needs few halvings; a kink or a jump that was not declared never resolves and is found, located and refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

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

    def __init__(
        self,
        function: Callable[[Array], Array],
        derivative: Callable[[Array], Array] | None,
        kinks: tuple[float, ...],
    ) -> None:
        self.function = function
        self.derivative = derivative
        self.kinks = tuple(sorted(kinks))
        self.name = getattr(function, "__name__", "custom")
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
        if result.shape != x.shape:
            raise InputError(
                f"The activation {self.name!r} returned shape {result.shape} for input of shape {x.shape}. "
                "It must work elementwise on arrays: wrap a scalar function in numpy.vectorize."
            )
        if np.iscomplexobj(result) or not np.all(np.isfinite(result)):
            worst = float(x.flat[int(np.argmin(np.isfinite(result)))])
            raise InputError(
                f"The activation {self.name!r} is not a finite real number at x = {worst:.6g}. Its Gaussian moments "
                "need it there: use a version that does not overflow, or scale the data down."
            )
        return result.astype(np.float64)

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
        todo = list(pairwise(start))[::-1]
        done: list[tuple[float, float, Array]] = []
        nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
        transform = np.linalg.inv(np.polynomial.chebyshev.chebvander(nodes, DEGREE))
        probe = np.linspace(-0.97, 0.97, 7)
        while todo:
            left, right = todo.pop()
            centre, half = (left + right) / 2.0, (right - left) / 2.0
            samples = self.values(centre + half * nodes)
            series = transform @ samples
            size = max(float(np.abs(samples).max()), 1e-3 * half)
            miss = np.abs(
                np.polynomial.chebyshev.chebval(probe, series) - self.values(centre + half * probe)
            ).max()
            # Rounding of x itself moves the value by slope · eps · |x|: not a lack of smoothness.
            rounding = 4e-16 * max(abs(left), abs(right)) * np.abs(np.diff(samples)).max() / half
            if max(miss, float(np.abs(series[-2:]).max())) <= RESOLVED * size + 8.0 * rounding:
                done.append((left, right, series))
            elif half < NARROWEST * max(1.0, abs(centre)):
                self._refuse(centre)
            else:
                todo += [(centre, right), (left, centre)]
                if len(todo) + len(done) > 20_000:
                    self._refuse(centre)
        edges = np.array([left for left, _, _ in done] + [done[-1][1]])
        return edges, np.array([series for _, _, series in done])

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
