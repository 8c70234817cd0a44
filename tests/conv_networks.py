"""Random convolutional equilibrium models of finite width, written with torch's own convolution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch


def random_kernels(model: Any, images: np.ndarray, channels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """⟨z_i, z_j⟩ read out, and the tangent kernel of f over all weights, of one random network.

    The equilibrium is iterated without a graph; one step more, and its adjoint by iteration, give the gradients.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    x = torch.as_tensor(images)
    axes, (n, depth) = images.ndim - 2, images.shape[:2]
    side, taps = (model.filter_size,) * axes, model.filter_size**axes
    count = int(np.prod(images.shape[2:]))
    phi = {"erf": torch.erf, "relu": torch.relu}[model.activation.name]
    recurrent, entry, bias = (
        normal(channels, channels, *side),
        normal(channels, depth, *side),
        normal(channels),
    )
    flatten = model.readout == "flatten"
    head = normal(channels, *(images.shape[2:] if flatten else ()))
    convolve = torch.nn.functional.conv2d if axes == 2 else torch.nn.functional.conv1d
    mode = "constant" if model.padding == "zeros" else "circular"
    border = (model.filter_size // 2,) * (2 * axes)

    def conv(weights: torch.Tensor, values: torch.Tensor, variance: float) -> torch.Tensor:
        return math.sqrt(variance / taps) * convolve(torch.nn.functional.pad(values, border, mode), weights)

    def step(u: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
        inner = conv(recurrent, phi(u) / math.sqrt(channels), model.sigma_a2) + conv(
            entry, one, model.sigma_b2
        )
        return inner + math.sqrt(model.bias2) * bias.reshape(-1, *[1] * axes)

    with torch.no_grad():
        u = step(torch.zeros(n, channels, *images.shape[2:], dtype=torch.float64), x)
        for _ in range(30):
            u = step(u, x)
        z = phi(u).reshape(n, channels, -1) / math.sqrt(channels)
        features = (z if flatten else z.mean(-1)).reshape(n, -1)
        features = features / math.sqrt(count) if flatten else features
    weights, rows = (recurrent, entry, bias, head), []
    for k in range(n):
        here = u[k : k + 1].clone().requires_grad_()
        after = step(here, x[k : k + 1])
        out = phi(after) / math.sqrt(channels)
        value = (
            (head * out[0]).sum() / math.sqrt(count) if flatten else (head * out[0].flatten(1).mean(1)).sum()
        )
        (seed_gradient,) = torch.autograd.grad(value, after, retain_graph=True)
        adjoint = seed_gradient
        for _ in range(30):
            (back,) = torch.autograd.grad(after, here, adjoint, retain_graph=True)
            adjoint = seed_gradient + back
        inner = torch.autograd.grad(after, weights[:3], adjoint, retain_graph=True)
        (outer,) = torch.autograd.grad(value, head)
        rows.append(torch.cat([gradient.reshape(-1) for gradient in (*inner, outer)]))
    gradients = torch.stack(rows)
    return (features @ features.T).numpy(), (gradients @ gradients.T).numpy()
