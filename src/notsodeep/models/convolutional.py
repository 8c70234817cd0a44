"""Convolutional models: deep equilibrium models and explicit networks of images and sequences (section 10).

ConvDEQ("relu", sigma_a2=0.3, filter_size=3)                    # images (n, channels, height, width)
ConvExplicit(["relu", "relu"], readout="pool")                  # sequences (n, channels, length) as well
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping, number
from notsodeep.kernel_names import Kernel
from notsodeep.models.deq import VARIANCES, RecurrentModel, refuse_unknown
from notsodeep.models.explicit import FeedforwardModel, layer_words
from notsodeep.models.field_equilibrium import TOLERANCE
from notsodeep.models.image_programs import ImageEquilibrium, ImageFeedforward
from notsodeep.models.mixing import PADDINGS, Convolution
from notsodeep.models.programs import LayerInput
from notsodeep.models.protocol import Program, Samples, WriteActivation
from notsodeep.validation import Array, as_count, as_number, as_real, one_of

READOUTS = ("flatten", "pool")
# The largest tolerance: beyond it, Newton's method would not be needed.
LOOSEST = 1e-4
_GEOMETRY = ("filter_size", "padding", "readout")


def as_images(X: Any, name: str, filter_size: int) -> Array:
    """Images or sequences as a C-contiguous float64 array with at least as many positions as a filter has taps."""
    values = np.ascontiguousarray(as_real(X, name), dtype=np.float64)
    if values.ndim not in (3, 4):
        raise InputError(
            f"{name} must be images (n, channels, height, width) or sequences (n, channels, length); it has the "
            f"shape {values.shape}. Images of one channel: X[:, None]. Flattened images: "
            "X.reshape(-1, channels, height, width)."
        )
    if 0 in values.shape:
        raise InputError(f"{name} is empty: its shape is {values.shape}.")
    smallest = min(values.shape[2:])
    if smallest < filter_size:
        raise InputError(
            f"{name} has {' × '.join(map(str, values.shape[2:]))} positions, fewer than the {filter_size} "
            f"taps of the filter along an axis. Use a filter_size of at most {smallest - 1 + smallest % 2}."
        )
    if not np.isfinite(values).all():
        raise InputError(f"{name} has entries that are not finite. Remove or replace NaN and infinities.")
    return values


class ImageModel:
    """Base of the convolutional models, whose samples are images or sequences.

    Images are (n, channels, height, width), sequences (n, channels, length), scaled so that the mean of |x(s)|² over
    positions and samples is about 1.

    Attributes:
        filter_size: taps of a filter along each axis, an odd number.
        padding: what stands beyond the border, "zeros" or "circular" (the opposite side).
        readout: "flatten" has weights for every position, "pool" averages over all positions.
    """

    filter_size: int
    padding: str
    readout: str

    def _set_geometry(self, filter_size: int, padding: str, readout: str) -> None:
        taps = as_count(filter_size, "filter_size")
        if taps % 2 == 0:
            raise InputError(
                f"filter_size must be odd, so that a filter has a middle; got {taps}. Use {taps - 1} or {taps + 1}."
            )
        object.__setattr__(self, "filter_size", taps)
        object.__setattr__(self, "padding", one_of(padding, PADDINGS, "padding"))
        object.__setattr__(self, "readout", one_of(readout, READOUTS, "readout"))

    def check_samples(self, X: Any, name: str = "X") -> Array:
        """Images or sequences as a C-contiguous float64 array."""
        return as_images(X, name, self.filter_size)

    def squared_norms(self, samples: Array) -> Array:
        """|x(s)|² at every position of every sample, (n, positions)."""
        flat = samples.reshape(*samples.shape[:2], -1)
        return np.asarray(np.einsum("ics,ics->is", flat, flat))

    def _mixing(self, samples: Samples) -> Convolution:
        return Convolution(tuple(samples.values.shape[2:]), self.filter_size, self.padding)

    def _geometry(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _GEOMETRY}

    def _check_kernels(self, kernels: tuple[Kernel, ...]) -> None:
        for kernel in kernels:
            if kernel not in (Kernel.CK, Kernel.NTK):
                raise InputError(
                    f"A convolutional model has the kernels 'ck' and 'ntk'; {str(kernel)!r} is not defined for it."
                )


def _check_channels(left: Samples, right: Samples | None) -> None:
    if right is not None and left.values.shape[1:] != right.values.shape[1:]:
        raise InputError(
            f"The samples of X have the shape {left.values.shape[1:]}, those of Y {right.values.shape[1:]}: channels "
            "and positions must agree."
        )


def _rows(samples: Samples) -> Samples:
    """Samples of one position as rows of channels."""
    squares = None if samples.squares is None else samples.squares.reshape(-1)
    return replace(samples, values=samples.values.reshape(len(samples.values), -1), squares=squares)


def _as_tolerance(value: Any) -> float:
    """The largest residual of an equilibrium that is accepted, relative to √(Λ_ii Λ_jj)."""
    tolerance = TOLERANCE if value is None else as_number(value, "tolerance", positive=True)
    if not TOLERANCE <= tolerance <= LOOSEST:
        raise InputError(f"tolerance must be between {TOLERANCE:g} and {LOOSEST:g}, got {tolerance:g}.")
    return tolerance


@dataclass(frozen=True, init=False)
class ConvDEQ(RecurrentModel, ImageModel):
    """A convolutional deep equilibrium model, docs/theory.md (10.1): its filters read φ of itself and the input.

        u(s) = σ_a/√(q m) Σ_δ A(δ) φ(u(s+δ)) + σ_b/√q Σ_δ B(δ) x(s+δ) + bias     (q taps, m channels)

    Args:
        activation: φ, by name or as an Activation.
        sigma_a2: channels times taps times the variance of a recurrent weight.
        sigma_b2: taps times the variance of an input weight; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
        filter_size: taps of a filter along each axis, an odd number.
        padding: "zeros" or "circular".
        readout: "flatten" or "pool" (the average over all positions).
    """

    activation: Activation
    sigma_a2: float
    sigma_b2: float
    bias2: float
    filter_size: int
    padding: str
    readout: str

    def __init__(
        self,
        activation: str | Activation,
        sigma_a2: float = 0.2,
        sigma_b2: float | None = None,
        bias2: float = 0.0,
        *,
        filter_size: int = 3,
        padding: str = "zeros",
        readout: str = "flatten",
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, (*VARIANCES, "filter_size", "padding", "readout"))
        self._set_variances(activation, sigma_a2, sigma_b2, bias2)
        self._set_geometry(filter_size, padding, readout)

    def prepare(
        self,
        left: Samples,
        right: Samples | None,
        kernels: tuple[Kernel, ...],
        tolerance: float | None = None,
    ) -> Program:
        """One system of equations for each pair of samples, over their positions; one position is a row."""
        self._check_kernels(kernels)
        _check_channels(left, right)
        if left.values[0, 0].size == 1:
            return self.dense.prepare(_rows(left), right and _rows(right), kernels)
        layer = LayerInput(self.activation, self.sigma_a2, self.sigma_b2, self.bias2)
        mixing = self._mixing(left)
        return ImageEquilibrium([layer], mixing, self.readout, left, right, kernels, _as_tolerance(tolerance))

    def network(
        self,
        layers: Iterable[Activation],
        *,
        weights: Sequence[float] | None = None,
        inject: Sequence[float] | None = None,
    ) -> ConvExplicit:
        """An explicit network of these layers for the same samples: with the same filter, padding, readout and bias."""
        return ConvExplicit(layers, weights=weights, inject=inject, bias2=self.bias2, **self._geometry())

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole model as plain JSON values, from which `model_from_dict` makes it again."""
        return {
            **self.dense.to_dict(write),
            "kind": "conv_deq",
            **self._geometry(),
        }

    @classmethod
    def from_dict(cls, data: Any) -> ConvDEQ:
        """The model that `to_dict` wrote down."""
        names = ("sigma_a2", "sigma_b2", "bias2")
        entry = mapping(data, "a model", ("kind", "activation", *names, *_GEOMETRY))
        return cls(
            activation_from_dict(entry["activation"]),
            *(number(entry[name], name) for name in names),
            **_geometry_from(entry),
        )

    def __str__(self) -> str:
        geometry = f"filter_size={self.filter_size}, {self.padding}, {self.readout}"
        return f"Conv{str(self.dense)[:-1]}, {geometry})"


