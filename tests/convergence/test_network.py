"""The paper's network: its place among the nets, its equilibrium, its adjoint vectors, the matrix H."""

from __future__ import annotations

import numpy as np
import torch
from tolerances import Oracle, assert_close

from notsodeep.convergence import PaperNetwork, paper_model, tangent_spectrum
from notsodeep.convergence.network import tangent_gram
from notsodeep.nets import DEQNet, SolverOptions


def sphere(n: int, d: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X * np.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)


EXACT = SolverOptions(tolerance=1e-13)


def small(width: int = 7, n: int = 4, d: int = 3, seed: int = 0) -> tuple[PaperNetwork, torch.Tensor]:
    return PaperNetwork.draw(width, d, 0.1, seed=seed), torch.from_numpy(sphere(n, d, seed + 1))


def test_it_is_the_net_of_its_model():
    net = DEQNet(paper_model(0.08), 12, 40, 1, seed=3, dtype=torch.float64, solver=EXACT)
    network = PaperNetwork.draw(40, 12, 0.08, seed=3)
    X = torch.from_numpy(sphere(5, 12))
    Z = network.features(X)
    assert_close(Z.numpy(), np.sqrt(40) * net.features(X / np.sqrt(12)).detach().numpy(), Oracle.CLOSED_FORM)
    outputs = net(X / np.sqrt(12)).detach().numpy()[:, 0]
    assert_close((Z @ network.readout).numpy(), outputs, Oracle.CLOSED_FORM)


def test_the_drawn_variances_are_those_of_the_assumption():
    network = PaperNetwork.draw(1000, 200, 0.08, seed=1, readout_scale=0.5)
    for tensor, variance in (
        (network.recurrent, 2 * 0.08 / 1000),
        (network.inputs, 2.0 / 200),
        (network.readout, 0.25 / 1000),
    ):
        # The empirical variance of k entries has a relative standard deviation of √(2/k).
        spread = np.sqrt(2.0 / tensor.numel())
        assert abs(float(tensor.square().mean()) / variance - 1.0) < 4.0 * spread


def lemma_2(network: PaperNetwork, X: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Z and R of docs/theory.md (8.12) by a dense inverse, data in columns and vec by columns."""
    Z = network.features(X).numpy().T
    W, a = network.recurrent.numpy(), network.readout.numpy()
    m, n = Z.shape
    D = np.diag((W @ Z + network.inputs.numpy() @ X.numpy().T > 0).astype(float).ravel(order="F"))
    J = np.eye(m * n) - D @ np.kron(np.eye(n), W)
    return Z, np.kron(np.eye(n), a[None, :]) @ np.linalg.solve(J, D)


def test_h_is_the_sum_of_the_three_matrices_of_the_paper():
    network, X = small()
    Z, R = lemma_2(network, X)
    G, gram = Z.T @ Z, X.numpy() @ X.numpy().T
    expected = G + R @ np.kron(G + gram, np.eye(7)) @ R.T
    features, adjoints = network.features_and_adjoints(X)
    assert_close(tangent_gram(features, adjoints, X).numpy(), expected, Oracle.CLOSED_FORM)
    spectrum, eigenvalues = tangent_spectrum(network, X), np.linalg.eigvalsh(expected)
    assert_close([spectrum.least, spectrum.largest], eigenvalues[[0, -1]], Oracle.CLOSED_FORM)
    assert spectrum.least >= spectrum.features
