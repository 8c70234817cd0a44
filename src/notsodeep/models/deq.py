"""Deep equilibrium models, and their cuts at a finite depth (docs/theory.md, section 1)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from notsodeep.cells import expressions as cells
from notsodeep.cells.structure import cell_of
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.activations import activation as as_activation
from notsodeep.gaussian.moments import mean_derivative, solve_variance
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping, number
from notsodeep.kernel_names import Kernel
from notsodeep.models.cell_rows import CellRows
from notsodeep.models.explicit import Explicit
from notsodeep.models.protocol import RowModel, Samples, WriteActivation, as_tau
from notsodeep.models.variances import largest_recurrent_variance
from notsodeep.validation import as_variance

VARIANCES = ("sigma_a2", "sigma_b2", "bias2")


def refuse_unknown(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise a TypeError for arguments that do not exist, with the name of the variance that was meant."""
    for name in given:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]}, a variance: the square of a standard deviation?" if near else ""
        raise TypeError(f"There is no argument {name!r}.{hint} Known: {', '.join(known)}.")


def recurrent_step(model: RecurrentModel, state: cells.Node, read: cells.Node) -> cells.Node:
    """φ(state + input + bias)."""
    entering = state + read
    return cells.activation(cells.bias(entering, model.bias2) if model.bias2 else entering, model.activation)


class RecurrentModel:
    """What equilibrium models have in common, whatever their samples are.

    Attributes:
        activation: φ.
        sigma_a2: width times the variance of a recurrent weight.
        sigma_b2: variance of an input weight.
        bias2: variance of the bias.
    """

    activation: Activation
    sigma_a2: float
    sigma_b2: float
    bias2: float

    def _set_variances(self, phi: Any, sigma_a2: float, sigma_b2: float | None, bias2: float) -> None:
        recurrent = as_variance(sigma_a2, "sigma_a2")
        if sigma_b2 is None and recurrent > 1.0:
            raise InputError(
                f"sigma_a2 = {recurrent} leaves nothing for 1 - sigma_a2: give sigma_b2 as well."
            )
        given = 1.0 - recurrent if sigma_b2 is None else as_variance(sigma_b2, "sigma_b2")
        object.__setattr__(self, "activation", as_activation(phi))
        object.__setattr__(self, "sigma_a2", recurrent)
        object.__setattr__(self, "sigma_b2", given)
        object.__setattr__(self, "bias2", as_variance(bias2, "bias2"))

    @property
    def dense(self) -> DEQ:
        """The DEQ of rows with the same activation and variances."""
        return DEQ(self.activation, self.sigma_a2, self.sigma_b2, self.bias2)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activation φ."""
        return (self.activation,)

    def centred(self, tau0: float) -> Self:
        """The same model with φ shifted so that E[φ(τ_* ξ)] = 0, where τ_* belongs to inputs of norm tau0, (2.11).

        Images have |x(s)| = tau0 at every position, nodes of a graph a propagated input of norm tau0.
        """
        q = self.preactivation_variance(tau0, centred=True)
        phi = self.activation.shifted(-float(mean_derivative(self.activation, q, 0)))
        model: Self = replace(cast(Any, self), activation=phi)
        return model

    def preactivation_variance(self, tau0: float, *, centred: bool = False) -> float:
        """q = τ_*² for inputs of norm tau0, (3.4); with `centred`, as it is after centring, (2.11)."""
        forcing = self.sigma_b2 * as_tau(tau0) ** 2 + self.bias2
        return float(solve_variance(self.activation, self.sigma_a2, forcing, centred=centred).q)

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation, over all layers and all inputs of norms up to `norm`."""
        return largest_recurrent_variance(self.activation, self.sigma_a2, self.sigma_b2, self.bias2, norm)

    def network(
        self,
        layers: Iterable[Activation],
        *,
        weights: Sequence[float] | None = None,
        inject: Sequence[float] | None = None,
    ) -> Any:
        """An explicit network of these layers for the same samples, with the same bias."""
        return Explicit(layers, weights=weights, inject=inject, bias2=self.bias2)

    def unrolled(self, depth: int) -> Any:
        """The model cut after `depth` layers; tied and untied weights have the same kernels."""
        weights = (self.sigma_b2, *(self.sigma_a2,) * (depth - 1))
        return self.network([self.activation] * depth, weights=weights, inject=(self.sigma_b2,) * (depth - 1))


