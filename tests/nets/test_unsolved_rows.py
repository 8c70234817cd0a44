"""A DEQ that was trained in plain torch and has no equilibrium on a few samples: forward, training, curve, verdict."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import notsodeep as nsd
from notsodeep.nets import DEQNet, fit

M, STEPS = 64, 20


class Trained(NamedTuple):
    W: Tensor
    U: Tensor
    b: Tensor
    readout: nn.Linear
    X: Tensor
    y: Tensor

    def net(self, **options: Any) -> DEQNet:
        return DEQNet.from_weights(self.W, self.U, self.b, "tanh", self.readout, **options)


@pytest.fixture(scope="module")
def trained() -> Trained:
    """z ← tanh(W z + U x + b), 20 steps, unrolled: eight passes over digits, starting from σ_a² of 2.25.

    On another machine training may end elsewhere: W is then scaled so that a few samples do not converge.
    """
    images, labels = load_digits(return_X_y=True)
    X, y = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(1)
    W = nn.Parameter(1.5 * torch.randn(M, M) / M**0.5)
    U, readout = nn.Linear(64, M), nn.Linear(M, 10)
    optimiser = torch.optim.Adam([W, *U.parameters(), *readout.parameters()], lr=0.01)
    for _ in range(8):
        for rows in torch.randperm(1297).split(64):
            outputs = readout(_unrolled(W, U(X[rows])))
            loss = nn.functional.cross_entropy(outputs, y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    found = Trained(W.detach(), U.weight.detach(), U.bias.detach(), readout, X, y)
    for percent in (100, *range(70, 140, 4)):
        scaled = found._replace(W=percent / 100 * found.W)
        net = scaled.net(on_failure="ignore")
        net(X)
        if 5 <= len(net.last_solve.unsolved) <= 50:
            return scaled
    pytest.fail("No scale of W leaves a few samples without an equilibrium.")


def _unrolled(W: Tensor, drive: Tensor) -> Tensor:
    z = torch.zeros_like(drive)
    for _ in range(STEPS):
        z = torch.tanh(z @ W.mT + drive)
    return z


def test_a_forward_pass_returns_every_row_and_warns_once(trained: Trained) -> None:
    net = trained.net()
    with pytest.warns(RuntimeWarning, match="on_failure=") as caught:
        outputs = net(trained.X)
    assert len(caught) == 1
    assert outputs.shape == (len(trained.X), 10)
    assert bool(torch.isfinite(outputs).all())
    unsolved = net.last_solve.unsolved
    assert 0 < len(unsolved) < 0.05 * len(trained.X)
    assert str(int(unsolved[0])) in str(net.last_solve)
    assert "sigma_a2, or train" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = net(trained.X)
    assert torch.equal(outputs, again)
    # All other rows are the fixed point of the owner's own step.
    solved = net.last_solve.settled
    z = net.features(trained.X)[solved] * M**0.5
    following = torch.tanh(z @ trained.W.mT + trained.X[solved] @ trained.U.mT + trained.b)
    change = ((following - z).norm(dim=1) / z.norm(dim=1)).detach()
    assert float(change.max()) < 10.0 * net.last_solve.tolerance


def test_training_on_such_rows_still_raises(trained: Trained) -> None:
    net = trained.net()
    with pytest.warns(RuntimeWarning, match="did not converge"):
        loss = nn.functional.cross_entropy(net(trained.X), trained.y)
    with pytest.raises(nsd.ConvergenceError, match="did not converge"):
        loss.backward()
    settled = net.last_solve.settled
    nn.functional.cross_entropy(net(trained.X[settled]), trained.y[settled]).backward()
    assert bool(torch.isfinite(net.recurrent.grad).all())
    data = trained.X.numpy(), trained.y.numpy()
    with pytest.warns(RuntimeWarning, match="did not converge"), pytest.raises(nsd.ConvergenceError):
        fit(trained.net(train="readout"), data, epochs=1)
    with pytest.raises(nsd.ConvergenceError, match="did not converge"):
        trained.net(on_failure="raise")(trained.X)
    with pytest.warns(RuntimeWarning, match="did not converge"):
        history = fit(trained.net(), data, epochs=1, batch_size=len(trained.X))
    assert "did not converge" in str(history.stopped)


def test_curve_and_verdict_leave_a_few_rows_out(trained: Trained) -> None:
    net = trained.net()
    before = copy.deepcopy(net.state_dict())
    curve = nsd.depth_curve(net, trained.X)
    assert 0 < curve.unsolved < 70
    assert f"{curve.unsolved} without an equilibrium left out" in str(curve)
    assert curve.to_dict()["unsolved"] == curve.unsolved
    assert curve.scores.shape[1] == 1400 - curve.unsolved - (1400 - curve.unsolved) // 2
    found = nsd.verdict(net, trained.X, epochs=0, target_agreement=0.9)
    assert found.curve is not None
    assert f"{curve.unsolved} samples without an equilibrium are left out" in found.reason
    assert net.on_failure == "warn once"
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_more_than_five_percent_are_refused(trained: Trained) -> None:
    net = trained._replace(W=1.5 * trained.W).net()
    with pytest.raises(nsd.ConvergenceError, match=r"no equilibrium for \d+ of 1400 samples; up to 5%"):
        nsd.depth_curve(net, trained.X)
    found = nsd.verdict(net, trained.X)
    assert found.answer == "unsure"
    assert "up to 5%" in found.reason
