"""Equivalents against exact kernels, against the formulas of docs/theory.md, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.data import GaussianMixture, MixtureStatistics, UnitSphere
from notsodeep.equivalents import coefficients, equivalence_error, equivalent
from notsodeep.errors import InputError
from notsodeep.gaussian.moments import mehler
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, Explicit

# A sketch with all eigenvectors is exact.
EXACT = {"square": "sketch", "rank": 10**6}
IMPLICIT = ("ck", "ntk", "ntk_paper", "ck_preactivations", "ntk_preactivations")


def paper_mixture(n, seed):
    mixture = GaussianMixture.paper(int(0.8 * n))
    X, y = mixture.sample(n, seed=seed)
    return X, MixtureStatistics.of(mixture, X, y)


@pytest.fixture(scope="module", name="sample")
def _sample():
    return paper_mixture(200, seed=3)


def errors(name, n, seeds, **options):
    found = []
    for seed in seeds:
        X, stats = paper_mixture(n, seed)
        found.append(equivalence_error(DEQ(name, 0.2).centred(stats.tau0), X, stats, **options))
    return np.array(found)


# --- the numbers of docs/theory.md, sections 4 and 5 -------------------------------------------------------


@pytest.mark.slow
def test_errors_are_those_of_the_theory():
    """Asymptotic, and refined ones to the digits printed, of ReLU with exact powers."""
    cases = [("tanh", 500), ("tanh", 1000), ("relu", 500)]
    plain = [errors(name, n, range(3)).mean() for name, n in cases]
    tanh = [errors("tanh", n, range(3), form="refined").mean() for n in (500, 1000)]
    relu = errors("relu", 500, range(3), form="refined", **EXACT).mean()
    np.testing.assert_allclose(plain, [0.159, 0.105, 0.095], rtol=0.06)
    np.testing.assert_allclose(tanh, [0.0017, 0.0006], rtol=0.1)
    assert relu == pytest.approx(0.0004, rel=0.2)


# --- the refined form against its formulas -----------------------------------------------------------------


def test_refined_form_is_the_formula_of_the_theory(sample):
    """Docs/theory.md (5.1)–(5.3), entry by entry, for odd φ, where M_0 = 0 at every variance."""
    X, _ = sample
    model = DEQ("tanh", 0.3)
    q = np.diagonal(exact_kernel(model, X, kernel="ck_preactivations"))
    # M_k(q_i) M_k(q_j)/k! from the coefficients of the Mehler series, (2.6).
    scaled = mehler(model.activation, q, 4) / np.sqrt(q)[:, None] ** np.arange(4)
    slope, curved, cubic = (np.outer(scaled[:, k], scaled[:, k]) for k in (1, 2, 3))
    epsilon = 1 / (1 - 0.3 * slope)
    linear = 0.7 * (X @ X.T) * epsilon
    orders = [
        slope * linear,
        epsilon * curved * linear**2,
        epsilon * (cubic + 0.6 * epsilon * curved**2) * linear**3,
    ]
    away = ~np.eye(len(X), dtype=bool)
    for order in (1, 2, 3):
        found = equivalent(model, X, form="refined", order=order, **EXACT, tolerance=1e-12).to_dense()
        assert_close(found[away], sum(orders[:order])[away], Oracle.QUADRATURE)


@pytest.mark.parametrize("name", ["relu", "swish"])
def test_tangent_readings_have_the_closed_forms(name):
    """Θ, Π and K to order 3 in L, on a sphere, where a centred φ has M_0 = 0 for all samples together."""
    X = UnitSphere(30).sample(25, seed=0)
    sigma = 0.25
    model = DEQ(name, sigma).centred(1.0)
    q = model.preactivation_variance(1.0)
    slope, curved, cubic = mehler(model.activation, q, 4)[0, 1:] ** 2 / q ** np.arange(1, 4)
    epsilon = 1 / (1 - sigma * slope)
    linear = (1 - sigma) * epsilon * (X @ X.T)
    third = 4 * cubic + 10 * sigma * epsilon * curved**2
    expected = {
        "ck": [slope, epsilon * curved, epsilon * (cubic + 2 * sigma * epsilon * curved**2)],
        "ntk": [(1 + epsilon) * slope, 3 * epsilon**2 * curved, epsilon**2 * third],
        "ntk_preactivations": [epsilon, 3 * sigma * epsilon**2 * curved, sigma * epsilon**2 * third],
        "ntk_paper": [epsilon * slope, epsilon * (3 * epsilon - 2) * curved],
    }
    away = ~np.eye(len(X), dtype=bool)
    for kernel, scalars in expected.items():
        found = equivalent(model, X, None, kernel, "refined", order=len(scalars), **EXACT).to_dense()
        series = sum(a * linear**k for k, a in enumerate(scalars, start=1))
        assert_close(found[away], series[away], Oracle.QUADRATURE)


MODELS = {
    "odd": DEQ("tanh", 0.2),
    "not centred": DEQ("softplus", 0.2),
    "with a bias": DEQ("swish", 0.2, bias2=0.3),
    "explicit": Explicit(["swish", "tanh"]),
    "explicit, not centred": Explicit(["softplus", "relu"]),
}
CASES = [(name, k) for name, m in MODELS.items() for k in (IMPLICIT if isinstance(m, DEQ) else ("ck", "ntk"))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_each_order_is_closer_and_the_diagonal_exact(name, kernel, sample):
    """The error of order N is of order N + 1 in the inner products, for any model, centred or not."""
    X, stats = sample
    model = MODELS[name]
    exact, options = exact_kernel(model, X, kernel=kernel), {**EXACT, "tolerance": 1e-10}
    operators = [equivalent(model, X, None, kernel, "refined", order=k, **options) for k in (1, 2, 3)]
    apart = [np.abs(operator.to_dense() - exact).max() for operator in operators]
    assert apart[1] <= 1.001 * apart[0]
    assert apart[2] < 0.3 * apart[0]
    mixture = equivalent(model, X, stats, kernel, "refined", order=3)
    for operator in (*operators, mixture):
        assert_close(operator.diagonal(), np.diagonal(exact), Oracle.QUADRATURE)


def test_asymptotic_form_is_the_formula_of_the_theory(sample):
    X, stats = sample
    model = DEQ("relu", 0.2).centred(stats.tau0)
    scalars = coefficients(model, stats.tau0)
    V = np.column_stack([stats.one_hot / np.sqrt(stats.p), stats.psi])
    block = scalars.norm * np.outer(stats.t, stats.t) + scalars.trace * stats.T
    core = np.block(
        [[block, scalars.norm * stats.t[:, None]], [scalars.norm * stats.t, np.array(scalars.norm)]]
    )
    expected = scalars.linear * X @ X.T + V @ core @ V.T
    expected += (scalars.diagonal - stats.tau0**2 * scalars.linear) * np.eye(len(X))
    operator = equivalent(model, X, stats)
    assert_close(operator.to_dense(), expected, Oracle.IDENTITY)


# --- how powers are represented ----------------------------------------------------------------------------


def test_a_sketch_finds_the_best_of_its_rank_and_is_repeatable(sample):
    """What is left has the norm of the first eigenvalue left out, up to a margin of the random start."""
    X, _ = sample
    model, rank = DEQ("relu", 0.2).centred(1.0), 20
    linear, exact, *sketches = (
        equivalent(model, X, form="refined", **options).to_dense()
        for options in ({"order": 1}, EXACT, *[{"square": "sketch", "rank": rank}] * 2)
    )
    np.testing.assert_array_equal(*sketches)
    left = sketches[0] - exact
    best = np.sort(np.abs(np.linalg.eigvalsh(exact - linear)))[::-1][rank]
    assert np.linalg.norm(left - np.diag(left.diagonal()), 2) < 1.6 * best


def test_starting_at_the_mean_correlation_serves_data_that_are_not_centred():
    rng = np.random.default_rng(0)
    X = np.abs(rng.standard_normal((150, 100))) / 10
    model = DEQ("swish", 0.2)
    at_zero, at_mean = (
        equivalence_error(model, X, form="refined", **EXACT, around=around) for around in (0.0, "mean")
    )
    assert at_mean < 0.1 * at_zero


@pytest.mark.slow
def test_rows_of_zeros_and_of_any_length_are_taken():
    X = np.random.default_rng(0).standard_normal((60, 40)) / np.sqrt(40)
    X[3] = 0.0
    X[4] *= 1e-3
    X[5] *= 3.0
    for model in (DEQ("tanh", 0.2), DEQ("swish", 0.2)):
        assert equivalence_error(model, X, form="refined", order=3, **EXACT) < 0.01


def test_distance_is_the_operator_norm(sample):
    X, stats = sample
    model = DEQ("tanh", 0.2)
    exact, operator = exact_kernel(model, X), equivalent(model, X, stats)
    expected = np.linalg.norm(exact - operator.to_dense(), 2) / np.linalg.norm(exact, 2)
    assert equivalence_error(model, X, stats, tolerance=1e-6) == pytest.approx(expected, rel=1e-5)
    assert equivalence_error(model, X, stats) == pytest.approx(expected, rel=1e-3)


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stats": None}, "form='refined'"),
        ({"stats": "labels"}, "MixtureStatistics, not str"),
        ({"X": np.ones((3, 4))}, "same X"),
        ({"X": np.full((200, 160), np.nan)}, "NaN"),
        ({"form": "exact"}, "form='exact'"),
        ({"kernel": "cntk"}, "kernel='cntk'"),
        ({"model": DEQ("relu", 0.2)}, "centred"),
        ({"model": "tanh"}, "DEQ or an Explicit"),
        ({"form": "refined", "order": 4}, "orders 1, 2 and 3"),
        ({"form": "refined", "square": "cube"}, "square='cube'"),
        ({"form": "refined", "rank": 0}, "rank = 0"),
        ({"form": "refined", "around": "median"}, "around"),
        ({"form": "refined", "around": 0.97}, "not high-dimensional"),
        (
            {"form": "refined", "model": Explicit(["tanh"]), "kernel": "ntk_preactivations"},
            "belongs to a DEQ",
        ),
    ],
)
def test_bad_input_is_named(sample, change, message):
    X, stats = sample
    given_ = {"model": DEQ("tanh", 0.2), "X": X, "stats": stats, **change}
    with pytest.raises(InputError, match=message):
        equivalent(**given_)
