"""What the values of a torch cell are as nodes of `notsodeep.cells`, while the cell is read.

Trained weights are described by the mean square of their entries. Weights are kept back until it is known how they are
used: the outputs of one matrix may be split into several vectors, and a vector of gains may follow them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod, sqrt

import torch
from torch import Tensor

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError

# Gains that differ by less than this share are one number.
_UNIFORM = 1e-6
_GAINS = "multiplied by a vector"


@dataclass(eq=False)
class Vector:
    """A vector of the cell, times a gain and plus a shift for each feature that no weights have taken up yet.

    Attributes:
        node: the vector.
        size: number of features.
        gain: of a norm with weights; None for 1.
        shift: of a norm with a bias; None for 0.
    """

    node: ex.Node
    size: int
    gain: Tensor | None = None
    shift: Tensor | None = None

    def settled(self) -> ex.Node:
        """The node with gain and shift; an InputError for gains that differ between features."""
        return self._settled

    @cached_property
    def _settled(self) -> ex.Node:
        # Once: a bias that is added twice is the same vector.
        node = self.node
        if self.gain is not None:
            mean = float(self.gain.mean())
            if float((self.gain - mean).abs().max()) > _UNIFORM * abs(mean):
                raise InputError(
                    "its weights differ between features and are not followed by a Linear or Conv that could take them "
                    "up: only equal weights can be read here."
                )
            node = node if mean == 1.0 else node * mean
        return node if self.shift is None else with_bias(node, self.shift)


@dataclass(eq=False)
class InputVector:
    """The input x, times a number."""

    node: ex.Input
    size: int
    factor: float = 1.0


@dataclass(eq=False)
class Concatenation:
    """Vectors side by side, which only weights can read."""

    parts: tuple[Vector | InputVector, ...]


@dataclass(eq=False)
class Parts:
    """The results of `chunk` or `split`."""

    items: tuple[Product, ...]


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights (out, in, taps of each axis) and a bias in float64, and the padding of filters ("" for matrices)."""

    values: Tensor
    bias: Tensor | None
    padding: str = ""

    def rows(self, start: int, stop: int) -> Weights:
        """The weights of some of the outputs."""
        bias = None if self.bias is None else self.bias[start:stop]
        return Weights(self.values[start:stop], bias, self.padding)

    def times(self, gain: Tensor) -> Weights:
        """The weights with their outputs multiplied by gains."""
        shape = (-1, *[1] * (self.values.ndim - 1))
        bias = None if self.bias is None else gain * self.bias
        return Weights(gain.reshape(shape) * self.values, bias, self.padding)


@dataclass(eq=False)
class Product:
    """What weights make of vectors side by side, not yet a node: its outputs may still be split or get gains."""

    sources: tuple[Vector | InputVector, ...]
    weights: Weights
    used: str = field(default="", init=False)
    _parts: Parts | None = field(default=None, init=False)

    @property
    def size(self) -> int:
        """Number of outputs."""
        return len(self.weights.values)

    def split(self, sizes: list[int]) -> Parts:
        """Parts of the outputs, each with the weights of its rows."""
        self._claim(f"split into {sizes}")
        if self._parts is None:
            ends = accumulate(sizes, initial=0)
            parts = (Product(self.sources, self.weights.rows(*pair)) for pair in pairwise(ends))
            self._parts = Parts(tuple(parts))
        return self._parts

    def times(self, gain: Tensor) -> Product:
        """The outputs multiplied by gains."""
        self._claim(_GAINS)
        return Product(self.sources, self.weights.times(gain))

    def _claim(self, use: str) -> None:
        if self.used and (self.used != use or use == _GAINS):
            raise InputError(f"the output of its weights is used in two ways, {self.used} and {use}.")
        self.used = use

    def as_vector(self) -> Vector:
        """The node: a dense map or filters of each source, and the bias."""
        self._claim("whole")
        return self._vector

    @cached_property
    def _vector(self) -> Vector:
        weights, begin, nodes = self.weights, 0, []
        constant = torch.zeros(self.size) if weights.bias is None else weights.bias
        for source in self.sources:
            values = weights.values[:, begin : begin + source.size]
            begin += source.size
            nodes.append(_weighted(source, values, weights.padding))
            if isinstance(source, Vector) and source.shift is not None:
                constant = constant + values @ source.shift
        total = nodes[0] if len(nodes) == 1 else ex.Sum(tuple(nodes))
        return Vector(with_bias(total, constant), self.size)


def _weighted(source: Vector | InputVector, values: Tensor, padding: str) -> ex.Node:
    """The node of weights that read one source: s is the variance × fan-in, for the input the variance (× taps)."""
    taps = prod(values.shape[2:])
    if isinstance(source, InputVector):
        scale = float(taps) * source.factor**2
    else:
        scale = float(taps * values.shape[1])
        if source.gain is not None:
            values = values * source.gain.reshape(-1, *[1] * (values.ndim - 2))
    variance = scale * mean_square(values)
    if padding:
        return ex.conv(source.node, variance, values.shape[-1], padding)
    return ex.dense(source.node, variance)


@dataclass(eq=False)
class Square:
    """The squares of a value, for norms that are written out."""

    of: Vector | InputVector | Product


@dataclass(eq=False)
class MeanSquare:
    """factor · (mean square of a value over its features), plus any small constant; `root` after a square root."""

    of: Vector | InputVector | Product
    factor: float
    root: bool = False
    inverse: bool = False

    def rooted(self) -> MeanSquare:
        """The square root."""
        return MeanSquare(self.of, sqrt(self.factor), True, self.inverse)

    def inverted(self) -> MeanSquare:
        """Return one over the value."""
        return MeanSquare(self.of, 1.0 / self.factor, self.root, not self.inverse)

    def times(self, number: float) -> MeanSquare:
        """The product with a positive number."""
        return MeanSquare(self.of, number * self.factor, self.root, self.inverse)


Value = Vector | InputVector | Product


def with_bias(node: ex.Node, constant: Tensor) -> ex.Node:
    """The node plus a bias of the mean square of a constant vector; the node itself for zeros."""
    square = mean_square(constant)
    return ex.bias(node, square) if square else node


def mean_square(values: Tensor) -> float:
    """The mean of the squared entries."""
    return float(values.double().square().mean())


__all__ = [
    "Concatenation", "InputVector", "MeanSquare", "Parts", "Product", "Square", "Value", "Vector", "Weights",
    "mean_square", "with_bias",
]  # fmt: skip
