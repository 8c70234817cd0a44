"""What can go wrong, each error with what to do about it."""

from __future__ import annotations


class InputError(ValueError):
    """The input cannot be used: the message says what came, what is needed and what to do."""


class NotHighDimensionalError(InputError):
    """The samples are too correlated for an expansion in their inner products; the exact kernels still serve them."""


class MissingExtraError(ModuleNotFoundError, InputError):
    """An optional package is not installed: the message says what needs it and which extra brings it.

    Attributes:
        name: the package.
    """


class ConvergenceError(ArithmeticError):
    """An equation has no solution, or the solver did not reach it.

    Attributes:
        remedy: what would repair it, in words.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.remedy = remedy
