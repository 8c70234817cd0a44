"""The network of docs/theory.md (8.10): its equilibrium, its adjoint vectors, and the Gram matrix H of all gradients.

Here data are rows: Z is (n, m), X is (n, d). The equilibrium and its derivatives are those of `notsodeep.nets`; with
the paper's weights the drive of a row is U x and the recurrent factor is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import linalg
from torch import Tensor

from notsodeep.convergence.population import NORMALISED_RELU
from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ
from notsodeep.nets.equilibrium import EquilibriumSettings, equilibrium
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.nets.modules import gaussian_draws
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
        """Draw Gaussian weights as in docs/theory.md (8.11), the readout multiplied by `readout_scale`.

        A `DEQNet` of `paper_model(sigma_w2)` with the same seed, called with x/√d, has the same weights A, B and a in
        another scaling: √m z = √2 ReLU(σ_w A z + B x/√d) = ReLU(W √m z + U x), so that Z = √m z.
        """
        draw = gaussian_draws(seed)
        factors = np.sqrt([2.0 * sigma_w2 / width, 2.0 / dimension, readout_scale**2 / width])
        shapes = ((width, width), (width, dimension), (1, width))
        W, U, a = ((factor * draw(*shape)).to(dtype) for factor, shape in zip(factors, shapes, strict=True))
        return cls(W, U, a[0])

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """W, U and a."""
        return self.recurrent, self.inputs, self.readout

    def features(self, X: Tensor, solver: SolverOptions = PRECISE) -> Tensor:
        """Z (n, m).

        Raises:
            ConvergenceError: if the equilibrium is not reached.
        """
        with torch.no_grad():
            return torch.relu(equilibrium(self.recurrent, X @ self.inputs.mT, _settings(solver)))

    def features_and_adjoints(self, X: Tensor, solver: SolverOptions = PRECISE) -> tuple[Tensor, Tensor]:
        """Z and the vectors v_i = D_i (a + Wᵀ v_i) of docs/theory.md (8.30), both (n, m).

        v_i is the gradient of ŷ_i in its drive U x_i, and every gradient of the loss is a sum over them.
        """
        drive = (X @ self.inputs.mT).requires_grad_()
        Z = torch.relu(equilibrium(self.recurrent, drive, _settings(solver)))
        (adjoints,) = torch.autograd.grad((Z @ self.readout).sum(), drive)
        return Z.detach(), adjoints


def paper_model(sigma_w2: float) -> DEQ:
    """The DEQ whose features, times √m, are the paper's Z for inputs x/√d."""
    return DEQ(NORMALISED_RELU, sigma_w2, 1.0)


def _settings(solver: SolverOptions) -> EquilibriumSettings:
    return EquilibriumSettings(TorchActivation(_RELU), 1.0, solver, solver)


@dataclass(frozen=True)
class TangentSpectrum:
    """Extreme eigenvalues of H = H₁ + H₂ + H₃, docs/theory.md (8.30).

    Attributes:
        least: λ_min(H); ||∇Φ||² ≥ 2 λ_min(H) Φ.
        largest: λ_max(H); steps above 2/λ_max(H) make the linearised training diverge.
        features: λ_τ = λ_min(Zᵀ Z), which the paper uses in the place of λ_min(H).
    """

    least: float
    largest: float
    features: float

    @property
    def step(self) -> float:
        """1/λ_max(H): no direction of the residual overshoots in the linearised training."""
        return 1.0 / self.largest


def tangent_gram(features: Tensor, adjoints: Tensor, X: Tensor) -> Tensor:
    """H = G + (VVᵀ) ∘ (G + XXᵀ), samples in rows: docs/theory.md (8.30). No Jacobian is formed."""
    gram = features @ features.mT
    return gram + (adjoints @ adjoints.mT) * (gram + X @ X.mT)


def tangent_spectrum(network: PaperNetwork, X: Tensor) -> TangentSpectrum:
    """The extreme eigenvalues of H for a network and samples (n, d)."""
    return spectrum_of(*network.features_and_adjoints(X), X)


def spectrum_of(features: Tensor, adjoints: Tensor, X: Tensor) -> TangentSpectrum:
    """The extreme eigenvalues of H from features and adjoint vectors; products in float64."""
    features, adjoints, X = (t.to(torch.float64) for t in (features, adjoints, X))
    whole = linalg.eigvalsh(tangent_gram(features, adjoints, X).numpy())
    part = linalg.eigvalsh((features @ features.mT).numpy())
    return TangentSpectrum(float(whole[0]), float(whole[-1]), float(part[0]))
