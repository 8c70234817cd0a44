"""notsodeep beside TorchDEQ: the same DEQ, the same equilibrium, and the time of each.

  python benchmarks/peers/torchdeq/compare.py [--quick]      (pip install -r requirements.txt of this folder first)

The network is z = φ(σ_a A z + σ_b B x)/√m with ten linear outputs, σ_a² = 0.2, batch 256, p = 784, float32, every
weight the same on both sides. Two things are timed: the outputs (no gradients), and a training step's gradient
(outputs, then implicit differentiation with respect to all weights).

A tolerance is not the error it leaves. So ours and each solver of the peer get the loosest tolerance of one ladder with
which the true residual max ||f(z) - z||/||z||, in float64, is within the target; for the gradient, with which its
relative error is, against a float64 solve of one dense system per sample. Then both take turns in one process; before
every call all weights are perturbed, so that nothing can be kept from the call before. Ratios are of medians.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness

from harness import RESULTS, Provenance, Row, Times, clock, markdown_provenance, markdown_table, write_rows
from peer import SOLVERS, Network

from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions

SIGMA_A2, BATCH, FEATURES, OUTPUTS = 0.2, 256, 784, 10
LADDER = tuple(4.0 * 1.25**-k for k in range(14))  # tolerances, as multiples of the target
PHI = {"tanh": torch.tanh, "relu": torch.relu}
SLOPE_AT = {"tanh": lambda value: 1 - value**2, "relu": lambda value: (value > 0).double()}
MODES = ("outputs", "gradient")
Make = Callable[[float], Any]


def draw(width: int) -> dict[str, Tensor]:
    """Weights N(0, 1), inputs of norm about one, and the gradient of a loss with respect to the outputs."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"recurrent": (width, width), "inputs": (width, FEATURES), "readout": (OUTPUTS, width)}
    shapes |= {"X": (BATCH, FEATURES), "cotangent": (BATCH, OUTPUTS)}
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return drawn | {"X": drawn["X"] / math.sqrt(FEATURES), "cotangent": drawn["cotangent"] / BATCH}


class Exact:
    """The same network in float64: true residuals, and gradients by one dense solve per sample; slow on purpose."""

    def __init__(self, data: dict[str, Tensor], activation: str) -> None:
        self.data = {name: value.double() for name, value in data.items()}
        self.root = math.sqrt(len(data["recurrent"]))
        self.phi, self.slope_at = PHI[activation], SLOPE_AT[activation]
        self.scaled = self.data["recurrent"] * math.sqrt(SIGMA_A2)
        self.injected = self.data["X"] @ self.data["inputs"].T * math.sqrt(1 - SIGMA_A2)
        self.gradients = self._gradients()

    def step(self, z: Tensor) -> Tensor:
        """f(z)."""
        return self.phi(torch.addmm(self.injected, z, self.scaled.T)) / self.root

    def residual(self, net: nn.Module) -> float:
        """Largest ||f(z) - z||/||z|| of a sample at the equilibrium that a network returns."""
        with torch.no_grad():
            z = net.eval().features(self.data["X"].float()).double()  # type: ignore[operator]
        return float(((self.step(z) - z).norm(dim=1) / z.norm(dim=1)).max())

    def gradient_error(self, net: nn.Module) -> float:
        """Largest relative error of the gradients with respect to A and B, which pass through the equilibrium."""
        net.zero_grad(set_to_none=True)
        net.train()(self.data["X"].float()).backward(self.data["cotangent"].float())
        pairs = [(getattr(net, name).grad.double(), truth) for name, truth in self.gradients.items()]
        return max(float((found - truth).norm() / truth.norm()) for found, truth in pairs)

    def _gradients(self) -> dict[str, Tensor]:
        z, before = self.step(torch.zeros_like(self.injected)), self.injected
        while (z - before).norm() > 1e-14 * z.norm():
            z, before = self.step(z), z
        slope, pull = self.slope_at(self.root * z), self.data["cotangent"] @ self.data["readout"]
        transposed, identity = self.scaled.T / self.root, torch.eye(len(self.scaled)).double()
        # (I - Jᵀ) v = the readout's pull, J = diag(φ') σ_a A/√m.
        solved = [
            torch.linalg.solve(identity - transposed * d, right) for d, right in zip(slope, pull, strict=True)
        ]
        driven = slope * torch.stack(solved) / self.root
        inputs = math.sqrt(1 - SIGMA_A2) * driven.T @ self.data["X"]
        return {"recurrent": math.sqrt(SIGMA_A2) * driven.T @ z, "inputs": inputs}


