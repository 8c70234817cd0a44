"""Distillation: candidates compute what they say, the result is faithful, and the caller's objects stay as they are."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import notsodeep as nsd
from notsodeep.distillation import Distilled, distill, guarded
from notsodeep.distillation.certainty import relative_error
from notsodeep.distillation.fitting import (
    Equilibria,
    Fitter,
    fit_linear,
    fit_steps,
)
from notsodeep.distillation.student_networks import AcceleratedCell, Cell, PlainMLP, StepsNet, UnrolledCell
from notsodeep.nets import ConvDEQNet, DEQNet, SolverOptions, fit
from notsodeep.progress import silent


def draw(count: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64) / shape[0] ** 0.5


@pytest.fixture(scope="module")
def rows() -> Tensor:
    return draw(1200, 10)


@pytest.fixture(scope="module")
def teacher(rows: Tensor) -> DEQNet:
    """A trained DEQ with strong feedback."""
    net = DEQNet(nsd.DEQ("tanh", 0.2), 10, 40, 3, seed=1, dtype=torch.float64, contractive=True)
    labels = (2.0 * rows[:, :3] + rows[:, 3:6] * rows[:, 6:9]).argmax(1)
    fit(net, (rows[:500], labels[:500]), epochs=3, lr=1e-2)
    return net


@pytest.fixture(scope="module")
def small(teacher: DEQNet, rows: Tensor) -> Distilled:
    return distill(teacher, rows, target_agreement=0.985, epochs=2)


class GatedCell(nn.Module):
    """A module with a cell that is no DEQ of ours: a gate and a layer norm."""

    def __init__(self, readout: nn.Module) -> None:
        super().__init__()
        self.z, self.x, self.gate = nn.Linear(12, 12), nn.Linear(10, 12), nn.Linear(10, 12)
        self.norm, self.readout, self.dropout = nn.LayerNorm(12), readout, nn.Dropout(0.5)
        self.double()

    def cell(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(x)) * self.norm(torch.tanh(0.3 * self.z(z) + self.x(x)))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.zeros(len(x), 12, dtype=x.dtype)
        for _ in range(30):
            z = self.cell(z, x)
        return self.readout(self.dropout(z))


# --- networks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factors", [None, [1.3, 0.8, 1.1]])
def test_a_cut_deq_is_the_iteration_stopped_early(
    teacher: DEQNet, rows: Tensor, factors: list | None
) -> None:
    weights = teacher.plain_weights()
    z = torch.zeros(len(rows), 40, dtype=torch.float64)
    for factor in factors or [1.0] * 3:
        following = torch.tanh(z @ weights.recurrent.T + rows @ weights.inputs.T + weights.bias)
        z = z + factor * (following - z)
    expected = z @ weights.readout.T + weights.readout_bias
    cut = UnrolledCell(Cell.of_network(teacher), 3)
    if factors:
        cut.relaxation = nn.Parameter(torch.tensor(factors, dtype=torch.float64))
    else:
        assert torch.allclose(StepsNet(teacher, weights, 3)(rows), expected, atol=1e-12)
    before = rows.clone()
    assert torch.allclose(cut(rows), expected, atol=1e-12)
    with torch.no_grad():
        assert torch.allclose(cut(rows), expected, atol=1e-12)
    assert torch.equal(rows, before)


def test_many_steps_are_the_equilibrium_of_rows_and_of_images(teacher: DEQNet, rows: Tensor) -> None:
    net = ConvDEQNet(nsd.ConvDEQ("relu", 0.3, bias2=0.1), 2, 6, 3, 5, seed=0, dtype=torch.float64)
    for one, samples in ((teacher, rows[:20]), (net, draw(4, 2, 5, 5, seed=1))):
        assert torch.allclose(UnrolledCell(Cell.of_network(one), 120)(samples), one(samples), atol=1e-8)
        assert torch.allclose(StepsNet(one, one.plain_weights(), 120)(samples), one(samples), atol=1e-8)


@pytest.mark.parametrize("phi", ["relu", "gelu"])
@pytest.mark.parametrize("steps", [1, 3])
def test_own_steps_compute_their_formula(rows: Tensor, phi: str, steps: int) -> None:
    """(12.1), with all weights drawn at random, with and without gradients."""
    net = DEQNet(nsd.DEQ(phi, 0.3, bias2=0.1), 10, 12, 3, seed=0, dtype=torch.float64)
    student = StepsNet(net, net.plain_weights(), steps)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weights in student.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator, dtype=torch.float64))
    X, function = rows[:7].clone(), getattr(nn.functional, phi)
    drive = X @ student.drive.weights.T + student.drive.bias
    states = [function(drive)]
    for layer, g, b in zip(student.layers, student.gains, student.biases, strict=True):
        states.insert(0, function(states[0] @ layer.weights.T + g * drive + b))
    features = torch.cat([*states[:2], X], dim=1)
    expected = features @ student.linear.weight.T + student.linear.bias
    assert torch.allclose(student(X), expected, atol=1e-9)
    with torch.no_grad():
        assert torch.allclose(student(X), expected, atol=1e-9)
        assert torch.allclose(student.features(X), features, atol=1e-9)
    assert torch.equal(X, rows[:7])


def test_steps_fitted_to_equilibria_are_exact_where_the_deq_is_linear(rows: Tensor) -> None:
    """Of a linear DEQ one step is enough: h = (1 - W)^(-1) U x."""
    W, U = draw(12, 12, seed=6) / 3, draw(12, 10, seed=7)
    straight = DEQNet.from_weights(W, U, None, "identity", solver=SolverOptions(tolerance=1e-12))
    one = StepsNet(straight, straight.plain_weights(), 1)
    assert fit_steps(one, Equilibria.of(straight, rows))
    expected = torch.linalg.solve(torch.eye(12, dtype=torch.float64) - W, U)
    assert torch.allclose(one.drive.weights, expected, atol=1e-6)


def test_steps_of_images_are_fitted_by_what_a_filter_sees() -> None:
    net = ConvDEQNet(nsd.ConvDEQ("tanh", 0.5), 1, 8, 2, 5, seed=0, dtype=torch.float64)
    images = draw(400, 1, 5, 5, seed=1)
    student = StepsNet(net, net.plain_weights(), 3)
    cut = relative_error(student(images[300:]), net(images[300:]))
    assert fit_steps(student, Equilibria.of(net, images[:300]))
    assert relative_error(student(images[300:]), net(images[300:])) < 0.6 * cut


@pytest.mark.parametrize("size", [800, 37])
def test_ridge_regression_finds_a_linear_map_whatever_the_blocks(rows: Tensor, size: int) -> None:
    weights = draw(2, 10, seed=3)
    targets = rows @ weights.T + 0.7
    parts = [
        list(zip(torch.split(rows[part], size), torch.split(targets[part], size), strict=True))
        for part in (slice(800), slice(800, None))
    ]
    found = fit_linear(*parts)
    assert found is not None
    assert torch.allclose(found.weights, weights, atol=1e-6)
    assert torch.allclose(found.bias, torch.full((2,), 0.7, dtype=torch.float64), atol=1e-6)


def test_few_rows_correct_a_known_readout_and_do_not_replace_it(rows: Tensor) -> None:
    weights = draw(3, 10, seed=2)
    targets = rows @ weights.mT + 0.7
    known = weights + 1e-3 * draw(3, 10, seed=4)
    parts = [(rows[:8], targets[:8])], [(rows[8:100], targets[8:100])]
    errors = []
    for toward in (None, known):
        found = fit_linear(*parts, toward=toward)
        assert found is not None
        errors.append(relative_error(rows @ found.weights.mT + found.bias, targets))
    assert errors[1] < 0.01 < errors[0]


def test_relaxation_factors_are_fitted_to_the_outputs(teacher: DEQNet, rows: Tensor) -> None:
    cell = Cell.of_network(teacher)
    source, student = UnrolledCell(cell, 3), UnrolledCell(cell, 3)
    source.relaxation = nn.Parameter(torch.tensor([1.2, 0.7, 1.4], dtype=torch.float64))
    with torch.no_grad():
        targets = source(rows)
    Fitter((rows[:600], targets[:600]), (rows[600:], targets[600:]), 0, silent).relaxation(student)
    errors = [relative_error(one(rows[600:]), targets[600:]) for one in (UnrolledCell(cell, 3), student)]
    assert errors[1] < 0.2 * errors[0]
    assert student.relaxation is not None
    assert student.relaxation.grad is None


# --- the whole --------------------------------------------------------------------------------------------------------


def test_the_result_is_faithful_on_new_rows_and_has_every_baseline(teacher: DEQNet, small: Distilled) -> None:
    fresh = draw(4000, 10, seed=3)
    with torch.no_grad():
        share = float((small.network(fresh).argmax(1) == teacher(fresh).argmax(1)).double().mean())
    low, high = small.agreement_interval
    assert small.certain
    assert share >= 0.98
    assert low - 0.01 <= share <= high + 0.01
    kinds = {one.kind for one in small.candidates}
    assert kinds == {"cut", "refitted", "relaxed", "accelerated", "closed form", "trained", "mlp"}
    assert [one.seconds for one in small.candidates] == sorted(one.seconds for one in small.candidates)
    assert small.speedup == pytest.approx(small.teacher_seconds / small.chosen.seconds)
    assert small.test_rows == 360
    text = small.explain()
    assert "It reaches 98.5 % agreement with 95 % certainty" in text
    assert all(one.name in text for one in small.candidates)


def test_no_faster_candidate_is_certain_and_nearly_as_faithful(small: Distilled) -> None:
    for one in small.candidates:
        if one.certain and one.expected_error <= small.chosen.expected_error:
            assert one.seconds >= small.chosen.seconds


def test_fitting_is_better_than_cutting(small: Distilled) -> None:
    errors = {one.name: one.relative_error for one in small.candidates}
    for count in ("1 step", "2 steps", "3 steps"):
        assert errors[f"cut after {count}, readout refitted"] < errors[f"cut after {count}"]
        assert errors[f"{count} of its own, closed form"] < errors[f"cut after {count}"]


def test_nothing_of_the_caller_changes(rows: Tensor) -> None:
    """Weights, modes, gradients, the random state, the samples; and equal seeds give equal networks."""
    module = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3))
    module.double()[0].requires_grad_(False)
    module(rows[:50]).sum().backward()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    gradients = [None if one.grad is None else one.grad.clone() for one in module.parameters()]
    random, before = torch.get_rng_state(), rows[:300].clone()
    options = {"target_agreement": 0.5, "epochs": 1}
    one, other = (distill(module, rows[:300], **options) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(rows[:300], before)
    assert module.training
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(parameter.grad, gradient)
    by_name = {candidate.name: candidate.network for candidate in other.candidates}
    for candidate in one.candidates:
        assert torch.equal(candidate.network(rows[:9]), by_name[candidate.name](rows[:9]))
        assert not candidate.network.training


def test_the_teacher_answers_in_evaluation_mode(rows: Tensor) -> None:
    """A teacher whose dropout is on would be noise."""
    module = nn.Sequential(nn.Dropout(0.9), nn.Linear(10, 3)).double()
    small = distill(module, rows[:500], target_agreement=0.9, epochs=0)
    with torch.no_grad():
        expected = module.eval()(rows[600:])
    assert relative_error(small.network(rows[600:]), expected) < 1e-6


def test_black_boxes_get_mlps_of_several_sizes(rows: Tensor) -> None:
    def square(X: Tensor) -> np.ndarray:
        return np.stack([np.asarray(X)[:, 0] ** 2, np.asarray(X)[:, 1]], axis=1)

    small = distill(square, rows[:600].float().numpy(), target_agreement=0.9, epochs=3)
    assert {one.kind for one in small.candidates} == {"mlp"}
    assert len(small.candidates) >= 4
    assert isinstance(small.network, PlainMLP)
    assert small.steps is None
    assert small.agreement > 0.9


@pytest.mark.parametrize("linear", [True, False])
def test_a_known_cell_is_unrolled(rows: Tensor, linear: bool) -> None:
    torch.manual_seed(0)
    readout = nn.Linear(12, 3) if linear else nn.Sequential(nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 3))
    module = GatedCell(readout)
    z0 = None if linear else torch.zeros(12)
    options = {"target_agreement": 0.97, "epochs": 0}
    small = distill(module, rows, cell=module.cell, readout=module.readout, z0=z0, **options)
    assert {one.kind for one in small.candidates} == {"cut", "refitted", "relaxed", "mlp"}
    assert small.certain
    assert small.agreement > 0.97
    assert small.steps is not None
    module.eval()
    with torch.no_grad():
        cut = next(one for one in small.candidates if one.name == "cut after 2 steps")
        z = module.cell(module.cell(torch.zeros(9, 12, dtype=torch.float64), rows[:9]), rows[:9])
        assert torch.allclose(cut.network(rows[:9]), module.readout(z), atol=1e-12)


class Loop(nn.Module):
    """A cell that is run for a number of steps and is not at its equilibrium then."""

    def __init__(self, steps: int, share: float, width: int = 40) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.W, self.U, self.readout = nn.Linear(width, width), nn.Linear(10, width), nn.Linear(width, 3)
        self.steps, self.share = steps, share
        self.double()

    def step(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.lerp(z, torch.tanh(1.5 * self.W(z) + self.U(x)), self.share)

    def forward(self, x: Tensor) -> Tensor:
        z = x.new_zeros(len(x), self.W.in_features)
        for _ in range(self.steps):
            z = self.step(z, x)
        return self.readout(z)


@pytest.mark.parametrize(("steps", "share"), [(8, 0.3), (60, 0.03)])
def test_a_loop_is_cut_after_numbers_of_steps_up_to_its_own(rows: Tensor, steps: int, share: float) -> None:
    loop = Loop(steps, share)
    small = distill(loop, rows[:400], cell=loop.step, readout=loop.readout, epochs=0, target_agreement=0.9)
    cuts = {one.steps: one for one in small.candidates if one.kind == "cut"}
    assert max(cuts) == steps
    assert cuts[steps].relative_error < 1e-9
    # One that makes no error is tested first, and hands its risk on.
    assert cuts[steps].expected_error < 1e-6
    assert cuts[steps].tested_risk == pytest.approx(0.04)
    assert small.certain
    assert set(range(1, 9)) <= set(cuts)
    assert sum(20 <= count < 60 for count in cuts) >= (5 if steps == 60 else 0)
    # Further steps go elsewhere, so that the equilibrium is no candidate.
    assert "accelerated" not in {one.kind for one in small.candidates}
    # The module's owner runs the module.
    assert small.teacher_way == "teacher"


def test_a_loop_whose_states_go_away_before_they_come_back_is_cut_after_all_of_its_steps(
    rows: Tensor,
) -> None:
    """Three quarters of a turn: after one step outputs are closer to the last ones than after ten."""

    class Turn(Loop):
        def step(self, z: Tensor, x: Tensor) -> Tensor:
            angle = torch.tensor(1.5 * torch.pi / self.steps, dtype=z.dtype)
            first, second = z.chunk(2, dim=1)
            return torch.cat(
                [angle.cos() * first - angle.sin() * second, angle.sin() * first + angle.cos() * second], 1
            )

        def forward(self, x: Tensor) -> Tensor:
            z = x
            for _ in range(self.steps):
                z = self.step(z, x)
            return self.readout(z)

    turn = Turn(30, 1.0, width=10)
    small = distill(
        turn, rows[:400], cell=turn.step, readout=turn.readout, z0=torch.clone, epochs=0, target_agreement=0.9
    )
    assert max(one.steps for one in small.candidates if one.kind == "cut") == 30


def test_mlps_from_a_quarter_to_twice_the_width_train_while_they_improve(rows: Tensor) -> None:
    loop = Loop(8, 0.3)
    with torch.no_grad():
        targets = loop(rows)
    small = distill(loop, rows, cell=loop.step, readout=loop.readout, epochs=2, target_agreement=0.9)
    mlps = {one.network.hidden: one for one in small.candidates if isinstance(one.network, PlainMLP)}
    assert set(mlps) == {(), (16,), (20,), (40,), (80,)}
    fitter = Fitter((rows[:700], targets[:700]), (rows[700:800], targets[700:800]), 0, silent)
    torch.manual_seed(0)
    once = PlainMLP(rows[:700], (40,), 3)
    fitter.all_weights(once, 4, "", 40)
    assert mlps[40,].relative_error < 0.8 * relative_error(once(rows[800:]), targets[800:])


def test_a_speed_up_is_measured_against_the_fastest_way_to_the_teachers_answers(rows: Tensor) -> None:
    """A network of ours solves to 1e-10: its owner's loop stops earlier."""
    torch.manual_seed(0)
    W, U = torch.randn(40, 40, dtype=torch.float64) * 0.5 / 40**0.5, torch.randn(40, 10, dtype=torch.float64)
    teacher = DEQNet.from_weights(W, U, None, "tanh", nn.Linear(40, 3).double())
    small = distill(teacher, rows[:600], epochs=0, target_agreement=0.95)
    same = [one for one in small.candidates if one.kind in ("cut", "accelerated") and one.agreement > 0.99]
    assert {one.kind for one in same} == {"cut", "accelerated"}
    assert small.teacher_seconds <= min(one.seconds for one in same[-3:])
    assert small.teacher_way.startswith("teacher, cut after")
    assert small.teacher_way.removeprefix("teacher, ") in {one.name for one in same}
    assert set(small.speedups) == {1, 64, 1024}
    assert f"{small.speedups[64]:.1f} (64)" in small.explain()
    fast = next(one.network for one in small.candidates if isinstance(one.network, AcceleratedCell))
    with torch.no_grad():
        assert relative_error(fast(rows), teacher(rows)) < 0.5
    assert fast.options.tolerance == 0.1


