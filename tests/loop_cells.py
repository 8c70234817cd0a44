"""Loop cells in the style of published ones, with float32 weights, and plain iteration of them in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def rms_norm(z: Tensor) -> Tensor:
    """In float32 whatever the input is, as published cells have it."""
    kept = z.dtype
    z = z.to(torch.float32)
    return (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-5)).to(kept)


class SwiGLUBlock(nn.Module):
    """A sublayer of a tiny recursive model: RMSNorm(y + W₃(SiLU(W₁ y)·W₂ y)) of y = z + x."""

    def __init__(self, size: int, gain: float) -> None:
        super().__init__()
        self.gate_up, self.down = (
            nn.Linear(size, 4 * size, bias=False),
            nn.Linear(2 * size, size, bias=False),
        )
        nn.init.normal_(self.gate_up.weight, std=size**-0.5)
        nn.init.normal_(self.down.weight, std=gain * (2 * size) ** -0.5)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        y = z + x
        gate, up = self.gate_up(y).chunk(2, dim=-1)
        return rms_norm(y + self.down(F.silu(gate) * up))


class TransformerBlock(nn.Module):
    """Attention with input injection and a post-norm MLP; its state is a sequence."""

    def __init__(self, size: int, gain: float = 1.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, 4, batch_first=True, bias=False)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.gain = gain

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        y = z + x
        y = self.norms[0](y + self.gain * self.attention(y, y, y, need_weights=False)[0])
        return self.norms[1](y + self.gain * self.mlp(y))


class ConvCell(nn.Module):
    """A convolutional multiscale-DEQ cell with GroupNorm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(2, channels) for _ in range(3)])
        for conv in (self.first, self.second):
            nn.init.normal_(conv.weight, std=0.03)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        y = self.norms[0](F.relu(self.first(z)))
        return self.norms[2](F.relu(z + self.norms[1](x + self.second(y))))


class GRU(nn.Module):
    """torch's own GRU cell, repeated on one input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(size, size)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return self.cell(x, z)


@dataclass
class LoopCell:
    """A cell, the same in float64, its input and first state, and what plain iteration does."""

    cell: Callable[[Tensor, Tensor], Any]
    exact: Callable[[Tensor, Tensor], Any]
    x: Tensor
    z0: Tensor
    answer: str


class Closure:
    """A DEQ whose float32 weights live in a closure, and in float64 beside it."""

    def __init__(self, size: int, gain: float) -> None:
        W, U = nn.Linear(size, size, bias=False), nn.Linear(size, size)
        nn.init.normal_(W.weight, std=gain * size**-0.5)
        self.function = lambda z, x: torch.tanh(W(z) + U(x))
        V, T = copy.deepcopy(W).double(), copy.deepcopy(U).double()
        self.exact = lambda z, x: torch.tanh(V(z) + T(x))


def rotation(angle: float, length: float) -> Tensor:
    c, s = length * math.cos(angle), length * math.sin(angle)
    return torch.tensor([[c, s], [-s, c]])


def _cases() -> dict[str, tuple[Any, Tensor, Tensor, str]]:
    """Cells, their inputs and first states, and what plain iteration does."""
    rows, images, tokens = torch.randn(3, 48), torch.randn(2, 8, 6, 6), torch.randn(2, 7, 32)
    pairs, zero = rows[:, :2], torch.zeros_like(rows)

    def growing(z: Tensor, x: Tensor) -> Tensor:
        return z + F.relu(x) / (1.0 + 0.1 * z.square().mean(-1, keepdim=True))

    def cycle(z: Tensor, x: Tensor) -> Tensor:
        return 1.3 * torch.tanh(z @ rotation(0.7, 1.5).to(z)) + 0.1 * x

    return {
        "SwiGLU block": (SwiGLUBlock(48, 0.3), 2.0 * rows, zero, "settles"),
        "strong SwiGLU block": (SwiGLUBlock(48, 3.0), 0.02 * rows, torch.randn(3, 48), "oscillates"),
        "transformer block": (TransformerBlock(32), tokens, torch.zeros_like(tokens), "settles"),
        "convolution with GroupNorm": (ConvCell(8), images, torch.zeros_like(images), "settles"),
        "GRU": (GRU(48), rows, zero, "settles"),
        "DEQ": (Closure(48, 0.8), rows, zero, "settles"),
        "shift around": (lambda z, x: 0.99 * torch.roll(z, 1, 1) + x, rows, zero, "settles"),
        "slow contraction": (lambda z, x: 0.9995 * z + x, rows, zero, "settles"),
        "nilpotent shift": (lambda z, x: F.pad(z[:, :-1], (1, 0)) + x, rows, zero, "settles"),
        "growing map": (lambda z, x: 1.01 * z + x, rows, zero, "grows"),
        "steadily growing residual": (lambda z, x: z + torch.tanh(x), rows, zero, "grows"),
        "slowly growing residual": (growing, rows, zero, "grows"),
        "rotation": (lambda z, x: z @ rotation(0.7, 1.0).to(z) + x, pairs, 0.0 * pairs, "oscillates"),
        "spiral": (lambda z, x: z @ rotation(0.7, 0.999).to(z) + x, pairs, 0.0 * pairs, "settles"),
        "limit cycle": (cycle, pairs, 0.0 * pairs, "oscillates"),
        "slow contraction that grows first": (
            lambda z, x: 0.999 * z + F.pad(z[:, :1], (1, 0)) + x,
            pairs,
            0.0 * pairs,
            "settles",
        ),
        "flip": (lambda z, x: -2.0 * torch.tanh(z) + 0.1 * x, rows[:, :4], zero[:, :4], "oscillates"),
    }


def loop_cell(name: str) -> LoopCell:
    """One of the cells by name, with fixed weights; in float32, as they are published."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        cell, x, z0, answer = _cases()[name]
    if isinstance(cell, Closure):
        return LoopCell(cell.function, cell.exact, x, z0, answer)
    exact = copy.deepcopy(cell).eval().double() if isinstance(cell, nn.Module) else cell
    return LoopCell(cell, exact, x, z0, answer)


NAMES = tuple(_cases())
