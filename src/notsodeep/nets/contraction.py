"""How strongly a network contracts, ||σ_a A/√m||₂ · Lip(φ), docs/theory.md (1.5), measured while A is trained."""

from __future__ import annotations

import torch
from torch import Tensor

from notsodeep.nets.linear_maps import LinearMap

_VECTORS = 8
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 60
# Two rounds in a row that raise the estimate by less than this share are the last ones.
_SETTLED = 3e-4


class NormTracker:
    """||W||₂ by block power iteration, started where the last call ended: cheap while W changes slowly.

    An estimate from below, for Gaussian weights by one or two percent; what is kept below a bound by it should
    leave at least that slack (the default bound leaves five).
    """

    def __init__(self) -> None:
        self._basis: Tensor | None = None
        self._generator_seed = 0

    def estimate(self, linear: LinearMap) -> float:
        """The estimate, iterated until it settles."""
        basis, norm, settled = self._start(linear), 0.0, 0
        for turn in range(_MOST_ROUNDS):
            image = linear.image(basis)
            before, norm = norm, float(torch.linalg.matrix_norm(image, ord=2))
            settled = settled + 1 if norm <= (1.0 + _SETTLED) * before else 0
            if settled >= 2 and turn >= _FEWEST_ROUNDS:
                break
            basis = _orthonormal(linear.adjoint(image))
        self._basis = basis
        return norm

    def _start(self, linear: LinearMap) -> Tensor:
        """The last basis with one row drawn afresh, which sees directions that were not there before."""
        self._generator_seed += 1
        generator = torch.Generator().manual_seed(self._generator_seed)
        shape = (min(_VECTORS, linear.columns), linear.columns)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64).to(linear.weights)
        last = self._basis
        if last is not None and last.shape == drawn.shape and last.device == drawn.device:
            drawn[:-1] = last[:-1].to(drawn)
        return _orthonormal(drawn)


def _orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows with the span of the given ones."""
    columns: Tensor = torch.linalg.qr(rows.mT).Q
    return columns.mT.contiguous()
