"""Kernels of a DEQ as estimated in the papers: draw a network of finite width, iterate it, multiply its features.

One network per call, float64, plain NumPy. The papers' scripts iterate a given number of times, and so does this;
unlike them it takes all samples at once, which is kinder to the clock.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import erf

Array = np.ndarray
#: φ, and φ' as a function of the pre-activation.
PHI: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (lambda h: np.maximum(h, 0.0), lambda h: (h > 0).astype(float)),
    "erf": (erf, lambda h: 2 / np.sqrt(np.pi) * np.exp(-(h**2))),
    "tanh": (np.tanh, lambda h: 1 - np.tanh(h) ** 2),
}


def random_network_kernels(
    x: Array, activation: str, *, width: int, steps: int, sigma_a2: float, sigma_b2: float, seed: int
) -> tuple[Array, Array]:
    """(Z Zᵀ, the tangent kernel) of one random DEQ z = φ(σ_a A z + σ_b B x)/√m, everything trained.

    The gradient with respect to the pre-activations solves t = D (a + σ_a Aᵀ t)/√m and is iterated as often as z.
    """
    phi, slope_of = PHI[activation]
    rng = np.random.default_rng(seed)
    recurrent = np.sqrt(sigma_a2) * rng.standard_normal((width, width))
    injected = np.sqrt(sigma_b2) * x @ rng.standard_normal((x.shape[1], width))
    readout = rng.standard_normal(width)
    z = np.zeros_like(injected)
    for _ in range(steps):
        z = phi(z @ recurrent.T + injected) / np.sqrt(width)
    slope = slope_of(z @ recurrent.T + injected) / np.sqrt(width)
    pulled = np.zeros_like(z)
    for _ in range(steps):
        pulled = slope * (readout + pulled @ recurrent)
    features = z @ z.T
    return features, features + (pulled @ pulled.T) * (sigma_a2 * features + sigma_b2 * (x @ x.T))
