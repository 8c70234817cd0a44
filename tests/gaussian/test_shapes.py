"""A shape is everything an activation is: one class with `evaluate` is enough, and nobody asks which class it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import oracles
import pytest
from oracles import Reference
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.gaussian import Activation, activation, moments
from notsodeep.gaussian.activations import BUILDERS
from notsodeep.gaussian.bivariate import dual
from notsodeep.gaussian.shapes import Shape


@dataclass(frozen=True)
class Ripple(Shape):
    """width · x exp(-(x/width)²), a class outside of the package that only says what the function is."""

    width: float = 1.5
    parity = -1

    def evaluate(self, x: Any, order: int, xp: Any) -> Any:
        u = x / self.width
        factors = (
            u,
            1.0 - 2.0 * u**2,
            u * (4.0 * u**2 - 6.0),
        )
        return self.width ** (2 - order) * factors[order] * xp.exp(-(u**2))


RIPPLE = Activation(Ripple(), "ripple")
REFERENCE = Reference(
    "ripple",
    lambda x: 1.5 * x * mpmath.exp(-((x / 1.5) ** 2)),
    lambda x: 1.5 * (1 - 2 * (x / 1.5) ** 2) * mpmath.exp(-((x / 1.5) ** 2)),
    lambda x: 1.5 * x * np.exp(-((x / 1.5) ** 2)),
    lambda x: 1.5 * (1 - 2 * (x / 1.5) ** 2) * np.exp(-((x / 1.5) ** 2)),
)


@pytest.mark.slow
def test_a_class_of_ones_own_has_derivatives_and_moments() -> None:
    x = np.array([-2.3, -0.4, 0.1, 1.7])
    for order in (1, 2):
        expected = [oracles.mp_derivative(REFERENCE, float(one), order) for one in x]
        assert_close(RIPPLE.derivative(x, order), expected, Oracle.CLOSED_FORM, scale=1.0)
    for q in (0.04, 1.0, 30.0):
        exact = oracles.mp_quadrature(REFERENCE, q)
        assert_close(moments.second_moment(RIPPLE, q), float(exact.second), Oracle.CLOSED_FORM)
        assert_close(moments.second_moment_slope(RIPPLE, q), float(exact.second_slope), Oracle.CLOSED_FORM)
        assert_close(moments.mean_derivative(RIPPLE, q, 1), float(exact.mean[1]), Oracle.CLOSED_FORM)
    assert RIPPLE.lipschitz == pytest.approx(1.5, rel=1e-12)
    assert RIPPLE.scaled(-2.0, gain=0.5).lipschitz == pytest.approx(1.5, rel=1e-12)


def test_a_class_of_ones_own_has_kernels() -> None:
    value, slope = dual(RIPPLE, 1.0, 2.0, 0.9)
    exact = oracles.brute_dual(REFERENCE, 1.0, 2.0, 0.9 / math.sqrt(2.0))
    assert_close([value, slope], [exact.value, exact.slope], Oracle.QUADRATURE)
    rows = np.random.default_rng(2).standard_normal((8, 5)) / math.sqrt(5.0)
    same = nsd.custom_activation(REFERENCE.np_value, REFERENCE.np_slope)
    for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
        for wrap in (lambda phi: nsd.DEQ(phi, 0.2), lambda phi: nsd.Explicit([phi, "relu", phi])):
            assert_close(kernel(wrap(RIPPLE), rows), kernel(wrap(same), rows), Oracle.CUSTOM_CALLABLE)


def test_a_class_of_ones_own_has_a_network() -> None:
    torch = pytest.importorskip("torch")
    from notsodeep.nets import DEQNet
    from notsodeep.nets.torch_activation import TorchActivation

    ours, x = TorchActivation(RIPPLE), torch.linspace(-4.0, 4.0, 31, dtype=torch.float64)
    assert_close(ours(x).numpy(), RIPPLE(x.numpy()), Oracle.CLOSED_FORM)
    assert_close(ours.slope(x).numpy(), RIPPLE.derivative(x.numpy()), Oracle.CLOSED_FORM, scale=1.0)
    net = DEQNet(nsd.DEQ(RIPPLE, 0.2), 3, 16, 1, dtype=torch.float64)
    net(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in net.parameters())


# --- by name ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_name_and_parameters_make_it_again(name: str) -> None:
    needed = {
        "piecewise_linear": {"knots": [-1, 2], "slopes": [0, 1.5, -0.0], "value": 1},
        "polynomial": {"coefficients": np.array([1, 0, 2])},
        "formula": {"expression": "x  *sigmoid( x )"},
        "elu": {"alpha": 2},
        "hard_tanh": {"c": 0.5},
    }
    made = activation(name, **needed.get(name, {}), gain=0.7)
    again = activation(made.name, **dict(made.parameters), gain=0.7)
    assert again == made
    assert str(again) == str(made)
    assert hash(again) == hash(made)