@pytest.mark.parametrize("target_agreement", [0.9, 0.95, 0.985, 0.999])
def test_what_is_printed_is_what_was_tested(teacher: DEQNet, rows: Tensor, target_agreement: float) -> None:
    """A bound at the risk of its test reaches the target exactly where the test was passed."""
    small = distill(teacher, rows[:500], target_agreement=target_agreement, epochs=0)
    tested = [one for one in small.candidates if one.tested_risk is not None]
    for one in tested:
        assert one.certain == (one.interval[0] >= target_agreement)
        assert one.tested_risk <= 0.05
    assert small.chosen in tested
    assert small.certain == small.chosen.certain == any(one.certain for one in tested)
    text = small.explain()
    assert f"at a risk of {small.chosen.tested_risk:.2g}" in text
    assert ("No candidate is certain to reach" in text) is not small.certain
    if "Certifying it takes about" in text:
        assert int(text.split("takes about ")[1].split()[0]) > 500
    for one in small.candidates:
        (line,) = (line for line in text.splitlines() if line[2:].startswith(f"{one.name}  "))
        assert (" to " in line.removeprefix(one.name)[len(one.name) :]) is (one.tested_risk is not None)


def test_students_have_their_own_weights(rows: Tensor) -> None:
    """Those of a cell that is a method of a module are copied; functions that use other weights are refused."""
    loop, calls = Loop(8, 0.3), []

    def z0(x: Tensor) -> Tensor:
        calls.append(len(x))
        return torch.tensor(0.0, dtype=x.dtype) * x.new_ones(len(x), 40)

    options = {"epochs": 0, "target_agreement": 0.9, "readout": loop.readout}
    small = distill(loop, rows[:300], cell=loop.step, z0=z0, **options)
    assert min(calls) >= 1
    network = next(one.network for one in small.candidates if one.steps == 8)
    with torch.no_grad():
        before = network(rows[:5])
        assert torch.allclose(before, loop(rows[:5]))
        theirs = {weights.data_ptr() for weights in loop.parameters()}
        assert len(list(network.parameters())) >= 6
        assert not theirs & {weights.data_ptr() for weights in network.parameters()}
        loop.W.weight.zero_()
        assert torch.equal(network(rows[:5]), before)
    first, weights = torch.zeros(40, dtype=torch.float64), torch.eye(40, dtype=torch.float64)
    for cell in (lambda z, x: loop.step(z, x), lambda z, x: torch.tanh(z @ weights + loop.U(x))):
        with pytest.raises(nsd.InputError, match=r"cell=net\.step, not lambda"):
            distill(loop, rows[:300], cell=cell, **options)
    with pytest.raises(nsd.InputError, match=r"shape \(3, 40\)"):
        distill(
            loop, rows[:300], cell=loop.step, z0=first, **options | {"readout": lambda z: loop.readout(z)}
        )


