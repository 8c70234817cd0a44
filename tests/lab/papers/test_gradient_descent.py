"""Gradient descent: exact gradients in the paper's parameters, the theorem observed, step sizes searched."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tolerances import Oracle, assert_close

from notsodeep.convergence import PaperNetwork, TangentSpectrum, certificate, paper_model
from notsodeep.errors import InputError
from notsodeep.nets import DEQNet, SolverOptions
from notsodeep_lab.papers.gradient_descent import gradient_descent

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 5))
X *= np.sqrt(5) / np.linalg.norm(X, axis=1, keepdims=True)
Y = RNG.standard_normal(6)
NAMES = ("recurrent", "inputs", "readout")


def one_step(width: int, lr: float) -> list[np.ndarray]:
    """(θ(0) - θ(1))/η for W, U and a."""
    before = PaperNetwork.draw(width, 5, 0.1, seed=4)
    after = gradient_descent(X, Y, width, 0.1, steps=1, lr=lr, seed=4).network
    return [(getattr(before, name) - getattr(after, name)).numpy() / lr for name in NAMES]


def test_a_step_follows_the_gradient_of_the_net_up_to_its_scaling():
    width, sigma_w2 = 30, 0.1
    exact = {"dtype": torch.float64, "solver": SolverOptions(tolerance=1e-13)}
    net = DEQNet(paper_model(sigma_w2), 5, width, 1, seed=4, scaling="ntk", **exact)
    outputs = net(torch.from_numpy(X) / np.sqrt(5))[:, 0]
    (0.5 * (outputs - torch.from_numpy(Y)).square().sum()).backward()
    # W = √(2σ_w²/m) A, U = √(2/d) B, a = readout/√m: the chain rule multiplies by the same factors.
    factors = (np.sqrt(2 * sigma_w2 / width), np.sqrt(2 / 5), 1 / np.sqrt(width))
    gradients = (net.recurrent.grad, net.inputs.grad, net.readout.grad[0])
    for found, factor, gradient in zip(one_step(width, 0.5), factors, gradients, strict=True):
        assert_close(factor * found, gradient.numpy(), Oracle.QUADRATURE)


@pytest.mark.slow
def test_the_theorem_where_it_is_certified():
    d = 20
    orthogonal, labels = np.sqrt(d) * np.eye(d)[:2], np.array([0.03, -0.03])
    proof = certificate(orthogonal, labels, 400, 0.0025, readout_scale=0.005)
    assert proof.certified
    found = gradient_descent(
        orthogonal, labels, 400, 0.0025, steps=60, lr=proof.step, readout_scale=0.005, every=1
    )
    assert len(found.rows) == len(found.losses) == 61
    least = proof.measured.least.lower
    for row in found.rows:
        assert row.recurrent_norm < 1.0
        assert row.least >= 0.5 * least
        assert row.gradient_norm**2 >= found.least * row.loss
        assert row.loss <= proof.rate**row.step * found.losses[0] * (1 + 1e-9)
        assert row.loss <= row.loss_bound * (1 + 1e-9)
        assert (row.moved == 0) == (row.step == 0)
        assert row.moved <= proof.delta
    # At the start ||∇Φ||² = r H rᵀ lies between the ends of the spectrum of H.
    first = found.rows[0]
    assert 2 * proof.tangent.least * first.loss <= first.gradient_norm**2 * (1 + 1e-9)
    assert first.gradient_norm**2 <= 2 * proof.tangent.largest * first.loss * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_step_size_is_found_and_training_ends_at_zero_loss(dtype):
    found = gradient_descent(X, Y, 100, 0.08, steps=1500, dtype=dtype)
    assert found.stopped is None
    assert found.losses[-1] <= 1e-6
    assert found.rows[-1].loss == found.losses[-1]
    assert np.all(np.diff([loss for loss in found.losses if loss > 1e-6]) < 0)
    assert found.network.recurrent.dtype == getattr(torch, dtype)


@pytest.mark.slow
def test_a_step_that_is_too_long_is_halved(monkeypatch):
    honest = gradient_descent(X, Y, 50, 0.08, steps=20)
    assert honest.halvings == 0
    step = TangentSpectrum.step.fget
    monkeypatch.setattr(TangentSpectrum, "step", property(lambda self: 16.0 * step(self)))
    found = gradient_descent(X, Y, 50, 0.08, steps=20)
    assert found.halvings >= 1
    assert found.lr == pytest.approx(16.0 * honest.lr * 0.5**found.halvings)
    assert len(found.losses) == 21
    assert np.all(np.diff(found.losses) < 0)


@pytest.mark.slow
def test_half_the_step_does_not_save_an_equilibrium_that_training_leaves():
    # Large labels pull W out of contraction however short the steps: that is said, not tried for ever.
    found = gradient_descent(X, 100.0 * Y, 40, 0.12, steps=5000)
    assert "equilibrium was lost" in (found.stopped or "")
    assert found.halvings < 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"every": 0}, "every must be a whole number of at least 1"),
        ({"lr": 0.0}, "lr must be"),
        ({"dtype": "float16"}, "float64"),
    ],
)
def test_options_that_cannot_be_used(options, message):
    with pytest.raises(InputError, match=message):
        gradient_descent(X, Y, 10, 0.08, **{"steps": 3, **options})


def test_the_steps_that_are_recorded():
    run = gradient_descent(X, Y, 10, 0.08, steps=10, every=4)
    assert [row.step for row in run.rows] == [0, 4, 8, 10]
    assert len(run.losses) == 11
