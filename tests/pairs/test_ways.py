"""Which way pairs take, and that the ways meet: series, tables of groups of norms, Price's integral."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from oracles import Reference
from sklearn import datasets
from tolerances import Oracle, tolerance

import notsodeep as nsd
from notsodeep.gaussian.moments import mean_derivative
from notsodeep.gaussian.variance import solve_variance
from notsodeep.pairs import (
    block_series,
    local_table,
    pair_solver,
    solution_table,
    table_family,
    table_lookup,
)
from notsodeep.pairs.local_table import DROPPED, DROPPED_SLOPE, LocalTable, TileColumns, TileSide
from notsodeep.pairs.mehler_table import MehlerTable, terms_for
from notsodeep.pairs.pair_problem import PairProblem
from notsodeep.pairs.sample_moments import Equation, Side
from notsodeep.pairs.solution_table import ROUNDING, SolutionTable
from notsodeep.pairs.table_lookup import TableLookup
from notsodeep.pairs.table_range import Range, coordinate

RELATIVE = tolerance(Oracle.QUADRATURE).rtol


def made(phi: Reference) -> nsd.Activation:
    return nsd.activation(phi.name, **phi.parameters)


def rows_of(n: int, near: int, spread: float = 0.2, seed: int = 0) -> np.ndarray:
    """n rows in high dimension, far from parallel but for the first `near`, each with a neighbour; norms e^±spread."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 400)) / 20.0
    x[1 : 2 * near : 2] = x[0 : 2 * near : 2] + 0.2 * x[1 : 2 * near : 2]
    return x * np.exp(generator.uniform(-spread, spread, size=(n, 1)))


def largest_error(phi: Reference, kernels: tuple[np.ndarray, ...], X: np.ndarray, chosen: list[int]) -> float:
    """Of CK and NTK at σ_a² = 0.2, on the chosen rows."""
    exact = oracles.brute_kernels(phi, 0.2, 0.8, 0.0, oracles.exact_gram(X[chosen]))
    worst = 0.0
    for kernel, field in zip(kernels, ("feature", "network"), strict=True):
        size = np.sqrt(np.diag(exact[field]))
        gap = np.abs(kernel[np.ix_(chosen, chosen)] - exact[field]) / np.outer(size, size)
        worst = max(worst, float(gap.max()))
    return worst


def test_the_few_pairs_that_the_series_leaves_are_integrated_if_kinks_allow_it() -> None:
    """One near pair of 1770 makes no table; before, it sent its whole tile to one."""
    X, phi = rows_of(60, near=1), oracles.reference("hard_tanh")
    ck, ntk, info = nsd.kernels.both_kernels(nsd.DEQ(made(phi), 0.2), X, return_info=True)
    assert info.ways == ("integral", "series")
    assert info.careful_pairs == 1
    assert largest_error(phi, (ck, ntk), X, [0, 1, 7]) <= RELATIVE


def test_the_few_pairs_that_the_series_leaves_are_looked_up_if_the_function_is_smooth() -> None:
    X, phi = rows_of(120, near=2), oracles.reference("softsign")
    model = nsd.DEQ(made(phi), 0.2)
    ck, ntk, info = nsd.kernels.both_kernels(model, X, return_info=True)
    assert info.ways == ("series", "table")
    assert largest_error(phi, (ck, ntk), X, [0, 1, 3, 7]) <= RELATIVE
    # A row without a near neighbour is left to the series: its entries are those of a kernel that has no table at all.
    alone, other = nsd.tangent_kernel(model, X[4:], return_info=True)
    assert other.ways == ("series",)
    np.testing.assert_allclose(ntk[40:, 40:], alone[36:, 36:], rtol=1e-13)


