"""Cells beside real networks: kernels against widths, the rate of a block read from torch, and the time of a kernel.

  python benchmarks/cells.py             about 10 minutes on one core
  python benchmarks/cells.py --quick     small widths, to see that it runs

Three tables, benchmarks/results/cells-width.csv, cells-rate.csv, cells-time.csv:
- relative distance (Frobenius) of the mean empirical kernels of several networks from the exact ones, by width;
- the rate of a block with RMSNorm, SwiGLU and two sublayers, read by `cells.from_torch`, predicted and measured as the
  largest modulus of an eigenvalue of its Jacobian (median of networks), for seven scales of the injected input;
- the time of the kernels of two-layer cells at n = 2000, relative to a DEQ with the same activation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import RESULTS, write_rows
from torch import Tensor, nn

import notsodeep as nsd
from notsodeep import cells

SCALES = (3.0, 2.0, 1.5, 1.2, 1.0, 0.8, 0.5)


def residual() -> cells.Node:
    """A residual block with a norm."""
    z, x = cells.state(), cells.input()
    return cells.norm(
        z + cells.dense(cells.activation(cells.dense(z, 0.5), "tanh"), 0.6) + cells.dense(x, 2.0), "layer"
    )


def gated() -> cells.Node:
    """Values with a gate of their own."""
    z, x = cells.state(), cells.input()
    values = cells.activation(cells.dense(z, 0.8) + cells.dense(x, 1.0), "tanh")
    return values * cells.activation(cells.dense(z, 0.7) + cells.dense(x, 0.5), "sigmoid")


def two_layers(phi: str = "tanh") -> cells.Node:
    """Two layers in a step."""
    z, x = cells.state(), cells.input()
    inner = cells.activation(cells.dense(z, 0.4) + cells.dense(x, 0.7), phi)
    return cells.activation(cells.dense(inner, 0.8) + cells.dense(x, 0.3), phi)


def two_sublayers(read: float = 4.0) -> cells.Node:
    """A block of recursive reasoning models without attention."""
    z, x = cells.state(), cells.input()

    def sublayer(y: Any) -> Any:
        return cells.dense(cells.activation(cells.dense(y, 1.0), "silu") * cells.dense(y, 1.0), 1.0)

    y0 = z + cells.dense(x, read)
    y1 = cells.norm(y0 + sublayer(y0))
    return cells.norm(y1 + sublayer(y1))


MODELS: dict[str, Callable[[], Any]] = {
    "residual, LayerNorm": lambda: nsd.Equilibrium(residual()),
    "gated": lambda: nsd.Equilibrium(gated()),
    "two layers": lambda: nsd.Equilibrium(two_layers()),
    "two sublayers, SwiGLU, RMSNorm": lambda: nsd.Equilibrium(two_sublayers()),
    "residual, loop of 4": lambda: nsd.Loop(residual(), 4),
    "two sublayers, loop of 3": lambda: nsd.Loop(two_sublayers(), 3),
}


class Block(nn.Module):
    """RMSNorm and SwiGLU in two sublayers, as a user writes it; the input is added to the state."""

    def __init__(self, width: int, inputs: int, scale: float) -> None:
        super().__init__()
        self.read = nn.Linear(inputs, width, bias=False)
        nn.init.normal_(self.read.weight, std=scale)
        self.norms = nn.ModuleList(nn.RMSNorm(width, elementwise_affine=False, eps=1e-12) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        for layer in (*self.up, *self.down):
            nn.init.normal_(layer.weight, std=width**-0.5)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        y = z + self.read(x)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            gate, value = up(y).chunk(2, dim=-1)
            y = norm(y + down(nn.functional.silu(gate) * value))
        return y


def kernel_rows(widths: tuple[int, ...], draws: int) -> list[list[str]]:
    """Distances of empirical kernels from the exact ones, and the fitted power of the width."""
    X = np.random.default_rng(0).standard_normal((6, 20)) / np.sqrt(20)
    X[1] = 0.8 * X[0] + 0.6 * X[1]
    inputs, rows = torch.as_tensor(X, dtype=torch.float64), []
    for name, make in MODELS.items():
        model, cells_of_row = make(), [name]
        exact = {"ck": nsd.conjugate_kernel(model, X), "ntk": nsd.tangent_kernel(model, X)}
        errors: dict[str, list[float]] = {"ck": [], "ntk": []}
        for width in widths:
            singles: dict[str, list[float]] = {"ck": [], "ntk": []}
            for seed in range(draws):
                net = nsd.nets.network(model, 20, width, 1, seed=seed, dtype=torch.float64)
                found = nsd.nets.empirical_kernels(net, inputs)
                for kernel, K in exact.items():
                    distance = np.linalg.norm(np.asarray(getattr(found, kernel)) - K) / np.linalg.norm(K)
                    singles[kernel].append(float(distance))
            for kernel, values in singles.items():
                errors[kernel].append(float(np.median(values)))
        for values in errors.values():
            slope = np.polyfit(np.log(widths), np.log(values), 1)[0]
            cells_of_row += [*(f"{100 * value:.1f} %" for value in values), f"{slope:.2f}"]
        rows.append(cells_of_row)
        print(" | ".join(cells_of_row), flush=True)
    return rows


def rate_rows(width: int, draws: int) -> list[list[str]]:
    """Predicted and measured rates of the block, for inputs of several scales."""
    X = torch.randn(4, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X = X / X.norm(dim=1, keepdim=True)
    rows = []
    for scale in SCALES:
        rates, predicted, settled = [], [], 0
        for seed in range(draws):
            torch.manual_seed(seed)
            block = Block(width, 20, scale).to(torch.float64)
            z0 = torch.zeros(len(X), width, dtype=torch.float64)
            model = cells.from_torch(block, z0, X)
            predicted.append(float(np.median(nsd.forecast(model, X.numpy()).rate)))
            measured = nsd.forecast(block, X, z0=z0)
            settled += bool(np.asarray(measured.settles).all())
            rates.append(np.nanmedian(measured.rate) if np.isfinite(measured.rate).any() else np.nan)
        shown = [
            f"{scale:g}",
            f"{np.median(predicted):.3f}",
            f"{np.nanmedian(rates):.3f}",
            f"{settled} of {draws}",
        ]
        rows.append(shown)
        print(" | ".join(shown), flush=True)
    return rows


def time_rows(n: int) -> list[list[str]]:
    """Times of both kernels in one run, relative to those of a DEQ."""
    X = np.random.default_rng(0).standard_normal((n, 784)) / 28.0
    rows = []
    for phi in ("tanh", "relu", "gelu"):
        models = {"DEQ": nsd.DEQ(phi, 0.3, 0.7), "two layers": nsd.Equilibrium(two_layers(phi))}
        seconds = {}
        for name, model in models.items():
            for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
                kernel(model, X[:300])
                times = []
                for _ in range(3):
                    begin = time.perf_counter()
                    kernel(model, X)
                    times.append(time.perf_counter() - begin)
                seconds[name, kernel.__name__] = float(np.median(times))
        ratios = [
            f"{seconds['two layers', kernel] / seconds['DEQ', kernel]:.1f}"
            for kernel in ("conjugate_kernel", "tangent_kernel")
        ]
        rows.append([phi, *ratios])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def _write(name: str, note: str, head: list[str], rows: list[list[str]], quick: bool) -> None:
    if not quick:
        write_rows(RESULTS / f"cells-{name}.csv", [dict(zip(head, row, strict=True)) for row in rows], note)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small widths, few networks")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    widths, draws = ((64, 128), 2) if quick else ((128, 256, 512, 1024), 8)
    kernel_head = [
        "cell",
        *(f"CK, m = {width}" for width in widths),
        "power of m",
        *(f"NTK, {w}" for w in widths),
        "power",
    ]
    note = f"Median relative distance of the empirical kernels of {draws} networks from the exact ones, six samples."
    _write("width", note, kernel_head, kernel_rows(widths, draws), quick)
    note = (
        "Rate of a block with RMSNorm, SwiGLU and two sublayers, read from torch; inputs of norm 1, scaled."
    )
    rates = rate_rows(100 if quick else 600, 2 if quick else 6)
    _write("rate", note, ["scale", "predicted rate", "measured rate", "settles"], rates, quick)
    note = "Time of a two-layer cell relative to a DEQ, n = 2000, p = 784."
    _write("time", note, ["activation", "CK", "NTK"], time_rows(300 if quick else 2000), quick)


if __name__ == "__main__":
    main()
