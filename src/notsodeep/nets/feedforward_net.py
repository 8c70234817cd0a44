"""The base of feed-forward networks whose layers may see the input again, for any connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

from torch import Tensor

from notsodeep.models import ConvExplicit, Explicit
from notsodeep.nets.connections import Connection
from notsodeep.nets.modules import Net, gaussian_draws
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.nets.weight_groups import WeightGroup


class FeedforwardNet(Net):
    """Base of explicit networks: x^(l) = φ_l(√w_l W_l x^(l-1) + √c_l B_l x + σ_c b_l)/√m, (1.4), (7.8) and (10.5).

    W and B are matrices or, divided by √(number of taps), filters: `connection` says which.

    Attributes:
        connection: what the weights do to a layer.
        units: m.
    """

    spec: Explicit | ConvExplicit
    connection: Connection
    units: int

    def _assemble(
        self,
        spec: Explicit | ConvExplicit,
        connection: Connection,
        *,
        entering: int,
        units: int,
        seed: int | None,
        multipliers: Sequence[float],
    ) -> None:
        """Draw the weights, layer by layer: W, B, b; then the readout."""
        self.spec, self.connection, self.units = spec, connection, units
        self.multipliers = list(multipliers)
        self._activations = [TorchActivation(layer, 1.0 / sqrt(units)) for layer in spec.layers]
        draw, taps, fan_in = gaussian_draws(seed), connection.filter_shape, entering
        for layer, (rate, enters) in enumerate(zip(self.multipliers[:-1], spec.inputs, strict=True), 1):
            self._add(f"weight{layer}", draw(units, fan_in, *taps), rate)
            if enters.inject:
                self._add(f"input{layer}", draw(units, entering, *taps), rate)
            if enters.constant:
                self._add(f"bias{layer}", draw(units), rate)
            fan_in = units
        self._add("readout", draw(self.out_features, self.width), self.multipliers[-1])

    @property
    def weights(self) -> list[Tensor]:
        """The hidden weights in order, each (units, units that enter), followed by taps for filters."""
        return [getattr(self, f"weight{layer + 1}") for layer in range(len(self.spec.layers))]

    @property
    def input_weights(self) -> list[Tensor | None]:
        """For each layer the weights that read the input again; None where it does not."""
        return [getattr(self, f"input{layer + 1}", None) for layer in range(len(self.spec.layers))]

    def features(self, X: Tensor) -> Tensor:
        """The last layer of every sample, as it is read out, (rows, width)."""
        x = rows = self._rows(X)
        for layer, phi in enumerate(self._activations):
            x = phi(self._inner(x, rows, layer))
        return self.connection.read(x)

    def _inner(self, x: Tensor, rows: Tensor, layer: int) -> Tensor:
        """√w W x of the layer before, σ_c b and, where the layer sees it again, √c B of the input."""
        entering, again = self.spec.inputs[layer], self.input_weights[layer]
        bias = None
        if entering.constant:
            name = f"bias{layer + 1}"
            bias = self.factors[name] * sqrt(entering.constant) * getattr(self, name)
        scale = self._scale(f"weight{layer + 1}", entering.weight)
        inner = self.connection.image(self.weights[layer], x if scale == 1.0 else scale * x, bias)
        if again is None:
            return inner
        scale = self._scale(f"input{layer + 1}", entering.inject)
        return inner + self.connection.image(again, scale * rows)

    def _scale(self, name: str, variance: float) -> float:
        """What stored weights are multiplied by to have this variance."""
        return self.factors[name] * sqrt(variance / self.connection.taps)

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup]:
        """The layers in order, by backpropagation, then the readout."""
        rows, connection = self._rows(X), self.connection
        signals, slopes = [rows], []
        for layer, phi in enumerate(self._activations):
            h = self._inner(signals[-1], rows, layer)
            signals.append(phi(h))
            slopes.append(phi.slope(h))
        readout = connection.read_back(self.factors["readout"] * self.readout)
        back = readout[:, None, :].expand(-1, len(X), -1)
        groups = []
        for layer in range(len(slopes) - 1, -1, -1):
            back = back * slopes[layer]
            entering, rate = self.spec.inputs[layer], self.multipliers[layer]
            if entering.constant:
                groups.append(connection.bias_group(back, rate * entering.constant))
            if entering.inject:
                groups.append(connection.group(rows, back, rate * entering.inject / connection.taps))
            groups.append(connection.group(signals[layer], back, rate * entering.weight / connection.taps))
            if layer:
                scale = self._scale(f"weight{layer + 1}", entering.weight)
                below = connection.linear_map(self.weights[layer], scale).adjoint(back.flatten(0, 1))
                back = below.reshape(*back.shape[:2], -1)
        yield from reversed(groups)
        yield WeightGroup(connection.read(signals[-1]), None, self.multipliers[-1])
