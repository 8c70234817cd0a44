"""A DEQ by TorchDEQ, in an environment of its own: equilibrium, gradients and times, one order at a time.

The network is z = φ(σ_a A z + σ_b B x)/√m, f(x) = V z, with weights read from .npy files. It is written here as a
careful user of TorchDEQ would: the state is √m z, so that a step is one `addmm` and one φ; the input is injected by
one product before the iteration. The iteration starts at zero, as in TorchDEQ's documentation and examples, or, if
so ordered, at φ(σ_b B x), which is the step from zero without its product.

Orders come as JSON lines on standard input, answers go as JSON lines to standard output; `compare.py` sends them.
This file imports nothing of notsodeep.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.metadata
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchdeq
from torchdeq.solver import get_solver, register_solver
from torchdeq.solver.anderson import anderson_solver

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: how turns are taken

from harness import extra_megabytes
from turns import obey

Answer = dict[str, Any]
Step = Callable[[torch.Tensor], torch.Tensor]

#: TorchDEQ's Anderson adds 1e-4 to its normal equations whatever their scale; this one is told a smaller number.
TUNED = "anderson_tuned"
register_solver(TUNED, functools.partial(anderson_solver, lam=1e-10))
#: No tolerance: it takes a number of steps known in advance. As backward solver it raises TypeError.
TOLD = "simple_fixed_point_iter"
PHI = {"tanh": torch.tanh, "relu": torch.relu}
SLOPE_AT = {"tanh": lambda value: 1 - value**2, "relu": lambda value: (value > 0).to(value.dtype)}  # of φ(h)
MOST_STEPS = 60
#: A solve that never stops early and keeps every state it could have returned.
EVERY_STEP: dict[str, Any] = {
    "max_iter": MOST_STEPS,
    "tol": 0.0,
    "stop_mode": "rel",
    "indexing": list(range(1, MOST_STEPS + 2)),
}


# --- the network -------------------------------------------------------------------------------------
class Network(torch.nn.Module):
    """The DEQ with weights from files; how it is solved and differentiated is set order by order."""

    def __init__(self, folder: Path, activation: str, sigma_a2: float) -> None:
        super().__init__()
        self.phi, self.slope_at = PHI[activation], SLOPE_AT[activation]
        self.recurrent = torch.nn.Parameter(read(folder / "recurrent.npy"))
        self.inputs = torch.nn.Parameter(read(folder / "inputs.npy"))
        self.readout = torch.nn.Parameter(read(folder / "readout.npy"))
        self.width = self.recurrent.shape[0]
        self.scale_recurrent = (sigma_a2 / self.width) ** 0.5
        self.scale_inputs = (1 - sigma_a2) ** 0.5
        self.solver: torch.nn.Module = torch.nn.Identity()
        self.ahead = False  # start at φ(σ_b B x), not at zero
        self.evaluations = 0

    def step(self, x: torch.Tensor) -> tuple[Step, torch.Tensor]:
        """√m z -> √m f(z), and where to start."""
        scaled = (self.scale_recurrent * self.recurrent).T
        injected = torch.nn.functional.linear(x, self.inputs) * self.scale_inputs

        def apply(state: torch.Tensor) -> torch.Tensor:
            self.evaluations += 1
            return self.phi(torch.addmm(injected, state, scaled))

        return apply, self.phi(injected) if self.ahead else torch.zeros_like(injected)

    def equilibrium(self, x: torch.Tensor) -> torch.Tensor:
        """√m z."""
        apply, start = self.step(x)
        states, _ = self.solver(apply, start)
        state: torch.Tensor = states[-1]
        return state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.equilibrium(x) / self.width**0.5 @ self.readout.T

    def pull(self, cotangent: torch.Tensor) -> torch.Tensor:
        """What a gradient in the outputs is in √m z."""
        return cotangent @ self.readout / self.width**0.5


def read(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.load(path, allow_pickle=False))


# --- float64 truth about a float32 answer --------------------------------------------------------------
class Exact:
    """The same map in float64, to measure residuals that the solvers' own float32 statistics cannot see."""

    def __init__(self, network: Network, x: torch.Tensor) -> None:
        with torch.no_grad():
            self._recurrent = network.recurrent.double() * network.scale_recurrent
            self._injected = x.double() @ network.inputs.double().T * network.scale_inputs
        self._phi, self._slope_at = network.phi, network.slope_at

    def residual(self, state: torch.Tensor) -> torch.Tensor:
        """||f(z) - z||/||z|| of every sample."""
        z = state.detach().double()
        image = self._phi(torch.addmm(self._injected, z, self._recurrent.T))
        return (image - z).norm(dim=1) / z.norm(dim=1)

    def adjoint_residual(self, image: torch.Tensor, y: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        """||D(Jᵀ y + seed - y)||/||D y|| of every sample: D y is what the gradients of all weights are made of.

        D is read off f(z) as the peer's own graph has it, and J = D σ_a A/√m.
        """
        slope, y = self._slope_at(image.detach().double()), y.detach().double()
        image_of_y = (slope * y) @ self._recurrent + seed.double()
        return (slope * (image_of_y - y)).norm(dim=1) / (slope * y).norm(dim=1)


# --- orders --------------------------------------------------------------------------------------------
class Desk:
    """One network at a time, and what can be asked about it."""

    def __init__(self) -> None:
        self.network: Network
        self.x: torch.Tensor
        self.cotangent: torch.Tensor

    def load(self, folder: str, activation: str, sigma_a2: float, threads: int) -> Answer:
        torch.set_num_threads(threads)
        self.network = Network(Path(folder), activation, sigma_a2)
        self.x, self.cotangent = read(Path(folder) / "X.npy"), read(Path(folder) / "cotangent.npy")
        self._original = [parameter.detach().clone() for parameter in self.network.parameters()]
        return {"versions": versions()}

    def truth(self) -> Exact:
        """Residuals in float64."""
        return Exact(self.network, self.x)

    def trace(self, solver: str, ahead: bool) -> Answer:
        """What the solver could return after each of its steps: its own criterion and the true residual."""
        network, truth = self.network, self.truth()
        network.ahead = ahead
        apply, start = network.step(self.x)
        with torch.no_grad():
            _, states, info = get_solver(solver)(apply, start, **EVERY_STEP)
        residuals = [float(truth.residual(state).max()) for state in states]
        return {"criteria": criteria_of(info, len(residuals)), "residuals": residuals}

    def trace_adjoint(self, solver: str, forward: Answer) -> Answer:
        """The same for the backward solve, at the equilibrium that the forward settings give."""
        network, truth = self.network, self.truth()
        state = self.solve(**forward).requires_grad_()
        apply, _ = network.step(self.x)
        image = apply(state)
        seed = network.pull(self.cotangent).detach()

        def transposed(y: torch.Tensor) -> torch.Tensor:
            return torch.autograd.grad(image, state, y, retain_graph=True)[0] + seed

        _, states, info = get_solver(solver)(transposed, torch.zeros_like(seed), **EVERY_STEP)
        residuals = [float(truth.adjoint_residual(image, y, seed).max()) for y in states]
        return {"criteria": criteria_of(info, len(residuals)), "residuals": residuals}

    def solve(self, **settings: Any) -> torch.Tensor:
        """The equilibrium √m z in evaluation mode."""
        network = self._set_up(settings, training=False)
        with torch.no_grad():
            return network.equilibrium(self.x)

    def inspect(self, gradients: str | None = None, **settings: Any) -> Answer:
        """True residual, evaluations forward and in a training step; the gradients go to .npy files."""
        network = self.network
        network.evaluations = 0
        state = self.solve(**settings)
        answer: Answer = {
            "residual": float(self.truth().residual(state).max()),
            "evaluations": network.evaluations,
        }
        if gradients is not None:
            self._take_gradient(settings)
            for name, parameter in network.named_parameters():
                assert parameter.grad is not None
                np.save(f"{gradients}-{name}.npy", parameter.grad.numpy())
        return answer

    def _take_gradient(self, settings: Answer) -> None:
        network = self._set_up(settings, training=True)
        network.zero_grad(set_to_none=True)
        self._call(training=True)

    def time(self, mode: str, seeds: list[int], settings: Answer) -> Answer:
        """Seconds and evaluations of one call per seed, weights perturbed anew; the first call is not counted.

        "processor" are the seconds of the processor, which other processes do not lengthen.
        """
        training = mode == "training"
        network = self._set_up(settings, training=training)
        seconds, processor, evaluations = [], [], []
        for seed in seeds:
            self._perturb(seed)
            network.zero_grad(set_to_none=True)
            network.evaluations = 0
            gc.collect()
            start, used = time.perf_counter(), time.process_time()
            self._call(training)
            processor.append(time.process_time() - used)
            seconds.append(time.perf_counter() - start)
            evaluations.append(network.evaluations)
        self._restore()
        return {"seconds": seconds[1:], "processor": processor[1:], "evaluations": evaluations[1:]}

    def memory(self, mode: str, settings: Answer) -> Answer:
        """Peak extra megabytes of a third call: the first ones start threads and allocate what the libraries keep."""
        network = self._set_up(settings, training=mode == "training")
        for _ in range(2):
            self._call(network.training)
            network.zero_grad(set_to_none=True)
        return {"megabytes": extra_megabytes(lambda: self._call(network.training))}

    def _call(self, training: bool) -> None:
        if training:
            self.network(self.x).backward(self.cotangent)
        else:
            with torch.no_grad():
                self.network(self.x)

    def _set_up(self, settings: Answer, *, training: bool) -> Network:
        network = self.network.train(training)
        network.solver = torchdeq.get_deq(**options_of(settings)).train(training)
        network.ahead = settings.get("ahead", False)
        return network

    def _perturb(self, seed: int) -> None:
        """Original weights and a thousandth of fresh noise: no two calls meet the same weights."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter, original in zip(self.network.parameters(), self._original, strict=True):
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(original).add_(noise, alpha=1e-3)

    def _restore(self) -> None:
        with torch.no_grad():
            for parameter, original in zip(self.network.parameters(), self._original, strict=True):
                parameter.copy_(original)


def criteria_of(info: Answer, count: int) -> list[float]:
    """The number a solver compares with its tolerance after each step (before the first stands a placeholder)."""
    traced: list[float] = info["rel_trace"].max(dim=0).values.tolist()
    return traced[1 : count + 1]


def options_of(settings: Answer) -> Answer:
    """TorchDEQ's own keywords from ours: solver, forward and backward tolerance, steps, gradient."""
    backward = "fixed_point_iter" if settings["solver"] == TOLD else settings["solver"]
    options = {
        "f_solver": settings["solver"],
        "b_solver": settings.get("backward_solver", backward),
        "f_tol": settings["tolerance"],
        "b_tol": settings.get("adjoint_tolerance", settings["tolerance"]),
        "f_stop_mode": "rel",
        "b_stop_mode": "rel",
        "f_max_iter": settings.get("steps", MOST_STEPS),
        "b_max_iter": MOST_STEPS,
    }
    gradient = settings.get("gradient", "implicit")
    if gradient == "implicit":
        return options | {"ift": True}
    if gradient == "hook":
        return options | {"hook_ift": True}
    return options | {"grad": int(gradient)}  # phantom, so many steps


def versions() -> dict[str, str]:
    return {
        "torchdeq": importlib.metadata.version("torchdeq"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    desk = Desk()
    names = ("load", "trace", "trace_adjoint", "inspect", "time", "memory")
    obey({name: getattr(desk, name) for name in names})


if __name__ == "__main__":
    main()