def test_it_says_how_long_it_takes_and_keeps_to_a_limit(
    teacher: DEQNet, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        """Raised once the forecast is known."""

    said: list[float] = []

    def forecast(done: int, total: int, message) -> None:
        if "in all" in message():
            said.append(float(message().split("about ")[1].split()[0]))
            raise Stop

    # Processor time, which other programs do not lengthen.
    monkeypatch.setattr(time, "monotonic", time.process_time)
    with pytest.raises(Stop):
        distill(teacher, rows, epochs=400, progress=forecast)
    start = time.process_time()
    small = distill(teacher, rows, epochs=400, seconds=3.0, target_agreement=0.9)
    assert small.predicted_seconds <= 3.0 < 60.0 < said[0]
    assert time.process_time() - start < min(15.0, said[0] / 4)
    start = time.process_time()
    small = distill(teacher, rows, epochs=2, target_agreement=0.9)
    assert 0.2 < small.predicted_seconds / (time.process_time() - start) < 5.0


def test_images_of_rows_single_outputs_and_loaders(rows: Tensor) -> None:
    net = ConvDEQNet(nsd.ConvDEQ("relu", 0.3), 1, 6, 3, 6, seed=0)
    images = draw(200, 1, 6, 6, seed=5).float()
    found = distill(net, images, steps=(2,), epochs=1, target_agreement=0.8)
    assert found.network.sample_shape == (1, 6, 6)
    assert found.agreement > 0.8
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(images, torch.zeros(200)), 32, shuffle=True, generator=generator)
    state = generator.get_state()
    again = distill(net, loader, steps=(2,), epochs=0, target_agreement=0.8)
    assert torch.equal(generator.get_state(), state)
    assert again.agreement > 0.8
    assert again.test_rows == found.test_rows


