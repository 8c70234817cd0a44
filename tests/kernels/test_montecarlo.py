"""Finite random networks agree with the exact kernels within their own noise, and refute the wrong formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tolerances import Oracle, assert_close, assert_within_noise

import notsodeep as nsd
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.kernels.finite_width import finite_width_kernels

# The mean over draws differs from the limit by O(1/width): a few units of 1/250.
BIAS = 0.012
X = np.array([[1.0, 0.0, 0.2], [0.6, 0.9, 0.0], [-0.5, 0.1, 1.1], [1.8, -0.4, 0.3]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        nsd.DEQ("tanh", 0.2, bias2=0.3),
        nsd.DEQ("softplus", 0.2, sigma_b2=0.9),
        nsd.DEQ(nsd.activation("relu").scaled(amplitude=1.2).shifted(-0.4), 0.25, sigma_b2=1.1),
        nsd.Explicit(["erf", nsd.activation("leaky_relu", a=1.0, b=0.2)]),
    ],
    ids=str,
)
def test_random_networks_have_the_exact_kernels(model: nsd.DEQ | nsd.Explicit) -> None:
    """The wrong kernel of the two is refuted by the same draws."""
    estimate = finite_width_kernels(model, X, width=250, draws=60, seed=1)
    assert_within_noise(nsd.conjugate_kernel(model, X), estimate.ck_draws, bias=BIAS, resolution=0.03)
    assert_within_noise(nsd.tangent_kernel(model, X), estimate.ntk_draws, bias=BIAS, resolution=0.03)
    with pytest.raises(AssertionError, match="times the allowed distance"):
        assert_within_noise(nsd.conjugate_kernel(model, X), estimate.ntk_draws, bias=BIAS, resolution=0.03)
    assert_close(estimate.ntk, estimate.ntk_draws.mean(axis=0), Oracle.IDENTITY)
    spread = estimate.ck_draws.std(axis=0, ddof=1) / math.sqrt(60)
    assert_close(estimate.ck_error, spread, Oracle.IDENTITY)


def test_draws_repeat_with_their_seed_and_only_with_it() -> None:
    model = nsd.DEQ("tanh", 0.2)
    first, again, other = (
        finite_width_kernels(model, X, width=20, draws=3, seed=s).ck_draws for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.min(np.abs(first - other)) > 0
    assert np.min(np.abs(first[0] - first[1])) > 0


def test_random_networks_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(InputError, match="width"):
        finite_width_kernels(nsd.DEQ("tanh", 0.2), X, width=0, draws=5)
    with pytest.raises(InputError, match="draws"):
        finite_width_kernels(nsd.DEQ("tanh", 0.2), X, width=5, draws=1)
    with pytest.raises(ConvergenceError, match="sigma_a2"):
        finite_width_kernels(nsd.DEQ("identity", 4.0, sigma_b2=1.0), X, width=30, draws=2)
