"""Explicit networks: hidden layers one after the other, which may see the input again (docs/theory.md, section 1).

Explicit(["relu", "relu"])                                              # (1.4)
Explicit(["relu"] * 3, weights=[0.8, 0.2, 0.2], inject=[0.8, 0.8])      # (7.8): here a ReLU DEQ, cut after 3 steps
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from notsodeep.cells import expressions as cells
from notsodeep.cells.structure import cell_of
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.activations import activation as as_activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping
from notsodeep.kernel_names import Kernel
from notsodeep.models.cell_rows import CellRows
from notsodeep.models.plan import EVERY
from notsodeep.models.programs import LayerInput
from notsodeep.models.protocol import RowModel, Samples, WriteActivation, as_tau
from notsodeep.models.variances import largest_layer_variance
from notsodeep.validation import as_variance

_VARIANCES = ("weights", "inject")


class FeedforwardModel:
    """What networks of layers have in common, whatever their samples are."""

    layers: tuple[Activation, ...]
    weights: tuple[float, ...]
    inject: tuple[float, ...]
    bias2: float

    def _set_layers(
        self,
        layers: Iterable[str | Activation],
        weights: Sequence[float] | None,
        inject: Sequence[float] | None,
        bias2: float,
    ) -> None:
        if isinstance(layers, str | Activation):
            raise InputError(
                "Explicit takes a list of layers: Explicit(['relu', 'relu']), or Explicit(['relu']) for one."
            )
        resolved = tuple(as_activation(layer) for layer in layers)
        if not resolved:
            raise InputError("Explicit needs at least one hidden layer.")
        count = len(resolved)
        object.__setattr__(self, "layers", resolved)
        object.__setattr__(self, "weights", _variances(weights, "weights", count, 1.0))
        object.__setattr__(self, "inject", _variances(inject, "inject", count - 1, 0.0))
        object.__setattr__(self, "bias2", as_variance(bias2, "bias2"))

    @property
    def dense(self) -> Explicit:
        """The network of rows with the same layers."""
        return Explicit(self.layers, weights=self.weights, inject=self.inject, bias2=self.bias2)

    def with_layers(self, layers: Iterable[Activation]) -> Self:
        """The same network with other activations."""
        network: Self = replace(cast(Any, self), layers=tuple(layers))
        return network

    @property
    def is_plain(self) -> bool:
        """Whether all weights have variance 1, only the first layer sees the input, and there is no bias: (1.4)."""
        return all(layer.is_plain for layer in self.inputs)

    @property
    def inputs(self) -> tuple[LayerInput, ...]:
        """What enters each layer, (7.9) or, for images, (10.5)."""
        variances = zip(self.layers, self.weights, (0.0, *self.inject), strict=True)
        return tuple(LayerInput(*layer, self.bias2) for layer in variances)

    def centred(self, tau0: float) -> Self:
        """Each layer shifted so that its output has mean zero at the scale of its own input.

        Inputs have norm tau0; images have |x(s)| = tau0 at every position.
        """
        return self.with_layers([phi for phi, _ in self._signals(tau0, centre=True)])

    def preactivation_variances(self, tau0: float) -> tuple[float, ...]:
        """The variance of what enters each activation, for inputs of norm tau0: the diagonal of (7.9)."""
        return tuple(variance for _, variance in self._signals(tau0))

    def _signals(self, tau0: float, *, centre: bool = False) -> Iterator[tuple[Activation, float]]:
        """Each activation, shifted to mean zero if `centre`, and the variance of what enters it."""
        square = as_tau(tau0) ** 2
        q = square
        for layer in self.inputs:
            q = layer.weight * q + layer.inject * square + layer.constant
            phi = layer.phi.shifted(-float(mean_derivative(layer.phi, q, 0))) if centre else layer.phi
            yield phi, q
            q = float(second_moment(phi, q))

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activations of the layers, in order."""
        return self.layers

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation, over all layers and all inputs of norms up to `norm`."""
        return largest_layer_variance(self.inputs, norm)


@dataclass(frozen=True, init=False)
class Explicit(FeedforwardModel, RowModel):
    """A feed-forward network x^(l) = σ_l(√w_l W_l x^(l-1) + √c_l B_l x + bias)/√m_l, (1.4) and (7.8).

    Args:
        layers: the activations σ_l, by name or as Activations. An output scale is the amplitude of the last one:
            `phi.scaled(amplitude)`.
        weights: the variances w_l of the weights, one for each layer; all 1 if not given.
        inject: the variances c_l of the weights that read the input again, one for each layer after the first; all 0 if
            not given: only the first layer sees the input.
        bias2: variance of the bias of every layer.
    """

    layers: tuple[Activation, ...]
    weights: tuple[float, ...]
    inject: tuple[float, ...]
    bias2: float

    def __init__(
        self,
        layers: Iterable[str | Activation],
        *,
        weights: Sequence[float] | None = None,
        inject: Sequence[float] | None = None,
        bias2: float = 0.0,
    ) -> None:
        self._set_layers(layers, weights, inject, bias2)

    @property
    def step(self) -> cells.Node:
        """The network as an expression of `notsodeep.cells`, without a state."""
        read = cells.input()
        signal: cells.Node = read
        for layer in self.inputs:
            entering: cells.Node = cells.dense(signal, layer.weight)
            entering = entering + cells.dense(read, layer.inject) if layer.inject else entering
            entering = cells.bias(entering, layer.constant) if layer.constant else entering
            signal = cells.activation(entering, layer.phi)
        return signal

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> CellRows:
        """The layer recursion (3.11), with injection (7.9)."""
        return CellRows(cell_of(self, from_zero=True), 1, left, right, kernels, paper=EVERY)

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole network as plain JSON values, from which `model_from_dict` makes it again.

        Raises:
            InputError: for a custom callable, unless `write` can give it a serial form.
        """
        variances: dict[str, Any] = (
            {} if self.is_plain else {name: list(getattr(self, name)) for name in _VARIANCES}
        )
        if self.bias2:
            variances["bias2"] = self.bias2
        return {"kind": "explicit", "layers": [write(layer) for layer in self.layers], **variances}

    @classmethod
    def from_dict(cls, data: Any) -> Explicit:
        """The network that `to_dict` wrote down; a plain one has no variances in it."""
        given = [name for name in (*_VARIANCES, "bias2") if name in mapping(data, "a model")]
        entry = mapping(data, "a model", ("kind", "layers", *given))
        if not isinstance(entry["layers"], list):
            raise InputError(f"The layers of a network must be a list, not {type(entry['layers']).__name__}.")
        layers = [activation_from_dict(layer) for layer in entry["layers"]]
        return cls(layers, **{name: entry[name] for name in given})

    def __str__(self) -> str:
        bias = [f"bias2={self.bias2:g}"] if self.bias2 else []
        return f"Explicit({', '.join([*layer_words(self.inputs), *bias])})"


def layer_words(inputs: Sequence[LayerInput]) -> list[str]:
    """The arguments that make these layers: activations and, unless all of them are plain, variances."""
    words = [f"[{', '.join(str(layer.phi) for layer in inputs)}]"]
    if any((layer.weight, layer.inject) != (1.0, 0.0) for layer in inputs):
        numbers = [layer.weight for layer in inputs], [layer.inject for layer in inputs[1:]]
        words += [
            f"{name}=[{', '.join(f'{v:.6g}' for v in given)}]"
            for name, given in zip(_VARIANCES, numbers, strict=True)
        ]
    return words


def _variances(given: Sequence[float] | None, name: str, count: int, default: float) -> tuple[float, ...]:
    """As many variances as there are weights of this kind, none negative."""
    if given is None:
        return (default,) * count
    who = "one for each layer" if name == "weights" else "one for each layer after the first"
    try:
        values = tuple(as_variance(value, name) + 0.0 for value in given)
    except TypeError:
        raise InputError(f"{name} must be a list of variances, {who}; got {given!r}.") from None
    if len(values) != count:
        raise InputError(f"{name} takes {count} variances here, {who}; got {len(values)}.")
    return values


__all__ = ["Explicit", "FeedforwardModel", "layer_words"]
