"""What an activation is called elsewhere: the function that is made is the one that was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from tolerances import Oracle, assert_close
from torch import nn
from torch.nn import functional

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation

GRID = np.linspace(-4.0, 4.0, 81)

MODULES = [
    nn.Tanh(), nn.ReLU(), nn.LeakyReLU(0.2), nn.LeakyReLU(), nn.ELU(0.5), nn.SELU(), nn.CELU(2.0), nn.GELU(), nn.SiLU(),
    nn.Mish(), nn.Softplus(beta=2.0), nn.Softsign(), nn.Sigmoid(), nn.LogSigmoid(), nn.Hardtanh(-2.0, 2.0),
    nn.Hardtanh(-1.0, 2.0), nn.ReLU6(), nn.Hardsigmoid(), nn.Identity(),
]  # fmt: skip
FUNCTIONS = [
    torch.tanh, torch.relu, torch.sigmoid, torch.erf, torch.special.erf, torch.sin, torch.cos, torch.atan, torch.abs,
    functional.gelu, functional.silu, functional.leaky_relu, functional.elu, functional.selu, functional.softplus,
    functional.mish, functional.softsign, functional.hardtanh,
]  # fmt: skip


def _name(given: Any) -> str:
    # Without the address that the text of a function has: processes must agree on the names of tests.
    return str(getattr(given, "__name__", given))


@pytest.mark.parametrize("given", [*MODULES, *FUNCTIONS], ids=_name)
def test_torch_functions_and_modules_keep_their_values(given: Callable[[Any], Any]) -> None:
    expected = given(torch.from_numpy(GRID)).numpy()
    assert_close(activation(given)(GRID), expected, Oracle.CLOSED_FORM)


@pytest.mark.parametrize(
    "given", [np.tanh, np.sin, np.cos, np.abs, np.arctan, special.expit, special.erf], ids=str
)
def test_ufuncs_keep_their_values(given: Any) -> None:
    assert_close(activation(given)(GRID), given(GRID), Oracle.CLOSED_FORM)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("silu", "swish"), ("SiLU", "swish"), ("Tanh", "tanh"), ("ReLU", "relu"), ("leaky-relu", "leaky_relu"),
        ("HardTanh", "hard_tanh"), ("torch.tanh", "tanh"), ("jax.nn.silu", "swish"), ("nn.GELU", "gelu"),
        ("atan", "arctan"), ("linear", "identity"), (nn.Tanh, "tanh"),
    ],
)  # fmt: skip
def test_spellings(given: Any, name: str) -> None:
    assert activation(given) == activation(name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tahn", r"Did you mean 'tanh'"),
        ("leaky_rel", r"Did you mean 'leaky_relu'"),
        ("nothing like it", r"There is no activation 'nothing like it'\. Known"),
        (nn.PReLU(), r"torch's PReLU"),
        (nn.GELU("tanh"), r"approximate='tanh'.*formula"),
        (nn.Threshold, r"Threshold is a class that needs arguments"),
        (np.add, r"numpy's add"),
        (lambda x: abs(x), r"custom_activation\(f, kinks="),
        (3, r"not int"),
    ],
)
def test_what_is_not_understood_says_what_is(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        activation(given)


def test_parameters_go_with_other_spellings() -> None:
    assert activation("LeakyReLU", a=1, b=0.3) == activation("leaky_relu", a=1, b=0.3)
    assert activation(nn.LeakyReLU(0.2), b=0.3) == activation("leaky_relu", a=1.0, b=0.3)
