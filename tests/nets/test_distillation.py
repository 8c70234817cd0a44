"""Distillation: students that answer as their teacher does, beside the DEQ cut, and a doubt that is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from nets_oracles import gaussian_rows
from torch import Tensor, nn

import notsodeep as nsd
from notsodeep.models.mixing import Convolution
from notsodeep.nets import ConvDEQNet, DEQNet, SolverOptions, distill, fit, guarded
from notsodeep.nets.connections import DenseConnection, FilterConnection
from notsodeep.nets.distilled import Distilled
from notsodeep.nets.doubt import Doubt, calibration_of, chances
from notsodeep.nets.fidelity import error_interval, relative_error, score_bound, share_interval
from notsodeep.nets.onnx_export import export_onnx
from notsodeep.nets.readout_fit import fit_readout
from notsodeep.nets.step_fit import Equilibria, fit_steps
from notsodeep.nets.student_candidates import injected_scales
from notsodeep.nets.student_choice import Entry, chosen, rows_for_certainty
from notsodeep.nets.students import Feedback, StepsNet, chosen_units, first_steps, narrowed


@pytest.fixture(scope="module")
def rows() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1200, 10, generator=generator, dtype=torch.float64) / 10**0.5


@pytest.fixture(scope="module")
def teacher(rows: Tensor) -> DEQNet:
    """A trained DEQ with strong feedback."""
    net = DEQNet(nsd.DEQ("tanh", 0.2), 10, 40, 3, seed=1, dtype=torch.float64, contractive=True)
    labels = (2.0 * rows[:, :3] + rows[:, 3:6] * rows[:, 6:9]).argmax(1)
    fit(net, (rows[:500], labels[:500]), epochs=3, lr=1e-2)
    return net


@pytest.fixture(scope="module")
def small(teacher: DEQNet, rows: Tensor) -> Distilled:
    return distill(teacher, rows, until=0.985, epochs=4)


def strange(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


# --- students ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_first_steps_are_those_of_the_iteration(teacher: DEQNet, rows: Tensor, steps: int) -> None:
    weights = teacher.plain_weights()
    z = torch.zeros(len(rows), 40, dtype=torch.float64)
    for _ in range(steps):
        z = torch.tanh(z @ weights.recurrent.T + rows @ weights.inputs.T + weights.bias)
    wanted = z @ weights.readout.T + weights.readout_bias
    assert torch.allclose(first_steps(teacher, steps)(rows), wanted, atol=1e-12)


def test_many_steps_are_the_equilibrium_of_rows_and_of_images(teacher: DEQNet, rows: Tensor) -> None:
    assert torch.allclose(first_steps(teacher, 120)(rows[:20]), teacher(rows[:20]), atol=1e-8)
    net = ConvDEQNet(nsd.ConvDEQ("relu", 0.3, bias2=0.1), 2, 6, 3, 5, seed=0, dtype=torch.float64)
    images = torch.randn(4, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(first_steps(net, 80)(images), net(images), atol=1e-8)


@pytest.mark.parametrize("phi", ["relu", "tanh", "gelu", "swish"])
@pytest.mark.parametrize(("steps", "guess"), [(1, 0), (2, 3), (3, 0), (3, 3)])
def test_without_gradients_the_same_is_computed_in_place(
    rows: Tensor, phi: str, steps: int, guess: int
) -> None:
    net = DEQNet(nsd.DEQ(phi, 0.3, bias2=0.1), 10, 12, 3, seed=0, dtype=torch.float64)
    options = {"rank": 4, "guess": guess, "read": 2, "direct": True}
    student = StepsNet(net.plain_weights(), net.spec.activation, net.connection, (10,), steps, **options)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weights in student.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator, dtype=torch.float64))
    before = rows[:7].clone()
    wanted = student(before)
    assert torch.allclose(wanted, student.outputs(student.features(before)), atol=1e-10)
    with torch.no_grad():
        assert torch.allclose(student(before), wanted, atol=1e-10)
    assert torch.equal(before, rows[:7])


def test_weights_trained_elsewhere_make_the_same_function(rows: Tensor) -> None:
    generator = torch.Generator().manual_seed(2)
    W, U, b = (
        torch.randn(shape, generator=generator, dtype=torch.float64) * size
        for shape, size in (((16, 16), 0.15), ((16, 10), 0.6), ((16,), 0.3))
    )
    readout = nn.Linear(16, 3).double()
    z = torch.zeros(50, 16, dtype=torch.float64)
    for _ in range(300):
        z = torch.relu(z @ W.T + rows[:50] @ U.T + b)
    net = DEQNet.from_weights(W, U, b, "relu", readout)
    assert torch.allclose(net(rows[:50]), readout(z), atol=1e-8)
    assert net.spec.sigma_a2 == pytest.approx(float(W.square().sum()) / 16)
    back = net.plain_weights()
    for one, other in zip(back, (W, U, b, readout.weight, readout.bias), strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"W": torch.zeros(3, 4)}, "W must be square"),
        ({"U": torch.zeros(2, 3)}, "It looks transposed"),
        ({"b": torch.zeros(2)}, "a number for each of the 3 units"),
        ({"readout": torch.zeros(2, 5)}, "a column for each of the 3 units"),
        ({"readout": nn.Sequential()}, "readout must be linear"),
        ({"W": torch.full((3, 3), torch.nan)}, "NaN"),
        ({"W": torch.eye(3) * 1j}, "W must hold real numbers, not torch.complex64"),
        ({"U": np.ones((3, 2)) * 1j}, "U must hold real numbers, not complex128"),
        ({"readout": nn.Linear(3, 1, dtype=torch.complex64)}, "readout must hold real numbers"),
        ({"W": np.zeros((0, 0)), "U": np.zeros((0, 2))}, r"at least one unit; got \(0, 0\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: dict, words: str) -> None:
    good = {"W": torch.eye(3) / 2, "U": torch.ones(3, 2), "b": torch.zeros(3), "readout": torch.ones(1, 3)}
    with pytest.raises(nsd.InputError, match=words):
        DEQNet.from_weights(**{**good, **change})


def test_weights_in_every_memory_layout() -> None:
    W, U = gaussian_rows(3, 3, 1).numpy() / 4, gaussian_rows(3, 2, 2).numpy()
    X = gaussian_rows(5, 2, 3)
    expected = DEQNet.from_weights(W, U)(X)
    for turned in (lambda a: a[::-1].copy()[::-1], lambda a: a.astype(">f8"), np.asfortranarray):
        assert torch.equal(DEQNet.from_weights(turned(W), turned(U))(X), expected)


def test_fewer_units_are_enough_where_the_others_are_combinations_of_them(rows: Tensor) -> None:
    """A cell whose units are doubled is the same cell."""
    net = DEQNet(nsd.DEQ("tanh", 0.3), 10, 12, 2, seed=0, dtype=torch.float64)
    one = net.plain_weights()
    twice = DEQNet.from_weights(
        torch.cat([torch.cat([one.recurrent, one.recurrent], 1)] * 2) / 2,
        torch.cat([one.inputs] * 2),
        None,
        "tanh",
        torch.cat([one.readout] * 2, 1) / 2,
    )
    assert torch.allclose(twice(rows[:30]), net(rows[:30]), atol=1e-8)
    states = twice.features(rows[:200]) * 24**0.5
    less = narrowed(twice.plain_weights(), *chosen_units(states, twice.connection, 24, 12))
    student = StepsNet(less, twice.spec.activation, twice.connection, (10,), 60)
    assert relative_error(student(rows[:30]), net(rows[:30])) < 1e-4
    with pytest.raises(nsd.InputError, match="not between 1 and the 24"):
        chosen_units(states, twice.connection, 24, 25)


def test_steps_of_full_rank_are_whole_steps_and_low_rank_keeps_the_wanted_directions(rows: Tensor) -> None:
    generator = torch.Generator().manual_seed(4)
    weights = torch.randn(10, 10, generator=generator, dtype=torch.float64)
    start = torch.zeros_like(rows)
    whole, factored = (Feedback(DenseConnection(), weights, rank) for rank in (None, 10))
    factored.set_weights(weights, torch.eye(10, dtype=torch.float64))
    assert torch.allclose(whole(start, rows), factored(start, rows), atol=1e-12)
    assert factored.operations == 2 * whole.operations
    directions = torch.linalg.qr(weights)[0][:, :3]
    low = Feedback(DenseConnection(), weights, 3)
    low.set_weights(weights, directions)
    assert torch.allclose(low(start, rows), rows @ (directions @ directions.T @ weights).T, atol=1e-12)


def test_steps_fitted_to_equilibria_find_what_is_linear(rows: Tensor) -> None:
    """Of a DEQ without bends one step is enough: h = (1 - W)^(-1) U x; and low rank finds feedback of low rank."""
    generator = torch.Generator().manual_seed(6)
    W, U = (torch.randn(12, size, generator=generator, dtype=torch.float64) / 12 for size in (12, 10))
    solver = SolverOptions(tolerance=1e-12)
    straight = DEQNet.from_weights(W, U, None, "identity", solver=solver)
    equilibria = Equilibria.of(straight, rows, 256)
    one = first_steps(straight, 1)
    assert fit_steps(one, equilibria, 256)
    wanted = torch.linalg.solve(torch.eye(12, dtype=torch.float64) - W, U)
    assert torch.allclose(one.inputs, wanted, atol=1e-6)
    V = torch.linalg.qr(W)[0][:, :2]
    bent = DEQNet.from_weights(V @ V.T @ W, U, None, "tanh", solver=solver)
    errors = []
    for rank in (1, 2, None):
        student = StepsNet(bent.plain_weights(), bent.spec.activation, bent.connection, (10,), 3, rank=rank)
        assert fit_steps(student, Equilibria.of(bent, rows, 256), 256)
        errors.append(relative_error(student(rows), bent(rows)))
    assert errors[1] < 0.5 * errors[0]
    assert errors[1] == pytest.approx(errors[2], rel=1e-3)


def test_steps_of_images_are_fitted_by_what_a_filter_sees() -> None:
    net = ConvDEQNet(nsd.ConvDEQ("tanh", 0.5), 1, 8, 2, 5, seed=0, dtype=torch.float64)
    images = torch.randn(400, 1, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    equilibria = Equilibria.of(net, images[:300], 100)
    cut = relative_error(first_steps(net, 2)(images[300:]), net(images[300:]))
    for rank, share in ((None, 0.5), (6, 0.8)):
        student = StepsNet(
            net.plain_weights(), net.spec.activation, net.connection, (1, 5, 5), 2, rank=rank, guess=4
        )
        assert fit_steps(student, equilibria, 100)
        assert relative_error(student(images[300:]), net(images[300:])) < share * cut


def test_the_scales_of_the_twin_take_biases_and_filters(teacher: DEQNet, rows: Tensor) -> None:
    """A bias is a constant column of the rows; filters on images of one colour are a matrix."""
    weights, phi = teacher.plain_weights(), teacher.spec.activation
    plain = injected_scales(weights, phi, teacher.connection, rows, 2)
    column = torch.full((len(rows), 1), 0.4, dtype=torch.float64)
    wide = weights._replace(inputs=torch.cat([weights.inputs, weights.inputs[:, :1] * 0], dim=1))
    size = float(wide.inputs.square().mean())
    biased = wide._replace(bias=torch.full((40,), 0.4 * size**0.5, dtype=torch.float64))
    bare = torch.cat([rows, 0 * column], dim=1)
    one = injected_scales(biased, phi, teacher.connection, bare, 2)
    other = injected_scales(wide, phi, teacher.connection, torch.cat([rows, column], dim=1), 2)
    assert one is not None
    assert other is not None
    assert [*one[0], *one[1]] == pytest.approx([*other[0], *other[1]])
    connection = FilterConnection(Convolution((1, 1), 1, "zeros"), "flatten")
    filters = weights._replace(
        recurrent=weights.recurrent[..., None, None], inputs=weights.inputs[..., None, None]
    )
    assert injected_scales(filters, phi, connection, rows[..., None, None], 2) == plain


def test_the_readout_is_ridge_regression_whatever_the_batches(rows: Tensor) -> None:
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(2, 10, generator=generator, dtype=torch.float64)
    targets = rows @ weights.T + 0.7
    fits = [
        fit_readout(lambda x: x, (rows[:800], targets[:800]), (rows[800:], targets[800:]), batch)
        for batch in (800, 37)
    ]
    for found in fits:
        assert found is not None
        assert torch.allclose(found.weights, weights, atol=1e-6)
        assert torch.allclose(found.bias, torch.full((2,), 0.7, dtype=torch.float64), atol=1e-6)


# --- the whole --------------------------------------------------------------------------------------------------------


def test_a_known_readout_is_corrected_where_rows_are_few(rows: Tensor) -> None:
    """Eight rows say little about ten weights: what they do not say is as it was known."""
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(3, 10, generator=generator, dtype=torch.float64)
    wanted = rows @ weights.mT + 0.7
    known = weights + 1e-3 * torch.randn(3, 10, generator=generator, dtype=torch.float64)
    parts = (rows[:8], wanted[:8]), (rows[8:100], wanted[8:100])
    errors = []
    for toward in (None, known):
        found = fit_readout(lambda X: X, *parts, 50, toward=toward)
        assert found is not None
        errors.append(relative_error(rows @ found.weights.mT + found.bias, wanted))
    assert errors[1] < 0.01 < errors[0]


def test_the_student_is_faithful_and_the_teacher_untouched(
    teacher: DEQNet, rows: Tensor, small: Distilled
) -> None:
    assert small.fidelity.agreement > 0.95
    assert small.reached
    assert (small.choosing_rows, small.fidelity.rows) == (360, 180)
    low, high = small.fidelity.interval
    assert low < small.fidelity.agreement <= high
    before = strange(teacher)
    again = distill(teacher, rows, until=0.97, epochs=0)
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert {one.kind for one in again.front} == {"cut", "closed form"}
    assert "DEQ cut after 1 step" in small.explain()


def test_at_every_number_of_steps_fitting_is_better_than_cutting(small: Distilled) -> None:
    errors = {one.name: one.fidelity.relative_error for one in small.front}
    for count in ("1 step", "2 steps", "3 steps"):
        cut = errors[f"DEQ cut after {count}"]
        assert errors[f"{count} of its own, closed form"] < cut
        assert errors[f"{count} of its own, all weights fitted"] < 0.8 * cut


def test_equal_seeds_give_equal_students(teacher: DEQNet, rows: Tensor) -> None:
    options = {"steps": (1,), "epochs": 2, "until": 0.5}
    one, other = (distill(teacher, rows[:400], **options) for _ in range(2))
    for first, second in zip(one.front, other.front, strict=True):
        assert first.name == second.name
        assert torch.equal(first.network(rows[:10]), second.network(rows[:10]))


def barely_solved(rows: Tensor) -> tuple[DEQNet, Tensor]:
    """A DEQ, and rows of which a fifth does not converge in its nine steps; the long ones saturate and do."""
    solver = SolverOptions("iteration", tolerance=1e-8, max_steps=9)
    net = DEQNet(nsd.DEQ("tanh", 0.9), 10, 40, 2, seed=0, dtype=torch.float64, solver=solver)
    return net, torch.cat([rows[:60], 1e4 * rows[60:300]])


def test_images_and_a_single_output(rows: Tensor) -> None:
    net = ConvDEQNet(nsd.ConvDEQ("relu", 0.3), 1, 6, 3, 6, seed=0)
    images = torch.randn(200, 1, 6, 6, generator=torch.Generator().manual_seed(5))
    found = distill(net, images, steps=(2,), epochs=1, until=0.8)
    assert found.network.sample_shape == (1, 6, 6)
    assert found.fidelity.agreement > 0.8
    scalar = DEQNet(nsd.DEQ("relu", 0.2), 10, 20, 1, seed=0, dtype=torch.float64)
    one = distill(scalar, rows[:300], steps=(2,), epochs=1)
    assert one.fidelity.agreement is None
    assert one.fidelity.score == pytest.approx(1.0 - one.fidelity.relative_error**2)
    assert one.expected_disagreement is None
    with pytest.raises(nsd.InputError, match="two outputs or more"):
        guarded(one, scalar, share=0.1)


def test_rows_without_an_answer_are_left_out_and_said(rows: Tensor) -> None:
    net, few = barely_solved(rows)
    found = distill(net, few, steps=(1,), epochs=0, until=0.5)
    assert 0.0 < found.held_out <= 0.2
    assert "left out" in found.explain()
    with pytest.raises(nsd.ConvergenceError, match="no converged, finite output"):
        distill(net, rows[:200], steps=(1,), epochs=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.full((100, 10), np.nan)}, "NaN"),
        ({"X": np.zeros((20, 10))}, "too few"),
        ({"X": np.zeros((100, 9))}, "10 columns"),
        ({"until": 1.5}, "until is a share"),
        ({"steps": ()}, "it is empty"),
        ({"width": 41}, "not between 1 and the 40"),
        ({"teacher": nn.Linear(10, 3)}, "DEQNet.from_weights"),
        (
            {"teacher": DEQNet(nsd.DEQ("relu"), 10, 20, 150, dtype=torch.float64)},
            "too few to fit 150 outputs",
        ),
        ({"teacher": DEQNet.from_weights(np.zeros((3, 3)), np.zeros((3, 10)), np.ones(3))}, "the same on"),
        ({"X": np.zeros((0, 10))}, "no samples"),
        ({"X": np.zeros((100, 10), complex)}, "real numbers"),
    ],
)
def test_bad_input_is_refused_with_words(teacher: DEQNet, rows: Tensor, change: dict, words: str) -> None:
    given = {"teacher": teacher, "X": rows[:200], "epochs": 0, **change}
    with pytest.raises(nsd.InputError, match=words):
        distill(**given)


# --- the choice -------------------------------------------------------------------------------------------------------


def test_the_cheapest_that_is_sure_is_chosen_and_the_first_failure_ends_it() -> None:
    front = [Entry(1, 0.3, 0.90), Entry(2, 0.2, 0.992), Entry(3, 0.25, 0.999), Entry(4, 0.1, 0.995)]
    assert chosen(front, 0.99) == (1, True)
    # One that is cheaper, but that a failure of a more faithful one comes before, is not looked at any more.
    front[1] = Entry(2, 0.2, 0.98)
    front[0] = Entry(1, 0.3, 0.999)
    assert chosen(front, 0.99) == (3, True)
    assert chosen(front, 0.996) == (3, False)


def test_rows_needed_for_certainty() -> None:
    needed = rows_for_certainty(0.99)
    assert needed == 299
    same = torch.eye(2).repeat(needed, 1)[:needed]
    assert score_bound(same, same) >= 0.99 > score_bound(same[1:], same[1:])
    assert rows_for_certainty(1.0) is None


def test_candidates_that_are_all_alike_are_not_chosen_by_luck() -> None:
    """Twenty candidates whose true agreement is just below what is wanted: one is called sure in one case of twenty."""
    generator = torch.Generator().manual_seed(13)
    wanted, wrong, rows = 0.95, 0, 300
    for _ in range(300):
        shares = (torch.rand(20, rows, generator=generator) < 0.949).sum(1)
        lowers = [share_interval(int(share), rows, 0.1)[0] for share in shares]
        front = [Entry(place, 1.0 / (1 + place), lower) for place, lower in enumerate(lowers)]
        wrong += chosen(front, wanted)[1]
    assert wrong / 300 < 0.09


@pytest.mark.slow
def test_few_rows_give_intervals_that_hold_and_certainty_that_is_right(teacher: DEQNet) -> None:
    """Many distillations from a few rows each, beside the agreement on very many fresh rows."""
    generator = torch.Generator().manual_seed(14)

    def draw(count: int) -> Tensor:
        return torch.randn(count, 10, generator=generator, dtype=torch.float64) / 10**0.5

    fresh = draw(20_000)
    with torch.no_grad():
        truth = teacher(fresh)
    repetitions, held, errors_held, sure, wrong = 24, 0, 0, 0, 0
    for seed in range(repetitions):
        found = distill(teacher, draw(250), width=20, steps=(1,), epochs=0, until=0.93, seed=seed)
        with torch.no_grad():
            outputs = found.network(fresh)
        share = float((outputs.argmax(1) == truth.argmax(1)).double().mean())
        error = relative_error(outputs, truth)
        (low, high), (least, most) = found.fidelity.interval, found.fidelity.error_interval
        held, errors_held = held + (low <= share <= high), errors_held + (least <= error <= most)
        sure, wrong = sure + found.reached, wrong + (found.reached and share < 0.93)
    # Of 24 intervals of 95 % fewer than 20 hold in one case of a hundred.
    assert held >= 20
    assert errors_held >= 19
    assert sure >= 6
    assert wrong <= 3


def test_where_nothing_is_sure_the_most_faithful_is_given_and_said(teacher: DEQNet, rows: Tensor) -> None:
    found = distill(teacher, rows[:100], epochs=0, until=0.99)
    assert not found.reached
    assert "No candidate reaches the wanted 99.00% with 95 % certainty" in found.explain()
    assert "give at least 997" in found.explain()
    errors = {one.name: one.fidelity.relative_error for one in found.front}
    assert errors[found.name] <= 2.0 * min(errors.values())


def test_a_thousand_rows_are_enough_where_the_student_agrees_on_all(teacher: DEQNet, rows: Tensor) -> None:
    found = distill(teacher, rows[:1000], steps=(1,), epochs=0, until=0.99)
    assert found.choosing_rows == 300
    own = next(one for one in found.front if one.name == found.name)
    # The most faithful candidates are those with many steps, which never differ.
    assert max(one.score for one in found.front) == 1.0
    assert found.reached
    assert own.lower >= 0.99


# --- doubt ------------------------------------------------------------------------------------------------------------


def test_the_guard_asks_where_the_student_is_wrong(teacher: DEQNet, rows: Tensor, small: Distilled) -> None:
    generator = torch.Generator().manual_seed(9)
    fresh = torch.randn(3000, 10, generator=generator, dtype=torch.float64) / 10**0.5
    safe = guarded(small, teacher, share=0.05)
    with torch.no_grad():
        wanted = teacher(fresh).argmax(1)
        alone = float((small.network(fresh).argmax(1) == wanted).double().mean())
        guarded_ = float((safe(fresh).argmax(1) == wanted).double().mean())
    assert 0.01 < safe.last_share < 0.15
    assert 1.0 - guarded_ < 0.35 * (1.0 - alone)
    assert torch.equal(guarded(small, teacher, tolerance=2.0)(fresh), small.network(fresh))
    assert torch.allclose(guarded(small, teacher, share=1.0)(fresh[:50]), teacher(fresh[:50]))
    with pytest.raises(nsd.InputError, match="one of the two"):
        guarded(small, teacher)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_the_guard_asks_for_rows_that_are_not_finite(rows: Tensor, small: Distilled, bad: float) -> None:
    class Certain(nn.Module):
        def forward(self, X: Tensor) -> Tensor:
            return torch.full((len(X), 3), 7.0, dtype=X.dtype)

    X = rows[:8].clone()
    X[3, 2] = bad
    safe = guarded(small, Certain(), tolerance=2.0)
    outputs = safe(X)
    assert (outputs[3] == 7.0).all()
    assert safe.last_share == 1 / 8
    others = torch.arange(8) != 3
    assert torch.allclose(outputs[others], small.network(X[others]), atol=1e-12)


def test_the_expected_disagreement_is_the_observed_one(teacher: DEQNet, small: Distilled) -> None:
    generator = torch.Generator().manual_seed(10)
    fresh = torch.randn(4000, 10, generator=generator, dtype=torch.float64) / 10**0.5
    safe = guarded(small, teacher, share=0.0)
    with torch.no_grad():
        expected = float(safe.doubts(fresh).mean())
        observed = float((small.network(fresh).argmax(1) != teacher(fresh).argmax(1)).double().mean())
    assert expected == pytest.approx(observed, rel=0.6, abs=0.005)


def test_the_doubt_is_the_share_of_changed_classes() -> None:
    """Outputs with independent errors: the estimate is stretched until it expects what happened."""
    generator = torch.Generator().manual_seed(11)
    X = torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    wanted = X + 0.1 * torch.randn(X.shape, generator=generator, dtype=torch.float64)
    doubt = Doubt.of(X, wanted)
    changed = float((X.argmax(1) != wanted.argmax(1)).double().mean())
    assert float(doubt.disagreement(X).mean()) == pytest.approx(changed, rel=0.02)


def test_expected_disagreement_has_heavy_tails_and_no_ties(rows: Tensor) -> None:
    """Against scipy's Student distribution, and in the order of the errors where nothing differs."""
    from scipy.stats import t

    wanted = 100.0 * rows[:200, :2]
    outputs = wanted[:5]
    gaps = (outputs[:, 0] - outputs[:, 1]).abs()
    found = chances(outputs, 0.7)
    assert torch.allclose(found, torch.as_tensor(t(4).sf((gaps / (0.7 * 2**0.5)).numpy())))
    noise = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = [
        float(Doubt.of(wanted + size * noise, wanted).seen.mean()) for size in (1e-9, 1e-6, 1e-3, 1.0)
    ]
    assert expected == sorted(expected)
    assert len({*expected}) == 4


