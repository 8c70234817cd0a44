"""What is compared on both sides, and the float64 truth about it: residuals, and gradients by dense solves.

Independent of TorchDEQ and of notsodeep's networks, and slow on purpose: one system of m equations per sample.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

SIGMA_A2 = 0.2
BATCH, FEATURES, OUTPUTS = 256, 784, 10

Weights = dict[str, np.ndarray[Any, np.dtype[np.float32]]]
Gradients = dict[str, torch.Tensor]


def draw(width: int, seed: int = 0) -> Weights:
    """Weights N(0, 1), inputs of norm about one, and the gradient of a loss with respect to the outputs."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return rng.standard_normal(shape, dtype=np.float32)

    return {
        "recurrent": normal(width, width),
        "inputs": normal(width, FEATURES),
        "readout": normal(OUTPUTS, width),
        "X": normal(BATCH, FEATURES) / np.float32(math.sqrt(FEATURES)),
        "cotangent": normal(BATCH, OUTPUTS) / np.float32(BATCH),
    }


class Exact:
    """The same network in float64: true residuals, and gradients by one dense solve per sample."""

    def __init__(self, data: Weights, activation: str) -> None:
        self._data = {name: torch.from_numpy(value).double() for name, value in data.items()}
        self._width = data["recurrent"].shape[0]
        self._phi, self._slope_at = {
            "tanh": (torch.tanh, lambda value: 1 - value**2),
            "relu": (torch.relu, lambda value: (value > 0).double()),
        }[activation]
        self._pull = self._data["cotangent"] @ self._data["readout"]
        self._scaled = self._data["recurrent"] * math.sqrt(SIGMA_A2)
        self._injected = self._data["X"] @ self._data["inputs"].T * math.sqrt(1 - SIGMA_A2)

    def residual(self, z: torch.Tensor) -> float:
        """Largest ||f(z) - z||/||z|| of a sample."""
        state = z.detach().double()
        return float(((self._image(state) - state).norm(dim=1) / state.norm(dim=1)).max())

    def adjoint_residual(self, z: torch.Tensor, t: torch.Tensor) -> float:
        """Largest relative residual of t = D (pull + σ_a Aᵀ t)/√m, the gradient with respect to the pre-activations.

        D is read off the z it was computed with: at a kink, D of the exact z would be another equation.
        """
        value, found = math.sqrt(self._width) * z.detach().double(), t.detach().double()
        image = self._slope_at(value) * (self._pull + found @ self._scaled) / math.sqrt(self._width)
        return float(((image - found).norm(dim=1) / found.norm(dim=1)).max())

    def gradients(self) -> Gradients:
        """Of Σ cotangent ∘ outputs, at the equilibrium iterated to rounding, with respect to A, B and the readout."""
        z = torch.zeros_like(self._injected)
        while True:
            z, before = self._image(z), z
            if (z - before).norm() <= 1e-14 * z.norm():
                break
        slope = self._slope_at(math.sqrt(self._width) * z)
        driven = slope * self._adjoint(slope) / math.sqrt(self._width)
        return {
            "recurrent": math.sqrt(SIGMA_A2) * driven.T @ z,
            "inputs": math.sqrt(1 - SIGMA_A2) * driven.T @ self._data["X"],
            "readout": self._data["cotangent"].T @ z,
        }

    def _adjoint(self, slope: torch.Tensor) -> torch.Tensor:
        """v of every sample: (I - Jᵀ) v = the readout's pull, J = diag(φ') σ_a A/√m."""
        transposed, identity = self._scaled.T / math.sqrt(self._width), torch.eye(self._width).double()
        solved = [
            torch.linalg.solve(identity - transposed * diagonal, right)
            for diagonal, right in zip(slope, self._pull, strict=True)
        ]
        return torch.stack(solved)

    def _image(self, z: torch.Tensor) -> torch.Tensor:
        return self._phi(torch.addmm(self._injected, z, self._scaled.T)) / math.sqrt(self._width)


def gradient_error(found: Gradients, truth: Gradients) -> float:
    """Largest relative error of the gradients with respect to A and B, the ones that pass through the equilibrium."""
    return max(
        float((found[name].double() - truth[name]).norm() / truth[name].norm())
        for name in ("recurrent", "inputs")
    )
