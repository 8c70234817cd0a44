"""Derivatives of the equilibrium against unrolled autograd; their accuracy, failures and memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
import torch
from nets_oracles import (
    as_array,
    gaussian_rows,
    theory_weight,
    unrolled,
)
from tolerances import Oracle, assert_close
from torch import Tensor
from torch.func import jvp, vmap
from torch.nn import functional

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation, activation, custom_activation
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions

TIGHT = SolverOptions(tolerance=1e-13)
# Ours, and the same function in torch's own words.
PAIRS: dict[str, tuple[Activation, Callable[[Tensor], Tensor]]] = {
    "tanh": (activation("tanh"), torch.tanh),
    "relu": (activation("relu"), torch.relu),
    "gelu": (activation("gelu"), functional.gelu),
    "leaky_relu": (activation("leaky_relu"), lambda h: functional.leaky_relu(h, 0.1)),
    "custom": (
        custom_activation(lambda x: x * np.exp(-(x**2) / 4.0)),
        lambda h: h * torch.exp(-(h**2) / 4.0),
    ),
    "moved": (
        activation("softplus").scaled(-0.8, gain=1.3).shifted(0.4),
        lambda h: 0.4 - 0.8 * functional.softplus(1.3 * h),
    ),
}
# "custom" takes arrays only, so that its way through NumPy is tested here too.
pytestmark = pytest.mark.filterwarnings("ignore:.*takes only NumPy arrays")


def _net(name="tanh", bias2=0.0, width=12, sigma_a2=0.2, **options) -> DEQNet:
    options = {"solver": TIGHT, "dtype": torch.float64, "seed": 3, **options}
    return DEQNet(DEQ(PAIRS[name][0], sigma_a2, 0.8, bias2), 4, width, 2, **options)


def _targets(rows: int) -> Tensor:
    return gaussian_rows(rows, 2, 99)


def _loss(outputs: Tensor) -> Tensor:
    return (outputs.tanh() - _targets(len(outputs))).square().sum()


def _gradients(net: DEQNet, X: Tensor, outputs: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    X = X.clone().requires_grad_()
    named = {"X": X, **dict(net.named_parameters())}
    found = torch.autograd.grad(_loss(outputs(X)), list(named.values()))
    return dict(zip(named, found, strict=True))


def _by_unrolling(net: DEQNet, X: Tensor, name: str, steps: int = 120) -> dict[str, Tensor]:
    return _gradients(
        net, X, lambda Y: unrolled(net, Y, PAIRS[name][1], steps) @ theory_weight(net, "readout").T
    )


def _assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], relative: float) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        miss = float((found[key] - value).norm() / value.norm())
        assert miss <= relative, f"{key}: {miss:.1e}"


# --- the gradient ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bias2", "method"),
    [(name, 0.5 * (k % 2), ("iteration", "anderson")[k // 2 % 2]) for k, name in enumerate(PAIRS)],
)
def test_implicit_gradients_are_those_of_the_unrolled_iteration(name: str, bias2: float, method: str) -> None:
    net = _net(name, bias2, solver=SolverOptions(method=method, tolerance=1e-13))
    X = gaussian_rows(7, 4, 1)
    found = _gradients(net, X, net)
    assert ("bias" in found) == (bias2 > 0)
    _assert_same(found, _by_unrolling(net, X, name), 1e-10)
    assert net.last_adjoint.converged
    assert net.last_adjoint.residuals.shape == (7,)


def test_float32_gradients_have_float32_accuracy() -> None:
    net = _net(dtype=torch.float32, width=100, solver=SolverOptions(tolerance=1e-6))
    X = gaussian_rows(20, 4, 1, torch.float32)
    outputs = net(X)
    outputs.square().sum().backward()
    twice = copy.deepcopy(net).double()
    twice.zero_grad()
    (
        unrolled(twice, X.double(), torch.tanh, 100) @ theory_weight(twice, "readout").T
    ).square().sum().backward()
    for (key, found), expected in zip(net.named_parameters(), twice.parameters(), strict=True):
        miss = float((found.grad.double() - expected.grad).norm() / expected.grad.norm())
        assert miss <= 1e-5, key


# --- batches of every size, weights that change ----------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_the_adjoint_meets_its_tolerance(scale: float) -> None:
    # A loose tolerance: a residual that flatters shows up as an error in the gradient.
    net = _net("tanh", train="readout", adjoint=SolverOptions(tolerance=1e-3))
    X = scale * gaussian_rows(150, 4, 1)
    found = _gradients(net, X, net)["X"]
    expected = _by_unrolling(net, X, "tanh")["X"]
    # The error is at most the residual over 1 - contraction; the contraction of this network is below 0.8.
    assert net.contraction(exact=True) < 0.8
    weights = sqrt(0.2) * net.recurrent / sqrt(net.width)
    assert float(torch.linalg.matrix_norm(weights, 2)) < 0.8
    assert float((found - expected).norm() / expected.norm()) <= 1e-2


# --- how graphs are used ---------------------------------------------------------------------------------------------


def test_second_derivatives_are_refused_by_name() -> None:
    net = _net()
    X = gaussian_rows(3, 4, 1).requires_grad_()
    (first,) = torch.autograd.grad(net(X).sum(), X, create_graph=True)
    with pytest.raises(NotImplementedError, match="Second derivatives"):
        torch.autograd.grad(first.square().sum(), X)
    with pytest.raises(NotImplementedError, match="Second derivatives"):
        jvp(torch.func.grad(lambda X: net(X).sum()), (X.detach(),), (X.detach(),))


@pytest.mark.parametrize("train", ["all", "readout"])
def test_weights_changed_between_forward_and_backward_are_noticed(train: str) -> None:
    net, X = _net(train=train), gaussian_rows(150, 4, 1).requires_grad_()
    loss = _loss(net(X))
    with torch.no_grad():
        net.recurrent.mul_(0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_loss_that_masks_samples() -> None:
    # Rows of zeros in the cotangent, few enough to stay among the others.
    for method in ("auto", "anderson", "iteration"):
        net = _net(solver=SolverOptions(method=method, tolerance=1e-12))
        X = gaussian_rows(12, 4, 1).requires_grad_()
        mask = torch.ones(12, 1, dtype=torch.float64)
        mask[5] = 0.0
        (found,) = torch.autograd.grad((mask * net(X)).square().sum(), X)
        assert not found[5].any()
        (expected,) = torch.autograd.grad(
            (mask * (unrolled(net, X, torch.tanh, 120) @ theory_weight(net, "readout").T)).square().sum(), X
        )
        assert_close(found.numpy(), expected.numpy(), Oracle.QUADRATURE)


def test_gradient_of_an_empty_batch_is_zero() -> None:
    net = _net()
    net(torch.empty(0, 4, dtype=torch.float64)).sum().backward()
    assert not net.recurrent.grad.any()
    assert not net.readout.grad.any()


def test_no_adjoint_work_without_gradients() -> None:
    net, X = _net().eval(), gaussian_rows(5, 4, 1)
    with torch.no_grad():
        outputs = net(X)
    assert outputs.grad_fn is None
    assert not outputs.requires_grad
    assert net.last_adjoint is None
    assert net.last_solve is not None
    with torch.inference_mode():
        assert_close(net(X).numpy(), outputs.numpy(), Oracle.IDENTITY)
    assert net.last_adjoint is None
    frozen = _net(train="readout")
    frozen(X).sum().backward()
    # Only the readout is trained: nothing flows into the equilibrium.
    assert frozen.last_adjoint is None


# --- memory ----------------------------------------------------------------------------------------------------------


def _kept(net: DEQNet, X: Tensor) -> int:
    """Elements that autograd keeps for the backward pass, the network's own weights not counted."""
    own = {tensor.untyped_storage().data_ptr() for tensor in [*net.parameters(), *net.buffers(), X]}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in own:
            storages[address] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = net(X).square().sum()
    kept = sum(storages.values()) // 8
    loss.backward()
    return kept


