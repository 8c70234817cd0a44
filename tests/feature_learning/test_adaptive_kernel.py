"""The kernel after learning against limits, closed equations, quadrature and networks that learn."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import root

import notsodeep as nsd
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.feature_learning.adaptive import _ranked, alignment
from notsodeep.feature_learning.points import Chains
from notsodeep.feature_learning.solution import _residual
from notsodeep_lab.papers.learned_features import labelled
from notsodeep_lab.papers.weight_posterior import WeightPosterior

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3)) / np.sqrt(3)
NEW = RNG.standard_normal((3, 3)) / np.sqrt(3)
Y = np.array([1.0, -1.0, 1.0, -1.0])
DEQ = nsd.DEQ("tanh", 0.4)
FAST = {"starts": ("lazy",), "chains": 512}


@pytest.fixture(scope="module")
def rich():
    """Four samples at γ = 1, β = 4, where features change a lot."""
    return nsd.adaptive_kernel(DEQ, X, Y, 1.0, 4.0, **FAST)


def test_lazy_limit_is_ridge_regression_with_the_conjugate_kernel():
    after = nsd.adaptive_kernel(DEQ, X, Y, 1e-3, 4e-6, starts=("lazy",))
    lazy = nsd.conjugate_kernel(DEQ, X)
    assert after.converged
    assert np.max(np.abs(after.kernel - lazy)) < 5e-4
    weights = np.linalg.solve(lazy + 0.25 * np.eye(4), Y)
    np.testing.assert_allclose(after.outputs, lazy @ weights, atol=1e-3)
    np.testing.assert_allclose(after.predict(NEW), nsd.conjugate_kernel(DEQ, NEW, X) @ weights, atol=2e-3)


def quadrature_solution(sigma_a2, rows, y, gamma, beta):
    """(16.4) for two samples by a tensor grid, with the inverse form of Φ̂ and a general-purpose root finder."""
    grid = np.linspace(-7.0, 7.0, 161)
    h = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    phi, gram = np.tanh(h), rows @ rows.T

    def symmetric(entries):
        return np.array([[entries[0], entries[1]], [entries[1], entries[2]]])

    def mismatch(unknowns, gamma, beta):
        features, conjugate, residuals = symmetric(unknowns[:3]), symmetric(unknowns[3:6]), unknowns[6:]
        covariance = sigma_a2 * features + (1.0 - sigma_a2) * gram
        inverse = np.linalg.inv(covariance)
        logs = -0.5 * np.sum(h * (h @ inverse), axis=1) - 0.5 * np.sum(phi * (phi @ conjugate), axis=1)
        logs += 0.5 * (phi @ residuals / gamma) ** 2
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        new = (phi * weights[:, None]).T @ phi
        second = (h * weights[:, None]).T @ h
        new_conjugate = sigma_a2 * inverse @ (covariance - second) @ inverse
        pairs = ((new, features), (new_conjugate, conjugate))
        entries = [a[i] - b[i] for a, b in pairs for i in ((0, 0), (0, 1), (1, 1))]
        return np.array([*entries, *(y - new @ residuals / gamma**2 - residuals / beta)])

    lazy = nsd.conjugate_kernel(nsd.DEQ("tanh", sigma_a2), rows)
    unknowns = np.array([lazy[0, 0], lazy[0, 1], lazy[1, 1], 0.0, 0.0, 0.0, 0.0, 0.0])
    for factor in np.linspace(0.1, 1.0, 19):
        found = root(mismatch, unknowns, args=(gamma * factor, beta * factor**2), tol=1e-10)
        unknowns = found.x
    assert found.success
    return symmetric(unknowns[:3])


@pytest.mark.parametrize("sigma_a2", [0.0, 0.4])
def test_two_samples_by_quadrature(sigma_a2):
    expected = quadrature_solution(sigma_a2, X[:2], Y[:2], 0.7, 3.0)
    after = nsd.adaptive_kernel(nsd.DEQ("tanh", sigma_a2), X[:2], Y[:2], 0.7, 3.0, starts=("lazy",))
    assert after.change > 0.2
    np.testing.assert_allclose(after.kernel, expected, atol=1e-3)


def test_two_layers_after_learning_differ_from_one():
    layers = nsd.adaptive_kernel(nsd.Explicit(["tanh", "erf"]), X, Y, 0.3, 0.36, **FAST)
    assert layers.converged
    assert layers.alignment > layers.lazy_alignment + 0.02
    np.testing.assert_allclose(layers.predict(X), layers.outputs, atol=1e-3)


def test_sampling_agrees_with_quasi_monte_carlo(rich):
    sampled = nsd.adaptive_kernel(DEQ, X, Y, 1.0, 4.0, method="sampling", starts=("lazy",), chains=256)
    assert sampled.converged
    assert sampled.solutions[0].diagnostics.r_hat < 1.05
    error = np.hypot(sampled.standard_error, rich.standard_error)
    assert error.max() < 0.01
    assert np.max(np.abs(sampled.kernel - rich.kernel) / error) < 6.0
    predicted, noise = sampled.predict(NEW, return_error=True)
    np.testing.assert_allclose(predicted, rich.predict(NEW), atol=6.0 * noise.max())


def test_standard_errors_of_few_chains_cover_the_truth():
    rows = np.random.default_rng(3).standard_normal((8, 6)) / np.sqrt(6)
    arguments = (DEQ, rows, np.sign(rows[:, 0]), 0.4, 0.64)
    rule = nsd.adaptive_kernel(*arguments, starts=("lazy",), chains=1024)
    few = nsd.adaptive_kernel(*arguments, method="sampling", starts=("lazy",), chains=64)
    assert rule.change > 0.3
    assert np.linalg.norm(few.kernel - rule.kernel) < 0.02 * np.linalg.norm(rule.kernel)
    scores = (few.kernel - rule.kernel) / np.hypot(few.standard_error, rule.standard_error)
    assert np.mean(np.abs(scores[np.triu_indices(8)]) < 2.0) > 0.8


SLOW_X = np.random.default_rng(1).standard_normal((24, 6)) / np.sqrt(6)
SLOW_Y = np.sign(SLOW_X[:, 0])


@pytest.mark.slow
def test_slow_alignment_is_followed_to_its_end():
    """From lazy weights features align over thousands of steps; falling gains once stopped at an alignment of 0.7."""
    after = nsd.adaptive_kernel(DEQ, SLOW_X, SLOW_Y, 0.3, 0.36, starts=("lazy",), chains=64, tolerance=0.01)
    assert after.converged
    assert abs(after.alignment - 0.879) < 0.015
    with pytest.raises(InputError, match="at least 24"):
        nsd.adaptive_kernel(DEQ, SLOW_X, SLOW_Y, 0.3, 0.36, chains=20)


@pytest.mark.slow
def test_two_solutions_are_found_and_ranked():
    """Below the richness at which features align from a lazy start, aligned features stay aligned."""
    both = nsd.adaptive_kernel(DEQ, SLOW_X, SLOW_Y, 0.26, 0.26**2 / 0.25, chains=128, tolerance=0.01)
    assert len(both.solutions) == 2
    assert all(one.converged for one in both.solutions)
    by_start = {one.start: alignment(one.kernel, SLOW_Y) for one in both.solutions}
    assert abs(by_start["lazy"] - 0.615) < 0.03
    assert abs(by_start["rich"] - 0.835) < 0.03
    assert both.log_evidences[0, 0] >= both.log_evidences[1, 0]


def check_points(density):
    return Chains(density, 256, (0,))


def test_a_kernel_that_does_not_solve_the_equations_has_a_residual(rich):
    """Standard errors of replicates do not see an error that all replicates share."""
    solution = rich.solutions[0]
    for factor, least, most in ((1.0, 0.0, 0.02), (1.15, 0.05, 0.5)):
        state = solution.state._replace(features=factor * solution.state.features)
        density = state.densities(solution.posterior)[0]
        assert least <= _residual(state.features[-1], density, check_points(density)) <= most


def test_one_replicate_that_runs_away_counts_as_not_solved(rich):
    """Its spread would hide it in a comparison with standard errors."""
    solution = rich.solutions[0]
    removed = solution.state.removed.copy()
    removed[:, 0] *= 3.0
    state = solution.state._replace(removed=removed)
    density = state.densities(solution.posterior)[0]
    assert _residual(state.features[-1], density, check_points(density)) > 0.02


def test_networks_that_learn_have_this_kernel(rich):
    weights = WeightPosterior(DEQ, X, Y, 60, 1.0, 4.0)
    networks = weights.sample(NEW, moves=150, warmup=80, chains=4, seed=0)
    measured = networks.kernel.mean(axis=0)
    size = np.linalg.norm(measured[:4, :4])
    assert np.linalg.norm(rich.kernel - measured[:4, :4]) < 0.03 * size
    assert np.linalg.norm(rich.lazy_kernel - measured[:4, :4]) > 0.5 * size
    np.testing.assert_allclose(rich.outputs, networks.outputs.mean(axis=0)[:4], atol=0.03)
    np.testing.assert_allclose(rich.predict(NEW), networks.outputs.mean(axis=0)[4:], atol=0.03)


def network_products(after, seed, width=300):
    """φ(h)ᵀφ(h0)/m: weights are drawn given pre-activations h from theory, h0 is reached by iteration from zero."""
    rng, inputs = np.random.default_rng(seed), after.X
    points = after.solutions[0].samples[0].h[seed]
    h = points[rng.choice(len(points), width, p=after.solutions[0].samples[0].weights[seed])]
    features = np.tanh(h) / np.sqrt(width)
    recurrent, first = (rng.standard_normal((width, k)) for k in (width, inputs.shape[1]))
    covariance = 0.4 * features.T @ features + 0.6 * inputs @ inputs.T
    drawn = np.sqrt(0.4) * recurrent @ features + np.sqrt(0.6) * first @ inputs.T
    pull = np.linalg.solve(covariance, (h - drawn).T).T
    recurrent, first = recurrent + np.sqrt(0.4) * pull @ features.T, first + np.sqrt(0.6) * pull @ inputs
    state = np.zeros_like(h)
    for _ in range(300):
        state = np.sqrt(0.4 / width) * recurrent @ np.tanh(state) + np.sqrt(0.6) * first @ inputs.T
    return np.tanh(h).T @ np.tanh(state) / width


@pytest.mark.parametrize(("seed", "reached"), [(0, True), (3, False)])
def test_networks_with_several_equilibria_are_noticed(seed, reached):
    """After learning, iteration from zero may end at another equilibrium than the one in the equations."""
    rows, labels = labelled("sparse", 8, 6, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        after = nsd.adaptive_kernel(DEQ, rows, labels, 0.8, 2.56, starts=("lazy",), chains=512)
    assert after.converged
    assert after.reached == reached
    assert any("Iteration from zero" in str(one.message) for one in caught) != reached
    networks = np.mean([network_products(after, one) for one in range(8)], axis=0)
    distance = np.linalg.norm(networks - after.kernel) / np.linalg.norm(after.kernel)
    assert distance == pytest.approx(after.misses[0], abs=0.1)


def test_gradient_over_all_weights():
    weights = WeightPosterior(DEQ, X, Y, 8, 1.0, 4.0)
    u, direction = (np.random.default_rng(seed).standard_normal((2, weights.dimension)) for seed in (1, 2))
    _, gradient = weights.log_likelihood(u)
    up, down = (weights.log_likelihood(u + step * direction)[0] for step in (1e-4, -1e-4))
    np.testing.assert_allclose((up - down) / 2e-4, np.sum(gradient * direction, axis=1), rtol=1e-4)


def test_outputs_may_be_rotated():
    two = np.stack([Y, RNG.standard_normal(4)], axis=1)
    angle = np.array([[0.6, -0.8], [0.8, 0.6]])
    after, turned = (nsd.adaptive_kernel(DEQ, X, one, 0.3, 0.36, **FAST) for one in (two, two @ angle))
    np.testing.assert_allclose(after.kernel, turned.kernel, atol=1e-5)
    np.testing.assert_allclose(after.outputs @ angle, turned.outputs, atol=1e-4)
    assert after.predict(NEW).shape == (3, 2)


def test_unbounded_activation_at_large_richness_is_refused_with_a_remedy():
    with pytest.raises(ConvergenceError, match="smaller richness"):
        nsd.adaptive_kernel(nsd.DEQ("relu", 0.4), X, Y, 3.0, 40.0, **FAST)


def test_noise_that_overwhelms_the_density_is_an_error():
    """Features of a ReLU DEQ that grow without bound once kept the iteration busy for minutes."""
    rows = np.random.default_rng(1).standard_normal((12, 6)) / np.sqrt(6)
    arguments = (nsd.DEQ("relu", 0.4), rows, np.sign(rows[:, 0]), 0.8, 2.56)
    with pytest.raises(ConvergenceError, match="overwhelms"):
        nsd.adaptive_kernel(*arguments, method="sampling", starts=("lazy",), chains=32)


def test_solutions_are_told_apart_by_their_standard_errors(rich):
    solution = rich.solutions[0]

    def shifted(distance):
        state = solution.state._replace(features=solution.state.features + distance)
        return replace(solution, start="rich", state=state)

    error = float(rich.standard_error.max())
    noise, other = shifted(0.5 * error), shifted(max(20.0 * error, 0.1))
    assert not solution.is_distinct(noise)
    assert solution.is_distinct(other)
    kept, misses, evidences = _ranked([solution, noise, other], 0)
    assert len(kept) == len(misses) == 2
    assert misses[0] <= 0.05 < misses[1]  # the one that networks reach comes first, whatever the evidence
    assert np.isfinite(evidences).all()


def test_plot_and_repr(rich):
    axes = rich.plot()
    assert len(axes.containers) == 2
    assert "alignment=0.97" in repr(rich)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.full((4, 3), np.nan)}, "NaN"),
        ({"y": ["a", "b", "a", "b"]}, "real numbers"),
        ({"y": Y[:3]}, "4 rows"),
        ({"X": np.ones((201, 3)), "y": np.ones(201)}, "at most 200"),
        ({"model": nsd.ConvDEQ("relu", 0.3)}, "not for ConvDEQ"),
        ({"X": np.zeros((4, 3))}, "other than zero"),
        ({"richness": 0.0}, "richness"),
        ({"precision": -1.0}, "precision"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"method": "exact"}, "method"),
        ({"X": np.eye(9), "y": np.ones(9), "method": "quasi-monte-carlo"}, "up to 8"),
        ({"starts": ()}, "starts"),
    ],
)
def test_bad_input(change, message):
    arguments = {"model": DEQ, "X": X, "y": Y} | change
    with pytest.raises(InputError, match=message):
        nsd.adaptive_kernel(**arguments)


def test_new_samples_need_the_same_columns(rich):
    with pytest.raises(InputError, match="3 features"):
        rich.predict(np.ones((2, 5)))


def test_norms_over_twelve_decades_are_refused_at_once():
    X = np.eye(4) * np.array([1e-6, 1e-2, 1e2, 1e6])
    with pytest.raises(
        InputError, match=r"span a factor of 1e\+24; up to 1e\+08 is resolved. Scale the rows"
    ):
        nsd.adaptive_kernel(DEQ, X, [1.0, -1.0, 1.0, -1.0])
