"""Formulas in torch against NumPy, finite differences and the built-in networks."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
import torch
from tolerances import Oracle, assert_close

from notsodeep.gaussian.activations import Activation, activation
from notsodeep.gaussian.formula import FUNCTIONS
from notsodeep.nets.torch_activation import TorchActivation

X = torch.tensor(np.random.default_rng(0).standard_normal((6, 4)))


def formula(text: str) -> Activation:
    return activation("formula", expression=text)


# log, log1p and sqrt are not defined everywhere.
INNER = {"log": "1 + x**2", "log1p": "x**2", "sqrt": "1 + x**2"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_has_its_slope_and_curvature(name: str) -> None:
    phi = formula(f"{name}({INNER.get(name, 'x')}) + min(x, 0.3) * 2 - abs(x) / 3 + x**0")
    torched = TorchActivation(phi)
    x = torch.linspace(-4.0, 4.0, 81, dtype=torch.float64).add(0.0123).requires_grad_()
    grid = x.detach().numpy()
    (by_autograd,) = torch.autograd.grad(torched(x).sum(), x)
    slope = torched.slope(x)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    assert_close(torched(x).detach().numpy(), phi(grid), Oracle.CLOSED_FORM)
    for found in (by_autograd, slope):
        assert_close(found.detach().numpy(), phi.derivative(grid), Oracle.CUSTOM_CALLABLE, scale=1.0)
    difference = oracles.central_difference(phi.derivative, grid)
    assert_close(curvature.detach().numpy(), difference, Oracle.FINITE_DIFFERENCE, scale=1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tanh(2*x)", 2.0),
        ("clip(3*x, -1, 1)", 3.0),
        ("x**2", np.inf),
        ("exp(x)", np.inf),
        ("x * log1p(x**2)", np.inf),
    ],
)
def test_lipschitz_constants(text: str, expected: float) -> None:
    assert formula(text).lipschitz == pytest.approx(expected, rel=1e-9)
