"""Conjugate and tangent kernels of a network as it stands, at finite width.

The gradient of an output with respect to a weight matrix is an outer product for every sample, so the tangent kernel
is a sum of entrywise products of n × n Gram matrices: no Jacobian is ever formed.  For a deep equilibrium model the
implicit function theorem gives the one factor, docs/theory.md (9.7).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.nets.modules import Net, WeightGroup

# Rows whose equilibria are sought together: bounds the memory of the solver, not of the result.
_BATCH = 1024


@dataclass(frozen=True, repr=False)
class EmpiricalKernels(Shown):
    """Kernels of one network, to be compared with `conjugate_kernel` and `tangent_kernel(of="network")`.

    Attributes:
        ck: inner products of the features.
        ntk: inner products of the gradients of an output with respect to all weights (with train="readout" the hidden
            ones included), averaged over the outputs; each weight counts by its learning-rate multiplier.
    """

    ck: Tensor
    ntk: Tensor


@torch.no_grad()
def empirical_kernels(module: Net, X: Tensor, Y: Tensor | None = None) -> EmpiricalKernels:
    """CK and NTK between the rows of X and of Y (X again if not given), in the precision of the network."""
    if not isinstance(module, Net):
        raise InputError(f"empirical_kernels takes a DEQNet or an ExplicitNet, not {type(module).__name__}.")
    left = _groups(module, X)
    right = left if Y is None else _groups(module, Y)
    ntk = X.new_zeros(len(X), len(X if Y is None else Y))
    for one, other in zip(left, right, strict=True):
        gram = one.signal @ other.signal.mT
        if one.back is not None and other.back is not None:
            # Σ_k back_k back_kᵀ in one product, divided by the number of outputs.
            flat = [layer.movedim(0, 1).flatten(1) for layer in (one.back, other.back)]
            gram = gram * (flat[0] @ flat[1].mT) / module.out_features
        ntk += one.rate * gram
    return EmpiricalKernels(left[-1].signal @ right[-1].signal.mT, ntk)


def _groups(module: Net, X: Tensor) -> list[WeightGroup]:
    """All groups of weights, the readout last, over the rows of X."""
    parts = [list(module.weight_groups(block)) for block in X.split(_BATCH)]  # type: ignore[no-untyped-call]
    return [_joined(list(group)) for group in zip(*parts, strict=True)]


def _joined(parts: list[WeightGroup]) -> WeightGroup:
    backs = [part.back for part in parts if part.back is not None]
    signal = torch.cat([part.signal for part in parts])
    return WeightGroup(signal, torch.cat(backs, dim=1) if backs else None, parts[0].rate)
