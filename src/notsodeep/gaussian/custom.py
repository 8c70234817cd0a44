"""A user's own function as an activation: for NumPy, and for torch where it takes tensors too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian import panels
from notsodeep.gaussian.backend import TorchForm
from notsodeep.gaussian.resolved import Resolved, checked_values
from notsodeep.validation import Array

# Change of slope, relative to the size of the function, that the checks of `panels` are sure to see.
WEAKEST_KINK = 1e-9
_HOW_TO_WRITE_IT = (
    "It must take a NumPy array and return one of the same shape: write it with NumPy's functions (np.where for cases) "
    "or wrap a function of one number in numpy.vectorize(f, otypes=[float])."
)


class Custom(Resolved):
    """A user's function.

    Args:
        function: of an array.
        derivative: its derivative; None to take that of the polynomials which resolve it.
        kinks: where it or one of its derivatives jumps.
        torch: the same function of a tensor; None if `function` takes tensors, or if there is none.
    """

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
    ) -> None:
        self.function, self.derivative, self.tensor_function = function, derivative, torch
        self.kinks = tuple(sorted(kinks))
        self.name = getattr(function, "__name__", "custom")
        self.resolve()
        if derivative is not None:
            self._check_derivative(derivative)

    def __repr__(self) -> str:
        return f"custom({self.name})"

    def __reduce__(self) -> tuple[type[Custom], tuple[object, ...]]:
        return Custom, (self.function, self.derivative, self.kinks, self.tensor_function)

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order: of the polynomials, where the user gave none."""
        if order == 0:
            return self.values(x)
        if order == 1 and self.derivative is not None:
            return self._called(self.derivative, x)
        return self.panels_around(x).derivative(x, order)

    def values(self, x: Array) -> Array:
        """The user's function on x, checked: same shape, double precision, finite."""
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
                f"The activation {self.name!r} cannot be called with an array: {type(error).__name__}: {error}. "
                f"{_HOW_TO_WRITE_IT}"
            ) from error
        if result.shape != form:
            raise InputError(
                f"The activation {self.name!r} returned shape {result.shape} for input of shape {form}. "
                f"{_HOW_TO_WRITE_IT}"
            )
        if result.dtype.kind not in "fc" or result.dtype.itemsize < 8:
            raise InputError(
                f"The activation {self.name!r} returned values of type {result.dtype}; numbers in double precision "
                f"(float64) are needed. {_HOW_TO_WRITE_IT}"
            )
        return checked_values(x, result.reshape(np.shape(x)), self._refuse_value)

    def _check_derivative(self, derivative: Callable[[Array], Array]) -> None:
        """The derivative that the user gave must be that of the polynomials."""
        x = np.linspace(-8.0, 8.0, 257) + 0.0123
        x = x[[all(abs(v - kink) > 1e-3 for kink in self.kinks) for v in x]]
        given, measured = self._called(derivative, x), self.panels_around(x).derivative(x, 1)
        scale = max(1.0, float(np.abs(measured).max()))
        if not np.allclose(given, measured, atol=1e-6 * scale, rtol=0.0):
            worst = float(x[int(np.argmax(np.abs(given - measured)))])
            raise InputError(
                f"The derivative given for {self.name!r} is not the derivative of the function near x = {worst:.4g}. "
                "Correct it, or leave it out: it is then computed from the function."
            )

    def _refuse_value(self, position: float) -> NoReturn:
        raise InputError(
            f"The activation {self.name!r} is not a finite real number at x = {position:.6g}. Its Gaussian moments "
            "need it there: use a version that does not overflow, or scale the data down."
        )

    def refuse(self, position: float) -> NoReturn:
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
            "digit (single precision, cancellation) are taken for a lack of smoothness too."
        )

    # --- in torch -----------------------------------------------------------------------------------------------------

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
        points = np.linspace(-4.0, 4.0, 65) + 0.0123
        points = points[[all(abs(v - kink) > 1e-3 for kink in self.kinks) for v in points]]
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
        for found, expected, digits in ((value, self(points), 1e-9), (slope, self(points, 1), 1e-6)):
            allowed = digits * max(1.0, float(np.abs(expected).max()))
            if not np.allclose(found.detach().numpy(), expected, rtol=0.0, atol=allowed):
                return "has other values or slopes than the function of arrays"
        return ""
