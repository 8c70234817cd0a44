"""Forecasts of models: closed forms, models that are special cases of others, real networks of finite width."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import cells
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.forecasts.width_effects import settling_probability
from notsodeep.models import normalised_adjacency
from notsodeep.nets import DEQNet, SolverOptions, network

RNG = np.random.default_rng(0)


def unit_rows(n: int = 3, p: int = 20) -> np.ndarray:
    X = RNG.standard_normal((n, p))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_a_linear_model_has_geometric_curves():
    """z_k is a sum of k orthogonal terms, each σ_a times as long as the one before."""
    f = nsd.forecast(nsd.DEQ("identity", 0.36), unit_rows())
    k = np.arange(f.residuals.shape[1])
    norms = np.sqrt(np.cumsum(0.36**k))
    assert f.rate == pytest.approx(0.6, rel=1e-12)
    np.testing.assert_allclose(f.residuals[0], 0.6**k / norms, rtol=1e-6, atol=2e-13)
    np.testing.assert_allclose(f.errors[0], 0.6**k, rtol=1e-6, atol=2e-13)
    assert f.gradient.error(4) == pytest.approx(0.6**4)
    assert f.gradient.adjoint_norm == pytest.approx(1.25)
    # 0.6^k √(1 − 0.36) ≤ 1e-6 first at k = 27, which is evaluation 28.
    assert f.steps(1e-6) == pytest.approx(28.0)


@pytest.mark.parametrize(
    ("name", "gain", "slowest"), [("softplus", 1.8, "norm"), ("tanh", 1.3, "spread"), ("relu", 1.2, "spread")]
)
def test_residuals_end_with_the_slower_mode_and_are_not_cut_by_rounding(name, gain, slowest):
    model = nsd.DEQ(name, gain, 0.5)
    f = nsd.forecast(model, unit_rows(1), max_steps=300)
    q = model.preactivation_variance(1.0)
    modes = {
        "spread": np.sqrt(gain * nsd.gaussian.moments.derivative_second_moment(model.activation, q)),
        "norm": gain * nsd.gaussian.moments.second_moment_slope(model.activation, q),
    }
    assert max(modes, key=lambda mode: modes[mode]) == slowest
    assert f.rate[0] == pytest.approx(modes[slowest], rel=1e-9)
    kept = f.residuals[0] > 1e-11
    assert f.residuals[0, kept][-1] / f.residuals[0, kept][-2] == pytest.approx(f.rate[0], rel=1e-3)
    assert f.errors[0, kept][-1] / f.errors[0, kept][-2] == pytest.approx(f.rate[0], rel=1e-3)


def test_rows_of_many_norms_are_interpolated():
    X = unit_rows(150) * np.linspace(0.3, 2.0, 150)[:, None]
    many, model = nsd.forecast(nsd.DEQ("tanh", 0.9, 0.5), X), nsd.DEQ("tanh", 0.9, 0.5)
    for row in (0, 70, 149):
        one = nsd.forecast(model, X[row : row + 1])
        assert many.rate[row] == pytest.approx(one.rate[0], rel=1e-10)
        above = one.residuals[0] > 1e-9
        columns = np.flatnonzero(above)
        np.testing.assert_allclose(many.residuals[row, columns], one.residuals[0, above], rtol=1e-3)
        assert abs(many.steps(1e-6)[row] - one.steps(1e-6)[0]) <= 1.0


@pytest.mark.parametrize("name", ["relu", "softplus"])
def test_images_and_graphs_that_are_rows(name):
    """An image that is constant on a torus, and a graph of one node that sees itself, are rows."""
    x = unit_rows(1, 4)
    row = nsd.forecast(nsd.DEQ(name, 0.9, 0.5), x)
    image = np.broadcast_to(x[:, :, None, None], (1, 4, 3, 3))
    conv = nsd.forecast(nsd.ConvDEQ(name, 0.9, 0.5, padding="circular"), image)
    graph = nsd.forecast(nsd.GraphDEQ(np.eye(1), name, 0.9, 0.5), x)
    for other in (conv, graph):
        assert other.rate == pytest.approx(row.rate, rel=2e-3)
        columns = min(row.residuals.shape[1], other.residuals.shape[1])
        above = row.residuals[0, :columns] > 1e-9
        np.testing.assert_allclose(
            other.residuals[0, :columns][above], row.residuals[0, :columns][above], rtol=1e-4
        )
        np.testing.assert_allclose(other.errors[0, :20], row.errors[0, :20], rtol=1e-4)
        np.testing.assert_allclose(
            other.anderson_residuals[0, :15], row.anderson_residuals[0, :15], rtol=1e-4
        )
        assert other.gradient.error(3) == pytest.approx(row.gradient.error(3), rel=1e-3)


# --- beside networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "steps"), [("iteration", 5), ("anderson", 5), ("anderson", 9)])
@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_the_solver_of_a_wide_network_reports_the_predicted_residual(name, method, steps):
    """After s steps `DEQNet` reports column s; the columns beside it are off by a third and more."""
    model, X = nsd.DEQ(name, 0.8, 0.5), unit_rows(6, 30)
    f = nsd.forecast(model, X)
    options = SolverOptions(method, tolerance=1e-14, max_steps=steps)
    net = DEQNet(model, 30, 1500, 1, seed=0, dtype=torch.float64, solver=options, on_failure="ignore")
    with torch.no_grad():
        net(torch.from_numpy(X))
    curve = f.residuals if method == "iteration" else f.anderson_residuals
    reported = np.median(net.last_solve.residuals.numpy())
    assert reported == pytest.approx(curve[0, steps], rel=0.1)
    assert curve[0, steps - 1] > 1.3 * reported


@pytest.mark.parametrize(
    ("model", "shape", "width"),
    [(nsd.DEQ("tanh", 0.7, 0.6), (30,), 1200), (nsd.ConvDEQ("relu", 0.9, 0.5), (3, 7), 500)],
)
def test_errors_steps_and_truncated_gradients_of_a_wide_network(model, shape, width):
    X = RNG.standard_normal((2, *shape)) / np.sqrt(shape[0])
    f = nsd.forecast(model, X)
    measured = nsd.forecast(network(model, shape, width, 1, seed=3, dtype=torch.float64), X)
    assert measured.source == "measured"
    np.testing.assert_allclose(measured.steps(1e-3), f.steps(1e-3), atol=1.5)
    np.testing.assert_allclose(measured.rate, f.rate, rtol=0.12)
    np.testing.assert_allclose(measured.errors[:, :4], f.errors[:, :4], rtol=0.1)
    for k in (1, 3):
        np.testing.assert_allclose(measured.gradient.error(k), f.gradient.error(k), rtol=0.15)


def test_a_graph_network_has_the_predicted_residuals():
    adjacency = np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1)
    adjacency[0, 3] = adjacency[3, 0] = 1.0
    S, X, m = normalised_adjacency(adjacency), unit_rows(6, 8), 900
    f = nsd.forecast(nsd.GraphDEQ(S, "softplus", 0.9, 0.5), X)
    assert f.rate.shape == (1,)
    A, B = RNG.standard_normal((m, m)) / np.sqrt(m), RNG.standard_normal((m, 8))
    z = np.zeros((6, m))
    for k in range(8):
        image = np.logaddexp(
            0.0, np.sqrt(0.9) * S @ z @ A.T * np.sqrt(m) + np.sqrt(0.5) * S @ X @ B.T
        ) / np.sqrt(m)
        assert np.linalg.norm(image - z) / np.linalg.norm(image) == pytest.approx(f.residuals[0, k], rel=0.15)
        z = image


# --- what follows from the curves, and bad input ----------------------------------------------------------------------


def test_steps_beyond_the_curve_follow_the_rate():
    model, X = nsd.DEQ("tanh", 1.3, 0.5), unit_rows(1)
    whole, cut = nsd.forecast(model, X), nsd.forecast(model, X, max_steps=30)
    assert cut.residuals.shape == (1, 30)
    assert cut.steps(1e-6) == pytest.approx(whole.steps(1e-6), abs=1.0)
    assert (np.diff([whole.steps(t)[0] for t in (1e-2, 1e-4, 1e-6)]) > 0).all()


def test_a_model_beyond_the_edge_does_not_settle():
    f = nsd.forecast(nsd.DEQ("tanh", 4.0, 0.1), unit_rows(2), width=128, max_steps=60)
    assert (f.rate > 1.05).all()
    assert not f.settles.any()
    assert np.isinf(f.steps(1e-3)).all()
    assert np.isinf(f.steps(1e-3, solver="anderson")).all()
    assert np.isinf(f.gradient.error(2)).all()
    assert np.isnan(f.errors).all()
    assert f.residuals[0, -1] > 0.05
    assert "2 of 2 samples do not settle" in f.advice
    assert f.to_dict()["steps_1e-3"] == [None, None]


def test_the_probability_of_an_equilibrium():
    X = unit_rows(2)
    assert nsd.forecast(nsd.DEQ("tanh", 0.5), X).probability is None
    f = nsd.forecast(nsd.DEQ("relu", 1.805, 0.2), X, width=256)
    assert f.probability == pytest.approx([0.75] * 2, abs=0.01)  # 180 of 240 in the table
    assert (f.probability_error > 0.02).all()
    rates = np.linspace(0.6, 1.2, 13)
    for name in ("tanh", "relu", "mish"):
        chance, error, remark = settling_probability(name, rates, 700)
        assert not remark
        assert (np.diff(chance) <= 0.02).all()
        assert chance.min() >= 0.0
        assert chance.max() <= 1.0
        assert (error > 0.0).all()
    assert (
        settling_probability("mish", rates[5:8], 200)[1].min()
        > settling_probability("tanh", rates[5:8], 200)[1].min()
    )


def test_advice_at_a_width_is_safe_for_networks_of_that_width():
    """At 1.805 the median rate is 0.988 and a quarter of the networks have no equilibrium."""
    X = unit_rows(2)
    f = nsd.forecast(nsd.DEQ("relu", 1.805, 0.2), X, width=256)
    assert (f.rate > 0.98).all()
    assert "All samples settle in the median network" in f.advice
    assert "with an equilibrium in 95 % of such networks (now 1.8" in f.advice
    safe, now = f.safe_gain()
    assert now == 1.805
    assert safe < 1.75
    safer = nsd.forecast(nsd.DEQ("relu", safe, 0.2), X, width=256)
    assert safer.rate.max() <= 0.95
    assert safer.probability.min() >= 0.95
    beyond = nsd.forecast(nsd.DEQ("relu", 1.01 * safe, 0.2), X, width=256)
    assert beyond.rate.max() > 0.95 or beyond.probability.min() < 0.95
    wide = nsd.forecast(nsd.DEQ("relu", 1.805, 0.2), X)
    assert safe < wide.safe_gain()[0] <= 1.805
    # More units allow more.
    gains = [nsd.forecast(nsd.DEQ("relu", 1.5, 0.2), X, width=m).safe_gain()[0] for m in (64, 128, 512, 2048)]
    assert (np.diff(gains) > 0.0).all()


def test_a_predicted_rate_near_the_edge_carries_a_caution():
    X, words = unit_rows(2), "narrow ones settle more slowly or not at all, which width= forecasts"
    assert words in nsd.forecast(nsd.DEQ("relu", 1.7, 0.2), X).advice
    assert words not in nsd.forecast(nsd.DEQ("relu", 1.5, 0.2), X).advice
    assert words not in nsd.forecast(nsd.DEQ("relu", 1.7, 0.2), X, width=256).advice


def test_widths_that_were_not_simulated_are_said_to_be_so():
    X = unit_rows(2)
    narrow = nsd.forecast(nsd.DEQ("tanh", 2.0, 0.2), X, width=32)
    assert narrow.probability is None
    assert "width 32: unknown, networks of less than 64 units were not simulated" in narrow.advice
    assert "probability" not in narrow.to_dict()
    wide = nsd.forecast(nsd.DEQ("softplus", 1.85, 0.2), X, width=10_000)
    assert "extrapolated, widths up to 2048 were simulated" in wide.advice
    # The error reaches to the limit, where every network of a rate below 1 has an equilibrium.
    assert (wide.probability > 0.2).all()
    assert (wide.probability < 1.0).all()
    assert (wide.probability + wide.probability_error >= 1.0).all()


@pytest.mark.parametrize(("name", "gain", "m"), [("identity", 0.85, 200), ("relu", 1.62, 512)])
def test_steps_at_a_width_are_those_of_the_median_network(name, gain, m):
    """The wide limit says a tenth to a third less."""
    x, model = np.eye(1, 10), nsd.DEQ(name, gain, 0.3)
    f, limit = nsd.forecast(model, x, width=m), nsd.forecast(model, x)
    generator, counts = np.random.default_rng(5), []
    for _ in range(150):
        A = generator.standard_normal((m, m)) * np.sqrt(gain / m)
        drive = np.sqrt(0.3) * generator.standard_normal((m, 10)) @ x[0]
        z, count, residual = np.zeros(m), 0, 1.0
        while residual > 1e-6 and count < 1000:
            image = A @ z + drive if name == "identity" else np.maximum(A @ z + drive, 0.0)
            residual = np.linalg.norm(image - z) / np.linalg.norm(image)
            z, count = image, count + 1
        counts.append(count)
    median = np.median(counts)
    assert f.steps(1e-6)[0] == pytest.approx(median, rel=0.1)
    assert limit.steps(1e-6)[0] < 0.9 * median
    assert limit.rate[0] < f.rate[0] < 1.0
    wider = nsd.forecast(model, x, width=100 * m)
    assert wider.steps(1e-6)[0] == pytest.approx(limit.steps(1e-6)[0], abs=2.0)


def test_a_loop_has_the_residuals_of_its_own_steps():
    X, deq = unit_rows(2), nsd.DEQ("tanh", 0.9, 0.5)
    whole = nsd.forecast(deq, X)
    S = normalised_adjacency(np.ones((2, 2)) - np.eye(2))
    by_hand = nsd.Explicit(["tanh"] * 6, weights=[0.5] + [0.9] * 5, inject=[0.5] * 5)
    for loop in (deq.unrolled(6), by_hand):
        f = nsd.forecast(loop, X)
        assert f.loop_steps == 6
        np.testing.assert_allclose(f.residuals, whole.residuals[:, :6])
        np.testing.assert_allclose(f.errors, whole.errors[:, :7])
        np.testing.assert_allclose(f.gradient.error(6), whole.gradient.error(6))
        assert np.isinf(f.steps(1e-6)).all()
        np.testing.assert_array_equal(f.steps(0.3), whole.steps(0.3))
        assert "The loop ends after 6 steps" in f.advice
    images = RNG.standard_normal((1, 2, 5))
    for model, samples in ((nsd.ConvDEQ("relu", 0.9, 0.5), images), (nsd.GraphDEQ(S, "relu", 0.9, 0.5), X)):
        f = nsd.forecast(model.unrolled(4), samples)
        np.testing.assert_allclose(f.residuals, nsd.forecast(model, samples).residuals[:, :4])
    grows = nsd.forecast(nsd.DEQ("relu", 2.4, 0.5).unrolled(5), X, width=256)
    assert grows.residuals.shape == (2, 5)
    assert not grows.settles.any()
    assert np.isnan(grows.errors).all()
    assert np.isinf(grows.gradient.adjoint_norm).all()


def test_bad_input_is_refused_in_words():
    model, X = nsd.DEQ("tanh", 0.5), unit_rows()
    silent = X.copy()
    silent[1] = 0.0
    with pytest.raises(InputError, match=r"norm zero, the first at index 1"):
        nsd.forecast(model, silent)
    assert nsd.forecast(nsd.DEQ("tanh", 0.5, bias2=0.1), silent).settles.all()
    with pytest.raises(InputError, match="NaN"):
        nsd.forecast(model, np.where(silent == 0.0, np.nan, silent))
    with pytest.raises(ConvergenceError, match="no stable solution"):
        nsd.forecast(nsd.DEQ("relu", 2.2, 0.5), X)
    with pytest.raises(ConvergenceError, match="no fixed point"):
        nsd.forecast(nsd.ConvDEQ("relu", 2.6, 0.5, padding="circular"), RNG.standard_normal((1, 2, 4)))
    for layers in (["relu"], ["relu", "tanh"], ["relu", "relu"]):
        with pytest.raises(InputError, match="Explicit is not a loop"):
            nsd.forecast(nsd.Explicit(layers), X)
    with pytest.raises(InputError, match="forecast takes"):
        nsd.forecast("tanh", X)
    with pytest.raises(InputError, match="2 nodes"):
        nsd.forecast(nsd.GraphDEQ(np.eye(2), "tanh", 0.5), X)
    f = nsd.forecast(model, X)
    for call in (lambda: f.steps(0.0), lambda: f.steps(1e-3, solver="newton"), lambda: f.gradient.error(0)):
        with pytest.raises(InputError):
            call()


def test_phase_diagrams_mark_models_whose_state_is_zero():
    def residual(gain, injection):
        z, x = cells.state(), cells.input()
        branch = cells.dense(cells.activation(cells.dense(z, gain), "tanh"), 0.6)
        return nsd.Equilibrium(cells.norm(z + branch + cells.dense(x, injection)))

    named = lambda a, b: nsd.DEQ("tanh", a, b)  # noqa: E731
    for make in (named, residual, lambda a, b: nsd.ConvDEQ("relu", a / 2.0, b)):
        diagram = nsd.phase_diagram(make, [0.5, 1.2], [0.0, 1.0])
        assert np.isnan(diagram.rate[0]).all()
        assert ((diagram.rate[1] > 0.0) & (diagram.rate[1] < 1.0)).all()
        assert len(diagram.plot().collections) >= 1


@pytest.mark.parametrize("label", ["sigmoid", "cos"])
def test_rows_of_zeros_where_the_activation_starts_the_state(label):
    model, X = nsd.DEQ(label, 0.5), np.array([[0.0, 0.0], [1.0, 0.0]])
    f = nsd.forecast(model, X)
    assert f.rate == pytest.approx(nsd.forecast(network(model, (2,), 1500, 1, seed=0), X).rate, rel=0.08)
    d = nsd.phase_diagram(lambda a, b: nsd.DEQ(label, a, b), [0.5], [0.0, 0.5])
    assert d.rate[:, 0] == pytest.approx(f.rate)


def test_phase_diagrams():
    d = nsd.phase_diagram(
        lambda a, b: nsd.DEQ("relu", a, b), gain=[0.5, 1.9, 2.1], injection=[0.2, 1.0], norm=3.0
    )
    np.testing.assert_allclose(d.rate, [[0.5, np.sqrt(0.95), np.inf]] * 2)
    axes = d.plot()
    assert len(axes.collections) >= 2  # colours, and the line where the rate is 1
    same = nsd.phase_diagram(lambda a, b: nsd.ConvDEQ("relu", a, b), gain=[0.5], injection=[0.2])
    assert same.rate == pytest.approx(0.5)
    for make, gain in (
        (lambda a, b: nsd.Explicit(["relu"]), [0.5]),
        (lambda a, b: nsd.DEQ("relu", -a, b), [0.5]),
    ):
        with pytest.raises(InputError):
            nsd.phase_diagram(make, gain=gain, injection=[1.0])
    with pytest.raises(InputError, match="at least one"):
        nsd.phase_diagram(lambda a, b: nsd.DEQ("relu", a, b), gain=[], injection=[1.0])


def test_the_figure_of_a_forecast():
    f = nsd.forecast(nsd.DEQ("tanh", 0.5), unit_rows() * np.array([[0.5], [1.0], [2.0]]))
    axes = f.plot()
    assert [line.get_label() for line in axes.lines] == ["residual, predicted", "error, predicted"]
    assert axes.get_yscale() == "log"
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.median(f.residuals, axis=0))
