"""Finite random networks agree with the exact kernels within their own noise, and refute the wrong formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tolerances import assert_within_noise

import notsodeep as nsd
from notsodeep.nets import empirical_kernels, network

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
    networks = [network(model, 3, 250, 1, seed=seed, dtype=torch.float64) for seed in range(60)]
    draws = [empirical_kernels(net, torch.as_tensor(X)) for net in networks]
    ck, ntk = (np.array([getattr(draw, name).numpy() for draw in draws]) for name in ("ck", "ntk"))
    assert_within_noise(nsd.conjugate_kernel(model, X), ck, bias=BIAS, resolution=0.03)
    assert_within_noise(nsd.tangent_kernel(model, X), ntk, bias=BIAS, resolution=0.03)
    with pytest.raises(AssertionError, match="times the allowed distance"):
        assert_within_noise(nsd.conjugate_kernel(model, X), ntk, bias=BIAS, resolution=0.03)
