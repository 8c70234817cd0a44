"""The base of feed-forward networks whose layers may see the input again, for any connection."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from notsodeep.models import ConvExplicit, Explicit
from notsodeep.nets.connections import Connection
from notsodeep.nets.modules import Net, gaussian_draws
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.nets.weight_groups import WeightGroup


class FeedforwardNet(Net):
    """Base of explicit networks: x^(l) = φ_l(√w_l W_l x^(l-1) + √c_l B_l x + σ_c b_l)/√m, (1.4), (7.8) and (10.5).

    W and B are matrices or, divided by √(number of taps), filters: `connection` says which. Layers that see the input
    again read it by the weights of the first layer, B_l = W_1, so that W_1 x is computed once, or by separate weights
    (`input2`, `input3`, …); at infinite width the kernels are the same.

    Args:
        spec: the layers.
        sample_shape: shape of one sample: (features,) for rows, (channels, height, width) for images.
        connection: action of the weights on a layer.
        units: m, of every layer.
        out_features: number of outputs.
        seed: random seed of the initial weights; torch's global generator (`torch.manual_seed`) if None.
        share_input: whether layers that see the input again use the weights of the first layer.
        options: keyword arguments of `Net`: train, scaling, dtype, device, output_scale.
    """

    spec: Explicit | ConvExplicit
    share_input: bool

    def __init__(
        self,
        spec: Explicit | ConvExplicit,
        sample_shape: tuple[int, ...],
        connection: Connection,
        units: int,
        out_features: int,
        *,
        seed: int | None = None,
        share_input: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(sample_shape, connection, units, out_features, **options)
        self.spec = spec
        self.share_input = share_input and any(enters.inject for enters in spec.inputs)
        self._activations = [TorchActivation(layer, 1.0 / sqrt(units)) for layer in spec.layers]
        # Layer by layer: W, B if separate, b; then the readout.
        draw, taps, fan_in = gaussian_draws(seed), connection.filter_shape, sample_shape[0]
        for layer, enters in enumerate(spec.inputs, 1):
            self._add(f"weight{layer}", draw(units, fan_in, *taps))
            if enters.inject and not self.share_input:
                self._add(f"input{layer}", draw(units, sample_shape[0], *taps))
            if enters.constant:
                self._add(f"bias{layer}", draw(units))
            fan_in = units
        self._add("readout", draw(self.out_features, self.width))

    @property
    def weights(self) -> list[Tensor]:
        """The hidden weights in order, each (units, units that enter), followed by taps for filters."""
        return [getattr(self, f"weight{layer + 1}") for layer in range(len(self.spec.layers))]

    def features(self, X: Tensor) -> Tensor:
        """The last layer of every sample, as it is read out, (rows, width)."""
        rows = self._rows(X)
        x = image = self.connection.image(self.weights[0], rows)
        for layer, phi in enumerate(self._activations):
            x = phi(self._inner(x, rows, image, layer))
        return self.connection.read(x)

    def _inner(self, x: Tensor, rows: Tensor, image: Tensor, layer: int) -> Tensor:
        """√w W x of the layer before, σ_c b and, where it sees the input again, √c B of the input; `image` is W_1 x."""
        entering, connection, name = self.spec.inputs[layer], self.connection, f"bias{layer + 1}"
        bias = None
        if entering.constant:
            bias = self.factors[name] * sqrt(entering.constant) * getattr(self, name)
        scale = self._scale(f"weight{layer + 1}", entering.weight)
        if layer:
            inner = connection.image(self.weights[layer], x if scale == 1.0 else scale * x, bias)
        else:
            inner = scale * image if bias is None else scale * image + connection.spread(bias)
        if not entering.inject:
            return inner
        if self.share_input:
            return torch.add(inner, image, alpha=self._scale("weight1", entering.inject))
        name = f"input{layer + 1}"
        return inner + connection.image(getattr(self, name), self._scale(name, entering.inject) * rows)

    def _scale(self, name: str, variance: float) -> float:
        """What stored weights are multiplied by to have this variance."""
        return self.factors[name] * sqrt(variance / self.connection.taps)

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup]:
        """The layers in order, by backpropagation, then the readout."""
        rows, connection = self._rows(X), self.connection
        signals, slopes, image = [rows], [], connection.image(self.weights[0], rows)
        for layer, phi in enumerate(self._activations):
            h = self._inner(signals[-1], rows, image, layer)
            signals.append(phi(h))
            slopes.append(phi.slope(h))
        readout = connection.read_back(self.factors["readout"] * self.readout)
        back = readout[:, None, :].expand(-1, len(X), -1)
        groups, shared = [], torch.zeros_like(back)
        for layer in range(len(slopes) - 1, -1, -1):
            back = back * slopes[layer]
            entering = self.spec.inputs[layer]
            if entering.constant:
                groups.append(connection.bias_group(back, entering.constant))
            arrived, variance = back, entering.weight
            if self.share_input:
                # What reaches W_1 from all layers adds up before it is squared.
                shared = shared + sqrt(entering.inject) * back
            elif entering.inject:
                groups.append(connection.group(rows, back, entering.inject / connection.taps))
            if not layer:
                arrived, variance = sqrt(entering.weight) * back + shared, 1.0
            groups.append(connection.group(signals[layer], arrived, variance / connection.taps))
            if layer:
                scale = self._scale(f"weight{layer + 1}", entering.weight)
                below = connection.linear_map(self.weights[layer], scale).adjoint(back.flatten(0, 1))
                back = below.reshape(*back.shape[:2], -1)
        yield from reversed(groups)
        yield WeightGroup(connection.read(signals[-1]), None, self.output_scale**2)
