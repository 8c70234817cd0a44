"""Conjugate and tangent kernels of a network as it stands, at finite width.

The gradient of an output with respect to a weight matrix is an outer product for every sample, so the tangent kernel
is a sum of entrywise products of n × n Gram matrices: no Jacobian is ever formed.  For a deep equilibrium model the
implicit function theorem gives the one factor, docs/theory.md (9.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.nets.modules import DEQNet, ExplicitNet, Net

# Rows whose equilibria are sought together: bounds the memory of the solver, not of the result.
_BATCH = 1024


@dataclass(frozen=True)
class EmpiricalKernels:
    """Kernels of one network, to be compared with `conjugate_kernel` and `tangent_kernel(of="network")`.

    Attributes:
        ck: inner products of the features.
        ntk: inner products of the gradients of an output with respect to all weights (with train="readout" the hidden
            ones included), averaged over the outputs; each weight counts by its learning-rate multiplier.
    """

    ck: Tensor
    ntk: Tensor


@dataclass(frozen=True)
class _Layer:
    """A group of weights: its gradient for sample i and output k is rate^½ · back[k, i] ⊗ signal[i]."""

    signal: Tensor
    back: Tensor | None
    rate: float


@torch.no_grad()
def empirical_kernels(module: Net, X: Tensor, Y: Tensor | None = None) -> EmpiricalKernels:
    """CK and NTK between the rows of X and of Y (X again if not given), in the precision of the network."""
    if not isinstance(module, DEQNet | ExplicitNet):
        raise InputError(f"empirical_kernels takes a DEQNet or an ExplicitNet, not {type(module).__name__}.")
    left = _layers(module, X)
    right = left if Y is None else _layers(module, Y)
    ntk = X.new_zeros(len(X), len(X if Y is None else Y))
    for one, other in zip(left, right, strict=True):
        gram = one.signal @ other.signal.mT
        if one.back is not None and other.back is not None:
            # Σ_k back_k back_kᵀ in one product, divided by the number of outputs.
            flat = [layer.movedim(0, 1).flatten(1) for layer in (one.back, other.back)]
            gram = gram * (flat[0] @ flat[1].mT) / module.out_features
        ntk += one.rate * gram
    return EmpiricalKernels(left[-1].signal @ right[-1].signal.mT, ntk)


def _layers(module: DEQNet | ExplicitNet, X: Tensor) -> list[_Layer]:
    """All groups of weights, the readout last, over the rows of X."""
    one = _deq_layers if isinstance(module, DEQNet) else _explicit_layers
    parts = [list(one(module, block)) for block in X.split(_BATCH)]  # type: ignore[arg-type, no-untyped-call]
    return [_joined(list(group)) for group in zip(*parts, strict=True)]


def _joined(parts: list[_Layer]) -> _Layer:
    backs = [part.back for part in parts if part.back is not None]
    signal = torch.cat([part.signal for part in parts])
    return _Layer(signal, torch.cat(backs, dim=1) if backs else None, parts[0].rate)


def _deq_layers(module: DEQNet, X: Tensor) -> Iterator[_Layer]:
    spec = module.spec
    h = module.preactivations(X)
    slopes, z = module.slopes(h), module.features_from(h)
    # All outputs of all samples are rows of one adjoint problem.
    cotangents = (module.readout[:, None, :] * slopes).flatten(0, 1)
    repeated = h.expand(module.out_features, *h.shape).flatten(0, 1)
    back = module.adjoint(repeated, cotangents).reshape(module.out_features, len(X), -1)
    yield _Layer(z, back, spec.sigma_a2)
    yield _Layer(X, back, spec.sigma_b2)
    yield _Layer(X.new_ones(len(X), 1), back, spec.bias2)
    yield _Layer(z, None, 1.0)


def _explicit_layers(module: ExplicitNet, X: Tensor) -> Iterator[_Layer]:
    signals, slopes = module.signals_and_slopes(X)
    factors, rates = module.factors, module.multipliers
    back = factors[-1] * module.readout[:, None, :].expand(-1, len(X), -1)
    layers = []
    for layer in range(len(slopes) - 1, -1, -1):
        back = back * slopes[layer]
        layers.append(_Layer(signals[layer], back, rates[layer]))
        back = factors[layer] * (back @ module.weights[layer])
    yield from reversed(layers)
    yield _Layer(signals[-1], None, rates[-1])
