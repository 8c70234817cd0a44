"""Our side of the comparison, with the same commands as peer.py.

compare.py imports it; as a program it answers the orders "load" and "memory" in a process of its own.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: how turns are taken

from harness import extra_megabytes
from reference import BATCH, FEATURES, OUTPUTS, SIGMA_A2, Gradients, Weights
from turns import obey

from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions


class Ours:
    """Our network with the same weights, created for every pair of tolerances."""

    def __init__(self, data: Weights, activation: str) -> None:
        self._data = {name: torch.from_numpy(value.copy()) for name, value in data.items()}
        self._activation = activation
        self.x, self.cotangent = self._data["X"], self._data["cotangent"]

    def network(
        self, tolerance: float, adjoint: float | None = None, *, frozen: bool = False, extra: int = 0
    ) -> DEQNet:
        """With these weights and tolerances; `extra` inputs have no weight."""
        width = self._data["recurrent"].shape[0]
        net = DEQNet(
            DEQ(self._activation, SIGMA_A2),
            FEATURES + extra,
            width,
            OUTPUTS,
            train="readout" if frozen else "all",
            solver=SolverOptions(tolerance=tolerance),
            adjoint=SolverOptions(tolerance=adjoint or tolerance),
            on_failure="ignore",  # how far it came is measured here, from outside
        )
        self._set(net, None)
        return net

    def settled(self, tolerance: float) -> DEQNet:
        """A frozen network that has seen many rows: whatever it keeps for its weights is there."""
        net = self.network(tolerance, frozen=True).eval()
        with torch.no_grad():
            net(torch.cat([self._rolled(seed) for seed in range(9 * net.width // BATCH + 1)]))
        return net

    def features(self, tolerance: float) -> tuple[torch.Tensor, DEQNet]:
        net = self.network(tolerance).eval()
        with torch.no_grad():
            return net.features(self.x), net

    def gradients(self, tolerance: float, adjoint: float) -> tuple[Gradients, DEQNet]:
        net = self.network(tolerance, adjoint).train()
        net(self.x).backward(self.cotangent)
        found = {name: getattr(net, name).grad for name in ("recurrent", "inputs", "readout")}
        return found, net

    def pulls(self, tolerance: float, adjoint: float) -> tuple[torch.Tensor, torch.Tensor]:
        """The equilibrium, and for every sample the gradient with respect to its pre-activations.

        One more input per sample, which is 1 there, 0 elsewhere and has no weight, changes nothing; but the gradient
        with respect to its weights is that of this sample alone.
        """
        net = self.network(tolerance, adjoint, extra=BATCH)
        marked = torch.cat([self.x, torch.eye(BATCH)], dim=1)
        net(marked).backward(self.cotangent)
        with torch.no_grad():
            return net.features(marked), net.inputs.grad[:, FEATURES:].T / math.sqrt(1 - SIGMA_A2)

    def time(self, net: DEQNet, mode: str, seeds: Sequence[int]) -> list[float]:
        """Seconds of one call per seed, as peer.py takes them; frozen weights stay, and the inputs change instead."""
        net.train(mode == "training")
        seconds = []
        for seed in seeds:
            x = self._rolled(seed) if mode == "frozen" else self.x
            if mode != "frozen":
                self._set(net, seed)
            net.zero_grad(set_to_none=True)
            gc.collect()
            start = time.perf_counter()
            self._call(net, x)
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    def memory(self, mode: str, tolerance: float, adjoint: float) -> float | None:
        """Peak extra megabytes of a third call, as peer.py takes them."""
        net = self.network(tolerance, adjoint).train(mode == "training")
        for _ in range(2):
            self._call(net, self.x)
            net.zero_grad(set_to_none=True)
        return extra_megabytes(lambda: self._call(net, self.x))

    def _call(self, net: DEQNet, x: torch.Tensor) -> None:
        if net.training:
            net(x).backward(self.cotangent)
        else:
            with torch.no_grad():
                net(x)

    def _rolled(self, seed: int) -> torch.Tensor:
        return self.x.roll(seed % FEATURES, dims=1)

    def _set(self, net: DEQNet, seed: int | None) -> None:
        """The given weights, perturbed by a thousandth of the same noise as the peer's."""
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name in ("recurrent", "inputs", "readout"):
                weight, given = getattr(net, name), self._data[name]
                weight.zero_()[:, : given.shape[1]] = given
                if generator is not None:
                    weight.add_(torch.randn(weight.shape, generator=generator), alpha=1e-3)


class Desk:
    """The orders of peer.py that ours takes in a process of its own."""

    def __init__(self) -> None:
        self._ours: Ours

    def load(self, folder: str, activation: str, sigma_a2: float, threads: int) -> dict[str, Any]:
        torch.set_num_threads(threads)
        read = {path.stem: np.load(path, allow_pickle=False) for path in Path(folder).glob("*.npy")}
        self._ours = Ours(read, activation)
        return {"sigma_a2": sigma_a2}

    def memory(self, mode: str, settings: dict[str, float]) -> dict[str, Any]:
        return {"megabytes": self._ours.memory(mode, **settings)}


if __name__ == "__main__":
    desk = Desk()
    obey({"load": desk.load, "memory": desk.memory})
