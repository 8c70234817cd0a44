"""The density of one neuron: derivatives, samplers and normalisation against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep.feature_learning.neuron_density import NeuronDensity, principal_root
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo, hamiltonian_move, log_normaliser
from notsodeep.gaussian.activations import activation

COVARIANCE = np.array([[[1.0, 0.3], [0.3, 0.8]]])
COUPLING = np.array([[[0.6, -0.4], [-0.4, 0.2]]])


def neuron(name, coupling=COUPLING):
    return NeuronDensity(activation(name), *principal_root(COVARIANCE), coupling)


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
    density = neuron(name)
    rule = QuasiMonteCarlo(density, 2**14, (0,))
    rule.update(density)
    weights = rule.update(density)
    _, *whitened = density._moments(rule.h, weights)
    root, covariance = density.root[0], COVARIANCE[0]
    removed = [root @ (np.eye(2) - one[0]) @ root.T for one in whitened]
    for estimate in (*removed, density.moments(rule.h, weights)[1][0]):
        curvature = -np.linalg.solve(covariance, np.linalg.solve(covariance, estimate).T)
        for i, j in ((0, 0), (0, 1), (1, 1)):
            shift = np.zeros((2, 2))
            shift[i, j] = shift[j, i] = 1e-3
            up, down = (log_mean_factor(name, covariance + sign * shift) for sign in (1.0, -1.0))
            slope = (up - down) / 2e-3
            # An entry off the diagonal stands for two.
            assert curvature[i, j] == pytest.approx(2.0 * slope if i == j else slope, abs=4e-3)


def test_the_less_noisy_estimate_of_moments_counts_more():
    """By parts there is no noise without a factor, and much if the coupling is large and cancels."""
    h, weights = np.random.default_rng(0).standard_normal((1, 400, 2)), np.full((1, 400), 1.0 / 400)
    np.testing.assert_allclose(neuron("tanh", 0.0 * COUPLING).moments(h, weights)[1], 0.0, atol=1e-12)
    plain = COVARIANCE - h.swapaxes(1, 2) @ h / 400
    np.testing.assert_allclose(neuron("tanh", 300.0 * COUPLING).moments(h, weights)[1], plain, atol=0.002)


def test_small_principal_directions_have_little_noise():
    """The plain average has the noise √(1/points) in each direction of Λ, which Λ⁻¹ turns into noise of M."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    covariance = (turn * [1.0, 1.0, 1e-4, 1e-4, 1e-4, 1e-4]) @ turn.T
    root, inverse = principal_root(np.stack([covariance] * 8))
    density = NeuronDensity(
        activation("tanh"), root, inverse, np.stack([np.diag([0.5, -0.4, 0.3, 0.2, 0.1, 0.4])] * 8)
    )
    chains = Chains(density, 500, (0,))
    for _ in range(10):
        weights = chains.update(density)
    removed = inverse @ density.moments(chains.h, weights)[1] @ inverse.swapaxes(1, 2)
    plain = inverse @ (chains.h.swapaxes(1, 2) @ chains.h / 500) @ inverse.swapaxes(1, 2)
    small = np.s_[:, :4, :4]  # eigenvalues ascend
    assert removed[small].std(axis=0).max() < 0.02 * plain[small].std(axis=0).min()


def test_gradient_of_the_factor():
    density = neuron("tanh")
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
    density = neuron("identity")
    precision = np.linalg.inv(COVARIANCE[0]) + COUPLING[0]
    expected = -0.5 * np.log(np.linalg.det(COVARIANCE[0] @ precision))
    assert log_normaliser(density, 4000, 0)[0] == pytest.approx(expected, abs=0.01)
    chains = Chains(density, 2000, (0,))
    total, count = 0.0, 40
    for _ in range(10):
        chains.update(density)
    chains.trace.clear()
    for _ in range(count):
        total = total + density.moments(chains.h, chains.update(density))[0] / count
    np.testing.assert_allclose(total[0], np.linalg.inv(precision), atol=0.03)
    r_hat, effective = chains.mixing()
    assert r_hat < 1.05
    assert effective > 4000
