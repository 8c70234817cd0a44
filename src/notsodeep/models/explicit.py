"""Explicit networks: hidden layers one after the other (docs/theory.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.gaussian.serial import activation_description
from notsodeep.kernel_names import Kernel
from notsodeep.models.parameters import as_activation, as_tau
from notsodeep.models.programs import Feedforward
from notsodeep.models.protocol import Program, RowModel, Samples


@dataclass(frozen=True, init=False)
class Explicit(RowModel):
    """A feed-forward network x^(l) = σ_l(W_l x^(l-1))/√m_l with the given hidden layers, (1.4)."""

    layers: tuple[Activation, ...]

    def __init__(self, layers: Iterable[str | Activation]) -> None:
        if isinstance(layers, str | Activation):
            raise InputError(
                "Explicit takes a list of layers: Explicit(['relu', 'relu']), or Explicit(['relu']) for one."
            )
        resolved = tuple(as_activation(layer) for layer in layers)
        if not resolved:
            raise InputError("Explicit needs at least one hidden layer.")
        object.__setattr__(self, "layers", resolved)

    def centred(self, tau0: float) -> Explicit:
        """Each layer shifted so that its output has mean zero at the scale of its own input."""
        q, centred = as_tau(tau0) ** 2, []
        for layer in self.layers:
            shifted = layer.shifted(-float(mean_derivative(layer, q, 0)))
            centred.append(shifted)
            q = float(second_moment(shifted, q))
        return Explicit(centred)

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> Program:
        """The layer recursion (3.11)."""
        return Feedforward(self.layers, left, right, any(kernel.is_tangent for kernel in kernels))

    def to_dict(self) -> dict[str, Any]:
        """The layers, complete."""
        return {"kind": "explicit", "layers": [activation_description(layer) for layer in self.layers]}

    def __str__(self) -> str:
        return f"Explicit([{', '.join(str(layer) for layer in self.layers)}])"


__all__ = ["Explicit"]
