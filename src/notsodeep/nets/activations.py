"""Every activation of the package as torch operations: the same function, its slope and its Lipschitz constant.

The function itself is differentiable by autograd; the slope is written out because the adjoint equation of
docs/theory.md (9.4) needs it at every step, and because the two can then be tested against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional

from notsodeep.designs.smooth_sum import SmoothSumShape
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.custom import FIRST_LOOK, Custom
from notsodeep.gaussian.expressions import FUNCTIONS, derivative, walk
from notsodeep.gaussian.formula import Formula
from notsodeep.gaussian.shapes import PiecewiseLinear, Polynomial, Shape, Wave
from notsodeep.gaussian.smooth import Smooth
from notsodeep.nets.formulas import PLAIN, TensorSlopes, TensorValues

Elementwise = Callable[[Tensor], Tensor]
# F.softplus is linear beyond its threshold; at 40 what it drops, e^-40, is below the rounding of float64.
_SOFTPLUS_THRESHOLD = 40.0


@dataclass(frozen=True)
class _TorchShape:
    value: Elementwise
    slope: Elementwise
    # Overwrites its argument, or writes elsewhere; only called where no gradient is recorded.
    in_place: Elementwise | None = None
    into: Callable[..., Tensor] | None = None


class TorchActivation:
    """φ(h) = amplitude · shape(gain · h) + offset on tensors.

    Args:
        phi: the activation.
        scale: an extra factor on the output, for the 1/√m of docs/theory.md (1.1).
    """

    def __init__(self, phi: Activation, scale: float = 1.0) -> None:
        self.phi = phi.scaled(scale)
        self._shape = _torch_shape(self.phi.shape)

    def __reduce__(self) -> tuple[type[TorchActivation], tuple[Activation]]:
        return TorchActivation, (self.phi,)

    def __call__(self, h: Tensor) -> Tensor:
        """φ(h), differentiable."""
        phi = self.phi
        y = self._shape.value(h if phi.gain == 1.0 else phi.gain * h)
        y = y if phi.amplitude == 1.0 else phi.amplitude * y
        return y if phi.offset == 0.0 else y + phi.offset

    def slope(self, h: Tensor) -> Tensor:
        """φ'(h); at a kink the slope on its left."""
        phi = self.phi
        slope = self._shape.slope(h if phi.gain == 1.0 else phi.gain * h)
        factor = phi.amplitude * phi.gain
        return slope if factor == 1.0 else factor * slope

    def write(self, h: Tensor, out: Tensor) -> Tensor:
        """φ(h) into the memory of `out`; for loops that record no gradient."""
        phi = self.phi
        if self._shape.into is not None and phi.gain == 1.0:
            self._shape.into(h, out=out)
        elif self._shape.in_place is not None:
            self._shape.in_place(torch.mul(h, phi.gain, out=out))
        else:
            return out.copy_(self(h))
        if phi.amplitude != 1.0:
            out.mul_(phi.amplitude)
        return out if phi.offset == 0.0 else out.add_(phi.offset)


def lipschitz(phi: Activation) -> float:
    """Lip(φ) = sup |φ'|, needed for docs/theory.md (1.5); infinite for what grows faster than a line."""
    factor = abs(phi.amplitude * phi.gain)
    if factor == 0.0:
        return 0.0
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear):
        return factor * max(abs(slope) for slope in shape.slopes)
    if isinstance(shape, Polynomial):
        degree = max((k for k, c in enumerate(shape.coefficients) if c != 0.0), default=0)
        return factor * abs(shape.coefficients[1]) if degree == 1 else np.inf if degree > 1 else 0.0
    steepest = _steepest(shape)
    return np.inf if isinstance(shape, Formula) and _steeper_far_out(shape, steepest) else factor * steepest


def _steeper_far_out(shape: Formula, steepest: float) -> bool:
    """Whether the slope of a formula goes on growing; where its derivative cannot be computed nothing is known."""
    with np.errstate(all="ignore"):
        slopes = np.abs(derivative(shape.tree, np.array([-1e8, -1e4, 1e4, 1e8]), 1))
    return bool(np.any(slopes > 1.001 * steepest))


