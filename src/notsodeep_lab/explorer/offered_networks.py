"""The networks on offer: a DEQ and three cells. The page shows the code of these functions for export."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from notsodeep import cells
from notsodeep.errors import InputError
from notsodeep.models import DEQ, Equilibrium, Explicit
from notsodeep.validation import one_of

# Those whose forecast takes less than a second.
ACTIVATIONS = (
    "relu", "gelu", "tanh", "swish", "leaky_relu", "softplus", "erf", "sigmoid", "sin", "abs", "identity",
)  # fmt: skip
LARGEST_FEEDBACK, LARGEST_INPUT = 3.0, 10.0


def deq(phi: str, feedback: float, injection: float) -> DEQ:
    """z = φ(A z + B x), the weights A and B of these variances."""
    return DEQ(phi, sigma_a2=feedback, sigma_b2=injection)


def residual_cell(phi: str, feedback: float, injection: float) -> Equilibrium:
    """A residual branch of two layers, and RMSNorm."""
    z, x = cells.state(), cells.input()
    branch = cells.dense(cells.activation(cells.dense(z, 1.0), phi), feedback)
    return Equilibrium(cells.norm(z + branch + cells.dense(x, injection)))


def gated_cell(phi: str, feedback: float, injection: float) -> Equilibrium:
    """A layer times a sigmoid gate."""
    z, x = cells.state(), cells.input()
    gate = cells.activation(cells.dense(z, feedback) + cells.dense(x, injection), "sigmoid")
    return Equilibrium(gate * cells.activation(cells.dense(z, feedback) + cells.dense(x, injection), phi))


def swiglu_block(phi: str, feedback: float, injection: float) -> Equilibrium:
    """Two sublayers, each with a gated branch and RMSNorm; SwiGLU if phi is swish."""
    z, x = cells.state(), cells.input()
    branch = cells.activation(cells.dense(z, 1.0), phi) * cells.dense(z, 1.0)
    h = cells.norm(z + cells.dense(branch, feedback) + cells.dense(x, injection))
    branch = cells.activation(cells.dense(h, 1.0), phi) * cells.dense(h, 1.0)
    return Equilibrium(cells.norm(h + cells.dense(branch, feedback)))


KINDS: dict[str, Callable[[str, float, float], Any]] = {
    "deq": deq,
    "residual": residual_cell,
    "gated": gated_cell,
    "swiglu": swiglu_block,
}


@dataclass(frozen=True)
class Network:
    """A network with one activation, the strength of its feedback and that of its input.

    Attributes:
        kind: a key of `KINDS`.
        activation: a name of `ACTIVATIONS`.
        feedback: variance of the weights that feed the state back; σ_a² of a DEQ.
        injection: variance of the weights that read the input; σ_b² of a DEQ.
    """

    kind: str = "residual"
    activation: str = "relu"
    feedback: float = 0.8
    injection: float = 2.0

    def __post_init__(self) -> None:
        one_of(self.kind, tuple(KINDS), "network")
        one_of(self.activation, ACTIVATIONS, "activation")
        for name, value, largest in (
            ("feedback", self.feedback, LARGEST_FEEDBACK),
            ("input", self.injection, LARGEST_INPUT),
        ):
            if not 0.0 < value <= largest:
                raise InputError(f"The {name} must be above 0 and at most {largest:g}; got {value!r}.")

    @property
    def model(self) -> Any:
        """The model, in the limit of infinite width."""
        return KINDS[self.kind](self.activation, self.feedback, self.injection)

    def plain(self, layers: int) -> Explicit:
        """The plain network of so many layers: the same activation, weights of variance 1, no feedback."""
        return Explicit([self.activation] * layers)

    @property
    def code(self) -> str:
        """Python code that builds `model`."""
        function = KINDS[self.kind]
        source = inspect.getsource(function)
        arguments = f"{self.activation!r}, feedback={self.feedback!r}, injection={self.injection!r}"
        return f"{source}\n\nmodel = {function.__name__}({arguments})"
