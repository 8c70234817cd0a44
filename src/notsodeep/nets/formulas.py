"""Formulas as torch operations: the tree of `gaussian.expressions` walked with tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Elementwise = Callable[[Tensor], Tensor]
# Value and slope of each smooth function, by its name.
Functions = Mapping[str, tuple[Elementwise, Elementwise]]

PLAIN: Functions = {
    "sigmoid": (torch.sigmoid, lambda x: torch.sigmoid(x) * torch.sigmoid(-x)),
    "sin": (torch.sin, torch.cos),
    "cos": (torch.cos, lambda x: -torch.sin(x)),
    "exp": (torch.exp, torch.exp),
    "expm1": (torch.expm1, torch.exp),
    "log": (torch.log, torch.reciprocal),
    "log1p": (torch.log1p, lambda x: 1.0 / (1.0 + x)),
    "sinh": (torch.sinh, torch.cosh),
    "cosh": (torch.cosh, torch.sinh),
}


@dataclass(frozen=True)
class TensorValues:
    """The values of the nodes, differentiable by autograd."""

    x: Tensor
    functions: Functions

    def variable(self) -> Tensor:
        """x."""
        return self.x

    def number(self, value: float) -> Tensor:
        """A constant of the kind of x."""
        return torch.full_like(self.x, value)

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """left + right."""
        return left + right

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """left · right."""
        return left * right

    def larger(self, left: Tensor, right: Tensor) -> Tensor:
        """max(left, right); the gradient goes to the right one where they are equal."""
        return torch.where(left > right, left, right)

    def power(self, base: Tensor, exponent: float) -> Tensor:
        """base ** exponent."""
        return base**exponent

    def apply(self, name: str, argument: Tensor) -> Tensor:
        """The function of that name."""
        return self.functions[name][0](argument)


@dataclass(frozen=True)
class TensorSlopes:
    """Pairs (u, u') for each node, both differentiable by autograd."""

    x: Tensor
    functions: Functions

    def variable(self) -> tuple[Tensor, Tensor]:
        """x, with the slope 1."""
        return self.x, torch.ones_like(self.x)

    def number(self, value: float) -> tuple[Tensor, Tensor]:
        """A constant, with the slope 0."""
        return torch.full_like(self.x, value), torch.zeros_like(self.x)

    def add(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Slopes add up."""
        return left[0] + right[0], left[1] + right[1]

    def multiply(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Leibniz's rule."""
        return left[0] * right[0], left[1] * right[0] + left[0] * right[1]

    def larger(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The branch that counts."""
        counts = left[0] > right[0]
        return torch.where(counts, left[0], right[0]), torch.where(counts, left[1], right[1])

    def power(self, base: tuple[Tensor, Tensor], exponent: float) -> tuple[Tensor, Tensor]:
        """The chain rule."""
        return base[0] ** exponent, exponent * base[0] ** (exponent - 1.0) * base[1]

    def apply(self, name: str, argument: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The chain rule."""
        value, slope = self.functions[name]
        return value(argument[0]), slope(argument[0]) * argument[1]