def _steepest(shape: Shape) -> float:
    """The largest |shape'|: a scan near zero, at all larger scales and at the kinks, then a search around the best."""
    near = np.arange(0.0, 40.0 * shape.feature, 0.02 * shape.feature)
    far = np.geomspace(shape.feature, FIRST_LOOK if isinstance(shape, Custom) else 1e9, 2000)
    kinks = np.array(shape.kinks)
    inner = shape.nodes() if isinstance(shape, Custom) else np.empty(0)
    points = np.unique(np.concatenate([-far, -near, inner, kinks, np.nextafter(kinks, np.inf), near, far]))
    steepness = np.abs(shape(points, 1))
    best = int(np.argmax(steepness))
    found = minimize_scalar(
        lambda x: -abs(float(shape(np.array([x]), 1)[0])),
        bounds=(points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)]),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return max(float(steepness.max()), -float(found.fun))


# --- shapes ---------------------------------------------------------------------------------------------------------


def _torch_shape(shape: Shape) -> _TorchShape:
    if isinstance(shape, PiecewiseLinear):
        return _piecewise_linear(shape)
    if isinstance(shape, Polynomial):
        return _polynomial(shape)
    if isinstance(shape, Wave):
        if shape.sine:
            return _TorchShape(torch.sin, torch.cos, torch.sin_)
        return _TorchShape(torch.cos, lambda x: -torch.sin(x), torch.cos_)
    if isinstance(shape, Smooth) and shape.name in _SMOOTH:
        return _SMOOTH[shape.name](*shape.parameters)
    if isinstance(shape, SmoothSumShape):
        return _smooth_sum(shape)
    if isinstance(shape, Formula):
        return _formula(shape)
    return _TorchShape(lambda x: _bridge(x, shape, 0), lambda x: _bridge(x, shape, 1))


def _piecewise_linear(shape: PiecewiseLinear) -> _TorchShape:
    knots, slopes = shape.knots, shape.slopes
    if not knots:
        rate, constant = slopes[0], shape.value
        return _TorchShape(lambda x: rate * x + constant, lambda x: torch.full_like(x, rate))
    if knots == (0.0,) and shape.value == 0.0:
        return _two_rays(*slopes)
    if len(knots) == 2 and slopes[0] == slopes[2] == 0.0:
        return _clipped(shape)
    weights, start = shape.weights.tolist(), float(shape.intercepts[0])

    def value(x: Tensor) -> Tensor:
        y = slopes[0] * x + start
        for knot, weight in zip(knots, weights, strict=True):
            y = y + weight * torch.relu(x - knot)
        return y

    def slope(x: Tensor) -> Tensor:
        y = torch.full_like(x, slopes[0])
        for knot, weight in zip(knots, weights, strict=True):
            y = y + weight * (x > knot).to(x.dtype)
        return y

    return _TorchShape(value, slope)


def _two_rays(left: float, right: float) -> _TorchShape:
    """The slope `left` for x < 0, `right` for x > 0: ReLU and its relatives."""

    def slope(x: Tensor) -> Tensor:
        positive = (x > 0).to(x.dtype)
        return positive if (left, right) == (0.0, 1.0) else left + (right - left) * positive

    if (left, right) == (0.0, 1.0):
        return _TorchShape(torch.relu, slope, torch.relu_, _clamp_below)
    if right == 1.0 and left >= 0.0:
        return _TorchShape(
            lambda x: functional.leaky_relu(x, left),
            slope,
            lambda x: functional.leaky_relu(x, left, inplace=True),
        )
    if left == 0.0:
        return _TorchShape(lambda x: right * torch.relu(x), slope, lambda x: x.relu_().mul_(right))
    return _TorchShape(lambda x: left * x + (right - left) * torch.relu(x), slope)


def _clamp_below(x: Tensor, out: Tensor) -> Tensor:
    return torch.clamp(x, min=0.0, out=out)


def _clipped(shape: PiecewiseLinear) -> _TorchShape:
    """A ramp between two constants: hard_tanh, hard_sigmoid."""
    (low, high), rate = shape.knots, shape.slopes[1]
    constant = float(shape(np.array([low]))[0]) - rate * low

    def finish(y: Tensor) -> Tensor:
        y = y if rate == 1.0 else y.mul_(rate)
        return y if constant == 0.0 else y.add_(constant)

    return _TorchShape(
        lambda x: rate * torch.clamp(x, low, high) + constant,
        lambda x: rate * ((x > low) & (x <= high)).to(x.dtype),
        lambda x: finish(x.clamp_(low, high)),
    )


