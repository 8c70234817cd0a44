"""The engine of Gaussian pairs: F, F' and dF'/dc of stacks of tiles against quadrature, and its promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.duals import table
from notsodeep.duals.dual import Dual
from notsodeep.duals.strips import WIDTH
from notsodeep.gaussian import interpolation
from notsodeep.gaussian.bivariate import dual as quadrature

# Activation and range of log variances: every method, small, usual and large scales, and two bands of one table.
CASES = [
    ("relu", (-2.0, 1.0)), ("abs", (6.0, 9.0)), ("sin", (-2.0, 1.0)), ("cos", (-6.0, 0.0)), ("tanh", (-8.0, 0.0)),
    ("tanh", (5.0, 9.0)), ("erf", (-1.0, 16.0)), ("gelu", (0.0, 4.0)), ("elu", (-2.0, 1.0)), ("softsign", (3.0, 6.0)),
    ("hard_tanh", (-3.0, 2.0)), ("hard_sigmoid", (8.0, 12.0)), ("x*sigmoid(x)", (-2.0, 1.0)), ("mish", (-12.0, -4.0)),
]  # fmt: skip


def tiles(
    name: str, logs: tuple[float, float], seed: int = 0
) -> tuple[Dual, np.ndarray, np.ndarray, np.ndarray]:
    """An engine, variances of rows and columns (2, n), and covariances, half of them nearly ±1."""
    generator = np.random.default_rng(seed)
    q, p = (np.exp(generator.uniform(*logs, (2, count))) for count in (9, WIDTH + 6))
    rho = generator.uniform(-1.0, 1.0, (2, 9, WIDTH + 6))
    near = np.sign(rho) * (1.0 - 10.0 ** generator.uniform(-7.0, -1.0, rho.shape))
    rho = np.where(generator.random(rho.shape) < 0.5, rho, near)
    phi = nsd.activation(name).scaled(1.3).shifted(0.2)
    return Dual(phi, np.concatenate([q, p], axis=1)), q, p, rho * np.sqrt(q)[:, :, None] * np.sqrt(p)[:, None]


def evaluated(dual: Dual, q: np.ndarray, p: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    value, slope, bend = (np.empty_like(c) for _ in range(3))
    evidence = dual.tiles(dual.rows(q), dual.columns(p), c, value, slope, bend)
    return value, slope, bend, evidence


@pytest.mark.parametrize(("name", "logs"), CASES)
def test_every_method_is_within_its_bound(name: str, logs: tuple[float, float]) -> None:
    dual, q, p, c = tiles(name, logs)
    value, slope, _, evidence = evaluated(dual, q, p, c)
    t, i, j = np.random.default_rng(1).integers(0, (2, 9, WIDTH + 6), (25, 3)).T
    exact = quadrature(dual.phi, q[t, i], p[t, j], c[t, i, j])
    left, right = dual.rows(q), dual.columns(p)
    scale = np.sqrt(q[t, i] * p[t, j])
    for found, truth, moment in zip((value, slope), exact, ("energy", "steep"), strict=True):
        size = np.sqrt(getattr(left, moment)[t, i] * getattr(right, moment)[t, j])
        # Rounding of a covariance, next to ρ = ±1.
        apart = np.maximum(1.0 - np.abs(c[t, i, j]) / scale, 1e-16)
        assert np.all(np.abs(found[t, i, j] - truth) <= (evidence.error + 1e-15 / apart) * size)


@pytest.mark.parametrize(
    ("name", "logs"), [("tanh", (-1.0, 1.0)), ("elu", (-2.0, 1.0)), ("hard_tanh", (-1.0, 1.0))]
)
def test_the_derivative_of_the_slope(name: str, logs: tuple[float, float]) -> None:
    dual, q, p, c = tiles(name, logs)
    size = np.sqrt(q)[:, :, None] * np.sqrt(p)[:, None]
    inside = np.clip(c, -0.9 * size, 0.9 * size)
    step = 1e-5 * size
    bend = evaluated(dual, q, p, inside)[2]
    after, before = (evaluated(dual, q, p, inside + sign * step)[1] for sign in (1.0, -1.0))
    np.testing.assert_allclose(bend * size, (after - before) / 2e-5, rtol=1e-6, atol=1e-7)


def test_a_cold_cache_and_other_threads_give_the_same_bits() -> None:
    dual, q, p, c = tiles("softsign", (0.0, 3.0))
    first = evaluated(dual, q, p, c)[:3]
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda _: evaluated(dual, q, p, c)[:3], range(4)))
    table._TABLES.clear()
    interpolation._SERIES.clear()
    cold = evaluated(Dual(dual.phi, np.concatenate([q, p], axis=1)), q, p, c)[:3]
    for other in (*again, cold):
        for one, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_parts_of_what_was_prepared_have_the_same_entries() -> None:
    dual, q, p, c = tiles("elu", (-2.0, 1.0))
    whole = evaluated(dual, q, p, c)[0]
    left, right = dual.rows(q)[3:7], dual.columns(p)[WIDTH:]
    part = np.ascontiguousarray(c[:, 3:7, WIDTH:])
    value, slope = np.empty_like(part), np.empty_like(part)
    dual.tiles(left, right, part, value, slope)
    np.testing.assert_allclose(value, whole[:, 3:7, WIDTH:], rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="multiple of"):
        dual.columns(p)[5:]
