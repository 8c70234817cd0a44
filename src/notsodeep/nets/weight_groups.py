"""Weights with the factors of their gradients, from which tangent kernels at finite width are computed.

The gradient of an output in a weight matrix is an outer product for every sample: inner products of gradients are
products of inner products, and no gradient is ever formed.  In filters it is a sum of outer products over positions; it
is formed, for a few channels at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from notsodeep.models.mixing import Convolution
from notsodeep.nets.linear_maps import patches

# Numbers in the largest tensor of one part of the gradients in filters.
_MOST_NUMBERS = 2**25


@dataclass(frozen=True)
class WeightGroup:
    """Weights that see one signal: their gradient for sample i and output k is rate^½ · back[k, i] ⊗ signal[i].

    The gradient is that in weights of variance 1, however they are stored.

    Attributes:
        signal: what the weights multiply, (rows, fan_in).
        back: the derivative of every output in what the weights produce, (outputs, rows, width); None for the readout.
        rate: the square of the factor that multiplies the weights.
    """

    signal: Tensor
    back: Tensor | None
    rate: float

    def inner_products(self, other: WeightGroup) -> Tensor:
        """⟨gradient of sample i, gradient of sample j of `other`⟩ without the rate, averaged over the outputs."""
        gram: Tensor = self.signal @ other.signal.mT
        if self.back is None or other.back is None:
            return gram
        # Σ_k back_k back_kᵀ in one product, divided by the number of outputs.
        flat = [back.movedim(0, 1).flatten(1) for back in (self.back, other.back)]
        return gram * (flat[0] @ flat[1].mT) / len(self.back)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The same weights over the samples of all parts."""
        backs = [part.back for part in parts if part.back is not None]
        signal = torch.cat([part.signal for part in parts])
        return replace(parts[0], signal=signal, back=torch.cat(backs, dim=1) if backs else None)


@dataclass(frozen=True)
class FilterGroup(WeightGroup):
    """Filters: the gradient is rate^½ Σ_s back[k, i](s) ⊗ (what a filter sees of signal[i] at s).

    Attributes:
        signal: (rows, channels × positions).
        back: (outputs, rows, channels × positions).
        geometry: positions, taps and padding.
    """

    geometry: Convolution

    def inner_products(self, other: WeightGroup) -> Tensor:
        """⟨gradient of sample i, gradient of sample j of `other`⟩ without the rate, averaged over the outputs."""
        if self.back is None or other.back is None:
            raise ValueError("filters need the derivative of the outputs in what they produce")
        outputs, count, channels = len(self.back), self.geometry.count, self.signal.shape[1]
        rows = max(len(self.signal), len(other.signal))
        largest = max(self.back.shape[2] // count, count) * self.geometry.taps * rows
        step = max(1, _MOST_NUMBERS // largest) * count
        products = self.signal.new_zeros(len(self.signal), len(other.signal))
        for start in range(0, channels, step):
            part = slice(start, start + step)
            seen = [patches(group.signal[:, part], self.geometry) for group in (self, other)]
            for k in range(outputs):
                one, two = (
                    (back[k].reshape(len(patch), -1, count) @ patch.mT).flatten(1)
                    for back, patch in zip((self.back, other.back), seen, strict=True)
                )
                products += one @ two.mT
        return products / outputs


@dataclass(frozen=True)
class TiedGroup:
    """Weights that are used several times, in the steps of a loop or at the nodes of a graph: their gradients add up.

    Attributes:
        uses: one group for each use, all of the same weights.
    """

    uses: tuple[WeightGroup, ...]

    @property
    def rate(self) -> float:
        """The square of the factor that multiplies the weights."""
        return self.uses[0].rate

    def inner_products(self, other: TiedGroup) -> Tensor:
        """⟨gradient of sample i, gradient of sample j of `other`⟩ without the rate, averaged over the outputs."""
        products = [one.inner_products(two) for one in self.uses for two in other.uses]
        return torch.stack(products).sum(dim=0)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The same weights over the samples of all parts."""
        uses = zip(*(part.uses for part in parts), strict=True)
        return cls(tuple(use[0].joined(use) for use in uses))


__all__ = ["FilterGroup", "TiedGroup", "WeightGroup"]
