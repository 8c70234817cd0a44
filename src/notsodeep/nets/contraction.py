"""How strongly a network contracts: ||σ_a A/√m||₂ · Lip(φ), docs/theory.md (1.5), watched while A is trained."""

from __future__ import annotations

import torch
from torch import Tensor

_VECTORS = 8
_MOST_ROUNDS = 40
# A round that raises the estimate by less than this share is the last one.
_SETTLED = 1e-3


class NormTracker:
    """||A||₂ by block power iteration, started where the last call ended: cheap while A changes slowly.

    An estimate from below, for a Gaussian matrix by less than two percent; what is kept below a bound by it should
    leave at least that slack (the default bound leaves five).
    """

    def __init__(self) -> None:
        self._basis: Tensor | None = None

    def estimate(self, matrix: Tensor) -> float:
        """The estimate, iterated until it settles."""
        basis = self._basis
        if basis is None or basis.shape[0] != matrix.shape[1] or basis.device != matrix.device:
            generator = torch.Generator().manual_seed(0)
            vectors = min(_VECTORS, *matrix.shape)
            start = torch.randn(matrix.shape[1], vectors, generator=generator, dtype=torch.float64)
            basis = start.to(matrix)
        basis, norm = torch.linalg.qr(basis.to(matrix.dtype)).Q, 0.0
        for _ in range(_MOST_ROUNDS):
            image = matrix @ basis
            before, norm = norm, float(torch.linalg.matrix_norm(image, ord=2))
            if norm <= (1.0 + _SETTLED) * before:
                break
            basis = torch.linalg.qr(matrix.mT @ image).Q
        self._basis = basis
        return norm


def spectral_norm(matrix: Tensor) -> float:
    """||A||₂ by singular values: exact to rounding, and as dear as a matrix product several times over."""
    return float(torch.linalg.matrix_norm(matrix.detach(), ord=2))
