"""Oracles for the networks: docs/theory.md (1.1) and (1.4) written out once more, without the package's solver.

Values come from NumPy, one sample at a time; derivatives from plain autograd through an unrolled loop.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def gaussian_rows(rows: int, features: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Rows of norm about one."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(rows, features, generator=generator, dtype=torch.float64) / sqrt(features)
    return draws.to(dtype)


def as_array(tensor: Tensor) -> Array:
    return tensor.detach().to(torch.float64).numpy()


def theory_weight(net: Any, name: str) -> Tensor:
    """A weight as the theory has it, of variance 1: "standard" scaling stores matrices divided by √fan_in."""
    stored: Tensor = getattr(net, name)
    return sqrt(stored.shape[1]) * stored if net.scaling == "standard" and stored.ndim == 2 else stored


def drive(net: Any, X: Tensor) -> Array:
    """σ_b B x + σ_c b, in rows."""
    spec = net.spec
    result = sqrt(spec.sigma_b2) * as_array(X) @ as_array(theory_weight(net, "inputs")).T
    if net.bias is not None:
        result = result + sqrt(spec.bias2) * as_array(net.bias)
    return np.asarray(result)


def preactivations(net: Any, X: Tensor, z: Array) -> Array:
    """σ_a A z + σ_b B x + σ_c b."""
    return np.asarray(
        sqrt(net.spec.sigma_a2) * z @ as_array(theory_weight(net, "recurrent")).T + drive(net, X)
    )


def one_step(net: Any, X: Tensor, z: Array) -> Array:
    """f(z) = φ(σ_a A z + σ_b B x + σ_c b)/√m."""
    return np.asarray(net.spec.activation(preactivations(net, X, z)) / sqrt(net.width))


def relative_residuals(net: Any, X: Tensor, z: Tensor) -> Array:
    """||f(z) - z||/||f(z)|| of each row, 0 for a row of zeros."""
    image = one_step(net, X, as_array(z))
    miss, size = np.linalg.norm(image - as_array(z), axis=1), np.linalg.norm(image, axis=1)
    return np.asarray(np.divide(miss, size, out=np.where(miss == 0.0, 0.0, np.inf), where=size > 0.0))


def rounding_of_residuals(net: Any, X: Tensor, z: Tensor) -> Array:
    """What float64 leaves of a residual of zero: rounding of h, seen through a slope of about one."""
    h, image = preactivations(net, X, as_array(z)), one_step(net, X, as_array(z))
    size = np.maximum(np.linalg.norm(image, axis=1), np.finfo(np.float64).tiny)
    return np.asarray(
        20.0 * np.finfo(np.float64).eps * (1.0 + np.linalg.norm(h, axis=1) / sqrt(net.width) / size)
    )


def dense_equilibrium(net: Any, X: Tensor, rough_steps: int = 60, newton_steps: int = 8) -> Array:
    """z of each sample by Newton's method with dense solves, after a rough start by iteration."""
    phi, scale, identity = net.spec.activation, 1.0 / sqrt(net.width), np.eye(net.width)
    weights = sqrt(net.spec.sigma_a2) * as_array(theory_weight(net, "recurrent"))
    solutions = []
    for u in drive(net, X):
        h = u
        for _ in range(rough_steps):
            h = weights @ phi(h) * scale + u
        for _ in range(newton_steps):
            jacobian = identity - weights * (phi.derivative(h) * scale)
            h = h - np.linalg.solve(jacobian, h - weights @ phi(h) * scale - u)
        solutions.append(phi(h) * scale)
    return np.array(solutions)


def unrolled(
    net: Any, X: Tensor, phi: Callable[[Tensor], Tensor], steps: int, start: Tensor | None = None
) -> Tensor:
    """z after `steps` of plain iteration under autograd; `phi` in torch's own words."""
    spec, z = net.spec, start
    u = sqrt(spec.sigma_b2) * X @ theory_weight(net, "inputs").T
    if net.bias is not None:
        u = u + sqrt(spec.bias2) * net.bias
    for _ in range(steps):
        h = u if z is None else sqrt(spec.sigma_a2) * z @ theory_weight(net, "recurrent").T + u
        z = phi(h) / sqrt(net.width)
    if z is None:
        raise ValueError("unrolled needs at least one step")
    return z
