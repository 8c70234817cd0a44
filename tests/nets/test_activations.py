"""Activations in torch against the package's NumPy definitions, differences, and a dense scan of the slope."""

from __future__ import annotations

import warnings
from itertools import cycle

import numpy as np
import oracles
import pytest
import torch
from tolerances import Oracle, assert_close, tolerance

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import BUILDERS, Activation, activation, custom_activation
from notsodeep.gaussian.formula import FUNCTIONS
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet
from notsodeep.nets.torch_activation import TorchActivation

# What has no defaults of its own.
NEEDED = {
    "piecewise_linear": {"knots": (-1.0, 0.5, 2.0), "slopes": (0.3, -1.0, 2.0, 0.1), "value": 0.4},
    "polynomial": {"coefficients": (0.3, -1.0, 0.2, 0.05)},
    "formula": {"expression": "x * sigmoid(x) - 0.3 * abs(x**2 - 1) * exp(-abs(x))"},
}


def _bump(x):
    return x * np.exp(-(x**2) / 4.0)


def _bent(x):
    return np.where(x < 0.5, np.sin(x), np.sin(0.5) + 2.0 * (x - 0.5))


def _takes_both(x):
    """Of arrays and of tensors."""
    return x / (1.0 + abs(x)) + 0.3 * (x - 0.5).clip(0, None)


def _bent_in_torch(x):
    return torch.where(x < 0.5, torch.sin(x), float(np.sin(0.5)) + 2.0 * (x - 0.5))


def _catalogue() -> dict[str, Activation]:
    plain = {name: activation(name, **NEEDED.get(name, {})) for name in BUILDERS}
    branches = {
        "relu of slope 2": activation("leaky_relu", a=0.0, b=2.0),
        "leaky relu, both slopes": activation("leaky_relu", a=0.2, b=1.7),
        "leaky relu, negative slope": activation("leaky_relu", a=-0.5, b=1.0),
        "hard tanh of slope 2": activation("hard_tanh", a=2.0, c=0.3),
        "ramp off centre": activation(
            "piecewise_linear", knots=(0.5, 2.0), slopes=(0.0, -1.5, 0.0), value=0.2
        ),
        "one knot, not at zero": activation("piecewise_linear", knots=(1.0,), slopes=(0.0, 1.0)),
        "line": activation("piecewise_linear", knots=(), slopes=(-0.5,), value=0.3),
        "constant": activation("polynomial", coefficients=(0.7,)),
        "elu, steep": activation("elu", alpha=2.5),
        "elu, negative": activation("elu", alpha=-0.5),
        "custom": custom_activation(_bump),
        "custom with kink": custom_activation(_bent, kinks=[0.5]),
        "custom for both": custom_activation(_takes_both, kinks=[0.0, 0.5]),
        "custom with a form for tensors": custom_activation(_bent, kinks=[0.5], torch=_bent_in_torch),
    }
    moved = {
        f"{name}, moved": one.scaled(-1.3, gain=-0.7).shifted(0.25)
        for name, one in (plain | branches).items()
        if name in ("relu", "gelu", "hard_tanh", "leaky_relu", "sigmoid", "elu", "sin", "custom with kink")
    }
    return {**plain, **branches, **moved}


CATALOGUE = _catalogue()
# Functions of arrays only are announced once: tests/nets/test_activations.py::test_a_function_of_arrays_…
pytestmark = pytest.mark.filterwarnings("ignore:.*takes only NumPy arrays")
EVERY = pytest.mark.parametrize("name", CATALOGUE)
# The two precisions in turn over the activations.
EVERY_IN_TURN = pytest.mark.parametrize(
    ("name", "dtype"), list(zip(CATALOGUE, cycle([torch.float32, torch.float64]), strict=False))
)


def _points(phi: Activation, dtype: torch.dtype) -> torch.Tensor:
    """A grid, and points far out; none at a kink."""
    grid = np.concatenate([np.linspace(-12.0, 12.0, 2003), [-60.0, -25.0, 25.0, 60.0]]) + 0.000317
    x = torch.tensor(grid, dtype=dtype)
    for kink in phi.kinks:
        x = x[(x - kink).abs() > 1e-5]
    return x


