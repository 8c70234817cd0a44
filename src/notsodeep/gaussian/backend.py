"""Elementwise functions by one set of names, so that one formula serves NumPy arrays and torch tensors.

NumPy and torch, SciPy's and torch's special functions share most names.  The namespace of torch is made from the module
that the caller has imported, because this package works without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special

ELEMENTWISE = (
    "abs", "arctan", "clip", "cos", "cosh", "exp", "expm1", "full_like", "log", "log1p", "logaddexp", "maximum", "sin",
    "sinh", "tanh", "where", "zeros_like",
)  # fmt: skip
SPECIAL = ("erf", "expit", "ndtr")


def _namespace(elementwise: Any, special: Any) -> SimpleNamespace:
    functions = {name: getattr(elementwise, name) for name in ELEMENTWISE}
    return SimpleNamespace(**functions, **{name: getattr(special, name) for name in SPECIAL})


NUMPY = _namespace(np, special)


@lru_cache(maxsize=1)
def torch_backend(torch: Any) -> SimpleNamespace:
    """The functions of tensors, from the module `torch`."""
    functions = _namespace(torch, torch.special)
    # Takes numbers too; where both are equal, its derivative is that of the second.
    functions.maximum = lambda left, right: torch.where(left > right, left, right)
    return functions


@dataclass(frozen=True)
class TorchForm:
    """A function of torch tensors with its slope.

    Attributes:
        value: the function, differentiable by autograd.
        slope: its derivative, differentiable too; at a kink that on its left.
    """

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]
