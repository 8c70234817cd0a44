"""A convolutional DEQ by TorchDEQ, in an environment of its own; it answers the orders of peer.py.

The network is u(s) = σ_a/√(qm) Σ_δ A(δ) φ(u(s+δ)) + σ_b/√q Σ_δ B(δ) x(s+δ), zeros beyond the border, with a readout
that has weights for every position. The state is φ(u); a step is one convolution, one sum in its memory and one φ.
This file imports nothing of notsodeep.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peer import Answer, Desk, Exact, Network, Step, read, versions
from torch.nn.functional import conv2d
from turns import obey


class ConvNetwork(Network):
    """The convolutional DEQ with weights from files."""

    def __init__(self, folder: Path, activation: str, sigma_a2: float) -> None:
        super().__init__(folder, activation, sigma_a2)
        taps = self.recurrent[0, 0].numel()
        self.scale_recurrent /= taps**0.5
        self.scale_inputs /= taps**0.5
        self.border = self.recurrent.shape[-1] // 2

    def step(self, x: torch.Tensor) -> tuple[Step, torch.Tensor]:
        """φ(u) -> φ of the next u, and where to start."""
        scaled = self.scale_recurrent * self.recurrent
        injected = conv2d(x, self.inputs * self.scale_inputs, padding=self.border)

        def apply(state: torch.Tensor) -> torch.Tensor:
            self.evaluations += 1
            return self.phi(conv2d(state, scaled, padding=self.border).add_(injected))

        return apply, self.phi(injected) if self.ahead else torch.zeros_like(injected)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.equilibrium(x)
        return state.flatten(1) @ self.readout.T / (self.width * state[0, 0].numel()) ** 0.5

    def pull(self, cotangent: torch.Tensor) -> torch.Tensor:
        """What a gradient in the outputs is in φ(u)."""
        return (cotangent @ self.readout).unflatten(1, self._shape) / (self.readout.shape[1]) ** 0.5

    def set_shape(self, x: torch.Tensor) -> None:
        self._shape = (self.width, *x.shape[2:])


class ConvExact(Exact):
    """The same map in float64."""

    def __init__(self, network: Network, x: torch.Tensor) -> None:
        with torch.no_grad():
            self._recurrent = network.recurrent.double() * network.scale_recurrent
            self._border = self._recurrent.shape[-1] // 2
            filters = network.inputs.double() * network.scale_inputs
            self._injected = conv2d(x.double(), filters, padding=self._border)
        self._phi, self._slope_at = network.phi, network.slope_at

    def residual(self, state: torch.Tensor) -> torch.Tensor:
        """||f(z) - z||/||z|| of every sample."""
        z = state.detach().double()
        image = self._phi(conv2d(z, self._recurrent, padding=self._border) + self._injected)
        return (image - z).flatten(1).norm(dim=1) / z.flatten(1).norm(dim=1)

    def adjoint_residual(self, image: torch.Tensor, y: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        """||D(Jᵀ y + seed - y)||/||D y|| of every sample."""
        slope, y = self._slope_at(image.detach().double()), y.detach().double()
        turned = self._recurrent.flip(2, 3).transpose(0, 1)
        image_of_y = conv2d(slope * y, turned, padding=self._border) + seed.double()
        moved = (slope * (image_of_y - y)).flatten(1).norm(dim=1)
        return moved / (slope * y).flatten(1).norm(dim=1)


class ConvDesk(Desk):
    """What can be asked about the convolutional network."""

    network: ConvNetwork

    def load(self, folder: str, activation: str, sigma_a2: float, threads: int) -> Answer:
        torch.set_num_threads(threads)
        self.network = ConvNetwork(Path(folder), activation, sigma_a2)
        self.x, self.cotangent = read(Path(folder) / "X.npy"), read(Path(folder) / "cotangent.npy")
        self.network.set_shape(self.x)
        self._original = [parameter.detach().clone() for parameter in self.network.parameters()]
        return {"versions": versions()}

    def truth(self) -> Exact:
        return ConvExact(self.network, self.x)


def main() -> None:
    desk = ConvDesk()
    names = ("load", "trace", "trace_adjoint", "inspect", "time")
    orders: dict[str, Any] = {name: getattr(desk, name) for name in names}
    obey(orders)


if __name__ == "__main__":
    main()
