"""Training: the same weights as a plain loop, whatever interrupts it; and it stops where it must."""

from __future__ import annotations

import copy
import json
import warnings
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from tolerances import Oracle, assert_close
from torch.nn import functional

from notsodeep.data import load
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.models import DEQ, Explicit
from notsodeep.nets import samples
from notsodeep.nets.default_learning_rate import default_lr
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.nets.history import Epoch
from notsodeep.nets.modules import Net, network_of
from notsodeep.nets.networks import DEQNet, ExplicitNet
from notsodeep.nets.samples import compute_features
from notsodeep.nets.training import fit

FEATURES, WIDTH, CLASSES = 6, 16, 3
RATES = {"sgd": 0.5, "momentum": 0.1, "adam": 0.02}


def blobs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = rng.standard_normal((n, FEATURES)) + 2.0 * np.eye(CLASSES, FEATURES)[y]
    return X / np.sqrt(FEATURES), y


TRAIN, TEST = blobs(50), blobs(20, seed=1)


def deq(mode: str = "all", seed: int = 0, sigma_a2: float = 0.1, **options: Any) -> DEQNet:
    return DEQNet(DEQ("tanh", sigma_a2), FEATURES, WIDTH, CLASSES, train=mode, seed=seed, **options)


def explicit(mode: str = "all", seed: int = 0, **options: Any) -> ExplicitNet:
    return ExplicitNet(Explicit(["tanh", "relu"]), FEATURES, WIDTH, CLASSES, train=mode, seed=seed, **options)


def same_weights(one: Net, other: Net) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def without_seconds(rows: tuple[Epoch, ...]) -> list[Epoch]:
    return [replace(row, seconds=0.0) for row in rows]


# --- against a plain loop ----------------------------------------------------------------------------
def plain_loop(net: Net, optimizer: str, loss: str, epochs: int, batch_size: int, seed: int) -> Net:
    """What a textbook would write, with torch's own losses and nothing cached."""
    X, y = torch.as_tensor(TRAIN[0], dtype=net.readout.dtype), torch.as_tensor(TRAIN[1])
    options = {"lr": RATES[optimizer]} | ({"momentum": 0.9} if optimizer == "momentum" else {})
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    made, generator = kind(net.parameters(), **options), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(batch_size):
            outputs, one_hot = net(X[rows]), functional.one_hot(y[rows], CLASSES)
            if loss == "cross_entropy":
                value = functional.cross_entropy(outputs, y[rows])
            else:
                value = 0.5 * CLASSES * functional.mse_loss(outputs, one_hot.to(outputs))
            made.zero_grad()
            value.backward()
            made.step()
    return net


# Pairwise: every two of network, mode, optimiser and loss occur together.
LOOPS = [
    (deq, "all", "sgd", "cross_entropy"),
    (deq, "readout", "momentum", "squared"),
    (deq, "all", "adam", "squared"),
    (explicit, "readout", "sgd", "squared"),
    (explicit, "all", "momentum", "cross_entropy"),
    (explicit, "readout", "adam", "cross_entropy"),
]


@pytest.mark.parametrize(("make", "mode", "optimizer", "loss"), LOOPS)
def test_weights_are_those_of_a_plain_loop(make: Any, mode: str, optimizer: str, loss: str) -> None:
    # With "ntk" scaling the rate of every weight is the one that is given.
    net, other = (make(mode, dtype=torch.float64, scaling="ntk") for _ in range(2))
    settings: dict[str, Any] = {"optimizer": optimizer, "loss": loss, "batch_size": 16, "seed": 3}
    history = fit(net, TRAIN, lr=RATES[optimizer], epochs=2, **settings)
    plain_loop(other, optimizer, loss, epochs=2, batch_size=16, seed=3)
    assert history.stopped is None
    assert not same_weights(net, make(mode, dtype=torch.float64, scaling="ntk"))
    for name, value in other.state_dict().items():
        # The equilibria of the two differ by the solver's tolerance where batches are cut differently.
        assert_close(net.state_dict()[name], value, Oracle.QUADRATURE)


def test_rows_tell_what_can_be_measured_directly() -> None:
    net = deq(solver=SolverOptions("iteration"))
    history = fit(net, TRAIN, TEST, optimizer="sgd", lr=0.5, epochs=3)
    last = history.rows[-1]
    with torch.no_grad():
        outputs = net(torch.as_tensor(TEST[0], dtype=torch.float32))
    y = torch.as_tensor(TEST[1])
    assert_close(
        last.test_loss, functional.cross_entropy(outputs, y).item(), Oracle.IDENTITY, dtype=np.float32
    )
    assert last.test_accuracy == np.mean((outputs.argmax(1) == y).numpy())
    assert [row.epoch for row in history.rows] == [1, 2, 3]
    assert last.forward_steps > 1
    assert last.adjoint_steps > 1
    assert 0.0 < last.residual <= 1e-5
    assert last.contraction == pytest.approx(net.contraction(exact=True), rel=0.02)
    assert json.loads(json.dumps([asdict(row) for row in history.rows]))[0]["epoch"] == 1


