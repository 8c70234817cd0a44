"""Networks of images and sequences: the functions of docs/theory.md section 10 as torch modules."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
import torch

from notsodeep.errors import InputError
from notsodeep.models import ConvDEQ, ConvExplicit, Explicit
from notsodeep.models.mixing import Convolution
from notsodeep.nets.connections import FilterConnection
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.feedforward_net import FeedforwardNet
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.nets.modules import Net, network_of
from notsodeep.validation import as_count


class ConvDEQNet(EquilibriumNet):
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
        train: "all", or "readout" for fixed A and B.
        seed: of the initial weights; None draws from torch's global generator, which `torch.manual_seed` sets.
        scaling: "standard" or "ntk": how trained weights are stored (see `Net`). The function is the same.
        solver: of the forward pass.
        adjoint: of the backward pass; the same if not given.
        gradient: "implicit", or "phantom": a few terms of its Neumann series (9.6), cheaper and biased.
        phantom_steps: number of terms; 1 is the gradient of one step taken at the equilibrium.
        contractive: True (or a bound below 1) keeps the norm of the convolution, ||σ_a A/√(qm)||₂ Lip(φ), at 0.95 (the
            bound) by `project`.
        on_failure: "raise", "warn" or "ignore" when a sample does not converge; `last_solve` always has the residuals.
        dtype: float32 if not given.
        device: where the parameters live.
    """

    spec: ConvDEQ

    def __init__(
        self,
        spec: ConvDEQ,
        in_channels: int,
        channels: int,
        out_features: int,
        image_size: int | Sequence[int],
        *,
        train: str = "all",
        seed: int | None = None,
        scaling: str = "standard",
        solver: SolverOptions | None = None,
        adjoint: SolverOptions | None = None,
        gradient: str = "implicit",
        phantom_steps: int = 1,
        contractive: bool | float = False,
        on_failure: str = "raise",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(spec, ConvDEQ):
            raise InputError(
                f"ConvDEQNet takes a ConvDEQ, not {type(spec).__name__}; DEQNet takes a DEQ, of rows, and "
                "ConvExplicitNet a ConvExplicit."
            )
        shape, connection = _images(spec, in_channels, image_size)
        channels = as_count(channels, "channels")
        super().__init__(
            prod(shape), connection.features_of(channels), out_features, train, scaling, dtype, device
        )
        self.sample_shape, self.layer_size = shape, channels * connection.count
        self.hidden_fan_in = channels * connection.taps
        self._assemble(
            spec,
            connection,
            entering=shape[0],
            units=channels,
            seed=seed,
            solver=solver,
            adjoint=adjoint,
            gradient=gradient,
            phantom_steps=phantom_steps,
            contractive=contractive,
            on_failure=on_failure,
        )

    @property
    def channels(self) -> int:
        """The number of channels m."""
        return self.units

    def counterpart(
        self,
        network: Explicit | ConvExplicit,
        *,
        seed: int | None = None,
        multipliers: Sequence[float] | None = None,
    ) -> ConvExplicitNet:
        """An explicit network of the same size, training mode, scaling, precision and device.

        Args:
            network: its layers, a `ConvExplicit`.
            seed: of its weights; None draws from torch's global generator.
            multipliers: refused: convolutional networks have none.
        """
        if multipliers is not None:
            raise InputError("Convolutional networks have no learning-rate multipliers.")
        sizes = (self.sample_shape[0], self.channels, self.out_features, self.sample_shape[1:])
        return ConvExplicitNet(
            cast(ConvExplicit, network), *sizes, seed=seed, share_input=True, **self.shared_options
        )

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return _described(self, self.units)


class ConvExplicitNet(FeedforwardNet):
    """A feed-forward convolutional network with finitely many channels, docs/theory.md (10.5).

    Layers that see the input again have filters of their own for it (`input2`, `input3`, …), or share those of the
    first layer.

    Args:
        spec: the layers.
        in_channels: channels of an image.
        channels: m, of every layer.
        out_features: number of outputs.
        image_size: (height, width), or one number for square images; (length,) for sequences.
        train: "all", or "readout" for fixed hidden weights.
        seed: of the initial weights; None draws from torch's global generator, which `torch.manual_seed` sets.
        scaling: "standard" or "ntk": how trained weights are stored (see `Net`). The function is the same.
        share_input: layers that see the input again read it by the filters of the first layer, which costs no further
            convolution of the input. With many channels the kernels are the same.
        dtype: float32 if not given.
        device: where the parameters live.
    """

    spec: ConvExplicit

    def __init__(
        self,
        spec: ConvExplicit,
        in_channels: int,
        channels: int,
        out_features: int,
        image_size: int | Sequence[int],
        *,
        train: str = "all",
        seed: int | None = None,
        scaling: str = "standard",
        share_input: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(spec, ConvExplicit):
            raise InputError(
                f"ConvExplicitNet takes a ConvExplicit, not {type(spec).__name__}; ExplicitNet takes an Explicit, of "
                "rows, and ConvDEQNet a ConvDEQ."
            )
        shape, connection = _images(spec, in_channels, image_size)
        channels = as_count(channels, "channels")
        super().__init__(
            prod(shape), connection.features_of(channels), out_features, train, scaling, dtype, device
        )
        self.sample_shape, self.layer_size = shape, channels * connection.count
        self.hidden_fan_in = channels * connection.taps
        ones = [1.0] * (len(spec.layers) + 1)
        self._assemble(
            spec,
            connection,
            entering=shape[0],
            units=channels,
            seed=seed,
            multipliers=ones,
            share_input=share_input,
        )

    @property
    def channels(self) -> int:
        """The number of channels m."""
        return self.units

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return _described(self, self.units)


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


def _described(net: Net, channels: int) -> str:
    size = "×".join(map(str, net.sample_shape[1:]))
    return (
        f"{net.spec}, in_channels={net.sample_shape[0]}, channels={channels}, out_features={net.out_features}, "
        f"image_size={size}, train={net.train_mode!r}, scaling={net.scaling!r}"
    )


@network_of.register
def _(spec: ConvDEQ, sample_shape: Sequence[int], width: int, out_features: int, **options: Any) -> Net:
    return ConvDEQNet(spec, sample_shape[0], width, out_features, tuple(sample_shape[1:]), **options)


@network_of.register
def _(
    spec: ConvExplicit,
    sample_shape: Sequence[int],
    width: int,
    out_features: int,
    *,
    train: str,
    seed: int | None,
    **_: Any,
) -> Net:
    size = tuple(sample_shape[1:])
    return ConvExplicitNet(spec, sample_shape[0], width, out_features, size, train=train, seed=seed)