def _polynomial(shape: Polynomial) -> _TorchShape:
    def horner(coefficients: list[float]) -> Elementwise:
        def value(x: Tensor) -> Tensor:
            y = torch.full_like(x, coefficients[-1])
            for coefficient in reversed(coefficients[:-1]):
                y = y * x + coefficient
            return y

        return value

    series = list(shape.coefficients)
    return _TorchShape(horner(series), horner([k * c for k, c in enumerate(series)][1:] or [0.0]))


def _smooth_sum(shape: SmoothSumShape) -> _TorchShape:
    linear, bend, sharpness, bounded, clip = (
        shape.linear,
        shape.bend,
        shape.sharpness,
        shape.bounded,
        shape.clip,
    )

    def value(x: Tensor) -> Tensor:
        return linear * x + bend * _softplus(sharpness * x) + bounded * torch.tanh(clip * x)

    def slope(x: Tensor) -> Tensor:
        bent = bend * sharpness * torch.sigmoid(sharpness * x)
        return linear + bent + bounded * clip * (1.0 - torch.tanh(clip * x) ** 2)

    return _TorchShape(value, slope)


def _formula(shape: Formula) -> _TorchShape:
    named = {name: _SMOOTH[name]() for name in FUNCTIONS if name in _SMOOTH}
    functions = {**PLAIN, **{name: (entry.value, entry.slope) for name, entry in named.items()}}
    return _TorchShape(
        lambda x: walk(shape.tree, TensorValues(x, functions)),
        lambda x: walk(shape.tree, TensorSlopes(x, functions))[1],
    )


def _softplus(x: Tensor) -> Tensor:
    return functional.softplus(x, threshold=_SOFTPLUS_THRESHOLD)


def _normal_cdf(x: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-x * float(np.sqrt(0.5)))


def _normal_density(x: Tensor) -> Tensor:
    return float(1.0 / np.sqrt(2.0 * np.pi)) * torch.exp(-0.5 * x**2)


def _swish_slope(x: Tensor) -> Tensor:
    y = torch.sigmoid(x)
    return y * (1.0 + x * (1.0 - y))


def _mish_slope(x: Tensor) -> Tensor:
    y = torch.tanh(_softplus(x))
    return y + x * (1.0 - y**2) * torch.sigmoid(x)


def _elu(alpha: float) -> _TorchShape:
    return _TorchShape(
        lambda x: functional.elu(x, alpha),
        lambda x: torch.where(x > 0, torch.ones_like(x), alpha * torch.exp(x.clamp(max=0.0))),
        lambda x: functional.elu(x, alpha, inplace=True),
    )


_SMOOTH: dict[str, Callable[..., _TorchShape]] = {
    "tanh": lambda: _TorchShape(torch.tanh, lambda x: 1.0 - torch.tanh(x) ** 2, torch.tanh_, torch.tanh),
    "erf": lambda: _TorchShape(
        torch.erf, lambda x: float(2.0 / np.sqrt(np.pi)) * torch.exp(-(x**2)), torch.Tensor.erf_
    ),
    "swish": lambda: _TorchShape(functional.silu, _swish_slope, lambda x: functional.silu(x, inplace=True)),
    "gelu": lambda: _TorchShape(functional.gelu, lambda x: _normal_cdf(x) + x * _normal_density(x)),
    "softplus": lambda: _TorchShape(_softplus, torch.sigmoid),
    "mish": lambda: _TorchShape(functional.mish, _mish_slope, lambda x: functional.mish(x, inplace=True)),
    "arctan": lambda: _TorchShape(torch.atan, lambda x: 1.0 / (1.0 + x**2), torch.atan_),
    "softsign": lambda: _TorchShape(functional.softsign, lambda x: (1.0 + x.abs()) ** -2),
    "elu": _elu,
}


class _Bridge(torch.autograd.Function):
    """A shape that torch does not know (a user's callable), evaluated by NumPy on the CPU."""

    @staticmethod
    def forward(x: Tensor, shape: Shape, order: int) -> Tensor:
        values = shape(x.detach().to("cpu", torch.float64).numpy(), order)
        return torch.from_numpy(np.ascontiguousarray(values)).to(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.shape, ctx.order = inputs
        ctx.save_for_backward(x)

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