def test_a_single_output_is_judged_by_the_variance_explained(rows: Tensor) -> None:
    scalar = DEQNet(nsd.DEQ("relu", 0.2), 10, 20, 1, seed=0, dtype=torch.float64)
    one = distill(scalar, rows, steps=(2,), epochs=0)
    fresh = draw(2000, 10, seed=8)
    with torch.no_grad():
        target, outputs = scalar(fresh), one.network(fresh)
        explained = 1.0 - float((outputs - target).var(correction=0) / target.var(correction=0))
        low, high = one.agreement_interval
        assert low - 0.002 <= explained <= high + 0.002
        assert one.certain
        assert "of the variance" in one.explain()
        # The guard's estimate of the error ranks rows better than chance.
        safe = guarded(one, scalar)
        errors = (outputs - target).abs().squeeze(1)
        unsure = safe.risk(fresh) > safe.threshold
        assert 0.0 < float(unsure.double().mean()) < 0.15
        assert float(errors[unsure].mean()) > 1.2 * float(errors.mean())
        assert torch.allclose(safe(fresh)[unsure], target[unsure])


def test_rows_without_a_converged_output_are_left_out(rows: Tensor) -> None:
    """A fifth of the rows does not converge in nine steps; the long ones saturate, and do."""
    solver = SolverOptions("iteration", tolerance=1e-8, max_steps=9)
    net = DEQNet(nsd.DEQ("tanh", 0.9), 10, 40, 2, seed=0, dtype=torch.float64, solver=solver)
    mixed = torch.cat([rows[:60], 1e4 * rows[60:300]])
    found = distill(net, mixed, steps=(1,), epochs=0, target_agreement=0.5)
    assert 0.0 < found.unusable_share <= 0.2
    assert "were not used" in found.explain()
    with pytest.raises(nsd.ConvergenceError, match="no converged, finite output"):
        distill(net, rows[:200], steps=(1,), epochs=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.full((100, 10), np.nan)}, "NaN"),
        (
            {"X": np.full((100, 10), np.inf), "teacher": nn.Linear(10, 3)},
            "NaN or infinite entries in 100 of 100",
        ),
        ({"X": np.zeros((20, 10))}, "too few"),
        ({"X": np.zeros((100, 9))}, "10 columns"),
        ({"X": np.zeros((0, 10))}, "no samples"),
        ({"X": np.zeros((100, 10), complex)}, "real numbers"),
        ({"X": np.zeros(10), "teacher": nn.Linear(10, 3)}, "samples in rows"),
        ({"target_agreement": 1.5}, "target_agreement must be above 0"),
        ({"steps": ()}, "steps is empty"),
        ({"teacher": "deq.pt"}, "got str"),
        ({"teacher": lambda X: X[:3]}, "a row of outputs for each sample"),
        ({"z0": torch.zeros(3)}, "belong to cell="),
        ({"teacher": nn.Linear(10, 3), "cell": lambda z, x: z}, "cell= needs readout="),
        (
            {"teacher": nn.Linear(10, 3), "cell": lambda z, x: z[:, :2], "readout": nn.Linear(4, 3)},
            "must return a state like z",
        ),
        (
            {"teacher": DEQNet(nsd.DEQ("relu"), 10, 20, 150, dtype=torch.float64)},
            "too few to fit and test 150",
        ),
        ({"teacher": DEQNet.from_weights(np.zeros((3, 3)), np.zeros((3, 10)), np.ones(3))}, "the same for"),
    ],
)
def test_bad_input_is_refused_with_words(teacher: DEQNet, rows: Tensor, change: dict, words: str) -> None:
    given = {"teacher": teacher, "X": rows[:200], "epochs": 0, **change}
    with pytest.raises(nsd.InputError, match=words):
        distill(**given)


