"""The exceptions of the package; every message says what to do."""

from __future__ import annotations


class InputError(ValueError):
    """The input cannot be used: the message says what was given, what is needed and what to do."""


class NotHighDimensionalError(InputError):
    """The samples are too correlated for an expansion in their inner products; exact kernels can still be computed."""


class MissingExtraError(ModuleNotFoundError, InputError):
    """An optional package is not installed: the message names what needs it and the extra that installs it.

    Attributes:
        name: the package.
    """


class ConvergenceError(ArithmeticError):
    """An equation has no solution, or the solver did not reach it.

    Attributes:
        remedy: the sentence of the message that says what to do.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        # Both arguments go to the base class: so the error can be pickled and sent from one process to another.
        super().__init__(problem, remedy)
        self.remedy = remedy

    def __str__(self) -> str:
        return " ".join(self.args)