def ours(data: dict[str, Tensor], activation: str, tolerance: float) -> DEQNet:
    """Our network with these weights."""
    options, width = SolverOptions(tolerance=tolerance), len(data["recurrent"])
    # How far it came is measured here, from outside.
    more: dict[str, Any] = {"solver": options, "adjoint": options, "on_failure": "ignore", "scaling": "ntk"}
    net = DEQNet(DEQ(activation, SIGMA_A2), FEATURES, width, OUTPUTS, **more)
    with torch.no_grad():
        for name in ("recurrent", "inputs", "readout"):
            getattr(net, name).copy_(data[name])
    return net


def loosest(make: Make, error: Callable[[nn.Module], float], target: float) -> tuple[Any, float] | None:
    """The network with the loosest tolerance whose error is within the target, and that error."""
    for multiple in LADDER:
        net = make(target * multiple)
        found = error(net)
        if found <= target:
            return net, found
    return None


def times(nets: dict[str, Any], data: dict[str, Tensor], mode: str, rounds: int) -> dict[str, Times]:
    """Seconds of every network, in turn; the first round does not count."""
    taken: dict[str, list[float]] = {name: [] for name in nets}

    def call(net: Any) -> None:
        if mode == "gradient":
            net(data["X"]).backward(data["cotangent"])
        else:
            with torch.no_grad():
                net(data["X"])

    for seed in range(rounds + 1):
        for name, net in nets.items():
            generator = torch.Generator().manual_seed(seed)
            net.train(mode == "gradient").zero_grad(set_to_none=True)
            with torch.no_grad():
                for part in ("recurrent", "inputs", "readout"):
                    noise = torch.randn(data[part].shape, generator=generator)
                    getattr(net, part).copy_(data[part]).add_(noise, alpha=1e-3)
            taken[name].append(clock(lambda net=net: call(net)))
    return {name: Times(tuple(seconds[1:])) for name, seconds in taken.items()}


def compare(activation: str, width: int, target: float, rounds: int) -> list[Row]:
    """Outputs and gradients of one network: ours, and the peer's fastest solver that is within the target."""
    data = draw(width)
    exact, rows = Exact(data, activation), []
    makers: dict[str, Make] = {"ours": lambda tolerance: ours(data, activation, tolerance)}
    for solver in SOLVERS:
        makers[solver] = lambda t, solver=solver: Network(data, PHI[activation], SIGMA_A2, solver, t)
    for mode, error in zip(MODES, (exact.residual, exact.gradient_error), strict=True):
        matched = {name: found for name, make in makers.items() if (found := loosest(make, error, target))}
        taken = times({name: net for name, (net, _) in matched.items()}, data, mode, rounds)
        best = min((name for name in taken if name != "ours"), key=lambda name: taken[name].median)
        ratio = taken["ours"].median / taken[best].median
        row: Row = {"φ": activation, "m": width, "what": mode, "error ≤": target, "peer's best": best}
        row |= {f"{side} (ms)": 1e3 * taken[name].median for side, name in (("peer", best), ("ours", "ours"))}
        row |= {"ours / peer": ratio, "spread": max(taken["ours"].spread, taken[best].spread)}
        rows.append(row | {"error, peer": matched[best][1], "error, ours": matched["ours"][1]})
    return rows


def main() -> None:
    """Compare, and write the rows after every network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="m = 64, two rounds; writes nothing")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    provenance, rows = Provenance(), []
    for activation in PHI:
        for width in (64,) if options.quick else (256, 1024, 2048):
            for target in (1e-6, 1e-3):
                rows += compare(activation, width, target, 2 if options.quick else 15)
                print(markdown_table(rows[-2:]), flush=True)
        if not options.quick:
            write_rows(options.out / "torchdeq.csv", rows, markdown_provenance(provenance.record()))


if __name__ == "__main__":
    main()
