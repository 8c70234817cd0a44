"""What enters one neuron of each hidden layer of a DEQ or an explicit network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array


@dataclass(frozen=True)
class HiddenLayer:
    """A layer whose pre-activations have the covariance Λ = weight · Φ_source + inject · XXᵀ + constant, (16.3)."""

    phi: Activation
    weight: float  # variance of the weights that read `source`; 0 if the layer reads the input alone
    source: int  # index of the layer that is read; of a DEQ its own
    inject: float  # variance of the weights that read the input
    constant: float  # variance of the bias

    def is_recurrent(self, index: int) -> bool:
        """Whether the layer of this index reads itself."""
        return self.source == index and self.weight > 0.0

    def covariance(self, features: Array, gram: Array) -> Array:
        """Compute Λ from Φ of the source and the inner products of the inputs."""
        return self.weight * features + self.inject * gram + self.constant


@singledispatch
def hidden_layers(model: Model) -> tuple[HiddenLayer, ...]:
    """List the hidden layers of a model; the last one is read out."""
    raise InputError(
        f"The kernel after learning is known for DEQ and Explicit, not for {type(model).__name__}. Flatten images and "
        "use a DEQ of rows."
    )


@hidden_layers.register
def _(model: DEQ) -> tuple[HiddenLayer, ...]:
    return (HiddenLayer(model.activation, model.sigma_a2, 0, model.sigma_b2, model.bias2),)


@hidden_layers.register
def _(model: Explicit) -> tuple[HiddenLayer, ...]:
    first, *later = model.inputs
    return (
        HiddenLayer(first.phi, 0.0, 0, first.weight + first.inject, first.constant),
        *(
            HiddenLayer(one.phi, one.weight, index, one.inject, one.constant)
            for index, one in enumerate(later)
        ),
    )
