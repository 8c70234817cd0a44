"""The answers of TorchDEQ to questions.py, obtained by running it in its own environment."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torchdeq
from torchdeq import norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: the questions

from questions import answered

WIDTH, ROWS = 64, 12
GENERATOR = torch.Generator().manual_seed(0)
RECURRENT = torch.randn(WIDTH, WIDTH, generator=GENERATOR, dtype=torch.float64) * (0.2 / WIDTH) ** 0.5
INJECTED = torch.randn(ROWS, WIDTH, generator=GENERATOR, dtype=torch.float64) * 0.8**0.5
PULL = torch.randn(WIDTH, generator=GENERATOR, dtype=torch.float64)


def gradient_of(solve: Callable[[Callable[[torch.Tensor], torch.Tensor]], torch.Tensor]) -> torch.Tensor:
    """Of Σ <pull, z>, z = tanh(A z + u), with respect to A."""
    weights = RECURRENT.clone().requires_grad_()
    z = solve(lambda state: torch.tanh(state @ weights.T + INJECTED))
    (z @ PULL).sum().backward()
    assert weights.grad is not None
    return weights.grad


def unrolled(step: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """To rounding, by automatic differentiation."""
    z = torch.zeros_like(INJECTED)
    for _ in range(100):
        z = step(z)
    return z


def error_with(**options: object) -> float:
    deq = torchdeq.get_deq(**options)
    found = gradient_of(lambda step: deq(step, torch.zeros_like(INJECTED))[0][-1])
    truth = gradient_of(unrolled)
    return float((found - truth).norm() / truth.norm())


def gradient() -> str:
    return f"phantom, one step: {error_with():.0e}; with `ift=True` {error_with(ift=True):.0e}"


def divergence() -> str:
    deq = torchdeq.get_deq(f_solver="fixed_point_iter", f_max_iter=30)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        deq.eval()(lambda z: 2 * z + 1, torch.zeros(4, 3))  # runs away
    return "warns" if caught else "returns the last iterate without a word; the statistics are in `info`"


def any_map() -> str:
    cell = torch.nn.Conv2d(2, 2, 3, padding=1)
    injected = torch.randn(1, 2, 8, 8)
    deq = torchdeq.get_deq(f_solver="fixed_point_iter", ift=True)
    deq(lambda z: torch.tanh(0.3 * cell(z) + injected), torch.zeros_like(injected))[0][-1].sum().backward()
    assert cell.weight.grad is not None
    return "yes: here a convolution, trained through its equilibrium"


def train() -> str:
    gradient_of(lambda step: torchdeq.get_deq(ift=True)(step, torch.zeros_like(INJECTED))[0][-1])
    return "yes, as a layer of any PyTorch model"


def infinite_depth() -> str:
    found = [name for name in dir(torchdeq) if "kernel" in name.lower() or "ntk" in name.lower()]
    return f"yes: {found}" if found else "no kernels"


def regularisers() -> str:
    found = [name for name in ("apply_norm", "reset_norm") if hasattr(norm, name)]
    found += [name for name in ("jac_reg", "power_method") if hasattr(torchdeq.loss, name)]
    return "yes: " + ", ".join(f"`{name}`" for name in found)


if __name__ == "__main__":
    print(answered(globals()))