@pytest.mark.parametrize("near", [1, 6])
def test_where_no_table_can_be_resolved_the_lookup_is_dropped(
    near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few pairs beyond a short series, or so many that tables come first: a longer series takes both."""
    X, phi, asked = rows_of(80 if near == 1 else 12, near=near), oracles.reference("softplus"), []

    def unresolved(*arguments: object, **named: object) -> None:
        asked.append(arguments)

    monkeypatch.setattr(TableLookup, "tile", unresolved)
    ck, ntk, info = nsd.kernels.both_kernels(nsd.DEQ(made(phi), 0.2), X, return_info=True)
    assert len(asked) == 1
    assert info.ways == ("series",)
    assert largest_error(phi, (ck, ntk), X, [0, 1, 7]) <= RELATIVE


@pytest.mark.slow
@pytest.mark.parametrize("label", ["hard_tanh", "hard_sigmoid"])
def test_groups_of_norms_meet(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinks away from zero at norms e^±1 and angles of half a radian: several groups, in diagonal tiles and beside."""
    monkeypatch.setattr(table_family, "LONGEST_KINKED", 1.25)
    monkeypatch.setattr(table_lookup, "INTEGRATED_GROUPS", 0)
    generator, phi = np.random.default_rng(3), oracles.reference(label)
    X = (1.0 + 0.5 * generator.normal(size=(270, 8))) * np.exp(generator.uniform(-1.0, 1.0, size=(270, 1)))
    ck, ntk, info = nsd.kernels.both_kernels(nsd.DEQ(made(phi), 0.2), X, return_info=True)
    assert "table" in info.ways
    assert info.careful_pairs < 0.05 * len(X) ** 2
    np.testing.assert_array_equal(ntk, ntk.T)
    assert largest_error(phi, (ck, ntk), X, [0, 261]) <= RELATIVE


def test_many_small_groups_of_norms_need_no_table() -> None:
    """A centred table of unscaled columns: eleven groups of norms, and too few pairs of each two for a table."""
    X, phi = datasets.load_breast_cancer().data[::5], oracles.reference("hard_tanh")
    X = (X - X.mean(axis=0)) / 1e3
    ck, ntk, info = nsd.kernels.both_kernels(nsd.DEQ(made(phi), 0.2), X, return_info=True)
    assert info.ways == ("integral", "series")
    # The series has the pairs that it can bound.
    assert 0 < info.careful_pairs < len(X) * (len(X) - 1) / 2
    assert largest_error(phi, (ck, ntk), X, [0, 40, 100]) <= RELATIVE


def test_few_pairs_without_a_table_are_integrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with so few pairs that coefficients of a series would not pay."""
    monkeypatch.setattr(block_series, "WORTH", 1e9)
    X, phi = datasets.load_breast_cancer().data[::12], oracles.reference("hard_tanh")
    X = (X - X.mean(axis=0)) / 1e3
    ck, ntk, info = nsd.kernels.both_kernels(nsd.DEQ(made(phi), 0.2), X, return_info=True)
    assert info.ways == ("integral",)
    assert info.careful_pairs == len(X) * (len(X) - 1) / 2
    assert largest_error(phi, (ck, ntk), X, [0, 20, 40]) <= RELATIVE


def test_the_conjugate_kernel_alone_is_the_one_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the derivative of F's series is not right enough for F', slopes have their own series, if wanted at all."""
    monkeypatch.setattr(local_table, "SLOPE_ERROR", 0.0)
    X, model = 1.0 + rows_of(20, near=4), nsd.DEQ("gelu", 0.5)
    alone, info = nsd.conjugate_kernel(model, X, return_info=True)
    assert info.ways == ("table",)
    np.testing.assert_allclose(alone, nsd.kernels.both_kernels(model, X)[0], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("fewest", "way"), [(0, "table"), (10**9, "integral")])
def test_large_norms_and_small_angles_lose_no_digits_but_those_of_the_inner_product(
    fewest: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms of 800 and 1 - cos = 2e-5: an end of r that is off by 1e-15 is an error of 1e-10, beyond the stated one.

    What rounding of r adds is bounded by (3.34), and by (3.35) for the NTK.
    """
    monkeypatch.setattr(table_lookup, "INTEGRATED_GROUPS", fewest)
    X, phi, f = datasets.load_wine().data + 3.0, oracles.reference("hard_tanh"), 0.2
    model = nsd.DEQ(made(phi), f)
    kernel, info = nsd.tangent_kernel(model, X, return_info=True)
    assert way in info.ways
    covariance = nsd.conjugate_kernel(model, X, of="preactivations")
    for i, j in ((133, 169), (133, 90)):
        exact = oracles.mp_pair(phi, f, (1.0 - f, 0.0), X[[i, j]]).network
        size = np.sqrt(covariance[i, i] * covariance[j, j])
        sine = np.sqrt(1.0 - (covariance[i, j] / size) ** 2)
        # Two kinks of size 0.8.
        moved = ROUNDING * 1.6**2 / (2.0 * np.pi * sine * (1.0 - f))
        rounding = size * (moved / (1.0 - f) ** 2 + 2.0 * ROUNDING / (1.0 - f) ** 2)
        allowed = info.error_bound * np.sqrt(kernel[i, i] * kernel[j, j]) + rounding
        assert abs(kernel[i, j] - exact) <= allowed
        assert allowed <= 1e-10 * np.sqrt(kernel[i, i] * kernel[j, j])


def test_the_table_of_a_callable_that_takes_long_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solution_table, "PATIENCE", 0.0)
    model = nsd.DEQ(nsd.custom_activation(lambda x: x * np.tanh(x)), 0.2)
    with pytest.warns(UserWarning, match=r"takes about \d+ s, once in a process"):
        nsd.conjugate_kernel(model, 1.0 + rows_of(12, near=4))


def test_a_constant_joins_the_forcing() -> None:
    """hard_sigmoid is an odd function and 1/2; one kink at zero and a constant is a fit."""
    X, model = rows_of(12, near=2), nsd.DEQ("hard_sigmoid", 0.3)
    same = nsd.DEQ(nsd.activation("hard_tanh", a=1 / 6, c=3.0).shifted(0.5), 0.3)
    np.testing.assert_allclose(nsd.tangent_kernel(model, X), nsd.tangent_kernel(same, X), rtol=1e-12)
    shape, level = model.activation.shape.without_level()
    assert (shape.parity, level) == (-1, 0.5)
    raised = nsd.activation("piecewise_linear", knots=[0.0], slopes=[0.0, 1.0], value=0.25)
    kernel, info = nsd.tangent_kernel(nsd.DEQ(raised, 0.3), X, return_info=True)
    assert info.ways == ("fit",)
    np.testing.assert_allclose(
        kernel, nsd.tangent_kernel(nsd.DEQ(nsd.activation("relu").shifted(0.25), 0.3), X), rtol=1e-12
    )


@pytest.mark.parametrize("label", ["tanh", "relu", "hard_tanh", "gelu"])
def test_the_size_of_a_series_is_enough_for_the_correlation_it_was_chosen_for(label: str) -> None:
    phi = made(oracles.reference(label))
    side = Side(phi, np.geomspace(0.1, 10.0, 20), Equation(0.2, 0.8))
    for correlation in (0.1, 0.3, 0.6, 0.75):
        table = MehlerTable(phi.shape, side, side, terms_for(correlation), want_slope=True)
        assert table.limits[-1] >= 0.98 * correlation


@pytest.mark.parametrize(
    ("label", "near", "feedback"), [("tanh", -8, 0.2), ("gelu", -6, 0.5), ("hard_tanh", -5, 0.2)]
)
def test_the_table_of_a_tile_is_the_whole_table_within_what_it_drops(
    label: str, near: int, feedback: float
) -> None:
    """A tile has few orders in log q and t, and takes F' from the derivative of F's series."""
    phi = made(oracles.reference(label))
    table = SolutionTable(phi.shape, feedback, Range((-0.5, 0.5), (-0.5, 0.5), near, 1, both_ends=False))
    assert table.resolved
    generator = np.random.default_rng(1)
    logs = generator.uniform(0.05, 0.25, 40), generator.uniform(-0.3, -0.1, 70)
    sides = [Side(phi, np.exp(part), Equation(feedback, 1.0 - feedback)) for part in logs]
    problem = PairProblem(phi, *sides, feedback, 1.0 - feedback, want_slope=True)
    everything = slice(0, 40), slice(0, 70)
    local = LocalTable(
        problem,
        TileSide(table, 0, sides[0], everything[0], logs[0]),
        TileColumns(table, sides[1], everything[1], logs[1]),
    )
    d = generator.uniform(0.05, 0.45, (40, 70))
    places = coordinate(d, 1.0 - d, table.epsilon, both_ends=False)
    # With plain ends d = (1 - r)/2.
    root = np.sqrt(d) if np.isinf(table.epsilon) else np.sqrt(d * (d + table.epsilon**2))
    delay = 4.0 * root
    value, slope = places.copy(), delay.copy()
    error = local.evaluate((d.min(), d.max(), 0.5), False, slope, value, slope)
    assert error <= table.error + DROPPED_SLOPE
    z = (2.0 * places - table.start - table.stop) / (table.stop - table.start)
    basis = [np.polynomial.chebyshev.chebvander(2.0 * part, table.variances - 1) for part in logs]
    whole = np.einsum("pkmn,am,bn->pkab", table.series, *basis)
    orders = np.moveaxis(np.polynomial.chebyshev.chebvander(z, table.series.shape[1] - 1), -1, 0)
    exact = (whole * orders).sum(axis=1)
    scales = [
        np.sqrt(np.outer(*(getattr(side, name) for side in sides))) for name in ("energy", "slope_energy")
    ]
    assert np.max(np.abs(value / scales[0] - exact[0])) <= DROPPED + 1e-14
    assert np.max(np.abs(slope / scales[1] - exact[1])) <= error + table.error
    # Fewer orders than the table has in t and one norm.
    series = local._series(0, (table.start, table.stop), 0.0, DROPPED)
    assert series.table.shape[1] < table.series.shape[1] * table.variances


@pytest.mark.parametrize("name", ["softplus", "cos"])
def test_the_variance_of_a_centred_activation_at_small_scales(name: str) -> None:
    """S - M_0² is of order q below φ(0)²: rounding is not instability. q → forcing/(1 - σ_a² φ'(0)²)."""
    phi, tau2 = nsd.activation(name), 0.006**2
    found = solve_variance(phi, 0.5, 0.5 * tau2, centred=True)
    expected = 0.5 * tau2 / (1.0 - 0.5 * float(phi.derivative(0.0)) ** 2)
    assert found.q == pytest.approx(expected, rel=1e-4)
    model = nsd.DEQ(name, 0.5).centred(0.006)
    assert abs(mean_derivative(model.activation, found.q, 0)) <= 1e-15


def test_features_alone_come_from_the_tables_of_both_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope of a table is not looked at if only F is asked for."""
    monkeypatch.setattr(pair_solver, "SERIES_WORTH", 20)
    X, _ = datasets.make_blobs(150, 5, centers=8, cluster_std=3.0, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(5.0)
    model = nsd.DEQ("erf", 0.8)
    alone, info = nsd.conjugate_kernel(model, X, return_info=True)
    assert "table" in info.ways
    assert np.max(np.abs(alone - nsd.kernels.both_kernels(model, X)[0])) <= 1e-10
