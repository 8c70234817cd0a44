"""How strongly a network contracts: ||σ_a A/√m||₂ · Lip(φ), docs/theory.md (1.5), watched while A is trained."""

from __future__ import annotations

import torch
from torch import Tensor

_VECTORS = 8
_FIRST_ROUNDS = 30
_ROUNDS = 2


class NormTracker:
    """||A||₂ by block power iteration, warm-started from call to call while A changes slowly.

    An estimate from below.  For a Gaussian matrix it is within one percent after the first call; what is kept below
    a bound by it should leave at least that slack (the default bound leaves five).
    """

    def __init__(self) -> None:
        self._basis: Tensor | None = None

    def estimate(self, matrix: Tensor) -> float:
        """The estimate, two more rounds better than at the last call."""
        basis, rounds = self._basis, _ROUNDS
        if basis is None or basis.shape[0] != matrix.shape[1] or basis.device != matrix.device:
            generator = torch.Generator().manual_seed(0)
            vectors = min(_VECTORS, *matrix.shape)
            start = torch.randn(matrix.shape[1], vectors, generator=generator, dtype=torch.float64)
            basis, rounds = start.to(matrix), _FIRST_ROUNDS
        basis = basis.to(matrix.dtype)
        for _ in range(rounds):
            basis = torch.linalg.qr(matrix.mT @ (matrix @ basis)).Q
        self._basis = basis
        return float(torch.linalg.matrix_norm(matrix @ basis, ord=2))


def spectral_norm(matrix: Tensor) -> float:
    """||A||₂ by singular values: exact to rounding, and as dear as a matrix product several times over."""
    return float(torch.linalg.matrix_norm(matrix.detach(), ord=2))
