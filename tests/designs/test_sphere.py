"""Sphere designs: the closed forms of docs/theory.md (8.8) and (8.9), and the distances measured there."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep.designs import sphere_design
from notsodeep.errors import InputError
from notsodeep.kernels import conjugate_kernel, tangent_kernel


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize("sigma_a2", [0.05, 0.2, 0.5, 0.8])
def test_the_three_scalars_agree(kernel: str, sigma_a2: float) -> None:
    made = sphere_design(sigma_a2, 1200, kernel)
    assert made.exact
    assert "quadratic" in str(made)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "published"), [("ck", 7.8e-4), ("ntk", 7.8e-3)])
def test_the_exact_kernels_are_as_close_as_measured(kernel: str, published: float) -> None:
    n = 500
    X = np.random.default_rng(1).standard_normal((n, int(1.2 * n)))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    made = sphere_design(0.2, X.shape[1], kernel)
    exact = conjugate_kernel if kernel == "ck" else tangent_kernel
    gap = exact(made.model, X, of="preactivations") - exact(made.network, X)
    assert np.linalg.norm(gap, 2) == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize("arguments", [(0.0, 100), (1.0, 100), (0.2, 0), (0.2, 100, "both")])
def test_bad_input_is_refused(arguments: tuple) -> None:
    with pytest.raises(InputError):
        sphere_design(*arguments)