@dataclass(frozen=True, init=False)
class ConvExplicit(FeedforwardModel, ImageModel):
    """A feed-forward convolutional network whose layers may see the input again, docs/theory.md (10.5).

    Args:
        layers: the activations, by name or as Activations.
        weights: the variances of the weights, one for each layer; all 1 if not given.
        inject: the variances of the weights that read the input again, one for each layer after the first; all 0 if not
            given.
        bias2: variance of the bias of every layer.
        filter_size: taps of a filter along each axis, an odd number.
        padding: "zeros" or "circular".
        readout: "flatten" or "pool" (the average over all positions).
    """

    layers: tuple[Activation, ...]
    weights: tuple[float, ...]
    inject: tuple[float, ...]
    bias2: float
    filter_size: int
    padding: str
    readout: str

    def __init__(
        self,
        layers: Iterable[str | Activation],
        *,
        weights: Sequence[float] | None = None,
        inject: Sequence[float] | None = None,
        bias2: float = 0.0,
        filter_size: int = 3,
        padding: str = "zeros",
        readout: str = "flatten",
    ) -> None:
        self._set_layers(layers, weights, inject, bias2)
        self._set_geometry(filter_size, padding, readout)

    def prepare(
        self,
        left: Samples,
        right: Samples | None,
        kernels: tuple[Kernel, ...],
        tolerance: float | None = None,
    ) -> Program:
        """The layer recursion over the positions of each pair of samples; one position is a row."""
        self._check_kernels(kernels)
        _check_channels(left, right)
        if left.values[0, 0].size == 1:
            return self.dense.prepare(_rows(left), right and _rows(right), kernels)
        layers, mixing = list(self.inputs), self._mixing(left)
        return ImageFeedforward(layers, mixing, self.readout, left, right, kernels, _as_tolerance(tolerance))

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole network as plain JSON values, from which `model_from_dict` makes it again."""
        return {
            "kind": "conv_explicit",
            "layers": [write(layer) for layer in self.layers],
            "weights": list(self.weights),
            "inject": list(self.inject),
            "bias2": self.bias2 + 0.0,
            **self._geometry(),
        }

    @classmethod
    def from_dict(cls, data: Any) -> ConvExplicit:
        """The network that `to_dict` wrote down."""
        names = ("kind", "layers", "weights", "inject", "bias2", *_GEOMETRY)
        entry = mapping(data, "a model", names)
        if not isinstance(entry["layers"], list):
            raise InputError(f"The layers of a network must be a list, not {type(entry['layers']).__name__}.")
        return cls(
            [activation_from_dict(layer) for layer in entry["layers"]],
            weights=entry["weights"],
            inject=entry["inject"],
            bias2=number(entry["bias2"], "bias2"),
            **_geometry_from(entry),
        )

    def __str__(self) -> str:
        bias = [f"bias2={self.bias2:g}"] if self.bias2 else []
        geometry = [f"filter_size={self.filter_size}", self.padding, self.readout]
        return f"ConvExplicit({', '.join([*layer_words(self.inputs), *bias, *geometry])})"


def _geometry_from(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "filter_size": int(number(entry["filter_size"], "filter_size")),
        "padding": str(entry["padding"]),
        "readout": str(entry["readout"]),
    }


__all__ = ["ConvDEQ", "ConvExplicit", "ImageModel"]
