"""A user's own function as an activation, known by its values alone: piecewise polynomials (`panels`) resolve it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian import panels, quadrature
from notsodeep.gaussian.panels import Panels
from notsodeep.gaussian.shapes import Shape, TorchForm, in_chunks
from notsodeep.validation import Array

# How far out a function is examined when it is created; further out where the data need it.
FIRST_LOOK = 64.0
# Change of slope, relative to the size of the function, that the checks of `panels` are sure to detect.
WEAKEST_KINK = 1e-9
_HOW_TO_WRITE_IT = (
    "It must take a NumPy array and return one of the same shape: write it with NumPy's functions (np.where for cases) "
    "or wrap a function of one number in numpy.vectorize(f, otypes=[float])."
)


class Custom(Shape):
    """A function that is smooth between its declared kinks; quadrature splits at the panels that resolve it.

    Args:
        function: the function of an array.
        derivative: its derivative; None to use that of the polynomials which resolve it.
        kinks: where the function or one of its derivatives jumps.
        torch: the same function of a tensor; None if `function` takes tensors, or if there is none.
        name: what messages call the function; its own name if None.

    Raises:
        InputError: where the function is not smooth between its kinks, jumps at one, or is not finite.
    """

    features_anywhere = True
    inaccuracy = 4.0 * panels.RESOLVED
    caveat = (
        f"The activation is known only where it was called, at points {panels.PROBES:g}·|x| apart "
        f"({panels.PROBES * panels.CORE:g} near zero) and to {-np.log10(panels.RESOLVED):.0f} "
        f"digits: a feature narrower than that, and a kink that changes the slope by less than {WEAKEST_KINK:g} of the "
        "function's size, cannot be excluded."
    )

    def __init__(
        self,
        function: Callable[[Array], Array],
        derivative: Callable[[Array], Array] | None = None,
        kinks: tuple[float, ...] = (),
        torch: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        self.function, self.derivative, self.tensor_function = function, derivative, torch
        self.kinks = tuple(sorted(kinks))
        self.name = str(name or getattr(function, "__name__", "custom"))
        self._panels = lru_cache(maxsize=16)(self._resolved_up_to)
        self._panels(FIRST_LOOK)
        self._check_continuity()
        if derivative is not None:
            self._check_derivative(derivative)

    def __repr__(self) -> str:
        return f"custom({self.name})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Custom, (self.function, self.derivative, self.kinks, self.tensor_function, self.name)

    # --- values ---------------------------------------------------------------------------------------------------

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order; that of the polynomials where the user gave none."""
        if order == 0:
            return self._evaluated(self.function, x)
        if order == 1 and self.derivative is not None:
            return self._evaluated(self.derivative, x)
        return self._panels_around(x).derivative(x, order)

    def _evaluated(self, function: Callable[[Array], Array], x: Array) -> Array:
        """Call a user's function on a copy of x, with at least one axis and never empty, and check the result."""
        argument = np.array(x, dtype=np.float64, ndmin=1)
        if not argument.size:
            return np.array(x, dtype=np.float64)
        shape = argument.shape
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(function(argument))
                result = result.astype(np.float64) if result.dtype.kind == "O" else result
        except Exception as error:
            raise InputError(
                f"The activation {self.name!r} cannot be called with an array: {type(error).__name__}: {error}. "
                f"{_HOW_TO_WRITE_IT}"
            ) from error
        if result.shape != shape:
            raise InputError(
                f"The activation {self.name!r} returned shape {result.shape} for input of shape {shape}. "
                f"{_HOW_TO_WRITE_IT}"
            )
        if result.dtype.kind not in "fc" or result.dtype.itemsize < 8:
            raise InputError(
                f"The activation {self.name!r} returned values of type {result.dtype}; numbers in double precision "
                f"(float64) are needed. {_HOW_TO_WRITE_IT}"
            )
        if np.iscomplexobj(result) or not np.all(np.isfinite(result)):
            position = float(np.ravel(x)[int(np.argmin(np.isfinite(np.ravel(result))))])
            raise InputError(
                f"The activation {self.name!r} is not a finite real number at x = {position:.6g}, but every x can "
                "occur: keep it from overflowing there, and from roots, logarithms and fractional powers of what is "
                "negative."
            )
        return np.asarray(result.reshape(np.shape(x)), dtype=np.float64)

    # --- checks ---------------------------------------------------------------------------------------------------

    def _check_continuity(self) -> None:
        """Refuse a function that jumps at one of its kinks."""
        kinks = np.array(self.kinks)
        size = 1.0 + np.abs(self(kinks))
        gaps = np.abs(self(np.nextafter(kinks, np.inf)) - self(np.nextafter(kinks, -np.inf)))
        if np.any(gaps > 1e-9 * size):
            raise InputError(
                f"The activation {self.name!r} jumps at {kinks[int(np.argmax(gaps / size))]:g}. Only continuous "
                "functions are supported: replace the jump by a steep slope."
            )

    def _check_derivative(self, derivative: Callable[[Array], Array]) -> None:
        """Refuse a derivative that is not that of the polynomials."""
        x = self._points_off_kinks(8.0, 257)
        given, measured = self._evaluated(derivative, x), self._panels_around(x).derivative(x, 1)
        scale = max(1.0, float(np.abs(measured).max()))
        if not np.allclose(given, measured, atol=1e-6 * scale, rtol=0.0):
            worst = float(x[int(np.argmax(np.abs(given - measured)))])
            raise InputError(
                f"The derivative given for {self.name!r} is not the derivative of the function near x = {worst:.4g}. "
                "Correct it, or leave it out: it is then computed from the function."
            )

    def _points_off_kinks(self, reach: float, count: int) -> Array:
        points = np.linspace(-reach, reach, count) + 0.0123
        return points[[all(abs(v - kink) > 1e-3 for kink in self.kinks) for v in points]]

    def refuse_kink(self, position: float) -> NoReturn:
        """Raise an InputError that advises to declare a kink at this place."""
        if any(abs(position - kink) < 1e-6 * max(1.0, abs(kink)) for kink in self.kinks):
            raise InputError(
                f"The activation {self.name!r} is not smooth beside its declared kink at {position:.9g} (it jumps, "
                "or has an infinite slope). Continuous functions with finite slopes on both sides are supported."
            )
        declared = ", ".join(repr(kink) for kink in (*self.kinks, position))
        raise InputError(
            f"The activation {self.name!r} is not smooth at x ≈ {position:.9g}. If it has a kink there, declare it: "
            f"custom_activation(f, kinks=({declared},)); a jump is not supported. Rounding errors above the 13th "
            "digit (single precision, cancellation) also count as a lack of smoothness."
        )

    # --- panels and quadrature ------------------------------------------------------------------------------------

    def _resolved_up_to(self, limit: float) -> Panels:
        try:
            return panels.resolve(self, self.kinks, limit)
        except panels.NotSmoothError as error:
            self.refuse_kink(error.position)
        except panels.TooLongError:
            raise InputError(
                f"The activation {self.name!r} varies too fast to be resolved between ±{limit:g}: it takes more than "
                f"{panels.MOST} polynomials of degree {panels.DEGREE}. Scale the samples down, so that pre-activations "
                "are smaller, or use a slower function."
            ) from None

    def _panels_around(self, x: Array) -> Panels:
        """Panels that reach beyond every x."""
        return self._panels(_octave(float(np.max(np.abs(x), initial=0.0))))

    def slope_grid(self, reach: float = FIRST_LOOK) -> Array:
        """Nodes of each panel up to FIRST_LOOK: dense enough to see everything that the function does there."""
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
        """Refuse a function whose square, times the Gaussian density, is not negligible where the quadrature stops."""
        points = np.linspace(-quadrature.REACH, quadrature.REACH, 201)
        heights = self(scale * points) ** 2 * np.exp(-0.5 * points**2)
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

    # --- in torch -------------------------------------------------------------------------------------------------

    def torch_form(self, torch: Any) -> TorchForm | None:
        """The function given for tensors, or `function` itself if it takes them; None if it does not.

        Raises:
            InputError: if the function given for tensors is not the same function.
        """
        function = self.function if self.tensor_function is None else self.tensor_function
        reason = self._differs_on_tensors(torch, function)
        if reason and self.tensor_function is not None:
            raise InputError(
                f"The function of tensors given for the activation {self.name!r} {reason}. It must take and return a "
                "tensor of one shape and type, and be differentiable by autograd."
            )
        if reason:
            return None
        return TorchForm(function, torch.func.grad(lambda x: function(x).sum()))

    def _differs_on_tensors(self, torch: Any, function: Callable[[Any], Any]) -> str:
        """Why a function of tensors is not this activation; empty if it is."""
        points = self._points_off_kinks(4.0, 65)
        x = torch.tensor(points, requires_grad=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value, single = function(x), function(x.detach().float())
                if not all(isinstance(y, torch.Tensor) and y.shape == x.shape for y in (value, single)):
                    return "does not return a tensor of the shape of its argument"
                if value.dtype != x.dtype or single.dtype != torch.float32:
                    return "changes the type of its argument"
                slope = torch.autograd.grad(value.sum(), x)[0] if value.requires_grad else torch.zeros_like(x)
        except Exception as error:
            return f"cannot be called: {type(error).__name__}: {error}"
        for tensor, expected, digits in ((value, self(points), 1e-9), (slope, self(points, 1), 1e-6)):
            allowed = digits * max(1.0, float(np.abs(expected).max()))
            if not np.allclose(tensor.detach().numpy(), expected, rtol=0.0, atol=allowed):
                return "has other values or slopes than the function of arrays"
        return ""


def _octave(limit: float) -> float:
    """The first of FIRST_LOOK, 2 FIRST_LOOK, 4 FIRST_LOOK, … that is not below the limit."""
    reach = FIRST_LOOK
    while reach < limit:
        reach *= 2.0
    return reach