def test_doubts_beside_what_happened() -> None:
    doubts = torch.tensor([0.0, 0.02, 0.04, 0.5, 0.7])
    bins = calibration_of(doubts, torch.tensor([False, False, True, True, False]))
    assert [(one.least, one.rows, one.observed) for one in bins] == [
        (0.0, 1, 0.0),
        (0.01, 2, 0.5),
        (0.2, 2, 0.5),
    ]
    assert bins[1].expected == pytest.approx(0.03)


def test_intervals_of_shares() -> None:
    """Clopper and Pearson's interval at 0 and 1 in closed form, and its textbook value at 8 of 10."""
    assert share_interval(100, 100) == (pytest.approx(0.025**0.01), 1.0)
    assert share_interval(0, 50) == (0.0, pytest.approx(1.0 - 0.025**0.02))
    assert share_interval(8, 10) == (pytest.approx(0.444, abs=1e-3), pytest.approx(0.975, abs=1e-3))


def test_intervals_of_errors_hold_them_as_often_as_stated() -> None:
    generator = torch.Generator().manual_seed(12)
    held = 0
    for _ in range(400):
        wanted = torch.randn(200, 3, generator=generator, dtype=torch.float64)
        noise = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
        low, high = error_interval(wanted + 0.05 * (1.0 + wanted[:, :1].abs()) * noise, wanted)
        # E(1 + |g|)² = 2 + 2 √(2/π) for a standard normal g.
        held += low <= 0.05 * (2.0 + 2.0 * (2.0 / torch.pi) ** 0.5) ** 0.5 <= high
    assert 0.91 <= held / 400 <= 0.98


