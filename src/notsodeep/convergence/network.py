"""The network of docs/theory.md (8.10) with its equilibrium and adjoint vectors, and its place among `nets`.

Here data are rows: Z is (n, m), X is (n, d). The equilibrium and its derivatives are those of `notsodeep.nets`; with
the paper's weights the drive of a row is U x and the recurrent factor is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from notsodeep.convergence.population import NORMALISED_RELU
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ
from notsodeep.nets.equilibrium import EquilibriumSettings, equilibrium
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.nets.networks import DEQNet
from notsodeep.nets.torch_activation import TorchActivation

_RELU = activation("relu")
# Close to rounding: what is left of the residual is part of every verified bound.
PRECISE = SolverOptions(method="iteration", tolerance=1e-13, max_steps=1000)


@dataclass(frozen=True)
class PaperNetwork:
    """ŷ = aᵀ Z, Z = ReLU(W Z + U X), docs/theory.md (8.10).

    Attributes:
        recurrent: W (m, m).
        inputs: U (m, d).
        readout: a (m,).
    """

    recurrent: Tensor
    inputs: Tensor
    readout: Tensor

    @classmethod
    def draw(
        cls,
        width: int,
        dimension: int,
        sigma_w2: float,
        *,
        seed: int = 0,
        readout_scale: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> PaperNetwork:
        """Gaussian weights as in docs/theory.md (8.11), the readout times `readout_scale`."""
        net = DEQNet(
            paper_model(sigma_w2), dimension, width, 1, seed=seed, train="readout", scaling="ntk", dtype=dtype
        )
        drawn = cls.of_net(net)
        return cls(drawn.recurrent, drawn.inputs, readout_scale * drawn.readout)

    @classmethod
    def of_net(cls, net: DEQNet) -> PaperNetwork:
        """W = √(2σ_w²/m) A, U = √(2/d) B, a = readout/√m, for a net with `paper_model` and inputs x/√d.

        √m z = √2 ReLU(σ_w A z + B x/√d) = ReLU(W √m z + U x), since ReLU takes a positive factor out: Z = √m z.
        """
        sigma_w2 = _sigma_w2_of(net.spec)
        width, dimension = net.width, net.in_features
        if net.out_features != 1:
            raise InputError(f"The theory of training has one output; this net has {net.out_features}.")
        return cls(
            np.sqrt(2.0 * sigma_w2 / width) * net.unit_weight("recurrent").detach(),
            np.sqrt(2.0 / dimension) * net.unit_weight("inputs").detach(),
            net.unit_weight("readout").detach()[0] / np.sqrt(width),
        )

    def to_net(self, sigma_w2: float) -> DEQNet:
        """The same function as a `DEQNet` to be called with x/√d: the inverse of `of_net`."""
        if sigma_w2 <= 0:
            raise InputError(
                "A DEQNet with sigma_w2 = 0 has no recurrent part; any other value holds the same function."
            )
        width, dimension = self.inputs.shape
        net = DEQNet(paper_model(sigma_w2), dimension, width, 1, seed=0, dtype=self.inputs.dtype)
        with torch.no_grad():
            for name, weights in (
                ("recurrent", self.recurrent / np.sqrt(2.0 * sigma_w2 / width)),
                ("inputs", self.inputs / np.sqrt(2.0 / dimension)),
                ("readout", np.sqrt(width) * self.readout[None, :]),
            ):
                getattr(net, name).copy_(weights / net.factors[name])
        return net

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """W, U and a."""
        return self.recurrent, self.inputs, self.readout

    def copy(self) -> PaperNetwork:
        """The same network with weights of its own."""
        return PaperNetwork(*(tensor.clone() for tensor in self.weights))

    def features(self, X: Tensor, solver: SolverOptions = PRECISE) -> Tensor:
        """Z (n, m).

        Raises:
            ConvergenceError: if the equilibrium is not reached.
        """
        with torch.no_grad():
            return torch.relu(equilibrium(self.recurrent, X @ self.inputs.mT, _settings(solver)))

    def features_and_adjoints(self, X: Tensor, solver: SolverOptions = PRECISE) -> tuple[Tensor, Tensor]:
        """Z and the vectors v_i = D_i (a + Wᵀ v_i) of docs/theory.md (8.30), both (n, m).

        v_i is the gradient of ŷ_i in its drive U x_i, and every gradient of the loss is made of them.
        """
        drive = (X @ self.inputs.mT).requires_grad_()
        Z = torch.relu(equilibrium(self.recurrent, drive, _settings(solver)))
        (adjoints,) = torch.autograd.grad((Z @ self.readout).sum(), drive)
        return Z.detach(), adjoints

    def layers(self, X: Tensor, depth: int) -> list[Tensor]:
        """Z^(1), …, Z^(depth) of the iteration from Z^(0) = 0, whose limit is Z."""
        drive = X @ self.inputs.mT
        found = [torch.relu(drive)]
        for _ in range(depth - 1):
            found.append(torch.relu(torch.addmm(drive, found[-1], self.recurrent.mT)))
        return found


def paper_model(sigma_w2: float) -> DEQ:
    """The DEQ whose features, times √m, are the paper's Z for inputs x/√d."""
    return DEQ(NORMALISED_RELU, sigma_w2, 1.0)


def _sigma_w2_of(spec: DEQ) -> float:
    if spec != paper_model(spec.sigma_a2):
        raise InputError(
            f"The theory of training is for √2·ReLU with sigma_b2 = 1 and no bias; this net has {spec}. "
            "Build it with paper_model(sigma_w2)."
        )
    return spec.sigma_a2


def _settings(solver: SolverOptions) -> EquilibriumSettings:
    return EquilibriumSettings(TorchActivation(_RELU), 1.0, solver, solver)
