"""CK and NTK of a network of L layers with input injection, by neural-tangents.

The network is the weight-untied unrolling of a DEQ: layer l has its own A_l, B_l, and

    u^(1) = σ_b B_1 x,     u^(l+1) = σ_a A_l φ(u^(l))/√m + σ_b B_l x,     f(x) = <a, φ(u^(L))>/√m.

neural-tangents' `Dense` divides by the number of inputs, so it is fed √p X: its first Gram matrix is X Xᵀ. Its kernels
after the readout are

    ck  = G^(L),                    G^(l) = F(Λ^(l)),  Λ^(l+1) = σ_a² G^(l) + σ_b² X Xᵀ           ('nngp')
    ntk = G^(L) + D^(L) ∘ T^(L),    D^(l) = F'(Λ^(l)), T^(l+1) = Λ^(l+1) + σ_a² D^(l) ∘ T^(l)     ('ntk')

which are the features' CK and the network's NTK of notsodeep at depth L, with everything trained.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"  # float64; read when jax is imported

import jax
import jax.numpy as jnp
import numpy as np
from neural_tangents import stax


def network(name: str, depth: int, sigma_a2: float, degree: int) -> Any:
    """L activation layers with the input injected before each, and a linear readout of unit variance."""

    def dense(variance: float) -> Any:
        return stax.Dense(1, W_std=variance**0.5, b_std=None, parameterization="ntk")

    def phi() -> Any:
        # Closed forms for relu and erf, Gauss–Hermite quadrature for tanh.
        closed = {"relu": stax.Relu, "erf": stax.Erf}
        return closed[name]() if name in closed else stax.ElementwiseNumerical(jnp.tanh, deg=degree)

    net = dense(1.0 - sigma_a2)
    for _ in range(depth - 1):
        hidden = stax.serial(net, phi(), dense(sigma_a2))
        net = stax.serial(stax.FanOut(2), stax.parallel(hidden, dense(1.0 - sigma_a2)), stax.FanInSum())
    return stax.serial(net, phi(), dense(1.0))


def kernels(name: str, depth: int, sigma_a2: float, degree: int) -> Any:
    """The function X -> (ck, ntk), compiled at its first call."""
    _, _, kernel = network(name, depth, sigma_a2, degree)

    @jax.jit
    def both(x: Any) -> Any:
        computed = kernel(jnp.sqrt(x.shape[1]) * x, None, ("nngp", "ntk"))
        return computed.nngp, computed.ntk

    return lambda x: tuple(map(np.asarray, jax.block_until_ready(both(jnp.asarray(x)))))