def test_readout_rows_tell_of_the_solver_that_made_the_features() -> None:
    history = fit(deq("readout"), TRAIN, lr=0.5, epochs=2)
    assert history.rows[0].forward_steps == history.rows[1].forward_steps > 1
    assert history.rows[0].adjoint_steps is None
    assert history.feature_seconds > 0.0
    assert fit(explicit("readout"), TRAIN, lr=0.5, epochs=1).rows[0].contraction is None


def test_real_targets_have_a_loss_and_no_accuracy() -> None:
    net = ExplicitNet(Explicit(["tanh"]), FEATURES, WIDTH, 1, train="readout", dtype=torch.float64)
    y = np.sin(TRAIN[0][:, 0])
    with torch.no_grad():
        outputs = net(torch.as_tensor(TRAIN[0]))[:, 0].numpy()
    history = fit(net, (TRAIN[0], y), loss="squared", optimizer="sgd", batch_size=50, epochs=20)
    losses = [row.loss for row in history.rows]
    assert_close(losses[0], 0.5 * np.mean((outputs - y) ** 2), Oracle.IDENTITY)
    assert losses[-1] < 0.2 * losses[0]
    assert history.rows[-1].accuracy is None


# --- learning rates ----------------------------------------------------------------------------------
@pytest.mark.slow
def test_default_rate_of_descent_is_half_of_where_it_diverges() -> None:
    def last_losses(factor: float) -> list[float]:
        net = explicit("readout", dtype=torch.float64)
        lr = default_lr(net, compute_features(net, TRAIN[0]), "sgd", "squared", 50)
        how = {"optimizer": "sgd", "loss": "squared", "batch_size": 50}
        return [row.loss for row in fit(net, TRAIN, lr=factor * lr, epochs=400, **how).rows]

    assert np.all(np.diff(last_losses(1.0)) < 0.0)
    assert np.all(np.diff(last_losses(1.95)) < 0.0)
    assert np.diff(last_losses(2.05))[-1] > 0.0


# --- divergence --------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["all", "readout"])
def test_a_loss_that_is_not_finite_stops_training_in_the_last_good_state(mode: str) -> None:
    net = explicit(mode)
    how: dict[str, Any] = {"optimizer": "sgd", "loss": "squared", "lr": 1e6, "batch_size": 50}
    history = fit(net, TRAIN, epochs=100, **how)
    good = len(history.rows)
    assert 0 < good < 100
    assert f"epoch {good + 1}" in history.stopped
    assert "not finite" in history.stopped
    other = explicit(mode)
    fit(other, TRAIN, epochs=good, **how)
    assert same_weights(net, other)
    at_once = explicit(mode)
    history = fit(at_once, TRAIN, loss="squared", lr=1e30, epochs=3, batch_size=5)
    assert history.rows == ()
    assert history.stopped.startswith("epoch 1")
    assert same_weights(at_once, explicit(mode))


def test_a_lost_equilibrium_stops_training_in_the_last_good_state() -> None:
    net, steps = deq(sigma_a2=0.2, solver=SolverOptions(max_steps=25)), 0

    def grow() -> float:
        nonlocal steps
        steps += 1
        with torch.no_grad():
            net.recurrent.mul_(1.0 if steps <= 4 else 20.0)  # two epochs of two steps, then an expansion
        return 0.0

    net.project = grow  # type: ignore[method-assign]
    history = fit(net, TRAIN, lr=0.1, epochs=5, batch_size=25)
    assert len(history.rows) == 2
    assert history.stopped.startswith("epoch 3")
    other = deq(sigma_a2=0.2, solver=SolverOptions(max_steps=25))
    fit(other, TRAIN, lr=0.1, epochs=2, batch_size=25)
    assert same_weights(net, other)


def test_features_that_cannot_be_computed_are_an_error() -> None:
    net = deq("readout", sigma_a2=0.2, solver=SolverOptions(max_steps=2))
    with pytest.raises(ConvergenceError):
        fit(net, TRAIN, lr=0.5, epochs=1)


def test_loss_of_contraction_is_said_and_training_goes_on() -> None:
    net = deq(sigma_a2=0.4)
    with pytest.warns(RuntimeWarning, match="need not contract") as said:
        history = fit(net, TRAIN, lr=0.1, epochs=3)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert history.stopped is None
    assert all(row.contraction >= 1.0 for row in history.rows)


@pytest.mark.slow
def test_a_contractive_module_stays_contractive() -> None:
    kept, free = deq(contractive=0.75), deq()
    for net in (kept, free):
        fit(net, TRAIN, optimizer="adam", lr=0.05, epochs=30)
    assert free.contraction(exact=True) > 0.8
    assert kept.contraction(exact=True) < 0.76


