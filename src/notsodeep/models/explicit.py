"""Explicit networks: hidden layers one after the other (docs/theory.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping
from notsodeep.kernel_names import Kernel
from notsodeep.models.parameters import as_activation, as_tau
from notsodeep.models.programs import Feedforward
from notsodeep.models.protocol import RowModel, Samples, WriteActivation
from notsodeep.models.variances import largest_feedforward_variance


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

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> Feedforward:
        """The layer recursion (3.11)."""
        return Feedforward(self.layers, left, right, any(kernel.is_tangent for kernel in kernels))

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activations of the layers, in order."""
        return self.layers

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole network as plain JSON values, from which `model_from_dict` makes it again.

        Raises:
            InputError: for a custom callable, unless `write` knows what to do with it.
        """
        return {"kind": "explicit", "layers": [write(layer) for layer in self.layers]}

    @classmethod
    def from_dict(cls, data: Any) -> Explicit:
        """The network that `to_dict` wrote down."""
        return cls.from_list(mapping(data, "a model", ("kind", "layers"))["layers"])

    @classmethod
    def from_list(cls, layers: Any) -> Explicit:
        """The network with these layers, each as `activation_to_dict` writes it."""
        if not isinstance(layers, list):
            raise InputError(f"The layers of a network must be a list, not {type(layers).__name__}.")
        return cls([activation_from_dict(layer) for layer in layers])

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation, over all layers and all inputs of norms up to `norm`."""
        return largest_feedforward_variance(self.layers[:-1], norm)

    def __str__(self) -> str:
        return f"Explicit([{', '.join(str(layer) for layer in self.layers)}])"


__all__ = ["Explicit"]
