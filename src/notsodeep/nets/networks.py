"""The networks of the models: of rows, docs/theory.md (1.1) and (1.4), and of images and sequences, section 10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit, Model
from notsodeep.models.mixing import Convolution
from notsodeep.nets.connections import DenseConnection, FilterConnection
from notsodeep.nets.equilibrium import ONCE
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.feedforward_net import FeedforwardNet
from notsodeep.nets.modules import Net, network_of
from notsodeep.validation import as_count, as_real

# The largest variance of recurrent weights that `DEQNet.from_weights` states.
_LARGEST_VARIANCE = 0.99
_ADVICE = "leave these samples out, or accept the best states with on_failure='ignore'."
Loaded = TypeVar("Loaded", bound=EquilibriumNet)


class RowNet:
    """Networks of rows: how they are constructed."""

    model: ClassVar[type]

    def __init__(self, spec: Any, in_features: int, width: int, out_features: int, **options: Any) -> None:
        _check_spec(self, spec)
        sizes = (as_count(in_features, "in_features"),), DenseConnection(), as_count(width, "width")
        super().__init__(spec, *sizes, out_features, **options)  # type: ignore[call-arg]


class ImageNet:
    """Networks of images and sequences: how they are constructed."""

    model: ClassVar[type]

    def __init__(
        self,
        spec: Any,
        in_channels: int,
        channels: int,
        out_features: int,
        image_size: int | Sequence[int],
        **options: Any,
    ) -> None:
        _check_spec(self, spec)
        sizes = *_images(spec, in_channels, image_size), as_count(channels, "channels")
        super().__init__(spec, *sizes, out_features, **options)  # type: ignore[call-arg]


class LoadedNet(EquilibriumNet):
    """Equilibrium networks, which can be built from weights that were trained elsewhere."""

    model: ClassVar[type]

    @classmethod
    def from_weights(
        cls,
        W: Any,
        U: Any,
        b: Any = None,
        activation: Any = "tanh",
        readout: Any = None,
        *,
        image_size: int | Sequence[int] | None = None,
        padding: str = "zeros",
        pool: bool = False,
        train: str = "all",
        **options: Any,
    ) -> Self:
        """Build the network z = φ(W z + U x + b), outputs readout(z), from weights trained elsewhere.

        Args:
            W: (m, m); of a `ConvDEQNet` filters (m, m, k, k), as `torch.nn.Conv2d` has them with padding="same", or
                (m, m, k) for sequences.
            U: (m, inputs), or filters (m, channels, k, k).
            b: (m,); None for none.
            activation: φ: a name, a formula or a function, as `DEQ` takes it.
            readout: a `torch.nn.Linear`, weights V, or a pair (V, c) with a bias c (outputs,); None for the equilibrium
                itself. V is (outputs, m); of images (outputs, m × positions) of the flattened z, or (outputs, m) with
                `pool`.
            image_size: of a `ConvDEQNet`: (height, width), or one number for square images; (length,) for sequences.
            padding: of a `ConvDEQNet`: "zeros" or "circular".
            pool: of a `ConvDEQNet`: whether the readout sees the mean of z over positions.
            train: "all" or "readout".
            options: of the network: solver, adjoint, on_failure ("warn once" if not given), …; dtype and device are
                those of W unless given.

        The weights are copied. Variances of the model (`spec`) are estimated from W, U and b. A variance of W of 1 or
        more, which a model cannot have, becomes 0.99: the function is the same, but its kernels at infinite width are
        not those of the weights.
        """
        geometry: dict[str, Any] = {}
        sizes: tuple[Any, ...] = ()
        if cls.model is DEQ:
            parts = plain_matrices(W, U, b, readout)
        else:
            parts, square = _plain_filters(W, U, b, readout, image_size, pool)
            taps, read = parts.recurrent.shape[2], "pool" if pool else "flatten"
            geometry, sizes = {"filter_size": taps, "padding": padding, "readout": read}, (square,)
        spec = cls.model(activation, *_variances(parts), **geometry)
        (m, entering), outputs = parts.inputs.shape[:2], len(parts.readout)
        place = {"dtype": parts.recurrent.dtype, "device": parts.recurrent.device}
        chosen = {"train": train, "seed": 0, "on_failure": ONCE, **place, **options}
        make: Any = cls  # the sizes are those of rows or of images
        net: Self = make(spec, entering, m, outputs, *sizes, **chosen)
        return _load_plain_weights(net, parts)


class DEQNet(RowNet, LoadedNet):
    """A deep equilibrium model of finite width: z = φ(σ_a A z + σ_b B x + σ_c b)/√m, outputs readout · z, (1.1).

    Args:
        spec: the model.
        in_features: p.
        width: m.
        out_features: number of outputs.
        options: keyword arguments of `EquilibriumNet`: train, seed, scaling, solver, contractive, dtype, …
    """

    spec: DEQ
    model = DEQ


class ExplicitNet(RowNet, FeedforwardNet):
    """A feed-forward network of finite width: x^(l) = σ_l(W_l x^(l-1))/√m, outputs readout · x^(L), (1.4).

    Args:
        spec: the layers.
        in_features: p.
        width: m, of every layer.
        out_features: number of outputs.
        options: keyword arguments of `FeedforwardNet`: train, seed, scaling, share_input, dtype, device.
    """

    spec: Explicit
    model = Explicit


class ConvDEQNet(ImageNet, LoadedNet):
    """A convolutional deep equilibrium model with finitely many channels, (10.1); outputs readout · z.

        u(s) = σ_a/√q Σ_δ A(δ) z(s+δ) + σ_b/√q Σ_δ B(δ) x(s+δ) + σ_c b,   z = φ(u)/√m     (q taps, m channels)

    It is solved and differentiated as `DEQNet` is, an image being a row.  Its samples are images
    (n, in_channels, height, width), or sequences (n, in_channels, length).

    Args:
        spec: the model; its `filter_size`, `padding` and `readout` count.
        in_channels: channels of an image.
        channels: m.
        out_features: number of outputs.
        image_size: (height, width), or one number for square images; (length,) for sequences.
        options: keyword arguments of `EquilibriumNet`.
    """

    spec: ConvDEQ
    model = ConvDEQ


class ConvExplicitNet(ImageNet, FeedforwardNet):
    """A feed-forward convolutional network with finitely many channels, docs/theory.md (10.5).

    Args:
        spec: the layers.
        in_channels: channels of an image.
        channels: m, of every layer.
        out_features: number of outputs.
        image_size: (height, width), or one number for square images; (length,) for sequences.
        options: keyword arguments of `FeedforwardNet`.
    """

    spec: ConvExplicit
    model = ConvExplicit


def network(
    model: Model,
    in_features: int | Sequence[int],
    width: int,
    out_features: int,
    seed: int | None = 0,
    **options: Any,
) -> Net:
    """Build the torch network of any model: finitely many units, random weights, gradients through equilibria.

    Args:
        model: a `DEQ`, `Explicit`, `ConvDEQ`, `ConvExplicit`, `GraphDEQ`, `Equilibrium` or `Loop`.
        in_features: numbers of a sample; for images (channels, height, width), for sequences (channels, length).
        width: units of a layer; for images channels.
        out_features: number of outputs.
        seed: random seed of the weights; None draws from torch's global generator.
        options: keyword arguments of the network: train, scaling, dtype, device; for equilibria also solver, adjoint
            and on_failure.
    """
    shape = tuple(in_features) if isinstance(in_features, Sequence) else (in_features,)
    return network_of(model, shape, width, out_features, seed=seed, **options)


def _images(
    spec: ConvDEQ | ConvExplicit, in_channels: int, image_size: int | Sequence[int]
) -> tuple[tuple[int, ...], FilterConnection]:
    """The shape of a sample, and the connection that its model has on it."""
    sizes = image_size if isinstance(image_size, Sequence) else (image_size, image_size)
    if isinstance(sizes, str) or len(sizes) not in (1, 2):
        raise InputError(
            "image_size is (height, width), one number for square images, or (length,) for sequences; got "
            f"{image_size!r}."
        )
    shape = (as_count(in_channels, "in_channels"), *(as_count(size, "image_size") for size in sizes))
    # The model refuses images that are smaller than its filters.
    spec.check_samples(np.zeros((1, *shape)), "image_size")
    geometry = Convolution(shape[1:], spec.filter_size, spec.padding)
    return shape, FilterConnection(geometry, spec.readout)


def _check_spec(net: RowNet | ImageNet, spec: Any) -> None:
    if not isinstance(spec, net.model):
        raise InputError(
            f"{type(net).__name__} takes a model of the class {net.model.__name__}, not {type(spec).__name__}."
        )


@network_of.register(DEQ)
@network_of.register(Explicit)
@network_of.register(ConvDEQ)
@network_of.register(ConvExplicit)
def _(spec: Any, sample_shape: Sequence[int], width: int, out_features: int, **options: Any) -> Net:
    kinds: tuple[Any, ...] = (DEQNet, ExplicitNet, ConvDEQNet, ConvExplicitNet)
    kind = next(kind for kind in kinds if isinstance(spec, kind.model))
    if issubclass(kind, FeedforwardNet):
        # Networks without an equilibrium have nothing to solve.
        options = {name: value for name, value in options.items() if name not in ("solver", "contractive")}
    units, *positions = sample_shape
    if issubclass(kind, RowNet) and positions:
        raise InputError(
            f"{type(spec).__name__} takes rows: in_features must be a number; got {sample_shape}."
        )
    sizes = () if issubclass(kind, RowNet) else (tuple(positions),)
    net: Net = kind(spec, units, width, out_features, *sizes, **options)
    return net


# --- weights trained elsewhere -------------------------------------------------------------------------------------


def _variances(weights: PlainWeights) -> tuple[float, float, float]:
    """σ_a², σ_b² and σ_c² of the model that these weights are described by."""
    recurrent, inputs, bias = (part.square() for part in weights[:3])
    largest = min(float(recurrent.sum()) / len(recurrent), _LARGEST_VARIANCE)
    return largest, float(inputs.mean()) * prod(inputs.shape[2:]), float(bias.mean())


def _plain_filters(
    W: Any, U: Any, b: Any, readout: Any, image_size: int | Sequence[int] | None, pool: bool
) -> tuple[PlainWeights, tuple[int, ...]]:
    """Checked filters, and the size of an image."""
    filters, inputs = _numbers(W, "W", None), _numbers(U, "U", None)
    sizes = filters.shape[2:]
    if len(sizes) not in (1, 2) or inputs.shape[2:] != sizes or len(set(sizes)) != 1:
        raise InputError(
            "W and U must be filters of one size, (m, m, k, k) and (m, channels, k, k), or (m, m, k) and (m, "
            f"channels, k); got {tuple(filters.shape)} and {tuple(inputs.shape)}."
        )
    if image_size is None:
        raise InputError("Give image_size: (height, width), one number for square images, or (length,).")
    square = tuple(image_size) if isinstance(image_size, Sequence) else (image_size,) * len(sizes)
    count = 1 if pool else prod(square)
    # Checks of matrices hold for every tap.
    first, entering = (part.flatten(2)[..., 0] for part in (filters, inputs))
    parts = plain_matrices(first, entering, b, readout, len(inputs) * count)
    readout = parts.readout * sqrt(count)
    return parts._replace(recurrent=filters, inputs=inputs.to(filters), readout=readout), square


@torch.no_grad()
def _load_plain_weights(net: Loaded, weights: PlainWeights) -> Loaded:
    """Take the weights of z = φ(W z + U x + b), outputs R z + r: the inverse of `plain_weights`."""
    root, taps = sqrt(net.units), net.connection.taps
    for name, values, scale in (
        ("recurrent", weights.recurrent, sqrt(net.spec.sigma_a2 / taps) / root),
        ("inputs", weights.inputs, sqrt(net.spec.sigma_b2 / taps)),
        ("readout", weights.readout, 1.0 / root),
    ):
        if scale:
            getattr(net, name).copy_(values / (scale * net.factors[name]))
    if net.bias is not None:
        net.bias.copy_(weights.bias / sqrt(net.spec.bias2))
    if bool(weights.readout_bias.any()):
        net.readout_bias = weights.readout_bias.detach().to(net.readout, copy=True)
    # What could be changed before weights are drawn is no advice here.
    net._settings = replace(net._settings, advice=_ADVICE)
    net.clear_cache()
    return net


def plain_matrices(W: Any, U: Any, b: Any, readout: Any, features: int | None = None) -> PlainWeights:
    """Checked weights of z = φ(W z + U x + b), outputs readout(z), in the precision and on the device of W.

    The readout has `features` columns; None for one for each unit.
    """
    recurrent = _matrix(W, "W", None)
    m = len(recurrent)
    if not m or recurrent.shape[1] != m:
        raise InputError(
            f"W must be square, (m, m), with a row for each of at least one unit; got {tuple(recurrent.shape)}."
        )
    inputs = _matrix(U, "U", recurrent)
    if len(inputs) != m:
        hint = " It looks transposed: pass U.T." if inputs.shape[1] == m else ""
        raise InputError(f"U must have a row for each of the {m} units; got {tuple(inputs.shape)}.{hint}")
    bias = recurrent.new_zeros(m) if b is None else _numbers(b, "b", recurrent)
    if bias.shape != (m,):
        raise InputError(f"b must have a number for each of the {m} units, ({m},); got {tuple(bias.shape)}.")
    offset = None
    if isinstance(readout, nn.Linear):
        offset, readout = readout.bias, readout.weight
    elif isinstance(readout, tuple) and len(readout) == 2 and not _are_rows(*readout):
        readout, offset = readout
    if callable(readout) and not isinstance(readout, Tensor):
        raise InputError(
            "readout must be linear: a torch.nn.Linear, weights V (outputs, m), or (V, c) with a bias c. Apply further "
            "functions to the outputs."
        )
    width = m if features is None else features
    rows = torch.eye(width).to(recurrent) if readout is None else _matrix(readout, "readout", recurrent)
    if rows.shape[1] != width:
        each = f"each of the {m} units" if width == m else "each unit at each position"
        raise InputError(
            f"readout must have a column for {each}, (outputs, {width}); got {tuple(rows.shape)}."
        )
    last = rows.new_zeros(len(rows)) if offset is None else _numbers(offset, "The bias of readout", recurrent)
    if last.shape != (len(rows),):
        raise InputError(
            f"The bias of readout must have a number for each of the {len(rows)} outputs; got {tuple(last.shape)}."
        )
    return PlainWeights(recurrent, inputs, bias, rows, last)


def _matrix(given: Any, name: str, like: Tensor | None) -> Tensor:
    values = _numbers(given, name, like)
    if values.ndim != 2:
        hint = " For one output pass a row, (1, units)." if name == "readout" and values.ndim == 1 else ""
        raise InputError(f"{name} must be a matrix; got shape {tuple(values.shape)}.{hint}")
    return values


def _are_rows(one: Any, other: Any) -> bool:
    """Whether the two entries of a tuple are rows of a matrix rather than weights and a bias."""
    try:
        return bool(np.shape(one) == np.shape(other))
    except ValueError:
        # Lists of unequal lengths, which are refused where they are read.
        return False


def _numbers(given: Any, name: str, like: Tensor | None) -> Tensor:
    """Finite numbers of at least 32 bits, a copy; of the precision and on the device of another tensor."""
    if isinstance(given, Tensor):
        lazy = isinstance(given, nn.UninitializedParameter)
        if lazy or given.layout != torch.strided or given.is_quantized or given.is_meta or given.is_nested:
            raise InputError(
                f"{name} must be an ordinary tensor; it is sparse, quantised, nested or without values (on the device "
                f"meta). Pass {name}.to_dense() or {name}.dequantize(), or load it with its values."
            )
        values = given.detach()
    else:
        array = as_real(given, name)
        # torch takes neither other byte orders nor negative strides.
        values = torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))
    if values.is_complex():
        raise InputError(f"{name} must hold real numbers, not {values.dtype}. Pass its real part.")
    if not values.is_floating_point() or values.element_size() < 4:
        values = values.to(torch.float32)
    values = values.clone() if like is None else values.to(like, copy=True)
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"{name} has NaN or infinite entries.")
    return values
