"""The smooth family a x + b softplus(k x) + c tanh(k' x): smoother than any function with kinks, of linear growth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, register_activation
from notsodeep.gaussian.shapes import Array, Shape
from notsodeep.gaussian.smooth import Smooth

NAME = "smooth_sum"
_SOFTPLUS, _TANH = Smooth("softplus"), Smooth("tanh")


@dataclass(frozen=True)
class SmoothSumShape(Shape):
    """linear · x + bend · softplus(sharpness · x) + bounded · tanh(clip · x); moments by quadrature."""

    linear: float
    bend: float
    sharpness: float
    bounded: float
    clip: float

    @property
    def parity(self) -> int:  # type: ignore[override]
        """Odd without the softplus."""
        return -1 if self.bend == 0.0 else 0

    @property
    def feature(self) -> float:  # type: ignore[override]
        """The finer of the two lengths."""
        return min(_SOFTPLUS.feature / self.sharpness, _TANH.feature / self.clip)

    def __call__(self, x: Array, order: int = 0) -> Array:
        """The derivative of the given order."""
        value = self.bend * self.sharpness**order * _SOFTPLUS(self.sharpness * x, order)
        value = value + self.bounded * self.clip**order * _TANH(self.clip * x, order)
        if order == 0:
            return np.asarray(value + self.linear * x)
        return np.asarray(value + self.linear if order == 1 else value)


def smooth_layer(linear: float, bend: float, sharpness: float, bounded: float, clip: float) -> Activation:
    """linear · x + bend · softplus(sharpness · x) + bounded · tanh(clip · x) as an activation named smooth_sum."""
    numbers = {"linear": linear, "bend": bend, "sharpness": sharpness, "bounded": bounded, "clip": clip}
    for name, value in numbers.items():
        if not np.isfinite(value):
            raise InputError(f"smooth_sum needs finite numbers, but {name} = {value}.")
    if sharpness <= 0 or clip <= 0:
        raise InputError(
            f"smooth_sum needs sharpness > 0 and clip > 0, got {sharpness} and {clip}; put signs in bend and bounded."
        )
    shape = SmoothSumShape(**{name: float(value) for name, value in numbers.items()})
    return Activation(shape, NAME, tuple((name, float(value)) for name, value in numbers.items()))


register_activation(NAME, smooth_layer)
