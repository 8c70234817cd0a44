"""A kernel on disk as a scipy operator, against the dense matrix it stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg, eigsh, lobpcg
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.equivalents import equivalent
from notsodeep.errors import InputError

DEQ = nsd.DEQ("tanh", 0.2)


@pytest.mark.parametrize("storage", ["float64", "float32"])
@pytest.mark.parametrize("square", [True, False])
def test_products_are_those_of_the_matrix(storage: str, square: bool, samples, tmp_path: Path) -> None:
    sides = (samples,) if square else (samples, samples[:70])
    dense = nsd.conjugate_kernel(DEQ, *sides)
    kernel = nsd.conjugate_kernel(DEQ, *sides, out=tmp_path / "G.zarr", block=64, storage=storage)
    assert isinstance(kernel, LinearOperator)
    rng, dtype = np.random.default_rng(0), np.dtype(storage)
    for shape in ((dense.shape[1],), (dense.shape[1], 5)):
        right = rng.standard_normal(shape)
        assert_close(kernel @ right, dense @ right, Oracle.IDENTITY, dtype=dtype)
    left = rng.standard_normal((300, 2))
    assert_close(kernel.T @ left, dense.T @ left, Oracle.IDENTITY, dtype=dtype)
    assert_close(np.asarray(kernel[:, [0][0]]), dense[:, 0], Oracle.IDENTITY, dtype=dtype)


def test_eigenvalues_and_linear_systems_by_scipy(samples, tmp_path: Path) -> None:
    dense = nsd.conjugate_kernel(DEQ, samples)
    kernel = nsd.conjugate_kernel(DEQ, samples, out=tmp_path / "G.zarr", block=128)
    expected = np.linalg.eigvalsh(dense)
    assert_close(eigsh(kernel, 4, return_eigenvectors=False)[::-1], expected[:-5:-1], Oracle.QUADRATURE)
    start = np.random.default_rng(0).standard_normal((300, 6))
    values = lobpcg(kernel, start, tol=1e-8, maxiter=200)[0]
    assert_close(values[:3], expected[:-4:-1], Oracle.FINITE_DIFFERENCE)
    ridge, b = 0.01, np.random.default_rng(1).standard_normal(300)
    system = kernel + ridge * aslinearoperator(np.eye(300))
    steps: dict[str, int] = {}
    for name, M in {
        "none": None,
        "equivalent": equivalent(DEQ, samples, form="refined", order=1).preconditioner(ridge),
    }.items():
        taken: list[int] = []
        x, failed = cg(
            system, b, rtol=1e-10, maxiter=2000, M=M, callback=lambda _, taken=taken: taken.append(1)
        )
        assert not failed
        assert_close(x, np.linalg.solve(dense + ridge * np.eye(300), b), Oracle.FINITE_DIFFERENCE)
        steps[name] = len(taken)
    assert steps["equivalent"] < steps["none"]


def test_the_preconditioner_is_positive_definite(samples) -> None:
    operator = equivalent(DEQ, samples, form="refined", order=1)
    block = np.random.default_rng(2).standard_normal((300, 3))
    solved = operator.preconditioner(0.1) @ block
    np.testing.assert_allclose(operator @ solved + 0.1 * solved, block, rtol=0, atol=1e-9)
    inverse = operator.plus_diagonal(-1.0).preconditioner(0.1) @ np.eye(300)
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0.0
    with pytest.raises(InputError, match="ridge"):
        operator.preconditioner(0.0)
