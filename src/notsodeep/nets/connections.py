"""How weights connect one layer with the next: a dense matrix, or filters shared over positions.

Networks are written once for both. A layer is a row of numbers for each sample; a connection defines what weights do to
such rows, what their gradient is, and how the last layer is read out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from notsodeep.models.mixing import Convolution
from notsodeep.nets.linear_maps import FilterMap, LinearMap, MatrixMap, convolve, filter_gradient, patches
from notsodeep.nets.weight_groups import FilterGroup, WeightGroup


@dataclass(frozen=True)
class DenseConnection:
    """Matrices: every unit is connected with every other.

    Attributes:
        count: number of positions that share the weights.
        taps: number of taps of a filter, by which the variance of a weight of the theory is divided.
        filter_shape: the shape of weights beyond the units that leave and those that enter.
    """

    count = taps = 1
    filter_shape: tuple[int, ...] = ()

    def features_of(self, units: int) -> int:
        """Number of features that a layer of so many units is read out as."""
        return units

    def image(self, weights: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """W x + bias of every row, differentiable."""
        return x @ weights.mT if bias is None else torch.addmm(bias, x, weights.mT)

    def spread(self, bias: Tensor) -> Tensor:
        """What a bias of every unit adds to a row."""
        return bias

    def linear_map(self, weights: Tensor, factor: float) -> LinearMap:
        """factor · W with its adjoint, for solvers."""
        return MatrixMap(weights, factor)

    def weight_gradient(self, back: Tensor, x: Tensor) -> Tensor:
        """The gradient in the weights, Σ over rows of back xᵀ, where that in W x is `back`."""
        return back.mT @ x

    def seen(self, x: Tensor) -> Tensor:
        """The numbers that the weights of a unit multiply, (rows × positions, weights of a unit)."""
        return x

    def group(self, signal: Tensor, back: Tensor, rate: float) -> WeightGroup:
        """The weights as a group for tangent kernels."""
        return WeightGroup(signal, back, rate)

    def bias_group(self, back: Tensor, rate: float) -> WeightGroup:
        """The bias as a group for tangent kernels."""
        return WeightGroup(back.new_ones(back.shape[1], 1), back, rate)

    def read(self, layer: Tensor) -> Tensor:
        """The features that the readout multiplies."""
        return layer

    def read_back(self, features: Tensor) -> Tensor:
        """The adjoint of `read`."""
        return features


@dataclass(frozen=True)
class FilterConnection:
    """Filters: a unit is a channel, connected with a few positions of every channel around its own.

    Attributes:
        geometry: positions, taps and padding.
        readout: "flatten" (weights for every position, divided by √positions) or "pool" (the mean over positions),
            docs/theory.md (10.2).
    """

    geometry: Convolution
    readout: str

    @property
    def count(self) -> int:
        """Number of positions."""
        return self.geometry.count

    @property
    def taps(self) -> int:
        """Taps of a filter."""
        return self.geometry.taps

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """Taps along each axis."""
        return (self.geometry.filter_size,) * len(self.geometry.positions)

    def features_of(self, units: int) -> int:
        """The units at every position, or their means."""
        return units * self.count if self.readout == "flatten" else units

    def image(self, weights: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """W x + bias of every row, differentiable."""
        return convolve(x, weights, self.geometry, bias)

    def spread(self, bias: Tensor) -> Tensor:
        """The bias of a channel at each of its positions."""
        return bias.repeat_interleave(self.count)

    def linear_map(self, weights: Tensor, factor: float) -> LinearMap:
        """factor · W with its adjoint."""
        return FilterMap(weights, factor, self.geometry)

    def weight_gradient(self, back: Tensor, x: Tensor) -> Tensor:
        """Σ over rows and positions of back(s) x(s + δ)ᵀ."""
        return filter_gradient(back, x, self.geometry)

    def seen(self, x: Tensor) -> Tensor:
        """What a filter sees at every position of every row, (rows × positions, channels × taps)."""
        return patches(x, self.geometry).movedim(1, 2).flatten(0, 1)

    def group(self, signal: Tensor, back: Tensor, rate: float) -> WeightGroup:
        """The weights as a group for tangent kernels."""
        return FilterGroup(signal, back, rate, self.geometry)

    def bias_group(self, back: Tensor, rate: float) -> WeightGroup:
        """The bias as a group for tangent kernels: it is seen at every position."""
        total = back.reshape(*back.shape[:2], back.shape[2] // self.count, self.count).sum(dim=3)
        return WeightGroup(back.new_ones(back.shape[1], 1), total, rate)

    def read(self, layer: Tensor) -> Tensor:
        """All positions divided by √positions, or their mean."""
        if self.readout == "flatten":
            return layer / sqrt(self.count)
        return layer.reshape(-1, layer.shape[1] // self.count, self.count).mean(dim=2)

    def read_back(self, features: Tensor) -> Tensor:
        """The adjoint of `read`."""
        if self.readout == "flatten":
            return features / sqrt(self.count)
        return (features / self.count).repeat_interleave(self.count, dim=-1)


Connection = DenseConnection | FilterConnection

__all__ = ["Connection", "DenseConnection", "FilterConnection"]
