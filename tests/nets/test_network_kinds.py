"""Every kind of network, and one defined outside of the package, works with all functions that take a network."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from nets_oracles import gaussian_rows
from tolerances import Oracle, assert_close
from torch.func import functional_call, grad, jacrev, jvp, vmap

from notsodeep import cells
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.kernels import both_kernels
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit, GraphDEQ, normalised_adjacency
from notsodeep.models.cell_models import Equilibrium, Loop
from notsodeep.models.neural_ode import NeuralODE
from notsodeep.nets import (
    CellNet,
    ConvDEQNet,
    DEQNet,
    Net,
    ODENet,
    SolverOptions,
    compute_features,
    empirical_kernels,
    fit,
    network,
)
from notsodeep.nets.connections import DenseConnection
from notsodeep.nets.measure import inference_seconds
from notsodeep.nets.modules import network_of
from notsodeep.nets.weight_groups import WeightGroup

FEATURES, WIDTH, CLASSES = 6, 16, 3
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, CLASSES, 60)
ROWS = RNG.standard_normal((60, FEATURES)) / 4.0 + np.eye(CLASSES, FEATURES)[LABELS]


class Cosines:
    """A model that the package does not know."""

    def to_dict(self, *_: Any) -> dict[str, Any]:
        return {"model": "cosines"}


class CosineNet(Net):
    """√2 cos(W x)/√m with a linear readout."""

    def __init__(self, train: str, seed: int) -> None:
        super().__init__((FEATURES,), DenseConnection(), WIDTH, CLASSES, train=train, scaling="ntk")
        self.spec = Cosines()
        generator = torch.Generator().manual_seed(seed)
        self._add("hidden", torch.randn(WIDTH, FEATURES, generator=generator))
        self._add("readout", torch.randn(CLASSES, WIDTH, generator=generator))

    def features(self, X: torch.Tensor) -> torch.Tensor:
        return (2.0 / WIDTH) ** 0.5 * torch.cos(X @ self.hidden.mT)

    def weight_groups(self, X: torch.Tensor) -> Iterator[WeightGroup]:
        slopes = -((2.0 / WIDTH) ** 0.5) * torch.sin(X @ self.hidden.mT)
        yield WeightGroup(X, self.readout[:, None, :] * slopes, 1.0)
        yield WeightGroup(self.features(X), None, 1.0)


def cell() -> cells.expressions.Node:
    z, x = cells.state(), cells.input()
    branch = cells.dense(cells.activation(cells.dense(z, 0.8), "gelu"), 0.5)
    return cells.norm(z + branch + cells.bias(cells.dense(x, 1.0), 0.1))


def gated_cell() -> cells.expressions.Node:
    z, x = cells.state(), cells.input()
    value = cells.activation(cells.dense(z, 0.5) + cells.dense(x, 0.8), "tanh")
    return value * cells.activation(cells.dense(z, 0.7) + cells.dense(x, 0.9), "sigmoid")


def two_sublayers() -> cells.expressions.Node:
    z, x = cells.state(), cells.input()
    y = z + cells.dense(x, 2.0)
    gate = cells.activation(cells.dense(y, 1.0), "swish") * cells.dense(y, 1.0)
    inner = cells.norm(y + cells.dense(gate, 0.5), "layer")
    gate = cells.activation(cells.dense(inner, 1.0), "swish") * cells.dense(inner, 1.0)
    return cells.norm(inner + 0.5 * cells.dense(gate, 1.0))


def images(readout: str) -> cells.expressions.Node:
    z, x = cells.state(), cells.input()
    branch = cells.dense(cells.activation(cells.conv(z, 0.6), "gelu"), 0.3)
    step = cells.norm(z + branch + cells.bias(cells.conv(x, 1.0, 3, "circular"), 0.2))
    return getattr(cells, readout)(step)


PATH = normalised_adjacency(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
SMALL, PLANE = (FEATURES,), (2, 4, 5)
# Every kind of model, and the shape of its samples.
MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "relu DEQ with a bias": (DEQ("relu", 0.2, bias2=0.3), SMALL),
    "layers that see the input again": (Explicit(["tanh", "gelu"], weights=[0.7, 0.4], inject=[0.6]), SMALL),
    "layers with a bias": (Explicit(["relu", "tanh", "swish"], bias2=0.3), SMALL),
    "images, zeros, flatten": (ConvDEQ("tanh", 0.15, bias2=0.3), PLANE),
    "images, circular, pool": (ConvDEQ("relu", 0.15, bias2=0.3, padding="circular", readout="pool"), PLANE),
    "image layers": (ConvExplicit(["tanh", "relu"], weights=[0.7, 0.4], inject=[0.5], readout="pool"), PLANE),
    "sequence layers": (ConvExplicit(["relu"], padding="circular"), (2, 6)),
    "cell": (Equilibrium(cell()), SMALL),
    "gated cell": (Equilibrium(gated_cell()), SMALL),
    "two sublayers": (Equilibrium(two_sublayers()), SMALL),
    "loop": (Loop(cell(), 3), SMALL),
    "image cell": (Equilibrium(images("pool")), PLANE),
    "image loop": (Loop(images("flatten"), 2), PLANE),
    "graph": (GraphDEQ(PATH, "tanh", 0.4), SMALL),
    "time": (NeuralODE("tanh", 1.3, 1.2, 0.8, sigma_b2=0.4, decay=0.3), SMALL),
    "Euler steps": (NeuralODE("tanh", 1.3, 1.2, 0.8, sigma_b2=0.4, decay=0.3, steps=3), SMALL),
    "of another package": (Cosines(), SMALL),
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", MODELS)


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(model) for model, _ in MODELS.values()} - {Cosines} == set(network_of.registry) - {object}


def build(name: str, **options: Any) -> Net:
    """A network of one of the models; equilibria and times to rounding."""
    model, shape = MODELS[name]
    if isinstance(model, Cosines):
        return CosineNet(options.get("train", "all"), 0).double()
    options = {"dtype": torch.float64, "seed": 3} | options
    if isinstance(model, NeuralODE):
        options["tolerance"] = 1e-11
    elif not isinstance(model, Explicit | ConvExplicit):
        options["solver"] = SolverOptions(tolerance=1e-13, max_steps=2000)
    return network(model, shape, 8, CLASSES, **options)


def five(name: str) -> torch.Tensor:
    shape = MODELS[name][1]
    return gaussian_rows(5, int(np.prod(shape)), seed=4).reshape(5, *shape)


@pytest.mark.parametrize("scaling", ["standard", "ntk"])
@EVERY
def test_empirical_kernels_are_those_of_features_and_gradients(name: str, scaling: str) -> None:
    net, X = build(name, scaling=scaling), five(name).requires_grad_()
    kernels = empirical_kernels(net, X)
    assert not kernels.ck.requires_grad
    assert not kernels.ntk.requires_grad
    features = net.features(X).detach()
    assert_close(kernels.ck, features @ features.mT, Oracle.QUADRATURE)
    outputs, weights = net(X), dict(net.named_parameters())
    gradients = []
    for value in outputs.flatten():
        parts = torch.autograd.grad(value, list(weights.values()), retain_graph=True)
        # In weights of variance 1.
        roots = [net.fan_in[name] ** 0.5 if net.scaling == "standard" else 1.0 for name in weights]
        gradients.append(
            torch.cat([(part / root).flatten() for part, root in zip(parts, roots, strict=True)])
        )
    jacobian = torch.stack(gradients).reshape(5, CLASSES, -1)
    expected = torch.einsum("iop,jop->ij", jacobian, jacobian) / CLASSES
    oracle = Oracle.FINITE_DIFFERENCE if name == "time" else Oracle.QUADRATURE
    assert_close(kernels.ntk, expected, oracle)
    if not net.coupled_samples:
        assert_close(empirical_kernels(net, X[:2], X[1:]).ntk, kernels.ntk[:2, 1:], oracle)


@EVERY
def test_derivatives_are_central_differences(name: str) -> None:
    """Backwards and forwards, in the input and in all weights at once."""
    net = build(name)
    point = {"X": five(name), **{key: value.detach() for key, value in net.named_parameters()}}
    generator = torch.Generator().manual_seed(1)
    direction = {key: torch.randn(value.shape, generator=generator).to(value) for key, value in point.items()}

    def outputs(values: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional_call(net, {key: values[key] for key in values if key != "X"}, (values["X"],))

    def moved(step: float) -> torch.Tensor:
        return outputs({key: point[key] + step * direction[key] for key in point}).detach()

    expected = (moved(1e-5) - moved(-1e-5)) / 2e-5
    leaves = {key: value.clone().requires_grad_() for key, value in point.items()}
    values = outputs(leaves)
    for weights in torch.eye(CLASSES, dtype=torch.float64):
        gradients = torch.autograd.grad(
            (values[1:] @ weights).sum(), list(leaves.values()), retain_graph=True
        )
        along = sum((part * direction[key]).sum() for key, part in zip(leaves, gradients, strict=True))
        assert_close(along, (expected[1:] @ weights).sum(), Oracle.FINITE_DIFFERENCE, scale=1.0)
    if not isinstance(net, CellNet | ODENet):  # they go backwards only
        assert_close(jvp(outputs, (point,), (direction,))[1], expected, Oracle.FINITE_DIFFERENCE)


@EVERY
def test_vmap_over_weights_and_jacobians_of_samples(name: str) -> None:
    net, X = build(name), five(name)
    if net.coupled_samples or name == "time":
        pytest.skip("its samples go in together")
    weights = {key: value.detach() for key, value in net.named_parameters()}
    stacked = {key: torch.stack([value, 0.9 * value]) for key, value in weights.items()}
    together = vmap(lambda given: functional_call(net, given, (X,)))(stacked)
    for k in range(2):
        alone = functional_call(net, {key: value[k] for key, value in stacked.items()}, (X,))
        assert_close(together[k].detach(), alone.detach(), Oracle.QUADRATURE)
    gradients = vmap(grad(lambda given: functional_call(net, given, (X,)).square().sum()))(stacked)
    expected = torch.autograd.grad(net(X).square().sum(), list(net.parameters()))
    for key, value in zip(weights, expected, strict=True):
        assert_close(gradients[key][0], value, Oracle.QUADRATURE)
    jacobians = vmap(jacrev(lambda given, x: functional_call(net, given, (x[None],))[0]), in_dims=(None, 0))
    found, outputs = jacobians(weights, X), net(X)
    for i, k in ((0, 0), (1, 2), (3, 1)):
        expected = torch.autograd.grad(outputs[i, k], list(net.parameters()), retain_graph=True)
        for key, value in zip(weights, expected, strict=True):
            assert_close(found[key][i, k], value, Oracle.QUADRATURE, scale=float(value.norm()))


@EVERY
def test_scalings_are_one_function_and_one_gradient_descent(name: str) -> None:
    """Stored differently, the same network; and with `parameter_groups` SGD takes both to the same network."""
    if name == "of another package":
        pytest.skip("it has one scaling")
    X, nets = five(name), [build(name, scaling=scaling) for scaling in ("ntk", "standard")]
    before = nets[0](X).detach()
    oracle = Oracle.FINITE_DIFFERENCE if name == "time" else Oracle.QUADRATURE
    assert_close(nets[1](X).detach(), before, oracle)
    for net in nets:
        optimiser = torch.optim.SGD(net.parameter_groups(0.1), momentum=0.5)
        for _ in range(3):
            optimiser.zero_grad()
            (net(X) - gaussian_rows(5, CLASSES, 2)).square().mean().backward()
            optimiser.step()
    assert_close(nets[1](X).detach(), nets[0](X).detach(), oracle)
    assert (nets[0](X) - before).abs().max() > 1e-4


@EVERY
def test_modes_differ_in_nothing_but_what_is_trained(name: str) -> None:
    """Frozen weights count in the tangent kernel and pass gradients to the input, and a copy is the same network."""
    whole, frozen = (build(name, train=train) for train in ("all", "readout"))
    assert whole.spec is MODELS[name][0] or name == "of another package"
    assert [key for key, _ in frozen.named_parameters()] == ["readout"]
    X = five(name).requires_grad_()
    assert_close(frozen(X).detach(), whole(X).detach(), Oracle.IDENTITY)
    kernels = [empirical_kernels(net, X).ntk for net in (whole, frozen)]
    assert_close(kernels[1], kernels[0], Oracle.IDENTITY)
    gradients = [torch.autograd.grad(net(X).tanh().sum(), X)[0] for net in (whole, frozen)]
    assert_close(gradients[1], gradients[0], Oracle.QUADRATURE)
    for copied in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert torch.equal(copied(X), frozen(X))
        assert [key for key, _ in copied.named_parameters()] == ["readout"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "few", "many", "networks"),
    [
        (ConvDEQ("relu", 0.3, bias2=0.1), 16, 128, 10),
        (ConvDEQ("relu", 0.3, bias2=0.1, readout="pool"), 16, 128, 10),
        (ConvDEQ("relu", 0.3, bias2=0.1).unrolled(2), 16, 128, 10),
        (NeuralODE("tanh", 1.3, 1.2, 0.8, sigma_b2=0.4, decay=0.3), 60, 480, 6),
    ],
    ids=str,
)
def test_kernels_approach_the_exact_ones_like_the_root_of_the_width(
    model: Any, few: int, many: int, networks: int
) -> None:
    """Eight times the width, 8^-½ = 0.35 of the error; with few channels it falls faster, to 0.23."""
    shape = (2, 4, 4) if isinstance(model, ConvDEQ | ConvExplicit) else (6,)
    X = (gaussian_rows(4, int(np.prod(shape)), seed=5) * (np.prod(shape[1:])) ** 0.5).reshape(4, *shape)
    exact = both_kernels(model, X.numpy())

    def errors(width: int) -> np.ndarray:
        found = []
        for seed in range(networks):
            kernels = empirical_kernels(network(model, shape, width, 2, seed=seed), X.float())
            pair = (kernels.ck.numpy(), kernels.ntk.numpy())
            found.append(
                [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(pair, exact, strict=True)]
            )
        return np.sqrt(np.mean(np.square(found), axis=0))

    ratios = errors(many) / errors(few)
    assert np.all(errors(many) < 0.2)
    assert np.all((ratios > 0.2) & (ratios < 0.5)), ratios


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "mode"), [("sgd", "all"), ("adam", "readout")])
@EVERY
def test_every_kind_learns_at_the_default_rate(name: str, optimizer: str, mode: str) -> None:
    model, shape = MODELS[name]
    own = isinstance(model, Cosines)
    net = CosineNet(mode, 0) if own else network(model, shape, WIDTH, CLASSES, train=mode)
    if net.coupled_samples:
        pytest.skip("its samples go in together")
    # Images of one colour: a pooled readout sees no places.
    rows = ROWS[:, : shape[0]].reshape(60, shape[0], *(1 for _ in shape[1:]))
    X = np.array(np.broadcast_to(rows, (60, *shape)), dtype=np.float32)
    how = {"optimizer": optimizer, "lr": 0.5 if own else None, "epochs": 20, "batch_size": 20}
    history = fit(net, (X, LABELS), (X, LABELS), **how)
    assert history.stopped is None
    assert history.rows[-1].loss < 0.8 * history.rows[0].loss
    assert (history.rows[-1].contraction is None) == (not isinstance(net, DEQNet | ConvDEQNet))
    right = np.mean(net.outputs(compute_features(net, X)).argmax(1).numpy() == LABELS)
    assert_close(history.rows[-1].test_accuracy, float(right), Oracle.IDENTITY)
    assert right > 0.6
    assert inference_seconds(net, torch.as_tensor(X)) > 0.0


@pytest.mark.slow
def test_empirical_kernels_of_many_rows_come_in_blocks() -> None:
    net, X = build("relu DEQ with a bias"), gaussian_rows(1100, FEATURES, 0)
    kernels, last = empirical_kernels(net, X), empirical_kernels(net, X[1020:])
    assert_close(kernels.ntk[1020:, 1020:], last.ntk, Oracle.QUADRATURE)
    with pytest.raises(InputError, match="DEQNet or an ExplicitNet, not Linear"):
        empirical_kernels(torch.nn.Linear(3, 2), X)


def test_unusable_arguments_of_neural_odes_are_refused() -> None:
    with pytest.raises(InputError, match="method='euler' is not known"):
        network(MODELS["time"][0], FEATURES, WIDTH, 1, method="euler")
    with pytest.raises(InputError, match="takes a NeuralODE"):
        ODENet(DEQ("tanh"), 6, 10, 1)
    net = network(NeuralODE("relu", 100.0, 200.0), FEATURES, WIDTH, 1, train="readout")
    with pytest.raises(ConvergenceError, match="did not reach the end"):
        net(torch.as_tensor(ROWS, dtype=torch.float32))
