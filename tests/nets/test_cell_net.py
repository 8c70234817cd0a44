"""Networks of cells: the named networks as expressions, states, refusals; derivatives are in test_network_kinds.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nets_oracles import as_array, gaussian_rows
from tolerances import Oracle, assert_close
from torch import Tensor

from notsodeep import cells, forecast
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.models import DEQ, ConvDEQ, GraphDEQ
from notsodeep.models.cell_models import Equilibrium, Loop
from notsodeep.nets import (
    CellNet,
    ConvDEQNet,
    DEQNet,
    SolverOptions,
    distill,
    empirical_kernels,
    network,
)

FEATURES, WIDTH, OUTPUTS = 5, 24, 2
TIGHT = SolverOptions(tolerance=1e-13, max_steps=2000)


def residual_cell() -> cells.expressions.Node:
    z, x = cells.state(), cells.input()
    branch = cells.dense(cells.activation(cells.dense(z, 1.2), "gelu"), 0.8)
    return cells.norm(z + branch + cells.bias(cells.dense(x, 1.5), 0.1), "layer")


def gated_cell() -> cells.expressions.Node:
    z, x = cells.state(), cells.input()
    value = cells.activation(cells.dense(z, 0.5) + cells.dense(x, 0.8), "tanh")
    return value * cells.activation(cells.dense(z, 0.7) + cells.dense(x, 0.9), "sigmoid")


def rows(count: int = 4) -> Tensor:
    return gaussian_rows(count, FEATURES, seed=1)


def build(model: Any, **options: Any) -> Any:
    return network(model, FEATURES, WIDTH, OUTPUTS, dtype=torch.float64, **({"solver": TIGHT} | options))


def test_a_deq_as_an_expression_is_the_deqnet_of_the_same_seed() -> None:
    z, x = cells.state(), cells.input()
    inner = cells.bias(cells.dense(z, 0.5) + cells.dense(x, 0.6), 0.1)
    net = build(Equilibrium(cells.activation(inner, "tanh")), seed=7)
    named = build(DEQ("tanh", 0.5, 0.6, 0.1), seed=7)
    assert_same_network(net, named, rows())


@pytest.mark.parametrize("readout", ["flatten", "pool"])
@pytest.mark.parametrize("padding", ["zeros", "circular"])
def test_a_convdeq_as_an_expression_is_the_convdeqnet_of_the_same_seed(readout: str, padding: str) -> None:
    z, x = cells.state(), cells.input()
    inner = cells.bias(cells.conv(z, 0.5, 3, padding) + cells.conv(x, 0.6, 3, padding), 0.1)
    step = getattr(cells, readout)(cells.activation(inner, "relu"))
    sizes: dict[str, Any] = {"dtype": torch.float64, "solver": TIGHT}
    net = network(Equilibrium(step), (2, 4, 5), 7, OUTPUTS, **sizes)
    named = network(
        ConvDEQ("relu", 0.5, 0.6, 0.1, padding=padding, readout=readout), (2, 4, 5), 7, OUTPUTS, **sizes
    )
    X = gaussian_rows(3, 40, seed=2).reshape(3, 2, 4, 5)
    assert_same_network(net, named, X)


def assert_same_network(net: Any, named: Any, X: Tensor) -> None:
    assert type(net) is CellNet
    assert type(named) in (DEQNet, ConvDEQNet)
    assert_close(as_array(net(X)), as_array(named(X)), Oracle.QUADRATURE)
    for one, two in zip(net.parameters(), named.parameters(), strict=True):
        assert torch.equal(one, two)
    # Kernels are made of the gradients in all weights.
    kernels = [empirical_kernels(module, X).ntk for module in (net, named)]
    assert_close(*kernels, Oracle.QUADRATURE)


def test_coordinates_are_of_order_one_and_normalised() -> None:
    net = build(Equilibrium(residual_cell()))
    z = net.states(rows()).detach()
    assert_close(as_array(z.square().mean(dim=1)), np.ones(4), Oracle.IDENTITY)
    assert float(z.mean(dim=1).abs().max()) < 1e-12
    assert_close(as_array(z), as_array(net.cell(z, rows())), Oracle.QUADRATURE)


def test_one_step_of_a_loop_is_the_cell_at_zero() -> None:
    net, X = build(Loop(gated_cell(), 1)), rows()
    assert_close(as_array(net.states(X)), as_array(net.cell(X.new_zeros(4, WIDTH), X)), Oracle.IDENTITY)
    assert net.last_solve is None


def test_a_sample_does_not_depend_on_its_batch() -> None:
    net, X = build(Equilibrium(residual_cell())), rows(6)
    alone = torch.cat([net(row[None]) for row in X])
    assert_close(as_array(net(X)), as_array(alone), Oracle.QUADRATURE)


def test_no_equilibrium_raises_with_a_remedy() -> None:
    z, x = cells.state(), cells.input()
    wild = Equilibrium(cells.activation(cells.dense(cells.activation(cells.dense(z, 9.0), "tanh"), 9.0)
                                        + cells.dense(x, 0.1), "tanh"))  # fmt: skip
    net = network(wild, FEATURES, 200, 1, solver=SolverOptions(max_steps=30))
    X = rows().float()
    with pytest.raises(ConvergenceError, match="lower the variances of the weights that read the state"):
        net(X)
    net.on_failure = "ignore"
    net(X)
    assert not net.last_solve.converged


IMAGES = Equilibrium(
    cells.flatten(cells.norm(cells.conv(cells.state(), 1.0) + cells.conv(cells.input(), 1.0)))
)


@pytest.mark.parametrize(
    ("model", "shape", "words"),
    [
        (DEQ("tanh", 0.3), (1, 4, 4), "rows"),
        (ConvDEQ("relu", 0.3), 16, "image"),
        (Equilibrium(gated_cell()), (1, 4, 4), "no filters"),
        (IMAGES, 16, "channels, height, width"),
        (IMAGES, (2, 2, 2), "smaller than filters"),
        ("tanh", 5, "no network"),
    ],
)
def test_samples_that_do_not_fit_are_refused(model: Any, shape: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        network(model, shape, 6, 2)


def test_a_graph_goes_in_with_all_of_its_nodes() -> None:
    with pytest.raises(InputError, match="each of the 4 nodes"):
        build(GraphDEQ(np.eye(4), "tanh", 0.3))(rows(3))


def test_forecast_and_distill_take_the_network() -> None:
    X, net = torch.randn(200, FEATURES), network(Equilibrium(residual_cell()), FEATURES, 40, OUTPUTS)
    measured = forecast(net, X[:5])
    assert measured.source == "measured"
    assert measured.rate.max() < 1.0
    small = distill(net, X, epochs=0)
    agree = small.network(X).argmax(1) == net(X).argmax(1)
    assert float(agree.float().mean()) > 0.9