def _oracle(phi: Activation) -> Oracle:
    return Oracle.CUSTOM_CALLABLE if phi.shape.__class__.__name__ == "Custom" else Oracle.CLOSED_FORM


@pytest.mark.slow
@EVERY_IN_TURN
def test_value_slope_and_autograd_are_those_of_the_definition(name: str, dtype: torch.dtype) -> None:
    phi = CATALOGUE[name]
    ours, x = TorchActivation(phi), _points(phi, dtype)
    wide, oracle = x.double().numpy(), _oracle(phi)
    h = x.clone().requires_grad_()
    value = ours(h)
    assert value.dtype == ours.slope(x).dtype == dtype
    assert_close(value.detach().numpy(), phi(wide), oracle)
    # A slope far from 1 may be the difference of steep pieces: judged at the scale of those.
    slope, scale = phi.derivative(wide), max(float(np.abs(phi.derivative(wide)).max()), 1e-300)
    assert_close(ours.slope(x).numpy(), slope, oracle, scale=scale)
    if value.requires_grad:
        assert_close(torch.autograd.grad(value.sum(), h)[0].numpy(), slope, oracle, scale=scale)
    else:
        assert not slope.any(), "autograd sees no dependence where there is one"


@EVERY
def test_writing_and_slopes_at_kinks(name: str) -> None:
    """`write` gives the value in the memory given; at a kink the slope is that of one of the two sides."""
    phi = CATALOGUE[name]
    ours, step = TorchActivation(phi), 1e-7
    x = torch.tensor(np.linspace(-9.0, 9.0, 501)).reshape(3, 167)
    h, out = x.clone(), torch.empty_like(x)
    assert ours.write(h, out).data_ptr() == out.data_ptr()
    assert torch.equal(h, x)
    assert_close(out.numpy(), ours(x).numpy(), Oracle.IDENTITY)
    for kink in phi.kinks:
        left, right = (float((phi(kink + s) - phi(kink)) / s) for s in (-step, step))
        at = float(ours.slope(torch.tensor([kink], dtype=torch.float64))[0])
        assert min(abs(at - left), abs(at - right)) <= 1e-5 * max(1.0, abs(at)), (kink, left, at, right)


def _steepest_seen(phi: Activation, x: np.ndarray) -> float:
    """The steepest secant and the steepest tangent on the points x."""
    secants = np.abs(np.diff(phi(x)) / np.diff(x))
    return float(max(secants.max(), np.abs(phi.derivative(x)).max()))


def _dense(span: float = 40.0) -> np.ndarray:
    return np.linspace(-span, span, 200_001) + 1e-4


@EVERY
def test_the_lipschitz_constant_is_never_exceeded_and_is_attained(name: str) -> None:
    phi = CATALOGUE[name]
    constant = phi.lipschitz
    if name == "polynomial":
        assert constant == np.inf
        return
    seen = _steepest_seen(phi, _dense())
    slack = tolerance(Oracle.CUSTOM_CALLABLE).rtol
    assert seen <= constant * (1.0 + slack) + slack
    # The grid passes within 2e-4 of the steepest point, near which slopes fall by 2.5 per unit at most.
    assert constant <= seen * (1.0 + 1e-3) + slack


def test_the_lipschitz_constant_sees_two_very_different_lengths() -> None:
    # The bend lasts a thousand times longer than the clipped part: the slope tends to 0.5 far out.
    phi = activation("formula", expression="0.1*x + 400*softplus(x/1000) + 0.01*tanh(10*x)")
    assert _steepest_seen(phi, _dense(2e4)) <= phi.lipschitz * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("f", "steepest"),
    [
        (lambda x: x + np.tanh(3000.0 * (x - 3.5137)) / 3000.0, 2.0),
        (lambda x: x + np.tanh(3000.0 * (x + 0.0173)) / 3000.0, 2.0),
        (lambda x: np.tanh(x) + 3.0 * np.tanh(x - 55.0), 3.0),
    ],
    ids=["a narrow step", "one near zero", "a step far out"],
)
def test_the_lipschitz_constant_sees_steps(f, steepest: float) -> None:
    assert custom_activation(f).lipschitz >= steepest * (1.0 - 1e-6)


