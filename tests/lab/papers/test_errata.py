"""The errata of docs/errata.md: each printed formula fails, and the correct one holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.equivalents.coefficients import coefficients
from notsodeep.gaussian import activation
from notsodeep.kernels import tangent_kernel
from notsodeep.models import DEQ, Explicit
from notsodeep_lab.papers import errata_convergence as convergence
from notsodeep_lab.papers import errata_formulas as errata
from notsodeep_lab.papers import errata_tangent as tangent

ROOT = Path(__file__).resolve().parents[3]
QUICK = errata.Size((100, 200), 1, (100, 200))

# A printed scalar is wrong when it misses the exact kernel by this much of it, far above every tolerance.
WRONG = 0.05


def assert_decided(row: dict[str, Any]) -> None:
    """The correct scalar is the derivative of the exact kernel, the printed one is not."""
    exact = row["of the exact kernel"]
    assert_close(row["right"], exact, Oracle.FINITE_DIFFERENCE, scale=1.0)
    assert abs(row["printed"] - exact) > WRONG * abs(exact) + WRONG / 100


# --- ICML ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernel", "printed", "scalar"),
    [
        ("swish", "ck", "icml_alpha2_printed", "norm"),
        ("relu", "ntk_paper", "icml_kappa_printed", "diagonal"),
        ("tanh", "ntk_paper", "icml_beta3_printed", "trace"),
    ],
)
def test_implicit_scalars(name: str, kernel: str, printed: str, scalar: str) -> None:
    assert_decided(errata.scalar_row(errata.deq(name)(1.0), kernel, getattr(errata, printed), scalar, scalar))


@pytest.mark.parametrize(
    ("reading", "scalar"),
    [
        ("as printed", "norm"),
        ("as printed", "trace"),
        ("α̃₄ for α̃₄² in α̃₂", "norm"),
        ("α̃₁ for α̃₁² in α̃₃", "trace"),
        ("E[(σ²)''] for ½E[(σ²)''] in α̃₄", "norm"),
    ],
)
def test_each_slip_in_the_explicit_recursion(reading: str, scalar: str) -> None:
    formula = errata.EXPLICIT_READINGS[reading]
    assert_decided(errata.scalar_row(errata.two_relu_layers(1.0), "ck", formula, scalar, scalar))


def test_leaky_relu_layers_are_centred_at_the_scale_of_their_input() -> None:
    means, errors = errata.icml_centring(errata.Size((50, 100), 1, ()))
    for row in means:
        assert_close(row["E[σ] right"], 0.0, Oracle.CLOSED_FORM, scale=1.0)
        assert row["E[σ] printed"] > WRONG
    assert errors[0]["exponent"] > 0.5 > 0.0 > errors[1]["exponent"]


def test_the_printed_equivalent_stalls_where_ours_falls() -> None:
    readings = {name: errata.EXPLICIT_READINGS[name] for name in ("as printed", "right")}
    distances = {
        name: errata.to_equivalent(errata.two_relu_layers, "ck", formula)
        for name, formula in readings.items()
    }
    printed, right = errata.norm_rows(errata.Size((100, 400), 1, ()), "", distances)
    assert printed["n = 400"] > 0.9 * printed["n = 100"]
    assert right["n = 400"] < 0.7 * right["n = 100"] < 0.1 * printed["n = 400"]


# --- ICLR ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["ck_preactivations", "ntk_preactivations"])
def test_the_identity_has_no_fourth_power(kernel: str) -> None:
    sample = errata.MixtureDraw.draw(300, seed=0)
    tau0 = sample.statistics.tau0
    model = errata.deq("relu")(tau0)
    formulas = {"printed": errata.with_fourth_power(kernel), "right": errata.right(kernel)}
    exact = sample.exact(model, kernel)
    missing = {
        name: np.trace(exact - sample.equivalent(formula(model, tau0))) / 300
        for name, formula in formulas.items()
    }
    term = tau0**4 * coefficients(model, tau0, kernel).trace
    assert abs(missing["right"]) < 0.1 * term
    assert abs(missing["printed"] - term) < 0.1 * term


@pytest.mark.parametrize(("name", "sigma_a2"), [("tanh", 0.1), ("relu", 0.5), ("swish", 0.1), ("cos", 0.5)])
def test_two_quadratic_layers_cannot_match(name: str, sigma_a2: float) -> None:
    assert errata.quadratic_ratio(DEQ(name, sigma_a2).centred(1.3), 1.3) < 2.0


@pytest.mark.parametrize("seed", range(2))
def test_the_ratio_of_two_quadratic_layers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tau0, slopes, curvatures = 1.3, rng.normal(size=2), rng.normal(size=2)
    layers = [
        activation("polynomial", coefficients=[0.0, slope, curvature])
        for slope, curvature in zip(slopes, curvatures, strict=True)
    ]
    quotient = 2.0 * curvatures[0] ** 2 * tau0**2 / slopes[0] ** 2
    found = errata.quadratic_ratio(Explicit(layers).centred(tau0), tau0)
    assert_close(found, 4.0 * (1.0 + quotient) / (2.0 + quotient), Oracle.QUADRATURE)
    assert 2.0 <= found < 4.0


def test_the_variance_of_leaky_relu() -> None:
    rows = errata.energies()
    assert_close([row["right, 2ab"] for row in rows], [row["E[σ²]"] for row in rows], Oracle.CLOSED_FORM)
    assert abs(rows[0]["printed, ab"] - rows[0]["E[σ²]"]) > WRONG


def test_one_leaky_relu_layer_misses_one_scalar_and_two_miss_none() -> None:
    missed = {}
    for name, recipe in errata.RECIPES.items():
        target = recipe.target(1.3).as_array()
        missed[name] = np.abs(coefficients(recipe.network(1.3), 1.3).as_array() / target - 1.0) > 1e-8
    assert missed["Λ, one layer, printed equations"].all()
    assert missed["Λ, one layer, right equations"].tolist() == [False, False, False, True]
    assert missed["G, one layer, right equations"].tolist() == [False, False, False, True]
    assert not missed["G, two layers (7.6)"].any()


def test_the_input_needs_no_width() -> None:
    for row in errata.input_scale(errata.Size((), 0, (200, 800)))[0]:
        assert abs(row["right"] - 1.0) < 0.25
        assert_close(row["printed"] * row["width m"], row["right"], Oracle.IDENTITY)


# --- the tangent kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [-0.7, 0.0, 0.4])
def test_the_last_factor_of_the_double_sum(c: float) -> None:
    pair = np.array([[1.0, 0.0], [c, np.sqrt(1.0 - c**2)]])
    exact = tangent_kernel(DEQ(tangent.NORMALISED_RELU, 0.2), pair, of="preactivations")[0, 1]
    assert_close(tangent.double_sum(c, 0.2, 60, last_factor=False), exact, Oracle.QUADRATURE)
    assert abs(tangent.double_sum(c, 0.2, 60, last_factor=True)) < 0.25 * abs(exact)


@pytest.mark.slow
def test_which_kernel_is_the_tangent_kernel_of_the_network() -> None:
    network, *others = tangent.tangent_reading(errata.Size((), 0, (200,)))[0]
    values = [[value for value in row.values() if isinstance(value, float)] for row in (network, *others)]
    assert max(values[0]) < 0.1
    assert min(min(row) for row in values[1:]) > 0.25


def test_the_slope_on_the_sphere_is_positive() -> None:
    for row in tangent.hld_slope(QUICK)[0]:
        assert_decided(row)
        assert row["printed"] < 0.0 < row["right"]


# --- AISTATS -------------------------------------------------------------------------------------------


def test_the_gradient_of_lemma_2() -> None:
    column = "relative error of ∇_W Φ"
    printed, transposed, right = (row[column] for row in convergence.aistats_lemma2(QUICK)[0])
    assert printed is None
    assert right < 1e-7 < 0.1 < transposed


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_cosines_of_lemma_3(depth: int) -> None:
    row = convergence.cosines(-0.6, 0.12, depth)
    exact = row["of the exact kernel"]
    assert_close(row["right"], exact, Oracle.QUADRATURE)
    assert abs(row["printed, K_ij below"] - exact) > 0.01
    before = convergence.cosines(-0.6, 0.12, depth - 1)["right"]
    assert_close(row["printed, ρ^(l-1)"], before, Oracle.IDENTITY)
    assert abs(before - exact) > 1e-6


def test_width_does_not_meet_the_third_inequality() -> None:
    assumed, smaller = convergence.INITIALISATIONS.values()
    assert assumed.third_inequality(100) < assumed.limit() < 0.01
    assert smaller.third_inequality(400) > 1.0


# --- the document --------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.0, 2.5, 25.0])
def test_the_printed_step_needs_twice_the_third_inequality(factor: float) -> None:
    # λ_0 ≤ ||Z||₂² ≤ c_a² ||X||_F²: the readout's part is at least λ_0.
    proved, _ = convergence.one_step(1.0, 4.0 * factor)
    assert proved == pytest.approx(1.0)
    for surplus in (1.0, 1.5, 1.9):
        proved, printed = convergence.one_step(surplus, 4.0 * surplus * factor)
        assert proved > printed + 1e-6
    for surplus in (2.0, 3.0, 10.0):
        proved, printed = convergence.one_step(surplus, 4.0 * surplus * factor)
        assert proved <= printed + 1e-12


def test_the_document_has_a_table_for_every_erratum() -> None:
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    marks = re.findall(r"<!-- numbers: ((\S+)/\d) -->", text)
    assert {kind for _, kind in marks} == set(errata.MEASURES | tangent.MEASURES | convergence.MEASURES)
    for mark, _ in marks:
        start, end = f"<!-- numbers: {mark} -->", f"<!-- end: {mark} -->"
        assert text.count(start) == text.count(end) == 1
        assert "|---|" in text.split(start)[1].split(end)[0]