# --- input -------------------------------------------------------------------------------------------
X, Y = TRAIN
HOLED = np.where(np.arange(50)[:, None] == 3, np.nan, X)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "labels out of range": ({"train": (X, Y + 1)}, "from 1 to 3.*takes 0 to 2"),
    "test labels": ({"test": (X, Y + 1)}, "labels of test"),
    "lengths": ({"train": (X, Y[:-1])}, "50 samples and 49 targets"),
    "columns": ({"train": (X[:, :2], Y)}, "6 columns"),
    "no samples": ({"train": (X[:0], Y[:0])}, "no samples"),
    "NaN": ({"train": (HOLED, Y)}, "1 of 50 samples"),
    "text": ({"train": ([["a"] * 6], [0])}, "real numbers"),
    "not a pair": ({"train": X}, "pair"),
    "real targets": ({"train": (X, Y + 0.5)}, "Cross-entropy takes class labels"),
    "shape of targets": ({"train": (X, np.ones((50, 2))), "loss": "squared"}, "targets of train.*3 columns"),
    "optimiser": ({"optimizer": "adamw"}, "sgd, momentum, adam"),
    "loss": ({"loss": "hinge"}, "cross_entropy, squared"),
    "zero rate": ({"lr": 0.0}, "positive"),
    "epochs": ({"epochs": 0}, "epochs must be a whole number"),
    "batch size": ({"batch_size": 2.5}, "batch_size must be a whole number"),
    "seed": ({"seed": -1}, "seed must be a whole number"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=list(BAD))
def test_bad_input_is_refused_before_any_work(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"module": deq(), "train": TRAIN, "epochs": 1} | change
    before = copy.deepcopy(given["module"])
    with pytest.raises(InputError, match=words):
        fit(**given)
    assert same_weights(given["module"], before)
    assert given["module"].last_solve is None


def test_features_too_large_for_memory_are_refused_before_they_are_computed(monkeypatch: Any) -> None:
    monkeypatch.setattr(samples, "available_bytes", lambda: 16 * 70 * 4 - 1)
    net = deq("readout")
    with pytest.raises(InputError, match="16 × 70 × 4 bytes"):
        fit(net, TRAIN, TEST, epochs=1)
    assert net.last_solve is None
    assert fit(net, TRAIN, epochs=1).stopped is None


def test_progress_is_reported_step_by_step(capfd: Any) -> None:
    seen: list[tuple[int, int, str]] = []
    fit(
        deq(), TRAIN, TEST, lr=0.5, epochs=2, batch_size=25, progress=lambda *a: seen.append((*a[:2], a[2]()))
    )
    assert [done for done, _, _ in seen] == [25, 50, 75, 100]
    assert {total for _, total, _ in seen} == {100}
    assert all(word in seen[-1][2] for word in ("epoch 2/2", "loss", "accuracy", "test", "solver steps"))
    assert capfd.readouterr() == ("", "")


# --- ordinary habits ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DEQ("relu", 0.2), Explicit(["relu"])], ids=str)
def test_an_ordinary_loop_and_fit_train_as_well_as_a_plain_network(kind: DEQ | Explicit) -> None:
    """Pixels between 0 and 1, Adam at 1e-3, width 256, three epochs."""
    parts = [load("digits", split=split) for split in ("train", "test")]
    (X, y), (X_test, y_test) = ((torch.as_tensor(one.X).float(), torch.as_tensor(one.y)) for one in parts)

    def trained(net: torch.nn.Module) -> float:
        optimiser, generator = torch.optim.Adam(net.parameters(), 1e-3), torch.Generator().manual_seed(0)
        for _ in range(3):
            for rows in torch.randperm(len(X), generator=generator).split(64):
                optimiser.zero_grad()
                functional.cross_entropy(net(X[rows]), y[rows]).backward()
                optimiser.step()
        with torch.no_grad():
            return float((net(X_test).argmax(1) == y_test).double().mean())

    def ours() -> Net:
        return network_of(kind, (64,), 256, 10, train="all", seed=0)

    torch.manual_seed(0)
    plain = trained(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)))
    by_fit = fit(ours(), (X, y), (X_test, y_test), epochs=3, batch_size=64).last.test_accuracy
    assert trained(ours()) >= plain - 0.01
    assert by_fit is not None
    assert by_fit >= plain - 0.01


@pytest.mark.parametrize(("factor", "warned"), [(1.0, False), (0.01, True), (200.0, True)])
def test_fit_looks_at_the_scale_of_its_data(factor: float, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(explicit("readout"), (factor * TRAIN[0], TRAIN[1]), epochs=1)
    assert any("Preprocessing.fit" in str(one.message) for one in caught) == warned
