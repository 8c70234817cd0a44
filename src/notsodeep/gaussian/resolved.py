"""Functions known by their values alone: resolved by piecewise polynomials (`panels`), nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian import panels, quadrature
from notsodeep.gaussian.panels import Panels
from notsodeep.gaussian.shapes import Shape, in_chunks
from notsodeep.validation import Array

# How far out a function is looked at when it is made; further where the data need it.
FIRST_LOOK = 64.0


class Resolved(Shape):
    """A function that is smooth on panels found from its values; quadrature splits where they end.

    Attributes:
        name: what messages call the function.
        most_panels: number of panels beyond which it counts as not smooth.
    """

    name: str
    most_panels = 20_000
    features_anywhere = True
    inaccuracy = 4.0 * panels.RESOLVED

    def values(self, x: Array) -> Array:
        """The function on an array, checked: real and finite."""
        raise NotImplementedError(f"{type(self).__name__} does not define values.")

    def noise(self) -> Callable[[Array], Array] | None:
        """A bound of the rounding errors in the values at x, where something is known about them."""
        return None

    def refuse(self, position: float) -> NoReturn:
        """Raise an InputError: the function is not smooth at this place."""
        raise NotImplementedError(f"{type(self).__name__} does not define refuse.")

    def resolve(self) -> None:
        """Find the panels up to FIRST_LOOK, and check that the function is continuous at its kinks.

        Raises:
            InputError: where the function is not smooth between its kinks, or jumps at one.
        """
        self._panels = lru_cache(maxsize=16)(self._resolved_up_to)
        self._panels(FIRST_LOOK)
        if not self.kinks:
            return
        kinks = np.array(self.kinks)
        size = 1.0 + np.abs(self.values(kinks))
        gaps = np.abs(self.values(np.nextafter(kinks, np.inf)) - self.values(np.nextafter(kinks, -np.inf)))
        if np.any(gaps > 1e-9 * size):
            raise InputError(
                f"The activation {self.name!r} jumps at {kinks[int(np.argmax(gaps / size))]:g}. Only continuous "
                "functions are supported: replace the jump by a steep slope."
            )

    def _resolved_up_to(self, limit: float) -> Panels:
        try:
            return panels.resolve(self.values, self.kinks, limit, self.most_panels, self.noise())
        except panels.NotSmoothError as error:
            self.refuse(error.position)

    def panels_around(self, x: Array) -> Panels:
        """Panels that reach beyond every x."""
        return self._panels(_octave(float(np.max(np.abs(x), initial=0.0))))

    def slope_grid(self, reach: float = FIRST_LOOK) -> Array:
        """Up to FIRST_LOOK, and dense enough to see everything that the function does there: nodes of each panel."""
        return np.concatenate([super().slope_grid(reach), self._panels(FIRST_LOOK).nodes()])

    def breakpoints(self, limit: float) -> Array:
        """The edges of the panels on which the function was resolved."""
        return self._panels(_octave(limit)).edges

    def local_length(self, x: float) -> float:
        """Length of the panel around x on which the function was resolved."""
        edges = self.breakpoints(abs(x) + 1.0)
        place = min(max(int(np.searchsorted(edges, x, side="right")), 1), len(edges) - 1)
        return float(edges[place] - edges[place - 1])

    def shortest_panels(self, low: Array, high: Array) -> Array:
        """The shortest of the panels from `low` to `high`, for each of these intervals."""
        edges = self.breakpoints(float(max(np.abs(low).max(), np.abs(high).max())) + 1.0)
        lengths = np.diff(edges)
        first = np.clip(np.searchsorted(edges, low, side="right") - 1, 0, len(lengths) - 1)
        last = np.clip(np.searchsorted(edges, high, side="left"), first + 1, len(lengths))
        between = np.stack([first, last], axis=-1).reshape(-1)
        return np.minimum.reduceat(np.append(lengths, np.inf), between)[::2].reshape(low.shape)

    def rule(self, scales: Array, degree: int = 0) -> tuple[Array, Array]:
        """One row of nodes for each scale, split at the resolved panels."""
        self._check_growth(float(scales.max()))
        edges = self.breakpoints(quadrature.REACH * float(scales.max()))
        return quadrature.split_rule(np.maximum(scales, 1e-150), edges, degree)

    def _check_growth(self, scale: float) -> None:
        """The square of the function, under the bell, must have died out where the quadrature stops."""
        points = np.linspace(-quadrature.REACH, quadrature.REACH, 201)
        heights = self.values(scale * points) ** 2 * np.exp(-0.5 * points**2)
        if max(heights[0], heights[-1]) > 1e-14 * heights.max():
            raise InputError(
                f"The activation {self.name!r} grows too fast for pre-activations of standard deviation {scale:.4g}: "
                "its second moment is beyond double precision. Scale the data down or use a slower activation."
            )

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


def checked_values(x: Array, values: Array, refuse: Callable[[float], NoReturn]) -> Array:
    """The values of a function at x; `refuse` is called with the first x where one is not finite or not real."""
    if np.iscomplexobj(values) or not np.all(np.isfinite(values)):
        refuse(float(np.ravel(x)[int(np.argmin(np.isfinite(np.ravel(values))))]))
    return np.asarray(values, dtype=np.float64)


def _octave(limit: float) -> float:
    """The first of FIRST_LOOK, 2 FIRST_LOOK, 4 FIRST_LOOK, … that is not below the limit."""
    reach = FIRST_LOOK
    while reach < limit:
        reach *= 2.0
    return reach
