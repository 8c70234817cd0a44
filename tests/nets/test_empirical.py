"""Kernels of finite networks: against Jacobians written out by torch.func, and against their infinite-width limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.nets import DEQNet, SolverOptions, empirical_kernels

DOUBLE = torch.float64
TIGHT = SolverOptions(tolerance=1e-13)


def rows(n: int, p: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, p, generator=generator, dtype=DOUBLE) / p**0.5


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
