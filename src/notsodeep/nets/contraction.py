"""How strongly a network contracts, ||σ_a A/√m||₂ · Lip(φ), docs/theory.md (1.5), measured while A is trained."""

from __future__ import annotations

import torch
from torch import Tensor

_VECTORS = 8
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 60
# Two rounds in a row that raise the estimate by less than this share are the last ones.
_SETTLED = 3e-4


class NormTracker:
    """||A||₂ by block power iteration, started where the last call ended: cheap while A changes slowly.

    An estimate from below, for a Gaussian matrix by one or two percent; what is kept below a bound by it should
    leave at least that slack (the default bound leaves five).
    """

    def __init__(self) -> None:
        self._basis: Tensor | None = None
        self._generator_seed = 0

    def estimate(self, matrix: Tensor) -> float:
        """The estimate, iterated until it settles."""
        basis, norm, settled = self._start(matrix), 0.0, 0
        for turn in range(_MOST_ROUNDS):
            image = matrix @ basis
            before, norm = norm, float(torch.linalg.matrix_norm(image, ord=2))
            settled = settled + 1 if norm <= (1.0 + _SETTLED) * before else 0
            if settled >= 2 and turn >= _FEWEST_ROUNDS:
                break
            basis = torch.linalg.qr(matrix.mT @ image).Q
        self._basis = basis
        return norm

    def _start(self, matrix: Tensor) -> Tensor:
        """The last basis with one column drawn afresh, which sees directions that were not there before."""
        self._generator_seed += 1
        generator = torch.Generator().manual_seed(self._generator_seed)
        vectors = min(_VECTORS, *matrix.shape)
        drawn = torch.randn(matrix.shape[1], vectors, generator=generator, dtype=torch.float64).to(matrix)
        last = self._basis
        if last is not None and last.shape == drawn.shape and last.device == drawn.device:
            drawn[:, :-1] = last[:, :-1].to(drawn)
        basis: Tensor = torch.linalg.qr(drawn).Q
        return basis


def spectral_norm(matrix: Tensor) -> float:
    """||A||₂ by singular values: exact to rounding, and as dear as a matrix product several times over."""
    return float(torch.linalg.matrix_norm(matrix.detach(), ord=2))
