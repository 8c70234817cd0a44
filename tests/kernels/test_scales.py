"""Data of any scale: no pair stalls, and tables, integrals and closed forms are exact."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import oracles
import pytest
from oracles import ALL, Reference
from sklearn import datasets
from tolerances import Oracle, tolerance

import notsodeep as nsd
from notsodeep.duals import dual as engine
from notsodeep.gaussian.bivariate import dual
from notsodeep.models.tiling import announce_compilation

RELATIVE = tolerance(Oracle.QUADRATURE).rtol


def made(phi: Reference) -> nsd.Activation:
    return nsd.activation(phi.name, **phi.parameters)


def rows_of(scale: float, n: int = 14, seed: int = 0) -> np.ndarray:
    """Norms around `scale`; pairs from opposite to 1 - cos = 1e-9."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 6))
    x[1::2] = x[::2] + np.geomspace(3e-5, 1.0, len(x[1::2]))[:, None] * generator.normal(size=(n // 2, 6))
    x[-1] = -1.3 * x[0] + 1e-2 * x[2]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return scale * x * np.exp(generator.uniform(-0.5, 0.5, size=(n, 1)))


def errors(phi: Reference, sigma_a2: float, X: np.ndarray, chosen: list[int]) -> list[float]:
    """Relative errors of both kernels of the chosen rows within all of them."""
    ck, ntk = nsd.kernels.both_kernels(nsd.DEQ(made(phi), sigma_a2), X)[:2]
    exact = oracles.brute_kernels(phi, sigma_a2, 1 - sigma_a2, 0.0, oracles.exact_gram(X[chosen]))
    block, found = np.ix_(chosen, chosen), []
    for kernel, field in ((ck, "feature"), (ntk, "network")):
        size = np.sqrt(np.diag(exact[field]))
        found.append(float(np.max(np.abs(kernel[block] - exact[field]) / np.outer(size, size))))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("phi", ALL, ids=str)
def test_every_activation_at_every_scale(phi: Reference, scale: float) -> None:
    """q from 1e-6 to 1e6, all angles: a near, an opposite and a middling pair, with 11 other rows beside them."""
    if phi.coefficients is not None and len(phi.coefficients) > 2 and scale >= 1:
        pytest.skip("a cubic has no fixed point at large norms")
    assert max(errors(phi, 0.2, rows_of(scale), [0, 3, 13])) <= RELATIVE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes"])
@pytest.mark.parametrize("label", ["tanh", "gelu", "hard_tanh", "softsign", "mish", "sin"])
def test_unscaled_tables_need_no_quadrature(label: str, name: str) -> None:
    """No pair is integrated by itself in two dimensions: at 20 ms each, half of breast cancer would take an hour."""
    X = getattr(datasets, f"load_{name}")().data
    for rows in (X, X[::3] + 3.0):
        kernel, info = nsd.tangent_kernel(
            nsd.DEQ(made(oracles.reference(label)), 0.2), rows, return_info=True
        )
        assert "quadrature" not in info.methods
        assert info.error_bound <= RELATIVE
        np.testing.assert_array_equal(kernel, kernel.T)


@pytest.mark.parametrize("label", ["swish", "softsign"])
@pytest.mark.parametrize("columns", [(2.0, 5.0), (8.0, 11.0)])
def test_the_stated_error_of_a_table_holds_between_its_nodes(
    label: str, columns: tuple[float, float]
) -> None:
    """F and F' of random pairs of two ranges of variances, through the engine, against quadrature."""
    phi, generator = nsd.activation(label), np.random.default_rng(3)
    q, p = (np.exp(generator.uniform(*band, (1, 20))) for band in ((2.0, 5.0), columns))
    engine_dual = engine.Dual(phi, np.concatenate([q[0], p[0]]))
    left, right = engine_dual.rows(q), engine_dual.columns(p)
    size = left.root[:, :, None] * right.root[:, None, :]
    c = size * (1.0 - 10.0 ** generator.uniform(-6.0, -1.5, size.shape))
    value, slope = np.empty_like(c), np.empty_like(c)
    evidence = engine_dual.tiles(left, right, c, value, slope)
    assert "table" in evidence.methods
    i, j = generator.integers(0, 20, (2, 12))
    exact = dual(phi, q[0, i], p[0, j], c[0, i, j])
    for found, truth, name in ((value, exact[0], "energy"), (slope, exact[1], "steep")):
        own = np.sqrt(getattr(left, name)[0, i] * getattr(right, name)[0, j])
        assert np.max(np.abs(found[0, i, j] - truth) / own) <= evidence.error


@pytest.mark.slow
def test_a_long_integration_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callable with kinks away from zero has no table; before its pairs are integrated it is said how long."""
    monkeypatch.setattr(engine, "PATIENCE", 0.0)
    monkeypatch.setattr(engine, "ANNOUNCED", 1)
    phi = nsd.custom_activation(lambda x: np.clip(x, -1.0, 1.0), kinks=(-1.0, 1.0))
    X = 1.0 + 1e-2 * np.random.default_rng(0).normal(size=(7, 3))
    with pytest.warns(RuntimeWarning, match="integrated one by one, about"):
        ck = nsd.conjugate_kernel(nsd.Explicit([phi]), X)
    exact = nsd.conjugate_kernel(nsd.Explicit(["hard_tanh"]), X)
    np.testing.assert_allclose(ck, exact, rtol=1e-9)


def test_the_first_call_ever_says_that_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    said = StringIO()
    assert announce_compilation(said)
    assert "compiling the inner loops" in said.getvalue()
    # Into the logs of programs, which no person reads while it compiles, nothing is written.
    assert not announce_compilation()
    (tmp_path / "models").mkdir(exist_ok=True)
    (tmp_path / "models" / "tiling.put_tile-22.py311.nbi").touch()
    assert not announce_compilation(StringIO())
