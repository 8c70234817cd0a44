"""The Gram matrix H of all gradients, and how much larger its least eigenvalue is than the paper's bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import linalg
from torch import Tensor

from notsodeep.convergence.network import PaperNetwork


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
    def gain_over_bound(self) -> float:
        """λ_min(H)/λ_τ ≥ 1: the factor by which the loss must fall faster than the paper's bound says."""
        return self.least / self.features if self.features > 0 else np.inf

    @property
    def step(self) -> float:
        """1/λ_max(H): no direction of the residual overshoots in the linearised training."""
        return 1.0 / self.largest

    @property
    def rate(self) -> float:
        """(1 - λ_min(H)/λ_max(H))²: factor on the loss, per step, of the slowest direction with that step."""
        return (1.0 - self.least / self.largest) ** 2


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