@pytest.mark.parametrize("method", ["iteration", "anderson"])
@pytest.mark.parametrize("rows", [30, 150], ids=["few", "many"])
def test_memory_does_not_depend_on_the_number_of_steps(method: str, rows: int) -> None:
    X, kept, steps = gaussian_rows(rows, 4, 1), [], []
    for tolerance in (1e-1, 1e-6, 1e-13):
        net = _net(sigma_a2=0.5, solver=SolverOptions(method=method, tolerance=tolerance))
        kept.append(_kept(net, X))
        steps.append(net.last_solve.steps)
    assert steps[0] < steps[1] < steps[2]
    assert kept[0] == kept[1] == kept[2]
    # The pre-activations, the features, and outputs of the loss: a few tensors of the batch.
    assert kept[0] <= 4 * rows * net.width


# --- torch.func ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 40])
def test_vmap_over_batches(blocks: int) -> None:
    net, X = _net("gelu", 0.3), gaussian_rows(5 * blocks, 4, 1).reshape(blocks, 5, 4)
    expected = as_array(net(X.flatten(0, 1))).reshape(blocks, 5, 2)
    assert_close(as_array(vmap(net)(X)), expected, Oracle.QUADRATURE)
    by_columns = vmap(net, in_dims=1, out_dims=1)(X.transpose(0, 1))
    assert_close(as_array(by_columns), expected.transpose(1, 0, 2), Oracle.QUADRATURE)


def test_tangents_that_do_not_converge_are_an_error() -> None:
    net, X = _net(sigma_a2=0.5, adjoint=SolverOptions(max_steps=2)), gaussian_rows(5, 4, 1)
    with pytest.raises(ConvergenceError, match="tangent equation"):
        jvp(net, (X,), (X,))


def test_autocast() -> None:
    """The equilibrium keeps its precision; inputs that another layer made in half of it are taken."""
    net, X = _net(dtype=torch.float32, solver=None), gaussian_rows(6, 4, 1, torch.float32)
    layer = torch.nn.Linear(4, 4)
    expected = net.features(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(net.features(X), expected)
        outputs = net(layer(X))
        outputs.float().square().sum().backward()
    assert outputs.dtype == torch.bfloat16
    assert layer.weight.grad is not None
    assert net.recurrent.grad.dtype == torch.float32
