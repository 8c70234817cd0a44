"""The elementwise functions that formulas are written with, so that one formula serves NumPy arrays and torch tensors.

NumPy and torch, SciPy's and torch's special functions share most names.  A `Backend` offers those that formulas use;
the one of torch is made from the module that the caller has imported, because this room works without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

ELEMENTWISE = (
    "abs", "arctan", "clip", "cos", "cosh", "exp", "expm1", "full_like", "isnan", "log", "log1p", "logaddexp", "sin",
    "sinh", "tanh", "where", "zeros_like", "broadcast_to",
)  # fmt: skip
SPECIAL = ("erf", "expit", "ndtr")


class Backend:
    """Functions of arrays or of tensors, by one set of names.

    Attributes:
        constant: `constant(value, like)` is a number as an array without axes, of the kind of `like`.
    """

    def __init__(self, elementwise: Any, special: Any, constant: Callable[[float, Any], Any]) -> None:
        self._functions = {name: getattr(elementwise, name) for name in ELEMENTWISE}
        self._functions.update({name: getattr(special, name) for name in SPECIAL})
        self.constant = constant

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_functions"][name]
        except KeyError:
            raise AttributeError(f"Formulas have no function {name!r} that NumPy and torch share.") from None


NUMPY = Backend(np, special, lambda value, like: np.asarray(value))


@lru_cache(maxsize=1)
def torch_backend(torch: Any) -> Backend:
    """The functions of tensors, from the module `torch`."""
    return Backend(
        torch,
        torch.special,
        lambda value, like: torch.full((), value, dtype=like.dtype, device=like.device),
    )


@dataclass(frozen=True)
class TorchForm:
    """A function of torch tensors with its slope.

    Attributes:
        value: the function, differentiable by autograd.
        slope: its derivative, differentiable too; at a kink that on its left.
        in_place: the function written over its argument, if torch can; only called where no gradient is recorded.
        into: the function with an argument `out` for where to write, if torch can; likewise.
    """

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    in_place: Callable[[Any], Any] | None = None
    into: Callable[..., Any] | None = None