@pytest.mark.slow
def test_an_onnx_file_computes_the_same(small: Distilled, tmp_path: Path, rows: Tensor) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    file = small.export(tmp_path / "twin.onnx")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"X": rows[:11].numpy()})
    with torch.no_grad():
        assert np.allclose(found, small.network(rows[:11]).numpy(), atol=1e-9)
    with pytest.raises(nsd.InputError, match="exists"):
        small.export(file)


@pytest.mark.slow
def test_an_onnx_file_of_images_takes_any_number_of_them(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    net = ConvDEQNet(nsd.ConvDEQ("gelu", 0.3, readout="pool", padding="circular"), 2, 6, 3, 5, seed=0)
    student = StepsNet(
        net.plain_weights(), net.spec.activation, net.connection, (2, 5, 5), 2, rank=3, guess=2
    )
    session = onnxruntime.InferenceSession(
        str(export_onnx(student, tmp_path / "images.onnx")), providers=["CPUExecutionProvider"]
    )
    for count in (1, 11):
        images = torch.randn(count, 2, 5, 5, generator=torch.Generator().manual_seed(count))
        (found,) = session.run(None, {"X": images.numpy()})
        with torch.no_grad():
            assert np.allclose(found, student(images).numpy(), atol=1e-5)


def test_the_front_is_drawn_with_the_cuts_in_it(small: Distilled) -> None:
    plot_front = pytest.importorskip("notsodeep.figures").plot_front
    axes = plot_front(small)
    labels = [one.get_text() for one in axes.get_legend().get_texts()]
    assert {"DEQ cut, nothing fitted", "closed form", "all weights fitted", "the result", "wanted"} <= {
        *labels
    }
    (cuts,) = (line for line in axes.lines if line.get_label() == "DEQ cut, nothing fitted")
    assert len(cuts.get_xdata()) == len([one for one in small.front if one.kind == "cut"])
    assert "95 % certain" in labels
    assert plot_front(small.rows()).get_ylabel() == "rows with another class (%)"
