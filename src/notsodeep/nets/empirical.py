"""Conjugate and tangent kernels of one network, at finite width with its current weights.

The gradient of an output with respect to a weight matrix is an outer product for every sample, so the tangent kernel
is a sum of entrywise products of n × n Gram matrices: no Jacobian is ever formed (that in filters is, in parts:
`nets.weight_groups`).  For a deep equilibrium model the implicit function theorem gives the one factor, docs/theory.md
(9.7).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.nets.modules import Net
from notsodeep.nets.weight_groups import WeightGroup

# Rows whose equilibria are sought together, and how many numbers they may have in a layer: bounds the memory of the
# solver, not of the result.
_BATCH, _NUMBERS = 1024, 2**25


@dataclass(frozen=True, repr=False)
class EmpiricalKernels(Shown):
    """Kernels of one network, to be compared with `conjugate_kernel` and `tangent_kernel(of="network")`.

    Attributes:
        ck: inner products of the features.
        ntk: inner products of the gradients of an output with respect to all weights (with train="readout" the hidden
            ones included), averaged over the outputs.
    """

    ck: Tensor
    ntk: Tensor


@torch.no_grad()
def empirical_kernels(module: Net, X: Tensor, Y: Tensor | None = None) -> EmpiricalKernels:
    """Compute CK and NTK between the rows of X and of Y (X if not given), in the precision of the network."""
    if not isinstance(module, Net):
        raise InputError(
            "empirical_kernels takes a network of notsodeep.nets, such as a DEQNet or an ExplicitNet, not "
            f"{type(module).__name__}."
        )
    left = _groups(module, X)
    right = left if Y is None else _groups(module, Y)
    ntk = X.new_zeros(len(X), len(X if Y is None else Y))
    for one, other in zip(left, right, strict=True):
        ntk += one.rate * one.inner_products(other)
    return EmpiricalKernels(left[-1].signal @ right[-1].signal.mT, ntk)


def _groups(module: Net, X: Tensor) -> list[WeightGroup]:
    """All groups of weights, the readout last, over the rows of X."""
    most = max(1, min(_BATCH, _NUMBERS // (module.out_features * module.layer_size)))
    rows = len(X) if module.coupled_samples else most
    parts = [list(module.weight_groups(block)) for block in X.split(rows)]  # type: ignore[no-untyped-call]
    return [group[0].joined(group) for group in zip(*parts, strict=True)]