@pytest.mark.parametrize("name", ["custom", "custom with kink", "gelu", "hard_tanh"])
def test_vmap_is_elementwise(name: str) -> None:
    ours = TorchActivation(CATALOGUE[name])
    x = torch.linspace(-3.0, 3.1, 24, dtype=torch.float64).reshape(2, 3, 4)
    for dim in (0, 1):
        assert_close(
            torch.func.vmap(ours, in_dims=dim, out_dims=dim)(x).numpy(), ours(x).numpy(), Oracle.IDENTITY
        )
    slopes = torch.func.vmap(torch.func.grad(lambda y: ours(y).sum()))(x)
    assert_close(slopes.numpy(), ours.slope(x).numpy(), Oracle.CLOSED_FORM)


# --- a user's function: on tensors if it takes them, else through NumPy, and never silently --------------------------


def _warnings_of(make) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    # Every warning points to the line outside of the package.
    assert {one.filename for one in caught} <= {__file__}
    return [str(one.message) for one in caught]


def test_a_function_that_takes_tensors_is_called_with_tensors() -> None:
    seen = []

    def f(x):
        seen.append(type(x))
        return x / (1.0 + x * x)

    phi = custom_activation(f)
    assert set(seen) == {np.ndarray}
    assert _warnings_of(lambda: TorchActivation(phi)) == []
    ours = TorchActivation(phi)
    seen.clear()
    ours(torch.zeros(3)), ours.slope(torch.zeros(3)), ours.write(torch.zeros(3), torch.empty(3))
    assert seen
    assert all(issubclass(kind, torch.Tensor) for kind in seen)


def test_a_form_for_tensors_is_called_with_tensors_and_checked() -> None:
    phi = custom_activation(np.tanh, torch=torch.tanh)
    assert _warnings_of(lambda: TorchActivation(phi)) == []
    x = torch.linspace(-2.0, 2.0, 9, requires_grad=True)
    assert type(TorchActivation(phi)(x).grad_fn).__name__.startswith("Tanh")
    for wrong in (
        torch.sin,
        lambda x: x.numpy(),
        lambda x: torch.tanh(x).double(),
        lambda x: torch.tanh(x.detach()),
    ):
        with pytest.raises(
            InputError, match=r"given for the activation 'tanh' .*(values|tensor|type|called)"
        ):
            TorchActivation(custom_activation(np.tanh, torch=wrong))


def test_a_function_of_arrays_goes_through_numpy_and_says_so_once() -> None:
    phi = custom_activation(_bent, kinks=[0.5])
    (said,) = _warnings_of(
        lambda: [TorchActivation(phi), TorchActivation(phi), DEQNet(DEQ(phi, 0.1), 2, 8, 1)]
    )
    assert "'_bent' takes only NumPy arrays" in said
    assert "custom_activation(f, torch=...)" in said


@pytest.mark.parametrize(
    "x", [torch.zeros(3), torch.nn.Parameter(torch.zeros(3))], ids=["tensor", "parameter"]
)
def test_an_activation_does_not_take_a_tensor_for_an_array(x: torch.Tensor) -> None:
    for call in (activation("tanh"), activation("tanh").derivative):
        with pytest.raises(InputError, match="TorchActivation"):
            call(x)


# --- formulas --------------------------------------------------------------------------------------------------------


# log, log1p and sqrt are not defined everywhere.
INNER = {"log": "1 + x**2", "log1p": "x**2", "sqrt": "1 + x**2"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_of_a_formula_has_its_slope_and_curvature(name: str) -> None:
    phi = activation(f"{name}({INNER.get(name, 'x')}) + min(x, 0.3) * 2 - abs(x) / 3 + x**0")
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
