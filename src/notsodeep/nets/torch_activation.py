"""Activations on torch tensors, with the memory and the factors that networks need.

What a function is in torch, its shape says (`gaussian.shapes.Shape.torch_form`).  A user's function that takes only
NumPy arrays is called through NumPy, with a warning.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import Shape, TorchForm

# Activations whose functions have the parameters of these modules.
_PARAMETRISED: dict[str, type[nn.Module]] = {
    "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "celu": nn.CELU, "gelu": nn.GELU, "softplus": nn.Softplus,
    "hardtanh": nn.Hardtanh,
}  # fmt: skip
_ACTIVATIONS = (
    "relu", "tanh", "sigmoid", "silu", "mish", "selu", "relu6", "softsign", "logsigmoid", "hardsigmoid", "erf", "sin",
    "cos", "arctan", "atan", "abs", "absolute", "special_erf", "special_expit", "expit",
)  # fmt: skip
_GELU_TANH = "0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))"


class TorchActivation:
    """φ(h) = amplitude · shape(gain · h) + offset on tensors.

    Args:
        phi: the activation.
        scale: an extra factor on the output, for the 1/√m of docs/theory.md (1.1).
    """

    def __init__(self, phi: Activation, scale: float = 1.0) -> None:
        self.phi = phi.scaled(scale)
        self._form = self.phi.shape.torch_form(torch) or _through_numpy(self.phi)

    def __reduce__(self) -> tuple[type[TorchActivation], tuple[Activation]]:
        return TorchActivation, (self.phi,)

    def __call__(self, h: Tensor) -> Tensor:
        """The scaled activation of a tensor, differentiable by autograd."""
        phi = self.phi
        y: Tensor = self._form.value(h if phi.gain == 1.0 else phi.gain * h)
        y = y if phi.amplitude == 1.0 else phi.amplitude * y
        return y if phi.offset == 0.0 else y + phi.offset

    def slope(self, h: Tensor) -> Tensor:
        """φ'(h), differentiable; at a kink the slope on its left."""
        phi = self.phi
        slope: Tensor = self._form.slope(h if phi.gain == 1.0 else phi.gain * h)
        factor = phi.amplitude * phi.gain
        return slope if factor == 1.0 else factor * slope

    def write(self, h: Tensor, out: Tensor) -> Tensor:
        """φ(h) into the memory of `out`; for loops that record no gradient."""
        phi = self.phi
        torch.mul(self._form.value(h if phi.gain == 1.0 else phi.gain * h), phi.amplitude, out=out)
        return out if phi.offset == 0.0 else out.add_(phi.offset)


# --- functions that take only NumPy arrays ---------------------------------------------------------------------------

_warned: WeakSet[Shape] = WeakSet()


def _through_numpy(phi: Activation) -> TorchForm:
    """A function that torch cannot call, evaluated by NumPy on the CPU; says so once for each function."""
    shape = phi.shape
    if shape not in _warned:
        _warned.add(shape)
        warnings.warn(
            f"The activation {phi.name!r} takes only NumPy arrays. This network evaluates it on the CPU, in double "
            "precision, which is slow and moves the data off a GPU. Write it with operations that tensors have too, "
            "such as abs(x), x * x or x.clip(-1, 1), or give the same function of a tensor: "
            "custom_activation(f, torch=...).",
            UserWarning,
            stacklevel=_frames_of_the_package(),
        )
    return TorchForm(lambda x: _bridge(x, shape, 0), lambda x: _bridge(x, shape, 1))


def _frames_of_the_package() -> int:
    """The stack level of the caller outside of the package, for a warning raised where this function was called."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "notsodeep":
        level, frame = level + 1, frame.f_back
    return level


class _Bridge(torch.autograd.Function):
    """A function of NumPy arrays on tensors, with the shape's own derivatives for autograd."""

    @staticmethod
    def forward(x: Tensor, shape: Shape, order: int) -> Tensor:
        values = shape(x.detach().to("cpu", torch.float64).numpy(), order)
        return torch.from_numpy(np.ascontiguousarray(values)).to(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.shape, ctx.order = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (x,) = ctx.saved_tensors
        return tangent * _bridge(x, ctx.shape, ctx.order + 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return gradients[0] * _bridge(x, ctx.shape, ctx.order + 1), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, shape: Shape, order: int) -> tuple[Tensor, Any]:
        return _bridge(x, shape, order), in_dims[0]


def _bridge(x: Tensor, shape: Shape, order: int) -> Tensor:
    result: Tensor = _Bridge.apply(x, shape, order)  # type: ignore[no-untyped-call]
    return result


# --- functions and modules of torch as activations --------------------------------------------------------------------


def activation_of_function(name: str, args: Any, kwargs: Any) -> Any:
    """A function of torch, with its arguments after the first, as `cells.activation` takes it; None for others."""
    if name in _PARAMETRISED:
        values = (value for value in args if not isinstance(value, bool))
        return activation_of_module(_PARAMETRISED[name](*values, **kwargs))
    return name if name in _ACTIVATIONS else None


def activation_of_module(module: nn.Module) -> Any:
    """A module of torch as `cells.activation` takes it."""
    return _GELU_TANH if getattr(module, "approximate", "") == "tanh" else module
