"""The kernel as an operator, against the dense matrix it stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep import kernels
from notsodeep.equivalents import equivalent
from notsodeep.kernels import Kernel, exact_kernel
from notsodeep.linalg.block_lanczos import leading_eigenpairs
from notsodeep.linalg.conjugate_gradients import (
    LowRankInverse,
    Nystrom,
    Unpreconditioned,
    conjugate_gradients,
)
from notsodeep.operators import KernelOperator
from notsodeep.scale import open_kernel

DEQ = nsd.DEQ("relu", 0.2)


@pytest.fixture(scope="module")
def dense(samples: np.ndarray) -> np.ndarray:
    return kernels.conjugate_kernel(DEQ, samples)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["computed", "kept", "stored", "float32"])
def test_products_are_those_of_the_matrix(how: str, samples, dense, tmp_path: Path) -> None:
    if how in ("computed", "kept"):
        operator = KernelOperator.of(DEQ, samples, block=64)
        if how == "computed":
            operator.blocks = operator.blocks.source
    else:
        storage = "float32" if how == "float32" else "float64"
        KernelOperator.of(DEQ, samples, out=tmp_path / "G.zarr", block=64, storage=storage)
        operator = KernelOperator.stored(tmp_path / "G.zarr")
    rng = np.random.default_rng(0)
    dtype = np.float32 if how == "float32" else np.float64
    for right in (rng.standard_normal(300), rng.standard_normal((300, 5))):
        # The second time kept blocks are used.
        for _ in range(2):
            assert_close(operator @ right, dense @ right, Oracle.IDENTITY, dtype=dtype)
    assert_close(operator.T @ right, dense @ right, Oracle.IDENTITY, dtype=dtype)
    assert_close(operator.diagonal(), dense.diagonal(), Oracle.IDENTITY, dtype=dtype)
    assert operator.trace() == pytest.approx(np.trace(dense), rel=1e-6 if how == "float32" else 1e-13)
    chosen = np.array([0, 63, 64, 150, 299])
    assert_close(operator.columns(chosen), dense[:, chosen], Oracle.IDENTITY, dtype=dtype)


@pytest.mark.parametrize("kernel", tuple(Kernel))
def test_kernels_by_the_names_of_the_equivalents(kernel: str, samples) -> None:
    expected = exact_kernel(DEQ, samples, kernel=kernel)
    operator = KernelOperator.of(DEQ, samples, kernel, block=128)
    assert_close(operator @ np.eye(300), expected, Oracle.IDENTITY)


def test_leading_eigenvalues(samples, dense) -> None:
    expected = np.linalg.eigvalsh(dense)[::-1]
    operator = KernelOperator.of(DEQ, samples, block=128)
    found = operator.eigsh(6, tolerance=1e-9)
    np.testing.assert_allclose(found.values, expected[:6], rtol=1e-10)
    np.testing.assert_allclose(dense @ found.vectors, found.vectors * found.values, atol=1e-8 * expected[0])
    assert found.residuals.max() <= 1e-8 * expected[0]
    assert operator.eigsh(6).sweeps < found.sweeps
    np.testing.assert_allclose(operator.eigsh(300).values, expected, rtol=0, atol=1e-10 * expected[0])
    with pytest.raises(nsd.ConvergenceError, match="max_sweeps"):
        operator.eigsh(20, tolerance=1e-12, max_sweeps=2)
    with pytest.raises(nsd.InputError, match="301"):
        operator.eigsh(301)


@given(rank=st.integers(1, 12), k=st.integers(1, 12), seed=st.integers(0, 50))
def test_eigenvalues_of_matrices_of_low_rank(rank: int, k: int, seed: int) -> None:
    factor = np.random.default_rng(seed).standard_normal((40, rank))
    matrix = factor @ factor.T
    found = leading_eigenpairs(aslinearoperator(matrix), k, tolerance=1e-8, max_sweeps=20, seed=seed)
    expected = np.linalg.eigvalsh(matrix)[::-1][:k]
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-8 * expected[0])
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(k), rtol=0, atol=1e-10)


# --- solving ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("preconditioner", ["equivalent", "nystrom", None])
def test_solutions_are_those_of_the_matrix(preconditioner: str | None, samples, dense) -> None:
    operator = KernelOperator.of(DEQ, samples, block=128)
    b = np.random.default_rng(3).standard_normal((300, 3))
    b[:, 1] = 0.0
    expected = np.linalg.solve(dense + 0.01 * np.eye(300), b)
    found = operator.solve(b, 0.01, preconditioner=preconditioner, tolerance=1e-10, rank=60)
    np.testing.assert_allclose(found.x, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    remainder = b - (dense @ found.x + 0.01 * found.x)
    assert found.residual <= 1e-10
    assert found.residual == pytest.approx(np.linalg.norm(remainder, axis=0).max() / 17.0, rel=0.5)
    assert found.iterations == len(found.history)
    single = operator.solve(b[:, 0], 0.01, preconditioner=preconditioner, tolerance=1e-10, rank=60)
    np.testing.assert_allclose(single.x, expected[:, 0], rtol=0, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_array_equal(np.asarray(single), single.x)
    assert single.__array__(copy=False) is single.x
    assert not np.shares_memory(single.__array__(copy=True), single.x)
    with pytest.raises(ValueError, match="without a copy"):
        single.__array__(np.dtype("float32"), copy=False)


@pytest.mark.slow
def test_the_equivalent_saves_iterations() -> None:
    X, _ = nsd.GaussianMixture.paper(100).sample(400, seed=0)
    deq = nsd.DEQ("tanh", 0.2)
    operator = KernelOperator.of(deq, X)
    b = np.random.default_rng(0).standard_normal(400)
    taken = {
        str(name): operator.solve(b, 1e-2, preconditioner=name, rank=50).iterations
        for name in ("equivalent", "nystrom", None)
    }
    assert taken["equivalent"] < 0.5 * taken["None"]
    assert taken["equivalent"] < taken["nystrom"]
    own = equivalent(deq, X, form="refined", order=3, around="mean")
    assert operator.solve(b, 1e-2, preconditioner=own).iterations <= taken["equivalent"] + 1


@given(n=st.integers(1, 30), condition=st.floats(0, 4), seed=st.integers(0, 50))
def test_conjugate_gradients_on_any_positive_definite_matrix(n: int, condition: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((n, n)))[0]
    matrix = (turn * 10.0 ** rng.uniform(0, condition, n)) @ turn.T
    b = rng.standard_normal((n, 2))
    found = conjugate_gradients(
        lambda v: matrix @ v, b, Unpreconditioned(), tolerance=1e-8, max_iterations=1000
    )
    np.testing.assert_allclose(found.x, np.linalg.solve(matrix, b), rtol=0, atol=1e-3 * np.abs(found.x).max())
    assert np.linalg.norm(matrix @ found.x - b, axis=0).max() <= 1.0001e-8 * np.linalg.norm(b, axis=0).max()


def test_nystrom_of_all_columns_is_the_inverse(dense) -> None:
    # Two of all rows are equal; of the first 200 none are.
    matrix = dense[:200, :200]
    product = Nystrom(matrix, np.arange(200), 0.3).solve(matrix + 0.3 * np.eye(200))
    np.testing.assert_allclose(product / product[0, 0], np.eye(200), rtol=0, atol=1e-8)


def test_the_inverse_of_an_equivalent(samples) -> None:
    operator = equivalent(nsd.DEQ("tanh", 0.2), samples, form="refined", order=1)
    assert np.linalg.eigvalsh(operator.to_dense()).min() > -0.05
    block = np.random.default_rng(2).standard_normal((300, 3))
    solved = LowRankInverse(operator.own_diagonal, *operator.factor, 0.1).solve(block)
    np.testing.assert_allclose(operator @ solved + 0.1 * solved, block, rtol=0, atol=1e-9)
    # It is positive definite even where the operator is not.
    columns, core = operator.factor
    inverse = LowRankInverse(operator.own_diagonal - 1.0, columns, -core, 0.1).solve(np.eye(300))
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0.0
    np.testing.assert_allclose(inverse, inverse.T, rtol=0, atol=1e-10 * np.abs(inverse).max())


def test_what_does_not_converge_says_so(samples) -> None:
    operator = KernelOperator.of(DEQ, samples)
    b = np.ones(300)
    with pytest.raises(nsd.ConvergenceError, match="ridge"):
        operator.solve(b, 1e-6, preconditioner=None, max_iterations=5)
    with pytest.raises(nsd.ConvergenceError, match="positive definite"):
        conjugate_gradients(lambda v: -v, b[:, None], Unpreconditioned(), tolerance=1e-6, max_iterations=5)
    for bad, words in ((0.0, "positive"), (np.nan, "positive")):
        with pytest.raises(nsd.InputError, match=words):
            operator.solve(b, bad)
    with pytest.raises(nsd.InputError, match="300 rows"):
        operator.solve(b[:-1], 0.1)
    with pytest.raises(nsd.InputError, match="NaN"):
        operator.solve(b * np.nan, 0.1)
    with pytest.raises(nsd.InputError, match="Choose one of"):
        operator.solve(b, 0.1, preconditioner="magic")


def test_what_an_operator_cannot_be(samples, tmp_path: Path) -> None:
    nsd.conjugate_kernel(DEQ, samples, samples[:10], out=tmp_path / "R.zarr")
    with pytest.raises(nsd.InputError, match="symmetric"):
        KernelOperator.stored(tmp_path / "R.zarr")
    nsd.conjugate_kernel(DEQ, samples, out=tmp_path / "G.zarr")
    operator = KernelOperator.stored(open_kernel(tmp_path / "G.zarr"))
    assert isinstance(operator, LinearOperator)
    with pytest.raises(nsd.InputError, match=r"KernelOperator\.of"):
        operator.solve(np.ones(300), 0.1)
    assert operator.solve(np.ones(300), 0.1, preconditioner="nystrom").residual <= 1e-6
    with pytest.raises(nsd.InputError, match="out="):
        KernelOperator.of(DEQ, samples, client=2)
    own = equivalent(DEQ, samples[:10], form="refined")
    with pytest.raises(nsd.InputError, match=r"\(10, 10\)"):
        operator.solve(np.ones(300), 0.1, preconditioner=own)
