"""The interface between `design` and the families of networks that it searches.

A family finds its best network for a model (`NetworkFamily.solve`). To add one, write a class and list it in `FAMILIES`
of `notsodeep.designs.designer`, or pass an instance to `design`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.designs.matching_equations import EXACT, Equations, design_scalars, relative_residuals
from notsodeep.equivalents.centring import centred_kernel_coefficients
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.equivalents.expansion import exact_diagonal
from notsodeep.errors import InputError
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit, as_tau
from notsodeep.validation import Array

# A mean below this fraction of the root mean square is rounding in the centring constant.
_CENTRED = 1e-8


class DesignTask:
    """A model to replace and the numbers that a network for it must match.

    Attributes:
        model: the model, centred at tau0 if `centre` is true.
        tau0: the norm of a typical input.
        kernel: "ck", "ntk", "ntk_paper" or "both".
        equations: the target as equations without units; only if the model was centred.
    """

    equations: Equations

    def __init__(
        self, model: DEQ | Explicit | ConvDEQ, tau0: float, kernel: str, *, centre: bool = True
    ) -> None:
        self.tau0, self.kernel = as_tau(tau0), kernel
        self.model = model.centred(self.tau0) if centre else model
        if centre:
            # A model without scalars is refused here, before any family is tried.
            self.equations = Equations.of(self.target)

    @cached_property
    def target(self) -> Coefficients:
        """The scalars to be matched; for "both" those of the conjugate kernel."""
        scalars = self.scalars(self.model)
        if scalars.diagonal <= 0.0:
            raise InputError(
                f"The centred activation of {self.model} is constant: its kernel is zero and there is nothing to match."
            )
        return scalars

    @cached_property
    def constant(self) -> float:
        """What a bias adds to all entries of the kernel; 0 without a bias."""
        if isinstance(self.model, ConvDEQ) or not self.model.bias2:
            return 0.0
        return centred_kernel_coefficients(self.model, self.tau0, self.target.kernel)[1]

    def scalars(self, model: DEQ | Explicit | ConvDEQ) -> Coefficients:
        """The scalars of the model or of a network for it; with a bias those of the kernel after centring."""
        kernel = "ck" if self.kernel == "both" else self.kernel
        return design_scalars(model, self.tau0, kernel, has_bias=self.model.bias2 > 0.0)

    def diagonal(self, model: DEQ | Explicit | ConvDEQ) -> float:
        """The diagonal of the kernel of the model, or of a network for it, for samples of squared norm 1.25 τ0²."""
        bias = self.constant if model is self.model else 0.0
        return float(exact_diagonal(model, np.array([1.25 * self.tau0**2]), self.target.kernel)[0]) - bias

    def with_constant(self, network: Explicit) -> Explicit:
        """The network with an offset of its last layer that adds the constant of the bias to its kernel."""
        if not self.constant:
            return network
        *hidden, last = network.layers
        return network.with_layers([*hidden, last.shifted(math.sqrt(self.constant))])

    def residuals(self, network: Explicit) -> Array:
        """Signed relative residuals of the scalars of a network, in the order of `EQUATIONS`."""
        scalars = self.scalars(network)
        sizes = list(relative_residuals(self.target, scalars).values())
        return np.copysign(sizes, scalars.as_array() - self.target.as_array())


@dataclass(frozen=True)
class FamilySolution:
    """The best network that a family has for a task.

    Attributes:
        family: where it comes from.
        network: the network, each layer centred at its own scale.
        residual: the largest relative residual of the equations, as the family computed it.
        reason: why there is no better one, for a network that is not exact.
    """

    family: NetworkFamily
    network: Explicit | Any
    residual: float
    reason: str

    @property
    def exact(self) -> bool:
        """Whether all equations hold."""
        return self.residual <= EXACT

    @property
    def misfit(self) -> float | None:
        """For a network that was matched to kernels and not to scalars: their relative distance around τ0."""
        return None

    def fitted_to(self, task: DesignTask, samples: Array) -> FamilySolution | None:
        """The best network of the family for the exact kernels of samples; None for a family that is not fitted."""
        return None


class NetworkFamily(ABC):
    """Networks of one depth that a design may come from.

    Attributes:
        name: the name under which `design` knows the family; families that differ in depth share it.
        layers: number of hidden layers.
        in_auto: whether "auto" tries it.
        last_resort: whether "auto" tries it only after all others, whatever its depth.
        matches_both: whether it can match both kernels at once.
        centres: whether the model is centred first; otherwise it is taken as it is.
        takes: the classes of models that it has networks for.
    """

    name: str
    layers: int
    in_auto: bool = True
    last_resort: bool = False
    matches_both: bool = False
    centres: bool = True
    takes: tuple[type, ...] = (DEQ, Explicit)

    @property
    def label(self) -> str:
        """The family in words, such as "2 × polynomial"."""
        return f"{self.layers} × {self.name}"

    @abstractmethod
    def solve(self, task: DesignTask, *, thorough: bool) -> FamilySolution:
        """An exact network, or the best approximation; `thorough` searches longer for the latter."""

    def worth_trying(self, task: DesignTask) -> bool:
        """Whether "auto" should try it for this task."""
        return True


# --- what a design is compared with: plain layers of the model's own activation ---------------------------------------


def is_centred(model: DEQ | ConvDEQ, tau0: float) -> bool:
    """Whether the activation has mean zero at inputs of norm tau0 (of images: at every position)."""
    phi, q = model.activation, model.preactivation_variance(tau0)
    return abs(float(mean_derivative(phi, q, 0))) <= _CENTRED * math.sqrt(float(second_moment(phi, q)))


def plain_layers(model: DEQ | ConvDEQ, depth: int, tau0: float) -> Explicit | ConvExplicit:
    """The model's own activation in plain layers; centred, each at its own scale, where the model is."""
    network = model.network([model.activation] * depth)
    return network.centred(tau0) if is_centred(model, tau0) else network
