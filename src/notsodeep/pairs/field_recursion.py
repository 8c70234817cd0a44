"""The covariances of explicit convolutional layers over positions, docs/theory.md (10.5), and their adjoint, (10.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from notsodeep.pairs.compiled_mixing import descend, enter, mix
from notsodeep.pairs.pair_fields import PairFields
from notsodeep.validation import Array


class Layer(Protocol):
    """The variances with which a layer reads the layer before, the input again and a bias."""

    @property
    def weight(self) -> float:
        """Variance of the weights that read the layer before; of the first layer, those that read the input."""

    @property
    def inject(self) -> float:
        """Variance of the weights that read the input again."""

    @property
    def constant(self) -> float:
        """Variance of a bias."""


class FieldRecursion:
    """The layers of an explicit network over the fields of some samples with others.

    Args:
        layers: the layers.
        fields: the fields of each of them; the recursion keeps their memory.
    """

    def __init__(self, layers: Sequence[Layer], fields: list[PairFields]) -> None:
        self.layers, self.fields = layers, fields
        size = fields[0].memory.shape[1]
        self.memory = np.zeros((len(layers) + 2, size))
        self.work = fields[0].layout.workspace()

    def forward(self, left: Array, right: Array, meet: Callable[[int], None]) -> Array:
        """ΣF of the last layer, of every pair, (samples, others); `meet` sets up the fields of a layer."""
        meet(0)
        first, geometry = self.fields[0], self.fields[0].layout.geometry
        end, systems = len(first.over), np.arange(len(first.starts) - 1)
        self.covariances = [part[:end] for part in self.memory[: len(self.layers)]]
        product, entering = (part[:end] for part in self.memory[len(self.layers) :])
        product[:] = 0.0
        first.layout.inner(left, right, product)
        mix(product, first.starts, geometry, self.work, entering)
        before = product
        for number, (layer, fields) in enumerate(zip(self.layers, self.fields, strict=True)):
            covariance = self.covariances[number]
            if number:
                meet(number)
            enter(
                before, entering, fields.scale, fields.starts, geometry, layer.weight, layer.inject, layer.constant,
                self.work, covariance,
            )  # fmt: skip
            fields.evaluate(systems, covariance)
            before = fields.value
        return first.totals(before)

    def tangents(self) -> Array:
        """ΣF + Σ B_l Λ_l over all layers, of every pair; slopes are overwritten."""
        last = self.fields[-1]
        total, adjoint = last.totals(last.value), last.slope
        for number in range(len(self.layers) - 1, -1, -1):
            total += last.inner_products(adjoint, self.covariances[number])
            if number:
                before = self.fields[number - 1].slope
                weight = self.layers[number].weight
                descend(adjoint, before, last.starts, last.layout.geometry, weight, self.work)
                adjoint = before
        return total


__all__ = ["FieldRecursion"]
