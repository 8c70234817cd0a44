"""What the values of a torch cell are as nodes of `notsodeep.cells`, while the cell is read.

Trained weights are described by the mean square of their entries. Weights are kept back until it is known how they are
used: the outputs of one matrix may be split into several vectors, and a vector of gains may follow them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

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
        gain: gain of a norm with weights; None for 1.
        shift: shift of a norm with a bias; None for 0.
    """

    node: ex.Node
    size: int
    gain: Tensor | None = None
    shift: Tensor | None = None

    @cached_property
    def settled(self) -> ex.Node:
        """The node with gain and shift; an InputError for gains that differ between features."""
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

    def times(self, gain: Tensor) -> Vector:
        """The vector multiplied by a number, or by one for each feature, that weights may still take up."""
        own = torch.ones(self.size, dtype=torch.float64) if self.gain is None else self.gain
        return Vector(self.node, self.size, gain * own, None if self.shift is None else gain * self.shift)


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
class Product:
    """What weights make of vectors side by side, not yet a node: its outputs may still be split or get gains.

    Attributes:
        sources: what the weights read.
        weights: (out, in, taps of each axis), float64.
        bias: bias of the outputs, or None.
        padding: padding of filters; "" for matrices.
    """

    sources: tuple[Vector | InputVector, ...]
    weights: Tensor
    bias: Tensor | None
    padding: str = ""
    used: str = field(default="", init=False)
    _parts: tuple[Product, ...] = field(default=(), init=False)

    @property
    def size(self) -> int:
        """Number of outputs."""
        return len(self.weights)

    def split(self, sizes: list[int]) -> tuple[Product, ...]:
        """Parts of the outputs, each with the weights of its rows."""
        self._claim(f"split into {sizes}")
        if not self._parts:
            biases = [None] * len(sizes) if self.bias is None else torch.split(self.bias, sizes)
            pairs = zip(torch.split(self.weights, sizes), biases, strict=True)
            self._parts = tuple(Product(self.sources, rows, bias, self.padding) for rows, bias in pairs)
        return self._parts

    def times(self, gain: Tensor) -> Product:
        """The outputs multiplied by gains."""
        self._claim(_GAINS)
        weights = gain.reshape(-1, *[1] * (self.weights.ndim - 1)) * self.weights
        return Product(self.sources, weights, None if self.bias is None else gain * self.bias, self.padding)

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
        constant = torch.zeros(self.size) if self.bias is None else self.bias
        nodes, blocks = [], torch.split(self.weights, [one.size for one in self.sources], 1)
        for source, values in zip(self.sources, blocks, strict=True):
            nodes.append(_weighted(source, values, self.padding))
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
    variance = scale * _mean_square(values)
    if padding:
        return ex.conv(source.node, variance, values.shape[-1], padding)
    return ex.dense(source.node, variance)


Value = Vector | InputVector | Product


@dataclass(eq=False)
class Square:
    """The squares of a value, for norms that are written out."""

    of: Value


@dataclass(eq=False)
class MeanSquare:
    """The mean square of a value over its features, plus any small constant, to the power 1, 1/2 or -1/2."""

    of: Value
    power: float = 1.0


def with_bias(node: ex.Node, constant: Tensor) -> ex.Node:
    """The node plus a bias of the mean square of a constant vector; the node itself for zeros."""
    square = _mean_square(constant)
    return ex.bias(node, square) if square else node


def _mean_square(values: Tensor) -> float:
    return float(values.double().square().mean())


__all__ = ["Concatenation", "InputVector", "MeanSquare", "Product", "Square", "Value", "Vector", "with_bias"]
