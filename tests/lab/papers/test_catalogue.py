"""Every experiment at a tiny size: reproducible rows, legible figures, and the right numbers by another route."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from scipy import integrate, stats
from scipy.optimize import brentq
from tolerances import Oracle, assert_close

from notsodeep.convergence import PaperNetwork
from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing, UnitSphere, load
from notsodeep.equivalents import coefficients, equivalent
from notsodeep.errors import InputError
from notsodeep.figures.style import PAGE, SMALLEST
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet
from notsodeep_lab import papers
from notsodeep_lab.papers import EXPERIMENTS, Experiment, Row, Spec
from notsodeep_lab.papers.drawings import DRAWINGS, draw
from notsodeep_lab.papers.measures import (
    mixture_sample,
    printed_leaky_layer_for,
)
from notsodeep_lab.papers.random_network_rows import average_kernels
from notsodeep_lab.papers.row_statistics import accuracy_gap, exponent
from notsodeep_lab.papers.training_rows import regression
from notsodeep_lab.plots.row_selection import chosen

# Whatever test comes first computes the rows that all of them share.
pytestmark = pytest.mark.slow

_TINY: dict[str, tuple[Any, ...]] = {
    "aistats-1": (("sphere", "digits"), 12, 10, 0.08, (16, 32), 1, 6, 2),
    "hld-1": (0.2, 40, 1.2, (20, 40), 2, 60, 3),
    "iclr-1": (0.1, 40, 50, 2, "digits", 40, 60, 4, 4),
    "iclr-2": (0.1, 40, 50, 2, "digits", 40, 60, 4, 4),
    "iclr-3": (0.2, ("relu",), 2, ("digits",), (8, 32), 3, 64, 300, "leaky"),
    "icml-error": (0.2, ("relu", "tanh"), 2, 0.8, ("features", "ntk"), (30, 60)),
    "icml-matching": (0.2, ("tanh", "relu"), 2, 40, 50, "digits", 40),
    "icml-accuracy": (0.2, ("tanh", "relu"), 2, ("digits",), (8, 32), 3, 64, 300, "ck"),
    "spectrum": (0.2, ("tanh",), 2, ("features",), ("asymptotic", "refined"), 120, (0.8, 1.25)),
    "width": (0.2, ("relu",), 2, "digits", 30, (40, 80), 40, (1, 4)),
    "learning-curves": (
        0.2,
        ("relu",),
        2,
        "digits",
        60,
        (30, 60),
        100,
        (32,),
        0.1,
        60,
        (0.5, 1.0, 2.0),
        1e-3,
    ),
    "loops": ("tanh", (0.5,), ("digits",), 40, 0.05, (2,), (1, 2, 4), (64,), 1),
    "neural-odes": (("tanh",), (30, 60), (4.0,), (2,), ("digits",), 20, 60, 16, 1, 1),
    "features": (0.4, ("tanh",), 1, 0.25, (0.2,), 4, (3,), (12,), 6, 6, 4, 10, 40),
    "errata": (60, 50),
}
TINY: dict[str, Spec] = {name: EXPERIMENTS[name].spec_type(*values) for name, values in _TINY.items()}


def run(name: str) -> list[Row]:
    experiment, spec = EXPERIMENTS[name], TINY[name]
    return [row for task in experiment.tasks(spec) for row in experiment.run(spec, task, None)]


rows_of: Callable[[str], list[Row]] = cache(run)

every = pytest.mark.parametrize("name", TINY)


def untimed(row: Row) -> Row:
    """A row without its times."""
    return {field: value for field, value in row.items() if not field.endswith("seconds")}


def sixth_digit(values: Any) -> Any:
    """Equal up to rounding to six significant digits."""
    return pytest.approx(values, rel=1e-5, abs=1e-9)


# --- all of them --------------------------------------------------------------------------------------


def test_the_catalogue_has_the_experiments_in_their_order() -> None:
    # Other tests take experiments out and put them back, in another order.
    assert [kind.name for kind in papers._KINDS] == list(TINY)


@every
def test_rows_do_not_depend_on_the_order_of_tasks(name: str) -> None:
    rows = rows_of(name)
    assert all(row["kind"] for row in rows)
    json.dumps(rows, allow_nan=False)
    experiment, spec = EXPERIMENTS[name], TINY[name]
    again: list[Row] = []
    for task in reversed(experiment.tasks(spec)):
        again = experiment.run(spec, task, None) + again
    assert [untimed(row) for row in again] == [untimed(row) for row in rows]


@every
def test_settings_and_expectations(name: str) -> None:
    experiment: Experiment[Any] = EXPERIMENTS[name]
    assert (experiment.name, bool(experiment.summary), bool(experiment.paper)) == (name, True, True)
    assert 0.0 < experiment.minutes["quick"] <= experiment.minutes["full"]
    assert experiment.spec("quick").hash() != experiment.spec("full").hash()
    for size in ("quick", "full"):
        spec = experiment.spec(size)
        keys = [task.key for task in experiment.tasks(spec)]
        assert len(set(keys)) == len(keys) > 0
        assert all(task.cost > 0 for task in experiment.tasks(spec))
        assert experiment.spec_type.from_toml(spec.to_toml()) == spec
        assert (experiment.spec(size, 7) != spec) == ("seeds" in spec.values())
        assert set(experiment.data_needed(spec)) == (set(experiment.needs) if size == "full" else set())
    expectations = experiment.expectations(TINY[name], rows_of(name))
    assert expectations
    for one in expectations:
        assert type(one.verdict) in (bool, type(None))
        assert one.ours is not None
        assert one.what
        assert one.verdict is None or one.remark
    assert experiment.expectations(TINY[name], []) == []


@every
def test_settings_decide_models_and_repetitions(name: str) -> None:
    experiment, spec = EXPERIMENTS[name], TINY[name]
    assert experiment.models(spec)
    if name != "errata":  # its variances are those of docs/errata.md, not settings
        others = {
            "aistats-1": {"sigma_w2": 0.05},
            "loops": {"rates": (0.3,)},
            "neural-odes": {"strengths": (2.0,)},
        }
        changed = replace(spec, **others.get(name, {"sigma_a2": 0.05}))
        assert experiment.fingerprint(changed) != experiment.fingerprint(spec)
    if name in ("learning-curves", "errata"):  # they run their seeds inside one task, or have none
        return
    few, many = (experiment.tasks(replace(spec, seeds=k)) for k in (1, 3))
    assert len(many) > len(few)


@pytest.mark.parametrize("name", list(DRAWINGS))
def test_a_figure_is_legible_in_a_paper(name: str) -> None:
    figure = draw(name, rows_of(name))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert figure.get_figwidth() <= PAGE
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= SMALLEST
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()))]
    explained = {text.get_text() for legend in legends for text in legend.get_texts()}
    for axes in figure.axes:
        assert axes.has_data()
        assert set(axes.get_legend_handles_labels()[1]) <= explained
        assert axes.get_xlabel() or any(label.get_text() for label in axes.get_xticklabels())
        assert axes.get_ylabel()
        assert axes.get_title()
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            box = text.get_window_extent(canvas.get_renderer())
            assert -1.0 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1.0, f"{text.get_text()} leaves the figure"
    with pytest.raises(InputError, match="Nothing to draw"):
        draw(name, [{"kind": "something else"}])


def test_fitted_exponents() -> None:
    rows = [{"n": n, "relative": 3.0 * n**-0.5} for n in (10, 20, 40)]
    fitted = exponent(rows, "n")
    assert fitted is not None
    assert_close(fitted.slope, -0.5, Oracle.CLOSED_FORM)
    assert fitted.error < 1e-12
    assert exponent(rows[:1], "n") is None
    noisy = [
        {**row, "relative": row["relative"] * factor} for row, factor in zip(rows, (1, 2, 1), strict=True)
    ]
    line = stats.linregress(np.log([10, 20, 40]), np.log([row["relative"] for row in noisy]))
    fitted = exponent(noisy, "n")
    assert fitted is not None
    assert_close([fitted.slope, fitted.error], [line.slope, line.stderr], Oracle.CLOSED_FORM)


def test_differences_in_accuracy() -> None:
    deq, twin = [0.90, 0.92], [0.89, 0.93]
    rows = [{"model": "deq", "accuracy": value} for value in deq]
    rows += [{"model": "twin", "accuracy": value} for value in twin]
    gap = accuracy_gap(rows, "twin")
    assert_close(gap.value, 0.0, Oracle.IDENTITY, scale=1.0)
    assert_close(gap.error, np.sqrt((np.var(deq, ddof=1) + np.var(twin, ddof=1)) / 2), Oracle.IDENTITY)
    assert accuracy_gap(rows[:1] + rows[2:3], "twin").error == 0.0


# --- kernels ------------------------------------------------------------------------------------------


def norm(matrix: Any) -> float:
    return float(np.linalg.norm(matrix, 2))


def digits_sample(n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    read = load("digits", classes=(6, 8), n=n)
    return Preprocessing.fit(read.X).apply(read.X), read.y


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_errors_of_the_asymptotic_equivalent(name: str) -> None:
    fields = {"kernel": "features", "form": "asymptotic", "activation": name, "n": 60, "seed": 0}
    (row,) = chosen(rows_of("icml-error"), data="mixture", **fields)
    mixture = GaussianMixture.paper(48)
    X, y = mixture.sample(60, 0)
    model = DEQ(name, 0.2).centred(MixtureStatistics.of(mixture, X, y).tau0)
    G = conjugate_kernel(model, X)
    expected = norm(G - equivalent(model, X, MixtureStatistics.of(mixture, X, y)).to_dense())
    assert row["p"] == 48
    assert row["absolute"] == pytest.approx(expected, rel=1e-5)
    assert row["norm"] == pytest.approx(norm(G), rel=1e-5)
    assert row["relative"] == pytest.approx(expected / norm(G), rel=1e-5)


def test_spectra_of_the_first_figure() -> None:
    rows = rows_of("iclr-1")
    X, y = digits_sample(40)
    statistics = MixtureStatistics.estimate(X, y)
    exact = conjugate_kernel(DEQ("tanh", 0.1).centred(statistics.tau0), X, of="preactivations")
    (row,) = chosen(rows, kind="spectrum", data="digits", source="deq")
    assert row["eigenvalues"] == sixth_digit(np.linalg.eigvalsh(exact).tolist())
    for data in ("mixture", "digits"):
        own = chosen(rows, kind="distance", data=data, seed=0, first="deq", second="equivalent")
        distances = {one["reading"]: one["absolute"] for one in own}
        # Λ − Λ̄ = σ_a² (G − Ḡ).
        assert distances["Λ, asymptotic"] == pytest.approx(0.1 * distances["G, asymptotic"], rel=1e-5)
        assert [one["main"] for one in own].count(True) == 1


def test_random_networks_tend_to_the_exact_kernel() -> None:
    sample = mixture_sample(30, 40, 0)
    model = DEQ("arctan", 0.1).centred(sample.tau0)
    G, Λ = (conjugate_kernel(model, sample.X, of=of) for of in ("features", "preactivations"))
    noise = {}
    for draws in (4, 64):
        found = average_kernels(model, sample.X, width=100, draws=draws, seed=0)
        noise[draws] = [norm(mean - limit) / norm(limit) for mean, limit in zip(found, (G, Λ), strict=True)]
    # Four times less with sixteen times the networks, within a factor of two for chance; a bias of order 1/m aside.
    assert 2.0 < noise[4][0] / noise[64][0] < 8.0
    assert 2.0 < noise[4][1] / noise[64][1] < 8.0
    assert max(noise[64]) < 0.05


def test_one_leaky_layer_as_printed() -> None:
    model = DEQ("relu", 0.1).centred(1.1)
    target = coefficients(model, 1.1, "ck_preactivations")
    slopes = dict(printed_leaky_layer_for(model, 1.1).layers[0].parameters)
    a, b = slopes["a"], slopes["b"]
    assert_close((a - b) ** 2, 4 * target.linear**2, Oracle.CLOSED_FORM)
    left = ((np.pi - 1) * (a**2 + b**2) + a * b) / (2 * np.pi) * 1.1**2 - (a + b) ** 2 / 4 * 1.1**2
    assert_close(left, target.diagonal - target.linear * 1.1**2, Oracle.QUADRATURE)


@pytest.mark.parametrize(("name", "stated"), [("iclr-1", 0.12), ("iclr-2", 0.23)])
def test_a_number_of_the_paper_is_compared_at_the_settings_of_the_paper_only(
    name: str, stated: float
) -> None:
    experiment = EXPERIMENTS[name]
    spec = experiment.spec("full")
    rows = experiment.run(spec, experiment.tasks(spec)[0], None)
    assert [row["paper"] for row in chosen(rows, main=True)] == [stated]
    assert not any("paper" in row for row in rows if not row.get("main"))
    assert not any("paper" in row for row in rows_of(name))
    marked = [{**row, "paper": stated} for row in rows_of(name) if row["data"] == "mixture"]
    assert next(one.paper for one in experiment.expectations(TINY[name], marked)) == stated


@pytest.mark.parametrize("name", ["iclr-2", "icml-matching"])
def test_twins_are_closer_than_plain_networks(name: str) -> None:
    rows = rows_of(name)
    for twin in chosen(rows, kind="distance", second="twin", main=True, seed=0):
        same = {"data": twin["data"], "activation": twin.get("activation")}
        spectra = {row["source"]: row["eigenvalues"] for row in chosen(rows, kind="spectrum", **same)}
        apart = np.abs(np.subtract(spectra["deq"], spectra["twin"])).max()
        assert twin["spectra_apart"] == pytest.approx(apart / max(spectra["deq"]), rel=1e-2, abs=1e-5)
        # Weyl: eigenvalues move by no more than the norm of the difference.
        assert twin["spectra_apart"] <= twin["relative"] * (1 + 1e-5)
        assert twin["relative_up_to_factor"] <= 2 * twin["relative"]
        (other,) = [
            row
            for row in chosen(rows, kind="distance", seed=0, data=twin["data"])
            if row["second"] in ("plain", "printed") and row.get("activation") == twin.get("activation")
        ]
        assert twin["relative"] < other["relative"]


def test_kernels_on_the_sphere() -> None:
    """Λ by bisection, pair by pair, and the quadratic layer by the moments of a polynomial."""

    def f(x: float) -> float:
        return float((np.sqrt(1 - x * x) + (np.pi - np.arccos(x)) * x) / np.pi)

    X = UnitSphere(48).sample(40, 0)
    Λ = np.eye(40)
    for i, j in zip(*np.triu_indices(40, 1), strict=True):
        c = float(X[i] @ X[j])
        root = brentq(lambda x, c=c: x - 0.2 * f(x) - 0.8 * c, -1.0, 1.0, xtol=1e-15)
        Λ[i, j] = Λ[j, i] = root
    rows = rows_of("hld-1")
    (spectrum,) = chosen(rows, kind="spectrum", kernel="preactivations", source="deq")
    assert spectrum["eigenvalues"] == sixth_digit(np.linalg.eigvalsh(Λ).tolist())
    (entries,) = chosen(rows, kind="entries", kernel="preactivations")
    a0, a1, a2 = entries["coefficients"]
    c = X @ X.T
    Σ = (a0 + a2) ** 2 + a1**2 * c + 2 * a2**2 * c**2
    pairs = np.stack([Λ.ravel(), Σ.ravel()])
    drawn = np.stack([entries["deq"], entries["approximation"]])
    assert np.abs(drawn[:, :, None] - pairs[:, None]).max(axis=0).min(axis=1).max() < 1e-5
    fields = {"kind": "distance", "kernel": "preactivations", "second": "twin", "n": 40, "seed": 0}
    (row,) = chosen(rows, **fields)
    assert row["absolute"] == pytest.approx(norm(Λ - Σ), rel=1e-5)


def test_predicted_spectra() -> None:
    rows = rows_of("spectrum")
    for row in chosen(rows, kind="prediction", seed=0):
        (spectrum,) = chosen(rows, kind="spectrum", p=row["p"])
        assert set(row["isolated_exact"]) <= set(spectrum["eigenvalues"])
        assert len(row["isolated_exact"]) == len(row["isolated"])
        mass = integrate.trapezoid(row["density"], row["grid"]) + sum(mass for _, mass in row["atoms"])
        assert mass == pytest.approx(1.0, abs=0.02)
    errors = {form: chosen(rows, kind="prediction", form=form, p=96)[0] for form in ("asymptotic", "refined")}
    assert errors["refined"]["kolmogorov"] < errors["asymptotic"]["kolmogorov"]


# --- networks -----------------------------------------------------------------------------------------


def test_kernels_of_one_network() -> None:
    """The features of the same weights by plain iteration in NumPy."""
    X, _ = digits_sample(30)
    tau0 = float(np.sqrt(np.mean(np.sum(X**2, axis=1))))
    model = DEQ("relu", 0.2).centred(tau0)
    net = DEQNet(model, X.shape[1], 40, 1, train="readout", seed=1, scaling="ntk", dtype=torch.float64)
    A, B = (weights.detach().numpy() for weights in (net.recurrent, net.inputs))
    z = np.zeros((30, 40))
    for _ in range(200):
        z = model.activation(np.sqrt(0.2) * z @ A.T + np.sqrt(0.8) * X @ B.T) / np.sqrt(40)
    exact = conjugate_kernel(model, X)
    (row,) = chosen(rows_of("width"), kind="width", model="deq", kernel="features", width=40, seed=1)
    assert row["absolute"] == pytest.approx(norm(z @ z.T - exact), rel=1e-5)
    assert row["relative"] == pytest.approx(norm(z @ z.T - exact) / norm(exact), rel=1e-5)


@pytest.mark.parametrize("name", ["iclr-3", "icml-accuracy"])
def test_accuracy_and_agreement_fit_together(name: str) -> None:
    rows = [row for row in rows_of(name) if row["kind"] == "accuracy"]
    for row in rows:
        assert 0.1 < row["accuracy"] <= 1.0
        if row["model"] == "deq":
            continue
        same = {key: row[key] for key in ("activation", "width", "seed")} | {"mode": row.get("mode")}
        (deq,) = chosen(rows, model="deq", **same)
        # Where two networks agree they are right together.
        assert abs(row["accuracy"] - deq["accuracy"]) <= 1.0 - row["agreement"] + 1e-12


# --- gradient descent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["sphere", "digits"])
def test_first_loss_and_norm(data: str) -> None:
    problem = regression(data, 12, 10, None)
    if data == "digits":
        assert sorted(problem.y.tolist()) == [-1.0] * 6 + [1.0] * 6
    assert_close(np.sum(problem.X**2, axis=1), np.full(12, float(problem.X.shape[1])), Oracle.IDENTITY)
    network = PaperNetwork.draw(16, problem.X.shape[1], 0.08, seed=0)
    W, U, a = (tensor.numpy() for tensor in (network.recurrent, network.inputs, network.readout))
    Z = np.zeros((12, 16))
    for _ in range(300):
        Z = np.maximum(Z @ W.T + problem.X @ U.T, 0.0)
    expected = 0.5 * np.sum((Z @ a - problem.y) ** 2)
    for row in chosen(rows_of("aistats-1"), data=data, width=16):
        assert row["first_loss"] == pytest.approx(expected, rel=1e-4)
        assert row["norms"][0] == pytest.approx(norm(W), rel=1e-4)
        assert row["least"][0] == pytest.approx(np.linalg.eigvalsh(Z @ Z.T)[0] / 16, abs=1e-5)
        assert row["steps"] == [0, 2, 4, 6]
        assert row["losses"][-1] < row["losses"][0]


def test_the_common_step_is_that_of_the_widest() -> None:
    rows = rows_of("aistats-1")
    for data in ("sphere", "digits"):
        common, own = (
            {row["width"]: row for row in chosen(rows, data=data, rate=rate)} for rate in ("common", "own")
        )
        assert common[32] == {**own[32], "rate": "common"}
        # The widest network finds its step in single precision.
        assert common[16]["lr"] == pytest.approx(common[32]["lr"], rel=1e-5)
        assert common[16]["lr"] != pytest.approx(own[16]["lr"], rel=1e-2)


@pytest.mark.parametrize(("width", "holds"), [(50, None), (100, False)])
def test_a_narrow_network_that_learns_is_no_claim(width: int, holds: bool | None) -> None:
    names = ("lazy_kernel_error", "sampling_error", "alignment", "theory_alignment", "lazy_alignment")
    numbers = dict.fromkeys((*names, "test_error", "lazy_test_error"), 0.1)
    where = {"kind": "posterior", "n": 4, "width": width, "richness": 0.3}
    experiment = EXPERIMENTS["features"]
    (claim,) = experiment.expectations(experiment.quick, [{**where, **numbers, "kernel_error": 0.06}])
    assert claim.verdict is holds
    assert "from width 100 on" in claim.remark