@dataclass(frozen=True, init=False)
class DEQ(RecurrentModel, RowModel):
    """A deep equilibrium model z = φ(σ_a A z + σ_b B x + bias)/√m, (1.1).

    Args:
        activation: φ, by name, as an Activation, or as a function that `notsodeep.activation` knows.
        sigma_a2: width times the variance of a recurrent weight.
        sigma_b2: variance of an input weight; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
    """

    activation: Activation
    sigma_a2: float
    sigma_b2: float
    bias2: float

    def __init__(
        self,
        activation: Any,
        sigma_a2: float = 0.2,
        sigma_b2: float | None = None,
        bias2: float = 0.0,
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, VARIANCES)
        self._set_variances(activation, sigma_a2, sigma_b2, bias2)

    @property
    def step(self) -> cells.Node:
        """One step as an expression of `notsodeep.cells`."""
        state, read = cells.dense(cells.state(), self.sigma_a2), cells.dense(cells.input(), self.sigma_b2)
        return recurrent_step(self, state, read)

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> CellRows:
        """One equation for each pair of samples, (3.5)."""
        return CellRows(cell_of(self), None, left, right, kernels)

    def unrolled(self, depth: int) -> UnrolledDEQ:
        """The DEQ cut after `depth` layers whose weights are not tied, (3.12)."""
        return UnrolledDEQ(self, depth)

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The whole model as plain JSON values, from which `model_from_dict` makes it again.

        Raises:
            InputError: for a custom callable, unless `write` can give it a serial form.
        """
        # + 0.0 turns -0.0 into 0.0: equal models have equal texts.
        variances = {name: getattr(self, name) + 0.0 for name in VARIANCES}
        return {"kind": "deq", "activation": write(self.activation), **variances}

    @classmethod
    def from_dict(cls, data: Any) -> DEQ:
        """The DEQ that `to_dict` wrote down."""
        entry = mapping(data, "a model", ("kind", "activation", *VARIANCES))
        return cls(activation_from_dict(entry["activation"]), *(number(entry[key], key) for key in VARIANCES))

    def __str__(self) -> str:
        bias = f", bias2={self.bias2:g}" if self.bias2 else ""
        return f"DEQ({self.activation}, sigma_a2={self.sigma_a2:g}, sigma_b2={self.sigma_b2:g}{bias})"


@dataclass(frozen=True)
class UnrolledDEQ(RowModel):
    """A DEQ cut after `depth` layers whose weights are not tied, (3.12); made by `DEQ.unrolled`."""

    deq: DEQ
    depth: int

    def centred(self, tau0: float) -> UnrolledDEQ:
        """The same cut of the centred DEQ."""
        return UnrolledDEQ(self.deq.centred(tau0), self.depth)

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> CellRows:
        """The step repeated, with the input injected again at every layer."""
        return CellRows(cell_of(self.deq), self.depth, left, right, kernels)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activation φ."""
        return self.deq.activations

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The DEQ and the depth as plain JSON values."""
        return {"kind": "unrolled_deq", "deq": self.deq.to_dict(write), "depth": self.depth}

    @classmethod
    def from_dict(cls, data: Any) -> UnrolledDEQ:
        """The model that `to_dict` wrote down."""
        entry = mapping(data, "a model", ("kind", "deq", "depth"))
        return DEQ.from_dict(entry["deq"]).unrolled(int(number(entry["depth"], "depth")))

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation, over all layers and all inputs of norms up to `norm`."""
        return self.deq.largest_variance(norm)

    def __str__(self) -> str:
        return f"{self.deq} cut after {self.depth} layers"


__all__ = ["DEQ", "VARIANCES", "RecurrentModel", "UnrolledDEQ", "recurrent_step", "refuse_unknown"]
