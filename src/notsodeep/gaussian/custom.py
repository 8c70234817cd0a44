"""A user's function as a shape: resolved by piecewise polynomials (`panels`), so that nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.gaussian import panels, quadrature
from notsodeep.gaussian.panels import Panels
from notsodeep.gaussian.shapes import FINER, Shape, in_chunks

Array = NDArray[np.float64]

FIRST_LOOK = 64.0
# What the checks of `panels` see of a kink: at least 2^STEPS times the misfit that is allowed.
WEAKEST_KINK = 1e-9

_FORM = (
    "It must take a NumPy array and return one of the same shape: write it with NumPy's functions (np.where for cases) "
    "or wrap a function of one number in numpy.vectorize(f, otypes=[float])."
)


class Custom(Shape):
    """A user's callable, with declared kinks and, if given, its derivative."""

    most_panels = 20_000
    inaccuracy = 4.0 * panels.RESOLVED
    caveat = (
        f"The activation is known only where it was called, at points {panels.PROBES:g}·|x| apart "
        f"({panels.PROBES * panels.CORE:g} near zero) and to {-np.log10(panels.RESOLVED):.0f} "
        f"digits: a feature narrower than that, and a kink that changes the slope by less than {WEAKEST_KINK:g} of the "
        "function's size, cannot be excluded."
    )
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
        return self._called(self.function, x)

    def _called(self, function: Callable[[Array], Array], x: Array) -> Array:
        """A user's function of x: called on a copy that it may overwrite, with one axis at least, and never empty."""
        given = np.array(x, dtype=np.float64, ndmin=1)
        if not given.size:
            return np.array(x, dtype=np.float64)
        form = given.shape
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(function(given))
                result = result.astype(np.float64) if result.dtype.kind == "O" else result
        except Exception as error:
            raise InputError(
                f"The activation {self.name!r} cannot be called with an array: {type(error).__name__}: {error}. {_FORM}"
            ) from error
        if result.shape != form:
            raise InputError(
                f"The activation {self.name!r} returned shape {result.shape} for input of shape {form}. {_FORM}"
            )
        if result.dtype.kind not in "fc" or result.dtype.itemsize < 8:
            raise InputError(
                f"The activation {self.name!r} returned values of type {result.dtype}; numbers in double precision "
                f"(float64) are needed. {_FORM}"
            )
        return self._checked(x, result.reshape(np.shape(x)))

    def _checked(self, x: Array, result: Array) -> Array:
        """The values, all of which must be finite and real."""
        if np.iscomplexobj(result) or not np.all(np.isfinite(result)):
            self._refuse_value(float(x.flat[int(np.argmin(np.isfinite(result)))]))
        return np.asarray(result, dtype=np.float64)

    def _refuse_value(self, position: float) -> None:
        raise InputError(
            f"The activation {self.name!r} is not a finite real number at x = {position:.6g}. Its Gaussian moments "
            "need it there: use a version that does not overflow, or scale the data down."
        )

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order: of the polynomials, where the user gave none."""
        if order == 0:
            return self.values(x)
        if order == 1 and self.derivative is not None:
            return self._called(self.derivative, x)
        return self._panels(_octave(float(np.max(np.abs(x), initial=0.0)))).derivative(x, order)

    def nodes(self) -> Array:
        """Points over ±FIRST_LOOK dense enough to see everything the callable does there: nodes of each panel."""
        return self._panels(FIRST_LOOK).nodes()

    def _resolve(self, limit: float) -> Panels:
        try:
            return panels.resolve(self.values, self.kinks, limit, self.most_panels, self._noise())
        except panels.NotSmoothError as error:
            self._refuse(error.position)
            raise

    def _noise(self) -> Callable[[Array], Array] | None:
        """A bound of the rounding errors in the values, where something is known about them."""
        return None

    def _refuse(self, position: float) -> None:
        if any(abs(position - kink) < 1e-6 * max(1.0, abs(kink)) for kink in self.kinks):
            raise InputError(
                f"The activation {self.name!r} is not smooth beside its declared kink at {position:.9g} (it jumps, "
                "or has an infinite slope). Continuous functions with finite slopes on both sides are supported."
            )
        declared = ", ".join(repr(kink) for kink in (*self.kinks, position))
        raise InputError(
            f"The activation {self.name!r} is not smooth at x ≈ {position:.9g}. If it has a kink there, declare it: "
            f"custom_activation(f, kinks=({declared},)); a jump is not supported. Rounding errors above the 13th "
            "digit (single precision, cancellation) are taken for a lack of smoothness too."
        )

    def _check_continuity(self) -> None:
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
        given = self._called(derivative, x)
        self.derivative = None
        measured = self(x, 1)
        self.derivative = derivative
        scale = max(1.0, float(np.abs(measured).max()))
        if not np.allclose(given, measured, atol=1e-6 * scale, rtol=0.0):
            worst = float(x[int(np.argmax(np.abs(given - measured)))])
            raise InputError(
                f"The derivative given for {self.name!r} is not the derivative of the function near x = {worst:.4g}. "
                "Correct it, or leave it out: it is then computed from the function."
            )

    def breakpoints(self, limit: float) -> Array:
        """The edges of the panels on which the callable was resolved."""
        return self._panels(_octave(limit)).edges

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


def _octave(limit: float) -> float:
    """The first of FIRST_LOOK, 2 FIRST_LOOK, 4 FIRST_LOOK, … that is not below the limit."""
    reach = FIRST_LOOK
    while reach < limit:
        reach *= 2.0
    return reach
