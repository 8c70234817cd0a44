"""What one neuron of each hidden layer sees: docs/theory.md (14.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array


@dataclass(frozen=True)
class HiddenLayer:
    """One hidden layer: its pre-activations have the covariance Λ = weight · Φ_source + inject · C + constant.

    Attributes:
        phi: the activation.
        weight: variance of the weights that read `source`; 0 for a layer that reads the input alone.
        source: index of the layer that is read; its own index for a DEQ.
        inject: variance of the weights that read the input.
        constant: variance of the bias.
    """

    phi: Activation
    weight: float
    source: int
    inject: float
    constant: float

    def covariance(self, features: Array, gram: Array) -> Array:
        """Λ from the second moments of the source's features and the Gram matrix of the inputs."""
        return self.weight * features + self.inject * gram + self.constant


@singledispatch
def hidden_layers(model: Model) -> tuple[HiddenLayer, ...]:
    """The hidden layers of a model, the last one is read out."""
    raise InputError(
        f"The kernel after learning is known for DEQ and Explicit, not for {type(model).__name__}. Flatten images "
        "and use a DEQ of rows."
    )


@hidden_layers.register
def _(model: DEQ) -> tuple[HiddenLayer, ...]:
    return (HiddenLayer(model.activation, model.sigma_a2, 0, model.sigma_b2, model.bias2),)


@hidden_layers.register
def _(model: Explicit) -> tuple[HiddenLayer, ...]:
    first, *later = model.inputs
    layers: list[Any] = [HiddenLayer(first.phi, 0.0, 0, first.weight, first.constant)]
    for index, layer in enumerate(later):
        layers.append(HiddenLayer(layer.phi, layer.weight, index, layer.inject, layer.constant))
    return tuple(layers)


@singledispatch
def lazy_kernels(model: Model, X: Array) -> list[Array]:
    """Φ of every hidden layer before learning: conjugate kernels."""
    return [conjugate_kernel(model, X)]


@lazy_kernels.register
def _(model: Explicit, X: Array) -> list[Array]:
    cuts = [
        Explicit(
            model.layers[:depth],
            weights=model.weights[:depth],
            inject=model.inject[: depth - 1],
            bias2=model.bias2,
        )
        for depth in range(1, len(model.layers) + 1)
    ]
    return [conjugate_kernel(cut, X) for cut in cuts]


__all__ = ["HiddenLayer", "hidden_layers", "lazy_kernels"]
