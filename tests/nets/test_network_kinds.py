"""Every kind of network, and one defined outside of the package, works with all functions that take a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from nets_oracles import gaussian_rows
from tolerances import Oracle, assert_close

from notsodeep import cells
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit, GraphDEQ, normalised_adjacency
from notsodeep.models.cell_models import Equilibrium, Loop
from notsodeep.models.neural_ode import NeuralODE
from notsodeep.nets import Net, SolverOptions, compute_features, empirical_kernels, fit, network
from notsodeep.nets.connections import DenseConnection
from notsodeep.nets.measure import inference_seconds
from notsodeep.nets.modules import network_of
from notsodeep.nets.weight_groups import WeightGroup

FEATURES, WIDTH, CLASSES = 6, 16, 3
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, CLASSES, 60)
X = RNG.standard_normal((60, FEATURES)) / 4.0 + np.eye(CLASSES, FEATURES)[LABELS]


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


MODELS = {
    DEQ: DEQ("tanh", 0.2),
    Explicit: Explicit(["relu", "tanh"]),
    ConvDEQ: ConvDEQ("tanh", 0.2, bias2=0.1, readout="pool"),
    ConvExplicit: ConvExplicit(["relu", "tanh"], weights=[0.8, 0.3], inject=[0.5], bias2=0.1),
    Equilibrium: Equilibrium(cell()),
    Loop: Loop(cell(), 3),
}
KINDS = [*MODELS, CosineNet]
SOLVED = (DEQ, ConvDEQ)


def make(kind: Any, mode: str = "all", seed: int = 0) -> Net:
    if kind is CosineNet:
        return CosineNet(mode, seed)
    return network_of(MODELS[kind], samples(kind).shape[1:], WIDTH, CLASSES, train=mode, seed=seed)


def samples(kind: Any) -> np.ndarray:
    """Rows, or for the convolutional kinds sequences of one channel."""
    return X[:, None] if kind in (ConvDEQ, ConvExplicit) else X


def tensors(kind: Any) -> torch.Tensor:
    return torch.as_tensor(samples(kind), dtype=torch.float32)


def test_there_is_an_example_of_every_kind() -> None:
    # The nodes of a graph go in together: tests/nets/test_cell_net.py. Time: tests/nets/test_ode_net.py.
    assert {*MODELS, GraphDEQ, NeuralODE} == set(network_of.registry) - {object}


def images(readout: str) -> cells.expressions.Node:
    z, x = cells.state(), cells.input()
    branch = cells.dense(cells.activation(cells.conv(z, 1.0), "relu"), 0.5)
    step = cells.norm(z + branch + cells.bias(cells.conv(x, 1.0, 3, "circular"), 0.2))
    return getattr(cells, readout)(step)


PATH = normalised_adjacency(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
SMALL, PLANE = (FEATURES,), (2, 4, 5)
# Networks whose kernels are compared with Jacobians, and the shape of their samples.
WRITTEN_OUT: dict[str, tuple[Any, tuple[int, ...]]] = {
    "relu DEQ with a bias": (DEQ("relu", 0.2, bias2=0.3), SMALL),
    "layers that see the input again": (Explicit(["tanh", "gelu"], weights=[0.7, 0.4], inject=[0.6]), SMALL),
    "layers with a bias": (Explicit(["relu", "tanh", "swish"], bias2=0.3), SMALL),
    "images, zeros, flatten": (ConvDEQ("tanh", 0.15, bias2=0.3), PLANE),
    "images, circular, pool": (ConvDEQ("relu", 0.15, bias2=0.3, padding="circular", readout="pool"), PLANE),
    "image layers": (ConvExplicit(["tanh", "relu"], weights=[0.7, 0.4], inject=[0.5], readout="pool"), PLANE),
    "sequence layers": (ConvExplicit(["relu"], padding="circular"), (2, 6)),
    "cell": (Equilibrium(cell()), SMALL),
    "loop": (Loop(cell(), 3), SMALL),
    "image cell": (Equilibrium(images("pool")), PLANE),
    "image loop": (Loop(images("flatten"), 2), PLANE),
    "graph": (GraphDEQ(PATH, "tanh", 0.4), SMALL),
    "time": (NeuralODE("tanh", 1.3, 1.2, 0.8, sigma_b2=0.4, decay=0.3), SMALL),
    "Euler steps": (NeuralODE("tanh", 1.3, 1.2, 0.8, sigma_b2=0.4, decay=0.3, steps=3), SMALL),
}  # fmt: skip


def built(name: str, scaling: str) -> Net:
    model, shape = WRITTEN_OUT[name]
    options: dict[str, Any] = {"dtype": torch.float64, "scaling": scaling, "seed": 3}
    if isinstance(model, NeuralODE):
        options["tolerance"] = 1e-11
    elif not isinstance(model, Explicit | ConvExplicit):
        options["solver"] = SolverOptions(tolerance=1e-13, max_steps=2000)
    return network(model, shape, 8, CLASSES, **options)


@pytest.mark.parametrize("scaling", ["standard", "ntk"])
@pytest.mark.parametrize("name", [*WRITTEN_OUT, "of another package"])
def test_empirical_kernels_are_those_of_features_and_gradients(name: str, scaling: str) -> None:
    shape = WRITTEN_OUT[name][1] if name in WRITTEN_OUT else SMALL
    net = built(name, scaling) if name in WRITTEN_OUT else CosineNet("all", 0).double()
    five = gaussian_rows(5, int(np.prod(shape)), seed=4).reshape(5, *shape).requires_grad_()
    kernels = empirical_kernels(net, five)
    assert not kernels.ck.requires_grad
    assert not kernels.ntk.requires_grad
    features = net.features(five).detach()
    assert_close(kernels.ck, features @ features.mT, Oracle.QUADRATURE)
    outputs, weights = net(five), dict(net.named_parameters())
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
        part = empirical_kernels(net, five[:2], five[1:])
        assert_close(
            part.ntk,
            kernels.ntk[:2, 1:],
            oracle,
        )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["all", "readout"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_trained_and_measured(kind: Any, mode: str) -> None:
    net, X, ROWS = make(kind, mode), samples(kind), tensors(kind)
    history = fit(net, (X, LABELS), (X, LABELS), optimizer="sgd", lr=0.5, epochs=5, batch_size=20)
    assert history.stopped is None
    assert history.rows[-1].loss < history.rows[0].loss
    assert (history.rows[-1].contraction is None) == (kind not in SOLVED)
    assert_close(
        history.rows[-1].test_accuracy,
        float(np.mean(net.outputs(compute_features(net, X)).argmax(1).numpy() == LABELS)),
        Oracle.IDENTITY,
    )
    assert inference_seconds(net, ROWS) > 0.0
