"""The density of one neuron: derivatives, samplers and normalisation against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep.feature_learning.neuron_density import NeuronDensity
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo, hamiltonian_move, log_normaliser
from notsodeep.gaussian.activations import activation

COVARIANCE = np.array([[[1.0, 0.3], [0.3, 0.8]]])
COUPLING = np.array([[[0.6, -0.4], [-0.4, 0.2]]])


def log_mean_factor(name, covariance):
    """log E w by a fine grid."""
    grid = np.linspace(-8.0, 8.0, 801)
    h = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    phi = activation(name)(h)
    exponent = -0.5 * np.einsum("...i,ij,...j->...", h, np.linalg.inv(covariance), h)
    factor = -0.5 * np.einsum("...i,ij,...j->...", phi, COUPLING[0], phi)
    area = (grid[1] - grid[0]) ** 2 / (2.0 * np.pi * np.sqrt(np.linalg.det(covariance)))
    return np.log(np.sum(np.exp(exponent + factor)) * area)


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_moments_are_derivatives_of_the_normaliser(name):
    """d log Z/dΛ = Λ⁻¹(⟨hhᵀ⟩ − Λ)Λ⁻¹/2, by the plain average and by parts."""
    density = NeuronDensity.of(activation(name), COVARIANCE, COUPLING)
    rule = QuasiMonteCarlo(1, 2**14, 2, (0,))
    rule.update(density)
    weights = rule.update(density)
    _, *whitened = density._moments(rule.u, weights)
    root, covariance = density.root[0], COVARIANCE[0]
    for estimate in (*(root @ one[0] @ root.T for one in whitened), density.moments(rule.u, weights)[1][0]):
        curvature = np.linalg.solve(covariance, np.linalg.solve(covariance, estimate - covariance).T)
        for i, j in ((0, 0), (0, 1), (1, 1)):
            shift = np.zeros((2, 2))
            shift[i, j] = shift[j, i] = 1e-3
            up, down = (log_mean_factor(name, covariance + sign * shift) for sign in (1.0, -1.0))
            slope = (up - down) / 2e-3
            # An entry off the diagonal stands for two.
            assert curvature[i, j] == pytest.approx(2.0 * slope if i == j else slope, abs=4e-3)


def test_the_less_noisy_estimate_of_moments_counts_more():
    """By parts there is no noise without a factor, and much if the coupling is large and cancels."""
    u, weights = np.random.default_rng(0).standard_normal((1, 400, 2)), np.full((1, 400), 1.0 / 400)
    free = NeuronDensity.of(activation("tanh"), COVARIANCE, 0.0 * COUPLING)
    np.testing.assert_allclose(free.moments(u, weights)[1], COVARIANCE, rtol=1e-12)
    strong = NeuronDensity.of(activation("tanh"), COVARIANCE, 300.0 * COUPLING)
    np.testing.assert_allclose(
        strong.moments(u, weights)[1], strong.root @ (u.swapaxes(1, 2) @ u / 400) @ strong.root.swapaxes(1, 2),
        rtol=0.02,
    )  # fmt: skip


def test_gradient_of_the_factor():
    density = NeuronDensity.of(activation("tanh"), COVARIANCE, COUPLING)
    u, step = np.random.default_rng(0).standard_normal((1, 5, 2)), 1e-6
    _, gradient = density.log_factor(u)
    for index in range(2):
        shift = step * np.eye(2)[index]
        numeric = (density.log_factor(u + shift)[0] - density.log_factor(u - shift)[0]) / (2.0 * step)
        np.testing.assert_allclose(gradient[..., index], numeric, atol=1e-8)


def test_sampler_has_the_variance_of_a_gaussian():
    rng, u = np.random.default_rng(0), np.random.default_rng(1).standard_normal((2, 4000, 3))
    for _ in range(20):
        u, _, accepted = hamiltonian_move(
            lambda v: (-1.5 * np.sum(v**2, axis=-1), -3.0 * v), u, np.full(2, 0.5), rng
        )
    assert accepted.mean() > 0.7
    assert u.var() == pytest.approx(0.25, rel=0.04)


def test_normaliser_and_moments_of_a_linear_neuron():
    density = NeuronDensity.of(activation("identity"), COVARIANCE, COUPLING)
    precision = np.linalg.inv(COVARIANCE[0]) + COUPLING[0]
    expected = -0.5 * np.log(np.linalg.det(COVARIANCE[0] @ precision))
    assert log_normaliser(density, 4000, 0)[0] == pytest.approx(expected, abs=0.01)
    chains = Chains(1, 2000, 2, (0,))
    total, count = 0.0, 40
    for _ in range(10):
        chains.update(density)
    chains.trace.clear()
    for _ in range(count):
        total = total + density.moments(chains.u, chains.update(density))[0] / count
    np.testing.assert_allclose(total[0], np.linalg.inv(precision), atol=0.03)
    r_hat, effective = chains.mixing()
    assert r_hat < 1.05
    assert effective > 4000