# --- guard, export, figure --------------------------------------------------------------------------------------------


def test_the_guard_asks_where_the_student_is_wrong(teacher: DEQNet, small: Distilled) -> None:
    fresh = draw(3000, 10, seed=9)
    safe = guarded(small, teacher)
    with torch.no_grad():
        wanted = teacher(fresh).argmax(1)
        alone = float((small.network(fresh).argmax(1) != wanted).double().mean())
        with_guard = float((safe(fresh).argmax(1) != wanted).double().mean())
        assert 0.01 < safe.last_share < 0.15
        assert with_guard < 0.35 * alone
        assert float(safe.risk(fresh).mean()) == pytest.approx(alone, rel=0.7, abs=0.005)
        assert torch.equal(guarded(small, teacher, threshold=2.0)(fresh), small.network(fresh))
        everything = guarded(small, teacher, max_fallback_share=1.0)(fresh[:50])
        assert torch.allclose(everything, teacher(fresh[:50]))
    for wrong in (
        {"threshold": 0.1, "max_fallback_share": 0.1},
        {"threshold": -1.0},
        {"max_fallback_share": 2.0},
    ):
        with pytest.raises(nsd.InputError):
            guarded(small, teacher, **wrong)
    with pytest.raises(nsd.InputError, match="what distill returned"):
        guarded(small.network, teacher)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_the_teacher_answers_for_rows_that_are_not_finite(rows: Tensor, small: Distilled, bad: float) -> None:
    class Certain(nn.Module):
        def forward(self, X: Tensor) -> Tensor:
            return torch.full((len(X), 3), 7.0, dtype=X.dtype)

    X = rows[:8].clone()
    X[3, 2] = bad
    safe = guarded(small, Certain(), threshold=2.0)
    outputs = safe(X)
    assert (outputs[3] == 7.0).all()
    assert safe.last_share == 1 / 8
    others = torch.arange(8) != 3
    assert torch.allclose(outputs[others], small.network(X[others]), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["relaxed", "closed form", "mlp"])
