"""Every kind of network, and one defined outside of the package, works with all functions that take a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tolerances import Oracle, assert_close
from torch.func import functional_call, jacrev

from notsodeep import cells
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit, GraphDEQ
from notsodeep.models.cell_models import Equilibrium, Loop
from notsodeep.models.neural_ode import NeuralODE
from notsodeep.nets import Net, compute_features, empirical_kernels, fit
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
        super().__init__(FEATURES, WIDTH, CLASSES, train)
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


@pytest.mark.parametrize("kind", KINDS)
def test_empirical_kernels_are_those_of_features_and_gradients(kind: Any) -> None:
    net = make(kind)
    five = tensors(kind)[:5]
    found = empirical_kernels(net, five)
    with torch.no_grad():
        features = net.features(five)
    assert_close(found.ck, features @ features.mT, Oracle.IDENTITY, dtype=np.float32)
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    jacobians = jacrev(lambda given: functional_call(net, given, (five,)))(parameters)
    # In weights of variance 1.
    flat = [jacobian.flatten(2) / net.fan_in[name] ** 0.5 for name, jacobian in jacobians.items()]
    expected = sum(torch.einsum("ika,jka->ij", part, part) for part in flat) / CLASSES
    np.testing.assert_allclose(found.ntk, expected, rtol=1e-4)


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
