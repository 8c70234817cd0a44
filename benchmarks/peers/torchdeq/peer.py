"""A DEQ by TorchDEQ, as a careful user of it would write it: z = φ(σ_a A z + σ_b B x)/√m, f(x) = V z.

The state is √m z, so that a step is one `addmm` and one φ; the input is injected by one product before the iteration.
It starts at zero, as in TorchDEQ's documentation, or ("ahead") at φ(σ_b B x), the step from zero without its product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
import torchdeq
from torch import Tensor, nn
from torchdeq.solver import register_solver
from torchdeq.solver.anderson import anderson_solver

# TorchDEQ's Anderson adds 1e-4 to its normal equations whatever their scale; this one is told a smaller number.
register_solver("anderson_tuned", functools.partial(anderson_solver, lam=1e-10))
SOLVERS = ("fixed_point_iter", "fixed_point_iter, ahead", "anderson", "anderson_tuned", "broyden")
STEPS = 60


class Network(nn.Module):
    """The DEQ with given weights; `tolerance` is that of the solver, forward and backward, relative."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        phi: Callable[..., Tensor],
        sigma_a2: float,
        solver: str,
        tolerance: float,
    ) -> None:
        super().__init__()
        for name in ("recurrent", "inputs", "readout"):
            self.register_parameter(name, nn.Parameter(weights[name].clone()))
        self.width, self.phi = len(weights["recurrent"]), phi
        self.scales = (sigma_a2 / self.width) ** 0.5, (1.0 - sigma_a2) ** 0.5
        name, _, self.ahead = solver.partition(", ")
        options = {"f_solver": name, "f_tol": tolerance, "f_stop_mode": "rel", "f_max_iter": STEPS}
        options |= {"b" + key[1:]: value for key, value in options.items()}
        self.solver = torchdeq.get_deq(**options, hook_ift=True)

    def features(self, x: Tensor) -> Tensor:
        """The equilibrium z."""
        scaled = (self.scales[0] * self.recurrent).T
        injected = nn.functional.linear(x, self.inputs) * self.scales[1]
        start = self.phi(injected) if self.ahead else torch.zeros_like(injected)
        states, _ = self.solver(lambda state: self.phi(torch.addmm(injected, state, scaled)), start)
        return states[-1] / self.width**0.5

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        return self.features(x) @ self.readout.T
