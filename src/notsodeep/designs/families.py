"""What a family of networks is to a design, and families of one's own.

A family says how to find its best network for a model (`NetworkFamily.solve`); `design` asks one family, or one after
the other, and never what kind of family it is. To add one: a class in a file of its own and a line in `FAMILIES` of
`notsodeep.designs.designer`; or give it to `design` as it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import optimize

from notsodeep.designs.least_squares import NormResponse
from notsodeep.designs.matching_equations import EXACT, Equations, design_scalars, relative_residuals
from notsodeep.equivalents.centred_kernel import centred_kernel_coefficients
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, ConvDEQ, Explicit, as_tau
from notsodeep.validation import Array


class Task:
    """A model that is to be replaced, with what has to be matched.

    Attributes:
        model: the model, centred at tau0 unless it is to be taken as it is.
        tau0: the norm of a typical input.
        kernel: "ck", "ntk", "ntk_paper" or "both".
        equations: the target as equations without units; of a model that was centred.
    """

    equations: Equations

    def __init__(
        self, model: DEQ | Explicit | ConvDEQ, tau0: float, kernel: str, *, centre: bool = True
    ) -> None:
        self.tau0, self.kernel = as_tau(tau0), kernel
        self.model = model.centred(self.tau0) if centre else model
        if centre:
            # A model that has no scalars is refused here, before any family is asked.
            self.equations = Equations.of(self.target)

    @cached_property
    def target(self) -> Coefficients:
        """The scalars to be matched; for "both" those of the conjugate kernel."""
        found = self.scalars(self.model)
        if found.diagonal <= 0.0:
            raise InputError(
                f"The centred activation of {self.model} is constant: its kernel is zero and there is nothing to match."
            )
        return found

    @cached_property
    def response(self) -> NormResponse:
        """How the model's kernel changes with the norm of the samples."""
        if isinstance(self.model, ConvDEQ):
            raise InputError("A ConvDEQ has no scalars whose change with the norm could be matched.")
        return NormResponse(self.model, self.tau0, self.target.kernel, self.constant)

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

    def with_constant(self, network: Explicit) -> Explicit:
        """The network with an offset of its last layer that adds the constant of the bias to its kernel."""
        if not self.constant:
            return network
        *hidden, last = network.layers
        return network.with_layers([*hidden, last.shifted(math.sqrt(self.constant))])

    def residuals(self, network: Explicit) -> Array:
        """Signed relative residuals of the scalars of a network, in the order of `EQUATIONS`."""
        found = self.scalars(network)
        sizes = list(relative_residuals(self.target, found).values())
        return np.copysign(sizes, found.as_array() - self.target.as_array())


@dataclass(frozen=True)
class Solution:
    """The best network that a family has for a task.

    Attributes:
        family: where it comes from.
        network: the network, each layer centred at its own scale.
        residual: the largest relative residual of the equations, as the family computed it.
        drift: how differently model and network change with the norm of the samples.
        reason: why there is no better one, for a network that is not exact.
    """

    family: NetworkFamily
    network: Explicit | Any
    residual: float
    drift: float
    reason: str

    @property
    def exact(self) -> bool:
        """Whether all equations hold."""
        return self.residual <= EXACT

    @property
    def misfit(self) -> float | None:
        """For a network that was matched to kernels and not to scalars: their relative distance around τ0."""
        return None

    def fitted_to(self, task: Task, samples: Array) -> Solution | None:
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
    def solve(self, task: Task, *, thorough: bool) -> Solution:
        """The exact network that drifts least, or the best approximation; `thorough` takes longer over the latter."""

    def worth_trying(self, task: Task) -> bool:
        """Whether "auto" should try it for this task."""
        return True


# --- families of one's own ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family(NetworkFamily):
    """A family of one's own: a function from parameters to the activations of the layers, with bounds.

    Args:
        name: what to call it.
        build: parameters (as many as bounds) → activations, one for each layer; centring is done for them.
        bounds: lower and upper bound of each parameter, finite.
        starts: starting points; the centre of the bounds and points around it if none are given.
    """

    name: str
    build: Callable[[Sequence[float]], Sequence[Activation]]
    bounds: Sequence[tuple[float, float]]
    starts: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        ranges = self._numbers(self.bounds)
        if ranges.ndim != 2 or ranges.shape[1] != 2 or not len(ranges):
            raise InputError(f"Family {self.name!r} needs a pair (low, high) for each parameter.")
        if not np.all(np.isfinite(ranges)) or np.any(ranges[:, 0] >= ranges[:, 1]):
            raise InputError(f"Family {self.name!r}: bounds must be finite, with low < high.")
        starts = self._numbers(self.starts)
        if len(starts) and (starts.shape != (len(starts), len(ranges)) or not np.all(np.isfinite(starts))):
            raise InputError(
                f"Family {self.name!r} has {len(ranges)} parameters: each of its starts must be a list of as many "
                f"finite numbers; got {list(self.starts)}."
            )

    def _numbers(self, values: Sequence[Sequence[float]]) -> Array:
        try:
            return np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            raise InputError(
                f"Family {self.name!r}: bounds and starts must be numbers, not {values!r}."
            ) from None

    @property
    def layers(self) -> int:  # type: ignore[override]
        """Number of layers that `build` returns at the first starting point."""
        return len(self._built(self.starting_points()[0]))

    @property
    def label(self) -> str:
        """The name: how many layers there are is the family's own affair."""
        return self.name

    def solve(self, task: Task, *, thorough: bool) -> Solution:
        """The best network by bounded least squares from the starting points, until one is exact."""
        low, high = self._numbers(self.bounds).T

        def misfit(parameters: Array) -> Array:
            return task.residuals(self._network(parameters, task.tau0))

        best, smallest = np.empty(0), np.inf
        for start in self.starting_points():
            inside = np.clip(start, low + 1e-9 * (high - low), high - 1e-9 * (high - low))
            result = optimize.least_squares(
                misfit, inside, bounds=(low, high), xtol=1e-15, ftol=1e-15, gtol=1e-15
            )
            size = float(np.abs(result.fun).max())
            if size < smallest:
                best, smallest = result.x, size
            if size <= EXACT * 1e-2:
                break
        network = task.with_constant(self._network(best, task.tau0))
        reason = "no solution was found from any starting point inside the bounds"
        return Solution(self, network, smallest, task.response.drift(network), reason)

    def starting_points(self, count: int = 8) -> list[list[float]]:
        """The given starts, or points of a Halton-like sequence inside the bounds: the same ones every time."""
        if len(self.starts):
            return [list(map(float, start)) for start in self.starts]
        low, high = self._numbers(self.bounds).T
        steps = np.sqrt(np.array(_PRIMES[: len(low)] if len(low) <= len(_PRIMES) else range(2, len(low) + 2)))
        turns = (0.5 + np.arange(count)[:, None] * steps) % 1.0
        return [list(low + turn * (high - low)) for turn in turns]

    def _network(self, parameters: Array, tau0: float) -> Explicit:
        return Explicit(self._built(parameters.tolist())).centred(tau0)

    def _built(self, parameters: list[float]) -> list[Activation]:
        try:
            layers = list(self.build(parameters))
        except (InputError, ConvergenceError):
            raise
        except Exception as error:
            raise InputError(f"Family {self.name!r} failed at {parameters}: {error!r}.") from error
        if not layers or not all(isinstance(layer, Activation) for layer in layers):
            raise InputError(f"Family {self.name!r} must return a list of Activations, one for each layer.")
        return layers


_PRIMES = (2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0, 29.0)
