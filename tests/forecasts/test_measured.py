"""Forecasts measured on cells with known eigenvalues, on attention, and on networks; and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import notsodeep as nsd
from notsodeep.cli.entry import app
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.nets import DEQNet, SolverOptions

RUN = CliRunner()


def linear_map(eigenvalues: list[complex], size: int, seed: int = 0) -> torch.Tensor:
    """A matrix with these eigenvalues (pairs for complex ones); all others are below 0.3."""
    rng = np.random.default_rng(seed)
    blocks, rest = np.zeros((size, size)), 0
    for value in eigenvalues:
        if value.imag:
            blocks[rest : rest + 2, rest : rest + 2] = [[value.real, value.imag], [-value.imag, value.real]]
        else:
            blocks[rest, rest] = value.real
        rest += 2 if value.imag else 1
    blocks[rest:, rest:] = np.diag(rng.uniform(-0.3, 0.3, size - rest))
    basis = rng.standard_normal((size, size))
    return torch.from_numpy(basis @ blocks @ np.linalg.inv(basis))


@pytest.mark.parametrize("size", [12, 90])
def test_eigenvalues_of_a_linear_cell(size):
    leading = 0.85 * np.exp(1.2j)
    W = linear_map([leading, 0.6], size)
    x, z0 = torch.randn(3, size, dtype=torch.float64), torch.randn(3, size, dtype=torch.float64)
    f = nsd.forecast(lambda z, x: z @ W.T + x, x, z0=z0, max_steps=300)
    assert f.source == "measured"
    np.testing.assert_allclose(f.rate, 0.85, rtol=1e-6)
    assert np.abs(f.eigenvalues[0, :2].real).max() == pytest.approx(leading.real, rel=1e-5)
    np.testing.assert_allclose(np.sort(np.abs(f.eigenvalues[0]))[-3:], [0.6, 0.85, 0.85], rtol=1e-4)
    z, residuals = z0, []
    for _ in range(20):
        image = z @ W.T + x
        residuals.append(float((image - z)[1].norm() / image[1].norm()))
        z = image
    np.testing.assert_allclose(f.residuals[1, :20], residuals, rtol=1e-10)
    limit = torch.linalg.solve(torch.eye(size, dtype=torch.float64) - W, x[1])
    assert f.errors[1, 0] == pytest.approx(float((z0[1] - limit).norm() / limit.norm()), rel=1e-6)
    assert (f.steps(1e-8, solver="anderson") < f.steps(1e-8)).all()
    assert 0.0 < f.gradient.error(40).max() < 0.05


def test_a_network_beside_its_initialisation():
    model, X = nsd.DEQ("tanh", 0.8, 0.5), np.random.default_rng(0).standard_normal((3, 10)) / np.sqrt(10)
    net = DEQNet(model, 10, 1000, 1, seed=0, dtype=torch.float64)
    f = nsd.forecast(net, X)
    np.testing.assert_allclose(f.rate, f.initial.rate, rtol=0.08)
    np.testing.assert_allclose(f.gradient.adjoint_norm, f.initial.gradient.adjoint_norm, rtol=0.1)
    with torch.no_grad():
        net.recurrent.mul_(1.15)
        net(torch.from_numpy(X))
    trained = nsd.forecast(net, X)
    assert (trained.rate > 1.08 * f.rate).all()
    assert trained.initial.rate == pytest.approx(f.initial.rate)
    assert abs(net.last_solve.steps + 1 - trained.steps(1e-10).max()) <= 1


def test_a_network_that_does_not_converge_reports_the_predicted_rate():
    net = DEQNet(nsd.DEQ("tanh", 3.5, 0.2), 5, 512, 1, seed=0)
    X = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    X = X / X.norm(dim=1, keepdim=True)
    expected = nsd.forecast(net.spec, X).rate[0]
    with pytest.raises(ConvergenceError, match=r"Predicted rate 1\.\d+ at these weights") as caught:
        net(X)
    stated = float(str(caught.value).split("Predicted rate ")[1].split()[0])
    assert stated == pytest.approx(expected, abs=0.03)
    f = nsd.forecast(net, X, max_steps=50)
    assert list(f.outcome) == ["not within 50 evaluations"] * 2
    assert not np.isnan(f.rate).any()
    assert not f.settles.any()
    with pytest.raises(ConvergenceError, match="grows without limit"):
        DEQNet(nsd.DEQ("relu", 4.0, 0.2), 5, 256, 1, seed=0, solver=SolverOptions("iteration", max_steps=50))(
            X
        )


def test_bad_cells_are_refused_in_words():
    x = torch.ones(2, 4, dtype=torch.float64)
    cases = [
        (lambda z, x: z[:, :2], {"z0": x}, "shape of z"),
        (lambda z, x: x, {"z0": x}, "differentiably"),
        (lambda z, x: 0.5 * z, {"z0": x[:1]}, "one state per sample"),
        (lambda z, x: 0.5 * z, {"z0": torch.ones(2, 4, dtype=torch.int64)}, "floating-point"),
        (lambda z, x: 0.5 * z, {"z0": x * np.nan}, "NaN"),
        (nn.Linear(4, 4), {}, "together with z0"),
        (DEQNet(nsd.DEQ("tanh", 0.5), 4, 8, 1), {"z0": x}, "leave it out"),
        (DEQNet(nsd.DEQ("tanh", 0.5), 4, 8, 1), {"width": 8}, "leave it out"),
    ]
    for cell, options, words in cases:
        with pytest.raises(InputError, match=words):
            nsd.forecast(cell, x, **options)


def test_the_command(tmp_path: Path):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((30, 6)))
    options = "--activation relu --sigma-a2 0.5"
    arguments = ["forecast", str(tmp_path / "X.npy"), *options.split()]
    shown = RUN.invoke(app, [*arguments, "--figure", str(tmp_path / "f.png")])
    assert shown.exit_code == 0, shown.output
    assert "All samples settle. Slowest rate 0.5." in " ".join(shown.output.split())
    assert (tmp_path / "f.png").stat().st_size > 1000
    told = json.loads(RUN.invoke(app, [*arguments, "--json"]).output)
    assert told["rate"] == pytest.approx([0.5] * 30)
    told = json.loads(RUN.invoke(app, [*arguments, "--width", "256", "--json"]).output)
    assert told["probability"] == [1.0] * 30
    assert told["rate"] == pytest.approx([0.52] * 30, abs=0.005)
    beyond = "forecast digits --n 5 --activation tanh --sigma-a2 9 --sigma-b2 0.1"
    assert RUN.invoke(app, beyond.split()).exit_code == 3
    weights = DEQNet(nsd.DEQ("tanh", 0.4), 6, 40, 2, seed=0).plain_weights()
    np.savez(
        tmp_path / "deq.npz", W=weights.recurrent, U=weights.inputs, b=weights.bias, readout=weights.readout
    )
    trained = ["forecast", str(tmp_path / "deq.npz"), str(tmp_path / "X.npy"), "--activation", "tanh"]
    measured = RUN.invoke(app, trained)
    assert measured.exit_code == 0, measured.output
    assert "measured on 30 samples" in " ".join(measured.output.split())
    assert "leave --model" in str(RUN.invoke(app, [*trained, "--width", "4"]).exception)
