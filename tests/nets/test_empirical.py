"""Kernels of finite networks: against Jacobians written out by torch.func, and against their infinite-width limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.nets import DEQNet, ExplicitNet, SolverOptions, empirical_kernels

DOUBLE = torch.float64
TIGHT = SolverOptions(tolerance=1e-13)


def rows(n: int, p: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, p, generator=generator, dtype=DOUBLE) / p**0.5


NETWORKS = {
    "tanh DEQ": lambda: DEQNet(nsd.DEQ("tanh", 0.2), 6, 30, 1, dtype=DOUBLE, solver=TIGHT),
    "relu DEQ with bias, three outputs": lambda: DEQNet(
        nsd.DEQ("relu", 0.2, bias2=0.3), 6, 30, 3, dtype=DOUBLE, solver=TIGHT
    ),
    "one layer": lambda: ExplicitNet(nsd.Explicit(["gelu"]), 6, 30, 2, dtype=DOUBLE),
    "three layers with a bias": lambda: ExplicitNet(
        nsd.Explicit(["relu", "tanh", "swish"], bias2=0.3), 6, 30, 3, dtype=DOUBLE
    ),
    "three layers that see the input again": lambda: ExplicitNet(
        nsd.Explicit(["tanh", "gelu", "tanh"], weights=[0.7, 0.4, 0.3], inject=[0.6, 0.9]),
        6,
        30,
        1,
        dtype=DOUBLE,
    ),
}


def jacobian_kernel(module: torch.nn.Module, X: torch.Tensor, outputs: int) -> torch.Tensor:
    """Σ over all parameters of <∂f_k(x_i), ∂f_k(x_j)>, averaged over k, from full Jacobians.

    The parameters are weights of variance 1: those of "standard" scaling times √fan_in.
    """
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    jacobians = torch.func.jacrev(lambda given: torch.func.functional_call(module, given, (X,)))(parameters)
    root = {
        name: value.shape[1] ** 0.5 if module.scaling == "standard" and value.ndim == 2 else 1.0
        for name, value in parameters.items()
    }
    flat = [jacobian.flatten(2) / root[name] for name, jacobian in jacobians.items()]
    return sum(torch.einsum("ika,jka->ij", part, part) for part in flat) / outputs


@pytest.mark.parametrize("make", NETWORKS.values(), ids=list(NETWORKS))
def test_equal_inner_products_of_jacobians(make):
    module, X = make(), rows(7, 6).requires_grad_()
    found = empirical_kernels(module, X)
    assert not found.ck.requires_grad
    assert not found.ntk.requires_grad
    assert_close(found.ntk, jacobian_kernel(module, X.detach(), module.out_features), Oracle.QUADRATURE)
    with torch.no_grad():
        features = module.features(X)
    assert_close(found.ck, features @ features.T, Oracle.IDENTITY)
    part = empirical_kernels(module, X[:4], X[2:])
    assert_close(part.ntk, found.ntk[:4, 2:], Oracle.QUADRATURE)
    assert_close(part.ck, found.ck[:4, 2:], Oracle.QUADRATURE)


@pytest.mark.slow
def test_frozen_weights_count_and_many_rows_come_in_blocks():
    spec, X = nsd.DEQ("tanh", 0.2), rows(1100, 5)
    trained = DEQNet(spec, 5, 20, 2, seed=0, dtype=DOUBLE, solver=TIGHT)
    frozen = DEQNet(spec, 5, 20, 2, train="readout", seed=0, dtype=DOUBLE, solver=TIGHT)
    assert_close(empirical_kernels(frozen, X).ntk, empirical_kernels(trained, X).ntk, Oracle.QUADRATURE)


@pytest.mark.slow
@pytest.mark.parametrize("model", [nsd.DEQ("tanh", 0.2), nsd.DEQ("relu", 0.3, 0.7, bias2=0.2)], ids=str)
def test_tends_to_the_exact_tangent_kernel_like_the_root_of_the_width(model):
    """Sixteen times the width, a quarter of the error: averaged over seeds, between a third and a fifth."""
    X = rows(10, 40)
    exact = nsd.tangent_kernel(model, X.numpy())

    def error(width: int) -> float:
        nets = (DEQNet(model, 40, width, 1, seed=seed, dtype=DOUBLE) for seed in range(12))
        distances = [np.linalg.norm(empirical_kernels(net, X).ntk.numpy() - exact) for net in nets]
        return float(np.sqrt(np.mean(np.square(distances))))

    assert 1 / 5 < error(800) / error(50) < 1 / 3


def test_other_modules_are_refused():
    with pytest.raises(nsd.InputError, match="DEQNet or an ExplicitNet, not Linear"):
        empirical_kernels(torch.nn.Linear(3, 2), torch.zeros(1, 3))
