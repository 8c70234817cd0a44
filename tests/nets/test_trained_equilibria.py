"""Trained networks that do not contract: equilibria are found, whatever was solved before or beside them."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from nets_oracles import gaussian_rows
from sklearn.datasets import load_digits
from torch import Tensor

from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions

ROWS = 40


def _samples(kind: str, seed: int) -> tuple[Tensor, Tensor]:
    if kind == "digits":
        X, y = load_digits(return_X_y=True)
        part = slice(seed * ROWS, (seed + 1) * ROWS)
        return torch.from_numpy(X[part] / 16.0), torch.from_numpy(y[part])
    X = gaussian_rows(ROWS, 2 if kind == "rings" else 10, seed)
    return X, (X.norm(dim=1) > 1.2).long() if kind == "rings" else X[:, :4].argmax(1)


def _trained(phi: str, kind: str, start: float, norm: float, seed: int) -> tuple[DEQNet, Tensor]:
    """A few steps of Adam from Gaussian weights less start · identity, with ||W||₂ kept at `norm`."""
    X, y = _samples(kind, seed)
    net = DEQNet(
        DEQ(phi, 0.9, 1.0, 0.1), X.shape[1], 24, int(y.max()) + 1, seed=seed, dtype=torch.float64,
        adjoint=SolverOptions("iteration", tolerance=1.0),
        solver=SolverOptions("iteration", tolerance=1e-2, max_steps=10), on_failure="ignore",
    )  # fmt: skip
    with torch.no_grad():
        net.recurrent -= start * torch.eye(net.width)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.04)
    for _ in range(6):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(4.0 * net(X), y).backward()
        optimiser.step()
        with torch.no_grad():
            net.recurrent *= norm / torch.linalg.matrix_norm(net.plain_weights().recurrent, 2)
    return net, X


def _solved_by(net: DEQNet, **options: object) -> DEQNet:
    W, U, b, readout, _ = net.plain_weights()
    return DEQNet.from_weights(W, U, b, net.spec.activation, readout, on_failure="ignore", **options)


@pytest.fixture(scope="module")
def trained() -> list[tuple[DEQNet, Tensor]]:
    """27 networks: activations, data, starts and norms of W."""
    weights = ((0.0, 2.0), (2.0, 1.6), (2.0, 2.0))
    every = product(("relu", "tanh", "gelu"), ("digits", "rings", "classes"), weights)
    return [_trained(phi, kind, *start, seed) for seed, (phi, kind, start) in enumerate(every)]


def test_every_equilibrium_is_found_and_that_of_plain_iteration_where_it_has_one(trained) -> None:
    unsolved = 0
    for net, X in trained:
        plain, auto = _solved_by(net, solver=SolverOptions("iteration")), _solved_by(net)
        expected, found = plain.features(X), auto.features(X)
        report = auto.last_solve
        assert report.converged, (net, report)
        W, U, b, _, _ = auto.plain_weights()
        z = found * net.width**0.5
        step = net._settings.phi(z @ W.T + X @ U.T + b) * net.width**0.5
        assert ((step - z).norm(dim=1) <= 3.0 * report.tolerance * z.norm(dim=1)).all()
        solved = plain.last_solve.residuals <= report.tolerance
        assert torch.equal(found[solved], expected[solved])
        assert report.stages[0].steps == plain.last_solve.steps
        unsolved += int((~solved).any())
        found.square().sum().backward()
        assert auto.last_adjoint.converged, (net, auto.last_adjoint)
    assert unsolved >= 6


def test_of_several_equilibria_that_of_plain_iteration_from_zero_is_the_answer() -> None:
    """Saturated units with strong feedback among them: each may be up or down, the input decides where it goes."""
    W = 3.0 * torch.eye(16, dtype=torch.float64) + 0.1 * gaussian_rows(16, 16, 1)
    net = DEQNet.from_weights(W, gaussian_rows(16, 4, 2), None, "tanh")
    X = 0.3 * gaussian_rows(400, 4, 3)
    z = torch.zeros(400, 16, dtype=torch.float64)
    for _ in range(300):
        z = torch.tanh(z @ W.T + X @ gaussian_rows(16, 4, 2).T)
    for rows in (slice(5), slice(None), slice(5), slice(None)):
        assert torch.allclose(net(X[rows]), z[rows], atol=1e-8)