def test_an_onnx_file_computes_the_same(small: Distilled, tmp_path: Path, rows: Tensor, kind: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from notsodeep.distillation.distilled import export_onnx

    network = [one.network for one in small.candidates if one.kind == kind][-1]
    file = export_onnx(network, tmp_path / "student.onnx")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for count in (1, 11):
        (found,) = session.run(None, {"X": rows[:count].numpy()})
        with torch.no_grad():
            assert np.allclose(found, network(rows[:count]).numpy(), atol=1e-9)
    with pytest.raises(nsd.InputError, match="exists"):
        small.export(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    "z0", [None, torch.full((12,), 0.3), lambda x: torch.zeros(len(x), 12, dtype=x.dtype)]
)
def test_a_student_of_any_cell_is_exported_for_any_number_of_samples(
    rows: Tensor, tmp_path: Path, z0: Tensor | None
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    module = GatedCell(nn.Linear(12, 3))
    small = distill(
        module, rows[:300], cell=module.cell, readout=module.readout, z0=z0, epochs=0, target_agreement=0.9
    )
    for kind in ("cut", "refitted", "relaxed"):
        candidate = [one for one in small.candidates if one.kind == kind][2]
        file = small.export(tmp_path / f"{kind}.onnx", candidate)
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        for count in (1, 3, 64, 300):
            (found,) = session.run(None, {"X": rows[:count].numpy()})
            with torch.no_grad():
                # ONNX has layer norms in single precision.
                assert np.allclose(found, candidate.network(rows[:count]).numpy(), atol=1e-6)


def test_what_onnx_has_no_form_for_is_refused(small: Distilled, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    candidate = next(one for one in small.candidates if one.kind == "accelerated")
    with pytest.raises(nsd.InputError, match="iterates until it converges"):
        small.export(tmp_path / "student.onnx", candidate)
    assert not (tmp_path / "student.onnx").exists()


@pytest.mark.slow
def test_an_onnx_file_of_images_takes_any_number_of_them(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from notsodeep.distillation.distilled import export_onnx

    net = ConvDEQNet(nsd.ConvDEQ("gelu", 0.3, readout="pool", padding="circular"), 2, 6, 3, 5, seed=0)
    student = StepsNet(net, net.plain_weights(), 2)
    file = export_onnx(student, tmp_path / "images.onnx")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for count in (1, 11):
        images = draw(count, 2, 5, 5, seed=count).float()
        (found,) = session.run(None, {"X": images.numpy()})
        with torch.no_grad():
            assert np.allclose(found, student(images).numpy(), atol=1e-5)


def test_the_front_is_drawn_with_every_candidate(small: Distilled) -> None:
    plot_front = pytest.importorskip("notsodeep.figures").plot_front
    axes = small.plot()
    labels = {one.get_text() for one in axes.get_legend().get_texts()}
    for label in (
        "cut",
        "cut, readout refitted",
        "relaxed steps",
        "MLP",
        "chosen",
        "target",
        "bound of its test",
    ):
        assert label in labels
    (cuts,) = (line for line in axes.lines if line.get_label() == "cut")
    assert len(cuts.get_xdata()) == len([one for one in small.candidates if one.kind == "cut"])
    assert plot_front(small.rows()).get_ylabel() == "rows with another class (%)"
