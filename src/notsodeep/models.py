"""The two kinds of model, as frozen specifications that carry every number (docs/theory.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.gaussian.variance import solve_variance
from notsodeep.validation import as_variance


@dataclass(frozen=True, init=False)
class DEQ:
    """A deep equilibrium model z = φ(σ_a A z + σ_b B x + bias)/√m, (1.1).

    Args:
        activation: φ, by name or as an Activation.
        sigma_a2: variance of the recurrent weights.
        sigma_b2: variance of the input weights; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
    """

    activation: Activation
    sigma_a2: float
    sigma_b2: float
    bias2: float

    def __init__(
        self, activation: str | Activation, sigma_a2: float, sigma_b2: float | None = None, bias2: float = 0.0
    ) -> None:
        recurrent = as_variance(sigma_a2, "sigma_a2")
        if sigma_b2 is None and recurrent > 1.0:
            raise InputError(
                f"sigma_a2 = {recurrent} leaves nothing for 1 - sigma_a2: give sigma_b2 as well."
            )
        given = 1.0 - recurrent if sigma_b2 is None else as_variance(sigma_b2, "sigma_b2")
        object.__setattr__(self, "activation", _resolve(activation))
        object.__setattr__(self, "sigma_a2", recurrent)
        object.__setattr__(self, "sigma_b2", given)
        object.__setattr__(self, "bias2", as_variance(bias2, "bias2"))

    def centred(self, tau0: float) -> DEQ:
        """The same DEQ with φ shifted so that E[φ(τ_* ξ)] = 0, where τ_* belongs to inputs of norm tau0, (2.11)."""
        q = self.preactivation_variance(tau0, centred=True)
        return replace_activation(
            self, self.activation.shifted(-float(mean_derivative(self.activation, q, 0)))
        )

    def preactivation_variance(self, tau0: float, *, centred: bool = False) -> float:
        """q = τ_*² for inputs of norm tau0, (3.4); with `centred`, as it is after centring, (2.11)."""
        forcing = self.sigma_b2 * as_tau(tau0) ** 2 + self.bias2
        return float(solve_variance(self.activation, self.sigma_a2, forcing, centred=centred).q)

    def __str__(self) -> str:
        bias = f", bias2={self.bias2:g}" if self.bias2 else ""
        return f"DEQ({self.activation}, sigma_a2={self.sigma_a2:g}, sigma_b2={self.sigma_b2:g}{bias})"


def replace_activation(deq: DEQ, phi: Activation) -> DEQ:
    """The same variances with another activation."""
    return DEQ(phi, deq.sigma_a2, deq.sigma_b2, deq.bias2)


@dataclass(frozen=True, init=False)
class Explicit:
    """A feed-forward network x^(l) = σ_l(W_l x^(l-1))/√m_l with the given hidden layers, (1.4)."""

    layers: tuple[Activation, ...]

    def __init__(self, layers: Iterable[str | Activation]) -> None:
        if isinstance(layers, str | Activation):
            raise InputError(
                "Explicit takes a list of layers: Explicit(['relu', 'relu']), or Explicit(['relu']) for one."
            )
        resolved = tuple(_resolve(layer) for layer in layers)
        if not resolved:
            raise InputError("Explicit needs at least one hidden layer.")
        object.__setattr__(self, "layers", resolved)

    def centred(self, tau0: float) -> Explicit:
        """Each layer shifted so that its output has mean zero at the scale of its own input."""
        q, centred = as_tau(tau0) ** 2, []
        for layer in self.layers:
            shifted = layer.shifted(-float(mean_derivative(layer, q, 0)))
            centred.append(shifted)
            q = float(second_moment(shifted, q))
        return Explicit(centred)

    def __str__(self) -> str:
        return f"Explicit([{', '.join(str(layer) for layer in self.layers)}])"


def as_tau(tau0: float) -> float:
    """The norm of a typical input: a finite positive number."""
    value = float(tau0)
    if not np.isfinite(value) or value <= 0:
        raise InputError(
            f"tau0 is the root of a variance (the norm of a typical row) and must be positive; got {tau0}."
        )
    return value


def _resolve(name: str | Activation) -> Activation:
    if isinstance(name, str | Activation):
        return activation(name)
    raise InputError(
        f"An activation is a name or an Activation, not {type(name).__name__}; see custom_activation."
    )


__all__ = ["DEQ", "Explicit", "as_tau", "replace_activation"]
